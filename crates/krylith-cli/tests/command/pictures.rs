//! Pictures of residuals and of solutions.

use crate::common::Folder;

/// Width and height of a PNG.
fn size_of_png(path: std::path::PathBuf) -> [u32; 2] {
    let data = std::fs::read(&path).unwrap();
    assert!(
        data.starts_with(b"\x89PNG\r\n\x1a\n") && data.ends_with(b"IEND\xaeB`\x82"),
        "{}",
        path.display()
    );
    [16, 20].map(|at| u32::from_be_bytes(data[at..at + 4].try_into().unwrap()))
}

#[test]
fn residuals_and_solutions_are_drawn() {
    let f = Folder::new();
    for problem in
        ["stokes:6x5x7", "spe10:6x7x5", "laplace:6x6x6", "radiation:8x6x5,components=3", "elasticity:7x4x5"]
    {
        f.line(&format!("solve {problem} --device cpu --quiet --plot p.png --picture u.png")).works();
        let (plot, picture) = (size_of_png(f.path("p.png")), size_of_png(f.path("u.png")));
        assert!(plot[0] == 1120 && plot[1] > 700, "{problem}: {plot:?}");
        assert!(picture[0] == 1120 && picture[1] > 200, "{problem}: {picture:?}");
    }
    f.line("solve spe10:6x7x5 --device cpu --quiet --picture u.svg").works();
    let picture = std::fs::read_to_string(f.path("u.svg")).unwrap();
    assert!(
        ["Pressure in layer 3", "psi", "x, ft", "spe10:6x7x5"].iter().all(|w| picture.contains(w)),
        "{picture}"
    );
    let ran = f.line("solve random:60 --device cpu --quiet --picture none.png");
    assert!(ran.works().err.contains("none.png is not written: the problem has no grid"), "{ran:#?}");
    f.line("solve A.mtx --picture u.png").fails(2, &["--picture u.png", "generated problems"]);
}
