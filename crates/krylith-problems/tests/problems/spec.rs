//! Problem texts: defaults, round trips, and errors.

use krylith_problems::{catalogue, generate};

#[test]
fn the_full_text_generates_the_same_again() {
    for text in [
        "stokes:4x5x3",
        "stokes: 3x3x3 , tau = 0.5,scheme=lobatto-iiic-2",
        "random:20,seed=3",
        "laplace:3x2x4,block=2",
        "elasticity:3x2x4,poisson=0.25,young=7",
        "spe10:3x4x5,seed=7,injector=1e4",
        "radiation:3x4x5,components=3,dt=1e-3",
        "poisson-multiphase:3x4x5,contrast=1e6,outlet=none",
        "advection:3x4x5,peclet=inf",
        "lookalike:FullChip,scale=1/4000,permuted",
        "taylor-hood:2x3x2,bodies=3,enclosed",
        "oseen:2x2x3,reynolds=7",
        "rt0:2x3x2,anisotropy=2",
        "nedelec:3x2x2,contrast=9",
        "biot2:2x2x3,storage=0",
        "biot3:2x2x2,poisson=0.1",
        "twophase:3x4x5,dt=0.5",
        "blackoil:3x4x5,producer=rate,gravity=0",
    ] {
        let first = generate(text).unwrap();
        let again = generate(&first.spec).unwrap();
        assert_eq!(first, again, "{}", first.spec);
    }
    assert_eq!(
        generate("stokes:5x5x5,nu=0.125").unwrap().spec,
        "stokes:5x5x5,scheme=radau-iia-2,tau=0.125,nu=0.125,length=1,ramp=1,stab=1,scale=6"
    );
}

