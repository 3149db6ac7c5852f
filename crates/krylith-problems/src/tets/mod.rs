//! Meshes of tetrahedra with named surfaces, generated or read from files, and row-wise assembly of finite
//! elements on them.
//!
//! [`extrude`] stacks discs in layers to build the ventricle and the artery; [`file::read`] reads a file.

mod boundary;
mod disc;
pub mod file;
mod order;
mod rows;
mod slice;

use krylith_base::threads::{collect, each};
use krylith_core::comm::agree;
use krylith_core::partition;
use krylith_core::{Error, Result};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::share::{Cut, Ranks, Share};
pub(crate) use boundary::{Boundary, Profile, profile};
pub use disc::{Disc, Layers, Numbering, extrude};
pub use order::NodeOrder;
pub(crate) use rows::{Rows, Shape, dot, for_chunks, for_rows};
pub(crate) use slice::slice;

/// Tetrahedra, or faces, per task.
const CHUNK: usize = 4096;
/// Largest number of tetrahedra of a mesh: corner k of tetrahedron t is stored as 4 t + k in 32 bits.
const MOST: usize = 1 << 30;

/// A named set of boundary faces.
///
/// # Examples
/// ```
/// use krylith_problems::tets::{Surface, TetMesh};
/// let floor = Surface { name: "floor".into(), faces: vec![[0, 1, 2]] };
/// let points = vec![[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
/// let mesh = TetMesh::new(points, vec![[0, 1, 2, 3]], vec![floor])?;
/// assert_eq!(TetMesh::nodes_of(mesh.surface("floor")?), [0, 1, 2]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Surface {
    /// The name of the surface.
    pub name: String,
    /// Corner nodes of each face; the normal (b − a) × (c − a) points out of the body.
    pub faces: Vec<[u32; 3]>,
}

/// Linear tetrahedra, positively oriented, with named surfaces.
///
/// # Examples
/// ```
/// use krylith_problems::tets::TetMesh;
/// let points = vec![[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
/// let mesh = TetMesh::new(points, vec![[0, 1, 2, 3]], Vec::new())?;
/// assert!((mesh.volume() - 1.0 / 6.0).abs() < 1e-15);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TetMesh {
    points: Vec<[f64; 3]>,
    tetrahedra: Vec<[u32; 4]>,
    surfaces: Vec<Surface>,
    /// Node i is a corner of the tetrahedra `around[begin[i]..begin[i + 1]]`: the value is 4 t + k if i is
    /// corner k of t, ascending.
    begin: Vec<usize>,
    around: Vec<u32>,
}

impl TetMesh {
    /// Creates a mesh; tetrahedra of negative volume and faces that point inwards are reoriented.
    ///
    /// # Errors
    /// Returns an error for more than 2³⁰ tetrahedra, a corner that does not exist, a volume that is zero or
    /// not finite, a node in no tetrahedron, and a face that belongs to none or to two.
    pub fn new(
        points: Vec<[f64; 3]>,
        mut tetrahedra: Vec<[u32; 4]>,
        mut surfaces: Vec<Surface>,
    ) -> Result<Self> {
        let n = points.len();
        if tetrahedra.is_empty() || tetrahedra.len() > MOST || n > MOST {
            return Err(Error::invalid(format!(
                "a mesh of {n} nodes and {} tetrahedra; expected 1 to {MOST} of each",
                tetrahedra.len()
            )));
        }
        let bad = tetrahedra.par_iter_mut().with_min_len(CHUNK).enumerate().find_map_first(|(t, corners)| {
            if let Some(p) = corners.iter().find(|p| **p as usize >= n) {
                return Some(format!(
                    "tetrahedron {t} has a corner {p}; there are {n} nodes, counted from 0"
                ));
            }
            let volume = signed_volume(corners.map(|p| points[p as usize]));
            if volume < 0.0 {
                corners.swap(2, 3);
            }
            (!(volume.abs() > 0.0 && volume.is_finite())).then(|| {
                format!(
                    "tetrahedron {t}, of the nodes {corners:?}, has the volume {volume}; it must not be zero"
                )
            })
        });
        if let Some(message) = bad {
            return Err(Error::invalid(message));
        }
        let (begin, around) = corners_of_nodes(n, &tetrahedra);
        if let Some(i) = (0..n).into_par_iter().with_min_len(CHUNK).find_first(|&i| begin[i] == begin[i + 1])
        {
            return Err(Error::invalid(format!(
                "node {i} belongs to no tetrahedron; leave it out of the mesh"
            )));
        }
        let mut mesh = Self { points, tetrahedra, surfaces: Vec::new(), begin, around };
        for surface in &mut surfaces {
            let bad = surface.faces.par_iter_mut().find_map_first(|face| mesh.turn_outwards(face).err());
            if let Some(message) = bad {
                return Err(Error::invalid(format!("surface `{}`: {message}", surface.name)));
            }
        }
        mesh.surfaces = surfaces;
        Ok(mesh)
    }

