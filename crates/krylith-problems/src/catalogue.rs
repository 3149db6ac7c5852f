//! The catalogue behind `krylith problem --help`: every problem with its keys, defaults and units.

use krylith_core::names::{did_you_mean, same};
use krylith_core::{Error, Result};

/// A problem that [`generate`](crate::generate) knows.
///
/// # Examples
/// ```
/// for problem in krylith_problems::catalogue() {
///     println!("{}:{}  {}", problem.name, problem.size, problem.help);
/// }
/// assert!(krylith_problems::catalogue().iter().any(|p| p.name == "elasticity"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problem {
    /// The problem's name, written before the colon.
    pub name: &'static str,
    /// Form of the size: `NXxNYxNZ` or `N`, in nodes unless the help says otherwise, `NAME`, or a mesh `FILE`
    /// after a bar.
    pub size: &'static str,
    /// One-line description.
    pub help: &'static str,
    /// A complete example text.
    pub example: &'static str,
    /// Every key that may follow the size.
    pub keys: &'static [Key],
}

/// A key of a [`Problem`].
///
/// # Examples
/// ```
/// let stokes = krylith_problems::catalogue().iter().find(|p| p.name == "stokes").unwrap();
/// let tau = stokes.keys.iter().find(|key| key.name == "tau").unwrap();
/// assert_eq!(tau.default, "0.125");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// The key's name, written before the equals sign.
    pub name: &'static str,
    /// The value used if the key is not given.
    pub default: &'static str,
    /// Unit or range; empty for a bare number.
    pub unit: &'static str,
    /// One-line description.
    pub help: &'static str,
}

pub(crate) const fn key(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    help: &'static str,
) -> Key {
    Key { name, default, unit, help }
}

/// Help texts of keys that apply to mesh files only.
const INLET: &str = "mesh file: surfaces of the inflow; names joined by +, which may end in *, and a number for a \
                     group without a name";
pub(crate) const NUMBERING: &str = "mesh file: numbering of the nodes, as in the file, or natural (x fastest, then y), \
                                    random[:SEED] or rcm (reverse Cuthill-McKee)";

