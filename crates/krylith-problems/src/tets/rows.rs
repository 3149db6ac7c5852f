//! Assembly by rows: row i is the sum over the tetrahedra around node i in ascending order. A row belongs to
//! one thread, so no colouring is needed and results do not depend on the number of threads. Quantities that
//! an element's four rows share are computed four times.

use krylith_base::threads::{each_chunk, each_task};
use krylith_core::matrix::Bsr;
use krylith_core::{Error, Result};

use super::TetMesh;
use crate::memory;

/// Rows per task.
pub(super) const CHUNK: usize = 512;

/// Returns a · b.
#[inline]
pub(crate) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Calls `work(i, its part)` on all threads for runs of rows that begin at row i. Row i has `factor` numbers
/// for each item of `begin[i]..begin[i + 1]`.
pub(crate) fn for_chunks<T: Send>(
    begin: &[usize],
    factor: usize,
    mut out: &mut [T],
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let n = begin.len() - 1;
    let mut tasks = Vec::with_capacity(n.div_ceil(CHUNK));
    for first in (0..n).step_by(CHUNK) {
        let last = (first + CHUNK).min(n);
        let (own, rest) = std::mem::take(&mut out).split_at_mut((begin[last] - begin[first]) * factor);
        tasks.push((first, own));
        out = rest;
    }
    each_task(tasks, &|(first, own)| work(first, own));
}

/// Calls `row(i, its part)` on all threads, where row i has `factor` numbers for each item of
/// `begin[i]..begin[i + 1]`.
pub(crate) fn for_rows<T: Send>(
    begin: &[usize],
    factor: usize,
    out: &mut [T],
    row: impl Fn(usize, &mut [T]) + Sync,
) {
    for_chunks(begin, factor, out, &|first, own| {
        let mut rest = own;
        for i in first.. {
            if rest.is_empty() {
                break;
            }
            let (own, more) = rest.split_at_mut((begin[i + 1] - begin[i]) * factor);
            row(i, own);
            rest = more;
        }
    });
}

/// Returns the blocks of the first `own` nodes of a mesh: a node is coupled with every node of its elements.
/// All values are zero.
///
/// # Errors
/// Returns an error if a node has more than 255 neighbours, or if memory is not sufficient.
pub(crate) fn graph(mesh: &TetMesh, own: usize, block: usize) -> Result<Bsr> {
    let neighbours = |i: usize, list: &mut Vec<u32>| {
        list.clear();
        list.extend(mesh.around(i).iter().flat_map(|&c| mesh.tetrahedra()[c as usize / 4]));
        list.sort_unstable();
        list.dedup();
    };
    let mut row_ptr = vec![0usize; own + 1];
    each_chunk(&mut row_ptr[1..], CHUNK, 1, &|chunk, counts| {
        let mut list = Vec::new();
        for (k, count) in counts.iter_mut().enumerate() {
            neighbours(chunk * CHUNK + k, &mut list);
            *count = list.len();
        }
    });
    if let Some(i) = row_ptr[1..].iter().position(|&count| count > 256) {
        return Err(Error::invalid(format!(
            "node {i} has {} neighbours; at most 255 are expected of a mesh of tetrahedra",
            row_ptr[i + 1] - 1
        )));
    }
    for i in 0..own {
        row_ptr[i + 1] += row_ptr[i];
    }
    let blocks = row_ptr[own];
    let corners = mesh.tetrahedra().len() * 4;
    memory::check(
        "the matrix of the mesh",
        (blocks * (4 + 8 * block * block) + corners * 4 + own * 16) as u64,
    )?;
    let mut col = vec![0u32; blocks];
    for_chunks(&row_ptr, 1, &mut col, &|first, own| {
        let (mut list, mut at) = (Vec::new(), 0);
        for i in first.. {
            if at == own.len() {
                break;
            }
            neighbours(i, &mut list);
            own[at..at + list.len()].copy_from_slice(&list);
            at += list.len();
        }
    });
    Bsr::new(block, own, mesh.points().len(), row_ptr, col, vec![0.0; blocks * block * block])
}

/// The matrix of a mesh: nodes that share an element with node i, and the position of each element's corners
/// among them.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pattern: Bsr,
    /// For each entry of `TetMesh::around`: positions of that tetrahedron's corners in the row.
    places: Vec<[u8; 4]>,
    /// Start of node i's list in `places`.
    begin: Vec<usize>,
}

impl Rows {
    /// Builds the pattern of the first `own` nodes of `mesh`, with blocks of order `block`.
    ///
    /// # Errors
    /// Returns the errors of [`graph`].
    pub fn new(mesh: &TetMesh, own: usize, block: usize) -> Result<Self> {
        let pattern = graph(mesh, own, block)?;
        let begin = mesh.begin[..=own].to_vec();
        let mut places = vec![[0u8; 4]; begin[own]];
        for_rows(&begin, 1, &mut places, |i, places| {
            let row = &pattern.col()[pattern.row_ptr()[i]..pattern.row_ptr()[i + 1]];
            let at = |p: u32| row.partition_point(|&j| j < p) as u8;
            for (&c, places) in mesh.around(i).iter().zip(places) {
                *places = mesh.tetrahedra()[c as usize / 4].map(at);
            }
        });
        Ok(Self { pattern, places, begin })
    }

