//! Reader of meshes from files, in the format that their content shows: Gmsh or VTU.
//!
//! Linear tetrahedra are read, and linear triangles with a tag, which become surfaces. A surface has the name
//! that the file gives to its tag, or else `surface TAG`. Points, lines, triangles without a tag, and nodes
//! without a tetrahedron are ignored. Any other element is an error.

mod gmsh;
mod vtu;

use krylith_core::{Error, Result};
use std::path::Path;

use super::{Surface, TetMesh};

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
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    parse(path, &bytes)
}

/// Parses a mesh from the bytes of a file; errors name `path`.
///
/// # Errors
/// Returns the errors of [`read`], except for a file that cannot be read.
pub fn parse(path: impl AsRef<Path>, bytes: &[u8]) -> Result<TetMesh> {
    let path = path.as_ref();
    let head = bytes.trim_ascii_start();
    let content = match head.first() {
        Some(b'<') => vtu::parse(path, bytes)?,
        _ => gmsh::parse(path, bytes)?,
    };
    content.finish(path)
}

/// The content of a file.
#[derive(Default)]
struct Content {
    points: Vec<[f64; 3]>,
    tetrahedra: Vec<[u32; 4]>,
    surfaces: Vec<Surface>,
}

impl Content {
    /// Drops nodes without a tetrahedron.
    fn finish(self, path: &Path) -> Result<TetMesh> {
        if self.tetrahedra.is_empty() {
            return Err(Error::format(
                path,
                "no linear tetrahedra; mesh the volume (gmsh -3) and save all elements",
            ));
        }
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
        TetMesh::new(points, tetrahedra, surfaces.collect())
            .map_err(|why| Error::format(path, format!("{why} (counted from 0 in the order of the file)")))
    }
}

/// Returns the name of a surface to whose tag the file gives none.
fn unnamed(tag: i64) -> String {
    format!("surface {tag}")
}
