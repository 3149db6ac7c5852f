"""Fields of coupled systems: named unknowns, blocks given apart, and matrices by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from krylith import _native
from krylith._arrays import float64, is_complex
from krylith._complex import real_form, real_vectors
from krylith._errors import InvalidInput


def joined(A: Any, fields: Any) -> tuple[Any, Any]:
    """Return the matrix of blocks `[[A, B], [C, None]]` and the fields of its block rows.

    Other matrices and fields are returned as they are.
    """
    if not isinstance(A, (list, tuple)) or not A or not isinstance(A[0], (list, tuple)):
        return A, fields
    import scipy.sparse as sp

    count = len(A)
    if any(len(row) != count for row in A):
        raise InvalidInput(f"A has {count} rows of blocks; each needs {count} blocks, or None for a zero block")
    if not any(hasattr(block, "tocsr") for row in A for block in row):
        return A, fields
    sizes = []
    for k in range(count):
        known = [A[k][j].shape[0] for j in range(count) if A[k][j] is not None]
        known += [A[i][k].shape[1] for i in range(count) if A[i][k] is not None]
        if not known:
            raise InvalidInput(f"block row {k} and block column {k} of A are empty; their size is not known")
        sizes.append(known[0])
    if fields is None:
        names: Sequence[str] = [f"f{k}" for k in range(count)]
        more: Mapping[str, Any] = {}
    elif isinstance(fields, Mapping):
        names, more = list(fields), fields
    else:
        names, more = list(fields), {}
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise InvalidInput(f"two fields have the name {twice[0]!r}")
    if len(names) != count:
        raise InvalidInput(f"A has {count} rows of blocks, and fields has {len(names)} names; both need the same number")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    named = {}
    for k, name in enumerate(names):
        extra = more.get(name)
        own = dict(extra) if isinstance(extra, Mapping) else {}
        named[name] = {"unknowns": slice(int(offsets[k]), int(offsets[k + 1])), **own}
    try:
        return sp.bmat(A, format="csr"), named
    except ValueError as error:
        raise InvalidInput(f"the blocks of A do not fit: {error}") from None


def _unknowns(name: str, given: Any, n: int) -> np.ndarray:
    if isinstance(given, slice):
        return np.arange(n, dtype=np.int64)[given]
    if isinstance(given, range):
        return np.arange(given.start, given.stop, given.step, dtype=np.int64)
    array = np.asarray(given)
    if array.dtype == bool and array.shape == (n,):
        return np.flatnonzero(array)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(
            f"field {name!r} has an array of {array.dtype} of shape {array.shape}; expected a slice, a range, or a "
            f"one-dimensional array of integers or of {n} booleans"
        )
    if array.size and (array.min() < 0 or array.max() >= n):
        wrong = array[(array < 0) | (array >= n)][0]
        raise InvalidInput(f"field {name!r} has the unknown {wrong}, but the system has {n}; numbers start at 0")
    return array.astype(np.int64)


#: What the dictionary of a field may contain.
_KEYS = ("unknowns", "block", "near_nullspace", "coordinates")


def with_fields(system: _native.System, fields: Any, matrices: Any, complex_: bool) -> _native.System:
    """Return the system with fields and with matrices by name; a complex system is given in its real form."""
    reals = 2 if complex_ else 1
    if fields is not None:
        if not isinstance(fields, Mapping):
            raise InvalidInput(
                "`fields` is not a dictionary; expected names with unknowns, such as "
                "{'u': slice(0, 90), 'p': slice(90, None)}, or names alone where A is a list of blocks"
            )
        named = []
        for name, given in fields.items():
            more = dict(given) if isinstance(given, Mapping) else {"unknowns": given}
            wrong = [key for key in more if key not in _KEYS]
            if wrong or "unknowns" not in more:
                what = f"has the key {wrong[0]!r}" if wrong else "has no 'unknowns'"
                raise InvalidInput(f"field {name!r} {what}; expected the keys {', '.join(_KEYS)}")
            unknowns = _unknowns(name, more["unknowns"], system.unknowns // system.stages // reals)
            unknowns = (unknowns[:, None] * reals + np.arange(reals)).reshape(-1)
            block = int(more.get("block", 1)) * reals
            points = more.get("coordinates")
            if points is not None:
                points = np.ascontiguousarray(points, dtype=np.float64)
            near, rigid = more.get("near_nullspace"), False
            vectors: list[np.ndarray] | None = None
            if isinstance(near, str):
                if near != "rigid" or points is None or complex_:
                    raise InvalidInput(
                        f"field {name!r}: near_nullspace={near!r}; expected vectors, or 'rigid' with coordinates "
                        "in a real system"
                    )
                rigid = True
            elif near is not None:
                if not isinstance(near, (list, tuple)) or np.ndim(near[0]) == 0:
                    array = np.asarray(near)
                    near = [array] if array.ndim == 1 else list(array.T)
                vectors = real_vectors(near) if complex_ else [float64(vector) for vector in near]
            named.append((name, unknowns, block, vectors, rigid, points))
        system = system.with_fields(named)
    for name, matrix in (matrices or {}).items():
        system = system.with_matrix(name, arrays_of(matrix, complex_))
    return system


def arrays_of(matrix: Any, complex_: bool) -> tuple[int, int, np.ndarray, np.ndarray, np.ndarray]:
    """Return the shape, offsets, columns and values of a matrix that preconditioners of a system name."""
    if not hasattr(matrix, "tocsr"):
        import scipy.sparse as sp

        matrix = sp.csr_array(np.atleast_2d(np.asarray(matrix)))
    if is_complex(matrix) and not complex_:
        raise InvalidInput("a matrix that the preconditioner names is complex, and A is real")
    csr = real_form(matrix) if complex_ else matrix.tocsr()
    csr.sort_indices()
    rows, columns = csr.shape
    return rows, columns, csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data.astype(np.float64)


def p2_interpolation(points: Any, vertices: Any, cells: Any, *, block: int = 1) -> Any:
    """Return the interpolation from linear to quadratic elements on triangles or tetrahedra.

    With it, multigrid for quadratic elements has a first level of linear elements: pass it in `matrices` as `P`, and
    use `symmetric(chebyshev(jacobi:block=1; degree=3, low=0.2) then aux(P: amg; block=3))`.

    Parameters
    ----------
    points : array, shape (nodes, 2) or (nodes, 3)
        Positions of the nodes of the quadratic elements: the vertices, and the midpoints of the edges.
    vertices : array, shape (vertices, 2) or (vertices, 3)
        Positions of the vertices, in the order of the unknowns of the linear elements.
    cells : array, shape (cells, 3) or (cells, 4)
        Numbers of the vertices of each cell.
    block : int
        Number of unknowns per node.

    Returns
    -------
    scipy.sparse.csr_array, shape (block * nodes, block * vertices)

    Examples
    --------
    >>> import numpy as np, krylith
    >>> corners = np.array([[0.0, 0], [1, 0], [0, 1]])
    >>> nodes = np.vstack([corners, [[0.5, 0], [0.5, 0.5], [0, 0.5]]])
    >>> krylith.p2_interpolation(nodes, corners, [[0, 1, 2]]).toarray()[3:].tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]]
    """
    import scipy.sparse as sp
    from scipy.spatial import cKDTree

    points, vertices, cells = (np.asarray(a) for a in (points, vertices, cells))
    if points.ndim != 2 or vertices.ndim != 2 or points.shape[1] != vertices.shape[1] or cells.ndim != 2:
        raise InvalidInput(
            f"points, vertices and cells have shapes {points.shape}, {vertices.shape} and {cells.shape}; expected "
            "points of the same dimension, and a row of vertex numbers per cell"
        )
    corners = cells.shape[1]
    pairs = [(i, j) for i in range(corners) for j in range(i + 1, corners)]
    edges = np.unique(np.sort(np.concatenate([cells[:, pair] for pair in pairs]), axis=1), axis=0)
    known = np.vstack([vertices, (vertices[edges[:, 0]] + vertices[edges[:, 1]]) / 2])
    scale = np.ptp(vertices, axis=0).max()
    distance, found = cKDTree(known).query(points)
    if len(points) and distance.max() > 1e-8 * scale:
        i = int(distance.argmax())
        raise InvalidInput(f"point {i} at {points[i].tolist()} is neither a vertex nor the midpoint of an edge")
    n, row = len(vertices), np.arange(len(points))
    at_vertex = found < n
    ends = edges[found[~at_vertex] - n]
    rows = np.concatenate([row[at_vertex], np.repeat(row[~at_vertex], 2)])
    cols = np.concatenate([found[at_vertex], ends.ravel()])
    values = np.concatenate([np.ones(at_vertex.sum()), np.full(ends.size, 0.5)])
    P = sp.csr_array((values, (rows, cols)), shape=(len(points), n))
    return sp.csr_array(sp.kron(P, sp.identity(block))) if block > 1 else P


def edge_interpolation(gradient: Any, vertices: Any) -> tuple[Any, ...]:
    """Return the interpolation from nodal vectors to edge elements of lowest order, one matrix a component.

    With the discrete gradient G they make the auxiliary spaces of Hiptmair and Xu (2007) for curl-curl systems. Pass
    them in `matrices`, as `G`, `Px`, `Py` and `Pz`, and use `symmetric(chebyshev(jacobi; degree=2, low=0.2) then
    aux(G: amg) then aux(Px: amg) then aux(Py: amg) then aux(Pz: amg))`.

    Parameters
    ----------
    gradient : sparse matrix, shape (edges, nodes)
        The discrete gradient: -1 and 1 for the ends of each edge.
    vertices : array, shape (nodes, 3) or (nodes, 2)
        Positions of the nodes.

    Returns
    -------
    tuple of scipy.sparse.csr_array, each of shape (edges, nodes)
        As many as there are components.

    Examples
    --------
    One edge of length 2 along x:

    >>> import numpy as np, scipy.sparse as sp, krylith
    >>> G = sp.csr_array([[-1.0, 1.0]])
    >>> Px, Py, Pz = krylith.edge_interpolation(G, np.array([[0.0, 0, 0], [2, 0, 0]]))
    >>> Px.toarray().tolist(), Py.nnz
    ([[1.0, 1.0]], 0)
    """
    import scipy.sparse as sp

    gradient, vertices = sp.csr_array(gradient), np.asarray(vertices, dtype=np.float64)
    if vertices.ndim != 2 or vertices.shape[0] != gradient.shape[1]:
        raise InvalidInput(
            f"the gradient has {gradient.shape[1]} columns and vertices has shape {vertices.shape}; expected a point per node"
        )
    tangents, half, n = gradient @ vertices, abs(gradient) * 0.5, gradient.shape[0]
    parts = [sp.csr_array(sp.dia_array((t[None], [0]), shape=(n, n)) @ half) for t in tangents.T]
    for part in parts:
        part.eliminate_zeros()
    return tuple(parts)
