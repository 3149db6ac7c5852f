//! Problem texts: defaults, round trips, and what is refused.

use krylith_problems::{catalogue, generate};

#[test]
fn the_full_text_generates_the_same_again() {
    for text in [
        "stokes:4x5x3",
        "stokes: 3x3x3 , tau = 0.5,scheme=lobatto-iiic-2",
        "random:20,seed=3",
        "laplace:3x2x4,block=2",
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
        for key in problem.keys {
            assert!(spec.contains(&format!(",{}=", key.name)));
            assert!(!key.help.is_empty() && !key.default.is_empty());
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (text, named) in [
        ("", "stokes, laplace, random"),
        ("navier:3x3x3", "unknown problem `navier`; the known ones are stokes, laplace, random"),
        ("stokes", "expected stokes:NXxNYxNZ"),
        ("stokes:", "expected stokes:NXxNYxNZ"),
        ("stokes:8x8", "expected stokes:NXxNYxNZ"),
        ("stokes:8x8x8x8", "expected"),
        ("stokes:8x-8x8", "expected"),
        ("stokes:8x8xé", "expected"),
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
        ("stokes:1000x1000x1000", "bytes"),
        ("laplace:1000x2000x2000,block=1", "bytes"),
        ("laplace:3x3x3,block=9", "block=9: expected a whole number from 1 to 8"),
        ("laplace:3x3x3,coupling=1", "coupling=1"),
        ("random:1", "at least 2"),
        ("random:10x10", "expected random:N"),
        ("random:10,stages=0", "stages=0"),
        ("random:10,seed=-1", "seed=-1"),
        ("random:10,pattern=other", "same or different"),
        ("random:18446744073709551615", "32-bit"),
        ("random:1000000000", "bytes"),
    ] {
        let message = generate(text).expect_err(text).to_string();
        assert!(message.contains(named), "`{text}`: {message}");
    }
}