    /// Adds a node for each of `lists`, coupled with the nodes of its ascending list and with itself. Added
    /// nodes come after those of the mesh, which must all be own.
    pub fn with_nodes(mut self, lists: &[Vec<u32>]) -> Result<Self> {
        let (n, old) = (self.pattern.block_rows(), &self.pattern);
        let mut added: std::collections::HashMap<u32, Vec<u32>> = Default::default();
        for (k, list) in lists.iter().enumerate() {
            list.iter().for_each(|&p| added.entry(p).or_default().push((n + k) as u32));
        }
        let (mut row_ptr, mut col) = (vec![0], Vec::with_capacity(old.col().len()));
        for i in 0..n {
            col.extend_from_slice(&old.col()[old.row_ptr()[i]..old.row_ptr()[i + 1]]);
            col.extend(added.get(&(i as u32)).into_iter().flatten());
            row_ptr.push(col.len());
        }
        for (k, list) in lists.iter().enumerate() {
            col.extend_from_slice(list);
            col.push((n + k) as u32);
            row_ptr.push(col.len());
        }
        let (block, all) = (old.block(), n + lists.len());
        let values = vec![0.0; col.len() * block * block];
        self.pattern = Bsr::new(block, all, all, row_ptr, col, values)?;
        Ok(self)
    }

    /// Returns the start of each own node's list of tetrahedra, these lists, and the positions of corners in
    /// the row for each entry of the lists.
    #[cfg(feature = "cuda")]
    pub fn lists<'m>(&self, mesh: &'m TetMesh) -> (&[usize], &'m [u32], &[[u8; 4]]) {
        (&self.begin, &mesh.around[..self.places.len()], &self.places)
    }

    /// Returns the pattern; its values are zero.
    pub fn pattern(&self) -> &Bsr {
        &self.pattern
    }

    /// Sets f to the sum over elements, b numbers per node: calls `row(i, its numbers)` on all threads.
    pub fn residual(&self, f: &mut [f64], row: impl Fn(usize, &mut [f64]) + Sync) {
        let b = self.pattern.block();
        each_chunk(f, CHUNK * b, 1, &|chunk, own| {
            for (k, own) in own.chunks_mut(b).enumerate() {
                row(chunk * CHUNK + k, own);
            }
        });
    }

    /// Sets the values of every row by `row(i, its blocks)`, on all threads; blocks are zeroed before.
    pub fn jacobian(&self, values: &mut [f64], row: impl Fn(usize, &mut [f64]) + Sync) {
        for_rows(self.pattern.row_ptr(), self.pattern.block().pow(2), values, |i, own| {
            own.fill(0.0);
            row(i, own);
        });
    }

    /// Returns the positions of the corners of the tetrahedra around node `i` in its row, in the order of
    /// [`TetMesh::around`].
    #[inline]
    pub fn places(&self, i: usize) -> &[[u8; 4]] {
        &self.places[self.begin[i]..self.begin[i + 1]]
    }

    /// Returns the position of column `j` in row `i`.
    pub fn place(&self, i: usize, j: u32) -> usize {
        let row = &self.pattern.col()[self.pattern.row_ptr()[i]..self.pattern.row_ptr()[i + 1]];
        row.partition_point(|&k| k < j)
    }

    /// Returns an error if a vector's length is not the number of unknowns.
    pub fn check(&self, what: &str, len: usize) -> Result<()> {
        if len == self.pattern.rows() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{what} with {len} numbers for {} unknowns; expected one number per unknown",
            self.pattern.rows()
        )))
    }

    /// Returns an error if the number of values is not the Jacobian's.
    pub fn check_values(&self, len: usize) -> Result<()> {
        if len == self.pattern.stored() {
            return Ok(());
        }
        Err(Error::invalid(format!("got {len} values for the Jacobian; expected {}", self.pattern.stored())))
    }
}

/// Volume of a tetrahedron and gradients of its four linear shape functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub volume: f64,
    pub gradients: [[f64; 3]; 4],
}

impl Shape {
    #[inline]
    pub fn of([a, b, c, d]: [[f64; 3]; 4]) -> Self {
        let e = [b, c, d].map(|p| [p[0] - a[0], p[1] - a[1], p[2] - a[2]]);
        let normals = [super::cross(e[1], e[2]), super::cross(e[2], e[0]), super::cross(e[0], e[1])];
        let det = dot(e[0], normals[0]);
        let [x, y, z] = normals.map(|n| n.map(|v| v / det));
        let w = std::array::from_fn(|d| -(x[d] + y[d] + z[d]));
        Self { volume: det / 6.0, gradients: [w, x, y, z] }
    }

    /// Returns the gradients ∂(numbers)ᵢ/∂x_d of functions given by their corner values.
    #[inline]
    pub fn gradient(&self, corners: &[[f64; 3]; 4]) -> [[f64; 3]; 3] {
        std::array::from_fn(|i| {
            std::array::from_fn(|d| (0..4).map(|a| corners[a][i] * self.gradients[a][d]).sum())
        })
    }
}