static CATALOGUE: [Problem; 17] = [
    Problem {
        name: "stokes",
        size: "NXxNYxNZ|FILE",
        help: "unsteady Stokes flow in a duct or in the body of a mesh file, P1-P1 tetrahedra, implicit Runge-Kutta \
               stages: 4 unknowns a node; FILE is a mesh of Gmsh (.msh, 2.x or 4.1) or VTK (.vtu) with named \
               surfaces",
        example: "stokes:16x16x16,scheme=radau-iia-2,tau=0.125",
        keys: &[
            key(
                "scheme",
                "radau-iia-2",
                "name",
                "implicit-euler, gauss-1..8, radau-iia-1..8 or lobatto-iiic-2..8",
            ),
            key("tau", "0.125", "time", "step length"),
            key("nu", "0.01", "length^2/time", "kinematic viscosity"),
            key("length", "1", "length", "length of the duct; its cross-section is the unit square"),
            key(
                "ramp",
                "1",
                "time",
                "time at which the inflow 16y(1-y)z(1-z)sin^2(pi t/(2 ramp)) peaks; a parabola on a mesh",
            ),
            key("stab", "1", "", "pressure stabilisation (Dohrmann-Bochev) times nu"),
            key("scale", "auto", "velocity", "factor of the continuity rows; auto is 1 + 10 nu/h"),
            key("inlet", "inlet*", "names", INLET),
            key("wall", "wall*", "names", "mesh file: surfaces where the fluid is at rest"),
            key("outlet", "outlet*", "names", "mesh file: surfaces that are free of stress"),
            key("numbering", "file", "name", NUMBERING),
        ],
    },
    Problem {
        name: "laplace",
        size: "NXxNYxNZ",
        help: "7-point Laplacian (6 on the diagonal, -1 for each neighbour, values outside the grid are zero), \
               symmetric positive definite, right-hand side of ones",
        example: "laplace:32x32x32,block=1",
        keys: &[
            key("block", "1", "1..8", "components per node"),
            key("coupling", "0.1", "0 <= c < 1", "coupling of a node's components"),
        ],
    },
    Problem {
        name: "elasticity",
        size: "NXxNYxNZ",
        help: "elastic bar, clamped at x = 0 and bent by its weight, trilinear bricks: 3 displacements a node, symmetric positive definite",
        example: "elasticity:17x17x17,poisson=0.3",
        keys: &[
            key("length", "1", "length", "length of the bar; its cross-section is the unit square"),
            key("young", "1", "stress", "Young's modulus"),
            key("poisson", "0.3", "0 < v < 0.5", "Poisson's ratio"),
        ],
    },
    Problem {
        name: "spe10",
        size: "NXxNYxNZ",
        help: "pressure in an oil reservoir like SPE10 model 2: cells of 20x10x2 ft, two-point fluxes, rock of very \
               uneven permeability, five wells; symmetric positive definite; 60x220x85 is the full size",
        example: "spe10:20x40x17",
        keys: &[
            key(
                "permeability",
                "generated",
                "folder",
                "folder of spe10_kx_mD.f64le and spe10_kz_mD.f64le (60x220x85 little-endian f64), or \
                 generated: layers of any size, with the same range of values",
            ),
            key("layer", "0", "0..84", "first layer taken from the folder, counted from the top"),
            key("seed", "1", "", "seed of the generated layers"),
            key("viscosity", "0.3", "cP", "viscosity of the fluid"),
            key("injector", "10000", "psi", "pressure of the well in the middle"),
            key("producer", "4000", "psi", "pressure of the wells in the four corners"),
            key("radius", "0.5", "ft", "radius of the wells"),
        ],
    },
    Problem {
        name: "radiation",
        size: "NXxNYxNZ",
        help: "implicit step of flux-limited radiation diffusion through light matter with dense lumps: one \
               temperature (symmetric), or three, of radiation, electrons and ions, which exchange heat in each \
               cell",
        example: "radiation:16x16x16,components=3",
        keys: &[
            key("components", "1", "1|3", "temperatures per cell"),
            key("dt", "0.01", "sh", "step length (1 sh is 10 ns)"),
            key("contrast", "1e4", "", "opacity of the lumps over that of the matter around them"),
            key("drive", "1", "keV", "temperature of the radiation that enters at x = 0"),
            key("cold", "0.05", "keV", "temperature ahead of the wave, at most drive"),
            key("length", "0.5", "cm", "edge of the box along x; cells are cubes"),
            key(
                "linearization",
                "newton",
                "newton|secant",
                "linearise emission by derivative (not symmetric) or secant (symmetric); 3 components only",
            ),
            key("seed", "1", "", "seed of the lumps and of the wave's front"),
        ],
    },
    Problem {
        name: "poisson-multiphase",
        size: "NXxNYxNZ",
        help: "pressure of an incompressible flow of gas, liquid and solid: 7 points, with 1/density at faces; walls \
               and open sides (symmetric positive definite); 256x128x512 is a typical size per GPU",
        example: "poisson-multiphase:16x16x16,contrast=1000",
        keys: &[
            key("contrast", "1000", "", "density of the liquid over that of the gas"),
            key("solid", "8", "", "density of the solid over that of the liquid"),
            key("dz", "2", "dx", "edge of a cell along z; dx = dy = 1"),
            key(
                "bubbles",
                "1",
                "",
                "cubes along the shortest edge; a quarter of all cubes have a bubble; 0 for no bubbles",
            ),
            key("columns", "3", "", "solid columns along the shorter edge of x and y; 0 for no solid"),
            key(
                "gap",
                "0",
                "dx",
                "thickness of a layer of gas inside each column, which makes the system hard; 0 for none",
            ),
            key("width", "1", "dx", "half the thickness of the interfaces, over which densities change"),
            key(
                "outlet",
                "open",
                "open|top|none",
                "p = 0 on all sides but the floor, on top alone (harder), or nowhere (constants are a null space)",
            ),
            key("seed", "1", "", "seed of phases and velocity"),
        ],
    },
    Problem {
        name: "advection",
        size: "NXxNYxNZ",
        help: "a quantity that a wind carries through the unit cube while it diffuses: upwind finite volumes with \
               7 points, or stabilised finite elements with 27; not symmetric",
        example: "advection:16x16x16,peclet=1e4",
        keys: &[
            key("peclet", "1000", "", "wind over diffusion, for the edge of the cube; inf for no diffusion"),
            key(
                "wind",
                "oblique",
                "oblique|recirculating",
                "constant and across all faces, or turning about x = y = 1/2 inside walls",
            ),
            key(
                "scheme",
                "upwind",
                "upwind|supg",
                "finite volumes, or trilinear elements with streamline diffusion (SUPG)",
            ),
        ],
    },
    Problem {
        name: "taylor-hood",
        size: "NXxNYxNZ",
        help: "Stokes flow in the unit cube with sinking balls, Taylor-Hood elements P2-P1; cells, each of six \
               tetrahedra; fields u and p, matrices Mp (mass over viscosity) and P (from linear elements)",
        example: "taylor-hood:8x8x8,contrast=100",
        keys: &[
            key("contrast", "1", "", "viscosity of the balls over that of the fluid"),
            key("bodies", "8", "", "number of balls, a tenth of the cube in all"),
            key("enclosed", "false", "true|false", "walls on all sides; otherwise x = 1 is free of stress"),
            key("seed", "1", "", "seed of the places of the balls"),
        ],
    },
    Problem {
        name: "oseen",
        size: "NXxNYxNZ",
        help: "linearised Navier-Stokes flow in the unit cube with a wind that turns about x = y = 1/2, P2-P1 \
               without stabilisation; cells; fields u and p, matrices Fp, Lp and Mp (pressure convection- \
               diffusion) and P",
        example: "oseen:8x8x8,reynolds=100",
        keys: &[
            key("reynolds", "100", "", "1/viscosity; the largest speed and the edge of the cube are 1"),
            key("enclosed", "false", "true|false", "walls on all sides; otherwise x = 1 is free of stress"),
        ],
    },
    Problem {
        name: "rt0",
        size: "NXxNYxNZ",
        help: "Darcy flow from x = 0 to x = 1 through uneven rock, RT0-P0 tetrahedra; cells; fields w (fluxes) and \
               p",
        example: "rt0:8x8x8,contrast=1e4",
        keys: &[
            key("contrast", "1e4", "", "largest permeability over the smallest, about"),
            key("anisotropy", "1", "", "horizontal permeability over vertical"),
            key("seed", "1", "", "seed of the rock"),
        ],
    },
    Problem {
        name: "nedelec",
        size: "NXxNYxNZ",
        help: "curl-curl equation in the unit cube, Nedelec's edge elements of lowest order, perfect conductors on \
               all sides; cells; symmetric positive definite; matrices G (gradient), Px, Py and Pz (nodal vectors)",
        example: "nedelec:8x8x8,mass=1e-4",
        keys: &[
            key("mass", "1e-2", "", "factor of the mass matrix"),
            key("contrast", "1", "", "permeability of an iron box in the middle"),
        ],
    },
    Problem {
        name: "biot2",
        size: "NXxNYxNZ",
        help: "step of consolidation of a porous body under its weight, displacement and pressure P2-P1; cells; \
               fields u and p, matrices Sp (fixed stress) and P",
        example: "biot2:8x8x8,permeability=1e-6",
        keys: &[
            key("permeability", "1e-6", "", "permeability times step length over viscosity"),
            key("poisson", "0.25", "0 < v < 0.5", "Poisson's ratio; Young's modulus is 1"),
            key("storage", "1e-3", "", "storage coefficient"),
        ],
    },
    Problem {
        name: "biot3",
        size: "NXxNYxNZ",
        help: "the same with displacement, flux and pressure P2-RT0-P0; fields u, w and p, matrices Sp and P",
        example: "biot3:4x4x4,permeability=1e-6",
        keys: &[
            key("permeability", "1e-6", "", "permeability times step length over viscosity"),
            key("poisson", "0.25", "0 < v < 0.5", "Poisson's ratio; Young's modulus is 1"),
            key("storage", "1e-3", "", "storage coefficient"),
        ],
    },
    Problem {
        name: "twophase",
        size: "NXxNYxNZ",
        help: "Newton step of oil and water in uneven rock, two-point fluxes, two wells; cells, 2 unknowns each; \
               fields p and s",
        example: "twophase:16x16x16,contrast=1e4",
        keys: &[
            key("contrast", "1e4", "", "largest permeability over the smallest, about"),
            key("dt", "0.1", "time", "step length; the cube takes about one unit of time to flood"),
            key("seed", "1", "", "seed of rock and state"),
        ],
    },
    Problem {
        name: "blackoil",
        size: "NXxNYxNZ",
        help: "Newton step of oil, water and gas, which also dissolves in oil, in channelled rock, two-point \
               fluxes; cells, 3 unknowns each, and the pressures of two wells; fields p, s, g and w, matrix acc \
               (derivatives of the accumulation)",
        example: "blackoil:16x16x16,contrast=1e3",
        keys: &[
            key("contrast", "1e3", "", "permeability of the channels over that of the other rock"),
            key("dt", "0.1", "time", "step length"),
            key("gravity", "0.1", "pressure", "weight of a column of water as high as the cube"),
            key("injector", "rate", "rate|pressure", "control of the well that injects water"),
            key("producer", "pressure", "rate|pressure", "control of the well that produces"),
            key("rate", "0.1", "volume/time", "rate of wells controlled by rate: water in, oil out"),
            key("seed", "1", "", "seed of rock and state"),
        ],
    },
    Problem {
        name: "random",
        size: "N",
        help: "random diagonally dominant point-block system A⊗M + tau B⊗L, about 15 blocks a row",
        example: "random:1000,block=4,stages=2,seed=1",
        keys: &[
            key("block", "4", "1..8", "components per node"),
            key("stages", "2", "1..8", "stages"),
            key("seed", "1", "", "seed of every random number"),
            key("pattern", "same", "same|different", "patterns of M and L: one for both, or two"),
            key("tau", "0.125", "", "factor of B⊗L"),
        ],
    },
    Problem {
        name: "lookalike",
        size: "NAME",
        help: "a matrix with the numbers of rows and entries, and the shortest, longest and mean row, of one of \
               the 24 SuiteSparse matrices of the multi-GPU SpMV paper: kmer_U1a, kmer_A2a, kmer_V2a, kmer_P1a, \
               kmer_V1r, webbase-2001, FullChip, \
               ljournal-2008, rgg_n_2_23_s0, rgg_n_2_24_s0, uk-2002, com-LiveJournal, uk-2005, GAP-twitter, \
               indochina-2004, nlpkkt160, nlpkkt200, nlpkkt240, it-2004, arabic-2005, stokes, twitter7, GAP-web, \
               sk-2005; its right-hand side is A times ones",
        example: "lookalike:FullChip,scale=1/1024",
        keys: &[
            key(
                "scale",
                "1",
                "0 < s <= 1",
                "number of rows over that of the original: a number, or a ratio such as 1/256",
            ),
            key(
                "permuted",
                "false",
                "true|false",
                "rows and columns renumbered at random; ,permuted alone means true",
            ),
            key("seed", "1", "", "seed of every random number"),
        ],
    },
];

/// Returns every problem that [`generate`](crate::generate) knows.
pub fn catalogue() -> &'static [Problem] {
    &CATALOGUE
}

/// Finds the problem called `name`.
pub(crate) fn find(name: &str) -> Result<&'static Problem> {
    find_in(&CATALOGUE, name)
}

/// Finds the problem called `name` in a catalogue.
pub(crate) fn find_in(catalogue: &'static [Problem], name: &str) -> Result<&'static Problem> {
    catalogue.iter().find(|p| same(p.name, name)).ok_or_else(|| {
        let known: Vec<_> = catalogue.iter().map(|p| p.name).collect();
        let hint = did_you_mean("problem", name, &known);
        Error::invalid(format!("unknown problem `{name}`; the known ones are {}{hint}", known.join(", ")))
    })
}