    /// Returns the coordinates of the nodes.
    pub fn points(&self) -> &[[f64; 3]] {
        &self.points
    }
    /// Returns the corner nodes of every tetrahedron.
    pub fn tetrahedra(&self) -> &[[u32; 4]] {
        &self.tetrahedra
    }
    /// Returns all named surfaces.
    pub fn surfaces(&self) -> &[Surface] {
        &self.surfaces
    }

    /// Returns the faces of the surface called `name`.
    ///
    /// # Errors
    /// Returns an error if there is no such surface; the text lists the existing ones.
    pub fn surface(&self, name: &str) -> Result<&[[u32; 3]]> {
        self.surfaces.iter().find(|s| s.name == name).map(|s| &s.faces[..]).ok_or_else(|| {
            let known: Vec<_> = self.surfaces.iter().map(|s| s.name.as_str()).collect();
            let known = if known.is_empty() { "none with a name".into() } else { known.join(", ") };
            Error::invalid(format!("the mesh has no surface `{name}`; it has {known}"))
        })
    }

    /// Returns the nodes of faces, ascending.
    pub fn nodes_of(faces: &[[u32; 3]]) -> Vec<u32> {
        let mut nodes = faces.as_flattened().to_vec();
        nodes.par_sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns 4 t + k for every tetrahedron t whose corner k is node `i`, ascending.
    pub fn around(&self, i: usize) -> &[u32] {
        &self.around[self.begin[i]..self.begin[i + 1]]
    }

    /// Returns the sum of the volumes.
    pub fn volume(&self) -> f64 {
        let volume = |t: &[u32; 4]| signed_volume(t.map(|p| self.points[p as usize]));
        let sums: Vec<f64> = self.tetrahedra.par_chunks(CHUNK).map(|c| c.iter().map(volume).sum()).collect();
        sums.iter().sum()
    }

    /// Returns the part of the mesh around this rank's nodes: own nodes, then ghosts, with the tetrahedra and
    /// faces that have an own node, in their order. Collective.
    ///
    /// # Errors
    /// Returns an error if there are more ranks than nodes, or if a rank is gone.
    pub(crate) fn part(&self, ranks: &Ranks) -> Result<(Self, Share, partition::Numbering)> {
        let comm = &ranks.comm;
        let cut = agree(&**comm, self.cut(ranks))?;
        let touches = |corners: &[u32]| corners.iter().any(|&p| cut.owns(&**comm, p as usize));
        let own: Vec<[u32; 4]> = self.tetrahedra.iter().filter(|t| touches(&t[..])).copied().collect();
        let faces = |s: &Surface| s.faces.iter().filter(|f| touches(&f[..])).copied().collect();
        let surfaces: Vec<(String, Vec<[u32; 3]>)> =
            self.surfaces.iter().map(|s| (s.name.clone(), faces(s))).collect();
        let columns = own.as_flattened().iter().map(|&p| u64::from(p));
        let (share, numbering) = Share::new(comm, cut, columns)?;
        let local = |p: u32| numbering.local(u64::from(p)).unwrap_or(0);
        let points = numbering.global().iter().map(|&p| self.points[p as usize]).collect();
        let surfaces = surfaces.into_iter().map(|(name, faces)| Surface {
            name,
            faces: faces.into_iter().map(|face| face.map(local)).collect(),
        });
        let tetrahedra = own.into_iter().map(|t| t.map(local)).collect();
        let part = agree(&**comm, Self::new(points, tetrahedra, surfaces.collect()))?;
        Ok((part, share, numbering))
    }

    fn cut(&self, ranks: &Ranks) -> Result<Cut> {
        Cut::new(&rows::graph(self, self.points.len(), 1)?, &self.points, None, ranks)
    }

    /// Orders the corners of a boundary face so that its normal points outwards.
    fn turn_outwards(&self, face: &mut [u32; 3]) -> std::result::Result<(), String> {
        let name = |what: &str| format!("the face of the nodes {face:?} {what}");
        if face.iter().any(|&p| p as usize >= self.points.len()) {
            return Err(name(&format!(
                "has a corner that does not exist; there are {} nodes",
                self.points.len()
            )));
        }
        if face[0] == face[1] || face[1] == face[2] || face[2] == face[0] {
            return Err(name("has two equal corners"));
        }
        let mut owners = self.around(face[0] as usize).iter().map(|&c| self.tetrahedra[c as usize / 4]);
        let mut owners = owners.by_ref().filter(|t| face.iter().all(|p| t.contains(p)));
        let Some(owner) = owners.next() else {
            return Err(name("belongs to no tetrahedron"));
        };
        if owners.next().is_some() {
            return Err(name("lies between two tetrahedra; surfaces bound the body"));
        }
        let opposite = owner.into_iter().find(|p| !face.contains(p)).unwrap_or(owner[3]);
        let [a, b, c] = face.map(|p| self.points[p as usize]);
        if signed_volume([a, b, c, self.points[opposite as usize]]) > 0.0 {
            face.swap(1, 2);
        }
        Ok(())
    }
}

/// Returns a sixth of the triple product of the edges from the first corner.
pub(crate) fn signed_volume([a, b, c, d]: [[f64; 3]; 4]) -> f64 {
    let e = [b, c, d].map(|p| [p[0] - a[0], p[1] - a[1], p[2] - a[2]]);
    dot(e[0], cross(e[1], e[2])) / 6.0
}

/// Returns a × b.
#[inline]
pub(crate) fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Returns ½ (b − a) × (c − a): the face's normal, with the face's area as length.
#[inline]
pub(crate) fn area([a, b, c]: [[f64; 3]; 3]) -> [f64; 3] {
    let edge = |p: [f64; 3]| [p[0] - a[0], p[1] - a[1], p[2] - a[2]];
    cross(edge(b), edge(c)).map(|x| 0.5 * x)
}

/// Lists, for every node, the corners of tetrahedra at that node; runs on all threads.
fn corners_of_nodes(n: usize, tetrahedra: &[[u32; 4]]) -> (Vec<usize>, Vec<u32>) {
    let corners = tetrahedra.as_flattened();
    let counts = collect(0..n + 1, CHUNK, &|_| AtomicUsize::new(0));
    each(corners.len(), CHUNK, &|c| {
        counts[corners[c] as usize + 1].fetch_add(1, Ordering::Relaxed);
    });
    let mut begin: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
    for i in 0..n {
        begin[i + 1] += begin[i];
    }
    let next = collect(0..n + 1, CHUNK, &|i| AtomicUsize::new(begin[i]));
    let around = collect(0..corners.len(), CHUNK, &|_| AtomicU32::new(0));
    each(corners.len(), CHUNK, &|c| {
        let at = next[corners[c] as usize].fetch_add(1, Ordering::Relaxed);
        around[at].store(c as u32, Ordering::Relaxed);
    });
    let mut around: Vec<u32> = around.into_iter().map(AtomicU32::into_inner).collect();
    // Threads fill a node's list in any order, so it is sorted.
    for_chunks(&begin, 1, &mut around, &|first, own| {
        let mut rest = own;
        for i in first.. {
            if rest.is_empty() {
                break;
            }
            let (list, more) = rest.split_at_mut(begin[i + 1] - begin[i]);
            list.sort_unstable();
            rest = more;
        }
    });
    (begin, around)
}