#[test]
fn the_catalogue_is_true() {
    for problem in catalogue() {
        let spec = generate(problem.example).unwrap().spec;
        // Keys of a mesh file do not apply to a generated mesh.
        for key in problem.keys.iter().filter(|key| !key.help.starts_with("mesh file:")) {
            assert!(spec.contains(&format!(",{}=", key.name)));
            assert!(!key.help.is_empty() && !key.default.is_empty());
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (text, named) in [
        (
            "",
            "stokes, laplace, elasticity, spe10, radiation, poisson-multiphase, advection, taylor-hood, oseen, rt0, nedelec, biot2, biot3, twophase, blackoil, random, lookalike",
        ),
        (
            "navier:3x3x3",
            "unknown problem `navier`; the known ones are stokes, laplace, elasticity, spe10, radiation, poisson-multiphase, advection, taylor-hood, oseen, rt0, nedelec, biot2, biot3, twophase, blackoil, random, lookalike",
        ),
        ("stokes", "expected stokes:NXxNYxNZ"),
        ("stokes:", "expected stokes:NXxNYxNZ"),
        ("stokes:8x8", "expected stokes:NXxNYxNZ"),
        ("stokes:8x8x8x8", "expected"),
        ("stokes:8x-8x8", "expected"),
        ("stokes:8x8xé", "expected"),
        ("stokes:8x8x8.msh", "8x8x8.msh"),
        ("laplace:a.msh", "expected laplace:NXxNYxNZ"),
        ("stokes:3x3x3,scheme=gauss-9", "`gauss-9` has 9 stages; schemes by name have at most 8"),
        ("stokes:1x8x8", "at least 2"),
        ("stokes:8x2x8", "at least 2 along x and 3 along y and z"),
        ("stokes:8x8x8,", "not key=value"),
        ("stokes:8x8x8,foo=1", "unknown key `foo`; stokes knows scheme, tau, nu, length, ramp, stab, scale"),
        ("stokes:8x8x8,tau=1,tau=2", "`tau` is given twice"),
        ("stokes:8x8x8,tau=0", "tau=0: expected a positive number"),
        ("stokes:8x8x8,tau=NaN", "positive"),
        ("stokes:8x8x8,tau=inf", "positive"),
        ("stokes:8x8x8,nu=-1", "nu=-1"),
        ("stokes:8x8x8,stab=", "stab=:"),
        ("stokes:8x8x8,scale=0", "scale=0"),
        ("stokes:3x3x3,scheme=radau", "unknown time-stepping scheme `radau`"),
        ("stokes:3x3x3,nu=1e308", "finite"),
        ("stokes:3x3x3,tau=1e300,nu=1e20", "finite"),
        ("stokes:3x3x3,ramp=1e-320", "finite"),
        ("stokes:3x3x3,nu=1e-320", "finite"),
        ("stokes:3x3x3,length=1e-320", "finite"),
        ("stokes:99999999999999999999x3x3", "expected"),
        ("stokes:4294967296x4294967296x4", "32-bit"),
        ("stokes:2000x2000x1000", "32-bit"),
        ("stokes:1000x1000x1000", "iB, but only"),
        ("laplace:1000x2000x2000,block=1", "iB, but only"),
        ("laplace:3x3x3,block=9", "block=9: expected a whole number from 1 to 8"),
        ("laplace:3x3x3,coupling=1", "coupling=1"),
        ("spe10:4x4", "expected spe10:NXxNYxNZ"),
        ("spe10:4x4x4,layers=2", "unknown key `layers`; spe10 knows permeability, layer, seed"),
        ("spe10:4x4x4,layer=2", "layer=2: expected 0 unless permeability=DIR is given"),
        ("spe10:4x4x4,layer=85", "from 0 to 84"),
        ("spe10:4x4x4,radius=3.2", "less than 3.13"),
        ("spe10:4x4x4,viscosity=0", "viscosity=0"),
        ("spe10:4x4x4,viscosity=1e-320", "finite"),
        ("spe10:1000x2000x2000", "iB, but only"),
        ("spe10:5000x2000x2000", "32-bit"),
        ("advection:4x4x4,peclet=0", "peclet=0: expected a positive number"),
        ("advection:4x4x4,wind=east", "wind=east: expected oblique or recirculating"),
        ("advection:4x4x4,wind=recirculating,peclet=inf", "peclet=inf: expected a positive number with"),
        ("radiation:4x4x4,components=2", "components=2: expected 1 or 3"),
        ("radiation:4x4x4,linearization=picard", "newton or secant"),
        ("radiation:4x4x4,cold=2", "cold=2: expected at most drive"),
        ("radiation:4x4x4,opacity=2", "unknown key `opacity`; radiation knows components, dt"),
        ("radiation:4x4x4,dt=1e-320", "finite"),
        ("radiation:1000x1000x1000,components=3", "iB, but only"),
        ("poisson-multiphase:4x4x4,contrast=0", "contrast=0: expected a positive number"),
        ("poisson-multiphase:4x4x4,gap=-1", "gap=-1: expected a number of at least 0"),
        ("poisson-multiphase:4x4x4,outlet=left", "outlet=left: expected open or top or none"),
        ("poisson-multiphase:4x4x4,bubbles=1.5", "bubbles=1.5: expected a whole number"),
        ("poisson-multiphase:4x4x4,tau=1", "unknown key `tau`; poisson-multiphase knows contrast, solid, dz"),
        ("poisson-multiphase:5000x2000x2000", "32-bit"),
        ("taylor-hood:4x4", "expected taylor-hood:NXxNYxNZ"),
        ("taylor-hood:4x4x4,bodies=9999", "bodies=9999: expected a whole number from 0 to 1000"),
        ("taylor-hood:4x4x4,enclosed=yes", "enclosed=yes: expected false or true"),
        ("taylor-hood:1000x1000x1000", "iB, but only"),
        ("biot3:9999999999x9999999999x9999999999", "iB, but only"),
        ("oseen:4x4x4,reynolds=0", "reynolds=0: expected a positive number"),
        ("rt0:4x4x4,contrast=-1", "contrast=-1: expected a positive number"),
        ("nedelec:4x4x4,mass=0", "mass=0: expected a positive number"),
        ("biot2:4x4x4,poisson=0.5", "poisson=0.5: expected a ratio below 0.5"),
        ("biot3:4x4x4,storage=-1", "storage=-1: expected a number of at least 0"),
        ("blackoil:4x4x4,injector=open", "injector=open: expected rate or pressure"),
        ("twophase:5000x2000x2000", "iB, but only"),
        ("random:1", "at least 2"),
        ("random:10x10", "expected random:N"),
        ("random:10,stages=0", "stages=0"),
        ("random:10,seed=-1", "seed=-1"),
        ("random:10,pattern=other", "same or different"),
        ("random:18446744073709551615", "32-bit"),
        ("random:1000000000", "iB, but only"),
        ("random:10,seed", "`seed` is not key=value"),
        ("lookalike", "expected lookalike:NAME"),
        ("lookalike:", "expected lookalike:NAME"),
        ("lookalike:uk-2001", "unknown matrix `uk-2001`; the known ones are kmer_U1a"),
        ("lookalike:stokes,scale=0", "scale=0: expected a positive number or a ratio"),
        ("lookalike:stokes,scale=1/0", "scale=1/0: expected"),
        ("lookalike:stokes,scale=2", "stokes: scale 2: expected a number above 0 and at most 1"),
        ("lookalike:stokes,scale=1e-6", "leaves 11 rows; choose a scale of at least"),
        ("lookalike:nlpkkt160,scale=1e-6", "leaves 40 rows; choose a scale of at least"),
        ("lookalike:stokes,permuted=maybe", "permuted=maybe: expected false or true"),
    ] {
        let message = generate(text).expect_err(text).to_string();
        assert!(message.contains(named), "`{text}`: {message}");
    }
}
