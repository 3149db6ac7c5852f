//! The systems: those with targets, families of growing size, and those of other libraries' figures on one
//! core.

use crate::answer::system::{self, System, Wanted};
use krylith_core::matrix::Bsr;
use krylith_core::{Error, Result};
use std::path::Path;
use std::time::Instant;

/// Systems with targets, by their names in the suite `answer`.
pub(super) const NAMES: [&str; 5] = ["laplace128", "laplace256", "spe10", "radiation64", "laplace64b4"];

/// Returns the systems that the words name; without words, those with targets.
///
/// # Errors
/// Returns an error if a word names no system.
pub(super) fn table(words: &[String]) -> Result<Vec<Wanted>> {
    match words {
        [] => system::wanted(&NAMES.map(String::from)),
        words => system::wanted(words),
    }
}

/// Generates a problem by its text.
///
/// # Errors
/// Returns an error if the problem is unknown, or if memory is not sufficient.
pub(super) fn spec(text: &str) -> Result<Option<System>> {
    system::make(&Wanted::Spec(text.into()), 1.0, None)
}

#[derive(Debug)]
pub(super) struct Family {
    pub name: &'static str,
    /// The problem and its keys, without the size.
    kind: Kind,
    /// The largest edge in nodes, at scale 1.
    most: usize,
    /// True if its growth from 64³ to 256³ has a target.
    pub promised: bool,
}

#[derive(Debug)]
enum Kind {
    /// A generated problem and its keys.
    Grid(&'static str, &'static str),
    /// A graph of tetrahedra, numbered at random.
    Tetrahedra,
    /// The first Newton step of an elastic body.
    Elasticity,
}

const fn grid(name: &'static str, problem: &'static str, keys: &'static str, most: usize) -> Family {
    Family { name, kind: Kind::Grid(problem, keys), most, promised: false }
}

pub(super) const FAMILIES: &[Family] = &[
    Family { promised: true, ..grid("laplace", "laplace", "", 384) },
    // A homogeneous medium with cells ten times as high as wide: couplings are 100 times weaker along z.
    grid("anisotropic", "poisson-multiphase", ",contrast=1,solid=1,bubbles=0,columns=0,dz=10", 256),
    Family { promised: true, ..grid("contrast", "poisson-multiphase", ",contrast=1e6", 256) },
    grid("reservoir", "spe10", "", 128),
    grid("radiation1", "radiation", "", 256),
    Family { promised: true, ..grid("radiation3", "radiation", ",components=3", 256) },
    Family { name: "elasticity", kind: Kind::Elasticity, most: 64, promised: false },
    grid("stokes", "stokes", "", 64),
    Family { name: "tetrahedra", kind: Kind::Tetrahedra, most: 128, promised: false },
];

/// Edges of the cubes in nodes; the last one only with `--full`.
const SIDES: [usize; 5] = [32, 64, 128, 256, 384];

/// Tetrahedra per node of a mesh.
const TETRAHEDRA: usize = 5;

/// Returns the edge of a cube with `scale` times the nodes.
fn edge(side: usize, scale: f64) -> usize {
    crate::systems::scaled([side; 3], scale)[0]
}

impl Family {
    /// Returns the edges of the cubes in nodes.
    pub fn sides(&self, scale: f64, full: bool) -> Vec<usize> {
        let last = if full { SIDES.len() } else { SIDES.len() - 1 };
        let mut all: Vec<usize> =
            SIDES[..last].iter().filter(|&&side| side <= self.most).map(|&side| edge(side, scale)).collect();
        all.dedup();
        all
    }

    /// Generates the system on about `side`³ nodes.
    ///
    /// # Errors
    /// Returns an error if memory is not sufficient.
    pub fn make(&self, side: usize, progress: &mut dyn FnMut(&str)) -> Result<System> {
        progress(&format!("{}: {side}³ nodes", self.name));
        let made = match self.kind {
            Kind::Grid(problem, keys) => spec(&format!("{problem}:{side}x{side}x{side}{keys}"))?,
            Kind::Tetrahedra => {
                let wanted = system::wanted(&["tetrahedra".to_string()])?;
                // Its size in the table is 128³.
                system::make(&wanted[0], (side as f64 / 128.0).powi(3), None)?
            }
            Kind::Elasticity => Some(elasticity(side)?),
        };
        let made =
            made.ok_or_else(|| Error::invalid(format!("{} does not give a square matrix", self.name)))?;
        Ok(System { name: self.name.into(), ..made })
    }
}

