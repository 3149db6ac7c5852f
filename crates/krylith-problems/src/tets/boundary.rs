//! Parts of a mesh's boundary with a role in a flow, selected by the names of surfaces, and the flow in.

use krylith_core::{Error, Result};
use std::f64::consts::PI;

use super::{Surface, TetMesh, area, dot};

/// Inlet, wall and outlets of a mesh.
#[derive(Debug, Clone)]
pub(crate) struct Boundary {
    pub inlet: Vec<[u32; 3]>,
    pub wall: Vec<[u32; 3]>,
    /// At least one.
    pub outlets: Vec<Surface>,
}

impl Boundary {
    /// Selects the parts by names, as [`TetMesh::select`] reads them.
    ///
    /// # Errors
    /// Returns an error if a part has no surface, or if a boundary face belongs to no part or to two.
    pub fn of(mesh: &TetMesh, [inlet, wall, outlet]: [&str; 3]) -> Result<Self> {
        let faces = |names: &str| -> Result<Vec<[u32; 3]>> {
            Ok(mesh.select(names)?.into_iter().flat_map(|s| s.faces.iter().copied()).collect())
        };
        let outlets = mesh.select(outlet)?.into_iter().cloned().collect();
        let own = Self { inlet: faces(inlet)?, wall: faces(wall)?, outlets };
        own.check(mesh)?;
        Ok(own)
    }

    /// Checks that every boundary face belongs to one part.
    fn check(&self, mesh: &TetMesh) -> Result<()> {
        let ascending = |face: &[u32; 3]| {
            let mut face = *face;
            face.sort_unstable();
            face
        };
        let outlets = self.outlets.iter().flat_map(|s| &s.faces);
        let mut named: Vec<_> = self.inlet.iter().chain(&self.wall).chain(outlets).map(ascending).collect();
        named.sort_unstable();
        let at = |face: &[u32; 3]| {
            let corners = face.map(|p| mesh.points()[p as usize]);
            let middle: [f64; 3] = std::array::from_fn(|d| corners.iter().map(|x| x[d] / 3.0).sum());
            format!("the face at ({:.4}, {:.4}, {:.4})", middle[0], middle[1], middle[2])
        };
        if let Some(twice) = named.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::invalid(format!(
                "{} is in two parts of the boundary; leave it in one of inlet, wall and outlet",
                at(&twice[0])
            )));
        }
        let boundary = mesh.boundary();
        if let Some(face) = boundary.iter().find(|face| named.binary_search(face).is_err()) {
            return Err(Error::invalid(format!(
                "{} and {} others belong neither to the inlet nor to the wall nor to an outlet; add them to a \
                 physical surface",
                at(face),
                boundary.len() - named.len() - 1
            )));
        }
        Ok(())
    }
}

impl TetMesh {
    /// Returns the surfaces that `names` selects: names joined by `+`. A name that ends in `*` selects all
    /// surfaces that begin with the text before it, and a number N selects `surface N`.
    ///
    /// # Errors
    /// Returns an error if a name selects no surface; the text lists the existing ones.
    pub(crate) fn select(&self, names: &str) -> Result<Vec<&Surface>> {
        let mut found: Vec<&Surface> = Vec::new();
        for name in names.split('+').map(str::trim) {
            let before = found.len();
            let suits = |surface: &&Surface| match name.strip_suffix('*') {
                Some(stem) => surface.name.starts_with(stem),
                None => surface.name == name || surface.name.strip_prefix("surface ") == Some(name),
            };
            found.extend(self.surfaces().iter().filter(suits));
            if found.len() == before {
                self.surface(name)?;
            }
        }
        Ok(found)
    }

    /// Returns the faces that only one tetrahedron has, with ascending corners, ascending.
    fn boundary(&self) -> Vec<[u32; 3]> {
        let mut faces = Vec::with_capacity(4 * self.tetrahedra().len());
        for &[a, b, c, d] in self.tetrahedra() {
            for mut face in [[a, b, c], [a, b, d], [a, c, d], [b, c, d]] {
                face.sort_unstable();
                faces.push(face);
            }
        }
        faces.sort_unstable();
        let alone = |k: usize| {
            (k == 0 || faces[k - 1] != faces[k]) && (k + 1 == faces.len() || faces[k + 1] != faces[k])
        };
        (0..faces.len()).filter(|&k| alone(k)).map(|k| faces[k]).collect()
    }
}

/// Nodes of an inlet, with numbers that are the velocity divided by a speed.
pub(crate) type Profile = Vec<(u32, [f64; 3])>;

/// Returns a parabolic inflow of mean speed 1 at the nodes of the inlet, and the radius of a round inlet of
/// that area. The profile is that of a round inlet with the same centre, normal and area.
///
/// # Errors
/// Returns an error if the normals of the faces add up to zero.
pub(crate) fn profile(mesh: &TetMesh, faces: &[[u32; 3]]) -> Result<(Profile, f64)> {
    let (mut whole, mut size, mut middle) = ([0.0; 3], 0.0, [0.0; 3]);
    for face in faces {
        let x = face.map(|p| mesh.points()[p as usize]);
        let a = area(x);
        let own = dot(a, a).sqrt();
        size += own;
        for d in 0..3 {
            whole[d] += a[d];
            middle[d] += own / 3.0 * (x[0][d] + x[1][d] + x[2][d]);
        }
    }
    let length = dot(whole, whole).sqrt();
    if !(length > 0.0) {
        return Err(Error::invalid("the inlet has no faces, or their normals add up to zero"));
    }
    let (inwards, middle) = (whole.map(|x| -x / length), middle.map(|x| x / size));
    let radius = (size / PI).sqrt();
    let nodes = TetMesh::nodes_of(faces).into_iter().map(|p| {
        let x = mesh.points()[p as usize];
        let from: [f64; 3] = std::array::from_fn(|d| x[d] - middle[d]);
        let speed = 2.0 * (1.0 - dot(from, from) / (radius * radius)).max(0.0);
        (p, inwards.map(|n| speed * n))
    });
    Ok((nodes.collect(), radius))
}
