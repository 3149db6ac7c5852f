//! Reader of meshes from files, in the format that their content shows: Gmsh or VTU.
//!
//! Linear tetrahedra are read, and linear triangles with a tag, which become surfaces. A surface has the name
//! that the file gives to its tag, or else `surface TAG`. Points, lines, triangles without a tag, and nodes
//! without a tetrahedron are ignored. Any other element is an error. Fields of vectors are read by name.

mod gmsh;
mod vtu;

use krylith_core::{Error, Result};
use std::path::Path;

use super::{Surface, TetMesh, dot};

/// The endings of the names of mesh files.
pub(crate) const ENDINGS: [&str; 2] = ["msh", "vtu"];

/// Returns true if a name ends like that of a mesh file.
pub(crate) fn is_named(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|e| e.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)))
}

/// Reads a mesh from a file of Gmsh (versions 2.x and 4.1, text or binary) or VTK (`.vtu`: text, base64 or
/// raw data, without compression).
///
/// # Errors
/// Returns an error if the file cannot be read, if it is malformed (with the line, or the byte of a binary
/// file), if it is of another format or version, and for what [`TetMesh::new`] refuses.
pub fn read(path: impl AsRef<Path>) -> Result<TetMesh> {
    Ok(read_with_directions(path, &[])?.0)
}

/// Reads a mesh as [`read`] does, and those fields of `names` that the file has.
///
/// # Errors
/// Returns the errors of [`read`] and of [`parse_with_directions`].
pub fn read_with_directions(path: impl AsRef<Path>, names: &[&str]) -> Result<(TetMesh, Vec<Directions>)> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    parse_with_directions(path, &bytes, names)
}

/// Parses a mesh from the bytes of a file; errors name `path`.
///
/// # Errors
/// Returns the errors of [`read`], except for a file that cannot be read.
pub fn parse(path: impl AsRef<Path>, bytes: &[u8]) -> Result<TetMesh> {
    Ok(parse_with_directions(path, bytes, &[])?.0)
}

/// Parses a mesh as [`parse`] does, and those fields of `names` that the bytes have, of nodes (`PointData`,
/// `$NodeData`) or cells (`CellData`, `$ElementData`). Upper and lower case are the same in names.
///
/// # Errors
/// Returns the errors of [`parse`], and an error for a field without a nonzero vector for each tetrahedron.
pub fn parse_with_directions(
    path: impl AsRef<Path>,
    bytes: &[u8],
    names: &[&str],
) -> Result<(TetMesh, Vec<Directions>)> {
    let path = path.as_ref();
    let head = bytes.trim_ascii_start();
    let content = match head.first() {
        Some(b'<') => vtu::parse(path, bytes, names)?,
        _ => gmsh::parse(path, bytes, names)?,
    };
    content.finish(path)
}

/// A field of directions of a file.
///
/// # Examples
/// ```
/// use krylith_problems::tets::file;
/// let text = "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n4\n1 0 0 0\n2 1 0 0\n3 0 1 0\n4 0 0 1\n$EndNodes
/// $Elements\n1\n9 4 2 1 1 1 2 3 4\n$EndElements
/// $ElementData\n1\n\"fibre\"\n1\n0\n3\n0\n3\n1\n9 0 2 0\n$EndElementData\n";
/// let (mesh, found) = file::parse_with_directions("heart.msh", text.as_bytes(), &["fibre", "sheet"])?;
/// assert_eq!((mesh.tetrahedra().len(), found.len()), (1, 1));
/// assert_eq!(found[0].vectors, [[0.0, 1.0, 0.0]]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Directions {
    /// The name of the field, in lower case.
    pub name: String,
    /// A unit vector for each tetrahedron. That of nodes is the mean of the corners, each turned towards the
    /// first, because opposite vectors are the same direction.
    pub vectors: Vec<[f64; 3]>,
}

/// The content of a file.
#[derive(Default)]
struct Content {
    points: Vec<[f64; 3]>,
    tetrahedra: Vec<[u32; 4]>,
    surfaces: Vec<Surface>,
    /// Vectors of any length; not finite where the file has none.
    directions: Vec<Directions>,
}

impl Content {
    /// Adds a field of nodes, unless there is one of cells.
    fn add_nodes(&mut self, name: String, nodes: &[[f64; 3]]) {
        let mean = |t: &[u32; 4]| {
            let [first, rest @ ..] = t.map(|p| nodes[p as usize]);
            rest.into_iter().fold(first, |sum, x| {
                let sign = if dot(first, x) < 0.0 { -1.0 } else { 1.0 };
                [0, 1, 2].map(|d| sum[d] + sign * x[d])
            })
        };
        if self.directions.iter().all(|other| other.name != name) {
            let vectors = self.tetrahedra.iter().map(mean).collect();
            self.directions.push(Directions { name, vectors });
        }
    }

    /// Makes unit vectors.
    fn units(&mut self, path: &Path) -> Result<()> {
        for Directions { name, vectors } in &mut self.directions {
            for (t, vector) in vectors.iter_mut().enumerate() {
                // Squares of tiny or huge numbers would underflow or overflow.
                let most = vector.iter().fold(0.0f64, |most, x| most.max(x.abs()));
                let scaled = vector.map(|x| x / most);
                let length = dot(scaled, scaled).sqrt();
                if !(most > 0.0 && length.is_finite()) {
                    let message = format!(
                        "the field `{name}` has no direction at tetrahedron {t} (counted from 0 in the order of the file)"
                    );
                    return Err(Error::format(path, message));
                }
                *vector = scaled.map(|x| x / length);
            }
        }
        Ok(())
    }

    /// Drops nodes without a tetrahedron.
    fn finish(mut self, path: &Path) -> Result<(TetMesh, Vec<Directions>)> {
        if self.tetrahedra.is_empty() {
            return Err(Error::format(
                path,
                "no linear tetrahedra; mesh the volume (gmsh -3) and save all elements",
            ));
        }
        self.units(path)?;
        let mut new = vec![u32::MAX; self.points.len()];
        self.tetrahedra.as_flattened().iter().for_each(|&p| new[p as usize] = 0);
        let mut points = Vec::with_capacity(self.points.len());
        for (new, point) in new.iter_mut().zip(&self.points).filter(|(new, _)| **new == 0) {
            *new = points.len() as u32;
            points.push(*point);
        }
        let tetrahedra = self.tetrahedra.iter().map(|t| t.map(|p| new[p as usize])).collect();
        let surfaces = self.surfaces.into_iter().map(|surface| Surface {
            faces: surface.faces.iter().map(|f| f.map(|p| new[p as usize])).collect(),
            ..surface
        });
        let mesh = TetMesh::new(points, tetrahedra, surfaces.collect())
            .map_err(|why| Error::format(path, format!("{why} (counted from 0 in the order of the file)")))?;
        Ok((mesh, self.directions))
    }
}

/// Returns the name of a field in lower case, if it is among `names`.
fn wanted(name: &str, names: &[&str]) -> Option<String> {
    let name = name.trim().to_ascii_lowercase();
    names.contains(&&*name).then_some(name)
}

/// Returns the name of a surface to whose tag the file gives none.
fn unnamed(tag: i64) -> String {
    format!("surface {tag}")
}