/// Returns the Jacobian of the first Newton step of a body at rest.
fn elasticity(side: usize) -> Result<System> {
    let begin = Instant::now();
    // Without sheets, as when bench/runs were measured.
    let text = format!("ventricle:{},as=0,afs=0", (TETRAHEDRA * side * side * side).max(1000));
    let mut problem = krylith_problems::nonlinear::by_text(&text)?;
    let (x, pattern) = (problem.initial(), problem.pattern());
    let (b, n) = (pattern.block(), pattern.block_rows());
    let (row_ptr, col) = (pattern.row_ptr().to_vec(), pattern.col().to_vec());
    let mut values = vec![0.0; pattern.values().len()];
    problem.jacobian(&x, &mut values)?;
    let coordinates = problem.coordinates().map(<[_]>::to_vec);
    let a = Bsr::new(b, n, n, row_ptr, col, values)?;
    let spec = format!("{}, first Newton step", problem.spec());
    Ok(System::of("elasticity", spec, a, coordinates, begin.elapsed().as_secs_f64()))
}

/// Systems of the figures on one core.
pub(super) const ONE_CORE: [&str; 3] = ["laplace100", "laplace128", "spe10"];

/// Generates one of them.
///
/// # Errors
/// Returns an error if memory is not sufficient, or if a folder of permeabilities cannot be read.
pub(super) fn one_core(name: &str, scale: f64, rock: Option<&Path>) -> Result<Option<System>> {
    if name != "laplace100" {
        return system::make(&system::wanted(&[name.to_string()])?[0], scale, rock);
    }
    let side = edge(100, scale);
    Ok(spec(&format!("laplace:{side}x{side}x{side}"))?.map(|made| System { name: name.into(), ..made }))
}

/// Returns true for a reservoir's text with permeabilities from files.
pub(super) fn real_rock(spec: &str) -> bool {
    spec.contains("permeability=") && !spec.contains("permeability=generated")
}

/// Edge of the cube per GPU in weak scaling: 16 million unknowns.
const EACH: usize = 252;

/// Returns the sizes of the systems for that many GPUs: a constant number of nodes per GPU, and 256³ in
/// total.
pub(super) fn scaled_sizes(gpus: usize, scale: f64) -> [(&'static str, [usize; 3]); 2] {
    let (each, all) = (edge(EACH, scale), edge(256, scale));
    [("weak", [each, each, each * gpus]), ("strong", [all; 3])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_makes_systems_that_grow() {
        for family in FAMILIES {
            let sides = family.sides(1e-3, false);
            let sizes: Vec<usize> = sides
                .iter()
                .take(2)
                .map(|&side| family.make(side, &mut |_| ()).unwrap().assembled().unwrap().rows())
                .collect();
            assert!(sizes[0] > 0 && sizes[1] >= sizes[0], "{}: {sizes:?}", family.name);
            assert!(
                !family.promised || family.sides(1.0, false).ends_with(&[64, 128, 256]),
                "{}",
                family.name
            );
        }
        assert_eq!(FAMILIES[0].sides(1.0, true), SIDES);
        assert_eq!(FAMILIES[7].sides(1.0, true), [32, 64]);
    }

    #[test]
    fn weak_scaling_has_16_million_rows_on_each_gpu() {
        let [(_, weak), (_, strong)] = scaled_sizes(2, 1.0);
        assert_eq!((weak, strong), ([252, 252, 504], [256; 3]));
        for name in ONE_CORE {
            assert!(one_core(name, 1e-4, None).unwrap().unwrap().shape().0 > 0, "{name}");
        }
    }
}
