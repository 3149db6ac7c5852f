//! `krylith problem`: a generated system as files that `krylith solve` and other programs read.

use crate::args::{MatrixFormat, ProblemArgs};
use crate::failure::{DONE, Failure, Result};
use crate::output::{self, plural};
use crate::summary;
use krylith::io::system::{KroneckerFile, SystemFile};
use krylith::io::{Array, matrix_market, numpy, petsc, vtu};
use krylith::matrix::{Csr, Dense};
use krylith_problems::{Generated, SystemKind};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Every problem, key, default and unit, for `krylith problem --help`.
pub fn catalogue() -> String {
    let mut out = String::from("Problems (SIZE counts nodes; keys follow it as ,key=value):\n");
    for problem in krylith_problems::catalogue() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n  {}:{}   {}", problem.name, problem.size, problem.help);
        let width = |f: fn(&krylith_problems::Key) -> &'static str| {
            problem.keys.iter().map(|k| f(k).chars().count()).max().unwrap_or(0)
        };
        let (names, defaults, units) =
            (width(|k| k.name), width(|k| k.default), width(|k| k.unit).max("unit".len()));
        let (names, defaults) = (names.max("key".len()), defaults.max("default".len()));
        let _ = writeln!(out, "    {:names$}  {:defaults$}  {:units$}  meaning", "key", "default", "unit");
        for key in problem.keys {
            let unit = if key.unit.is_empty() { "-" } else { key.unit };
            let _ = writeln!(
                out,
                "    {:names$}  {:defaults$}  {unit:units$}  {}",
                key.name, key.default, key.help
            );
        }
        let _ = writeln!(out, "    example: krylith solve {}", problem.example);
    }
    out.push_str("\nWrite one and solve it from its files:\n");
    out.push_str("  krylith problem stokes:8x8x8 --out duct && krylith solve duct/system.toml");
    out
}

/// Runs the command.
///
/// # Errors
/// A problem that is not known, a folder that cannot be written.
pub fn problem(args: ProblemArgs) -> Result<u8> {
    crate::interrupt::watch()?;
    let generated = krylith_problems::generate(&args.spec)?;
    let dir = &args.out;
    std::fs::create_dir_all(dir)
        .map_err(|e| Failure::usage(format!("--out {}: the folder cannot be made ({e})", dir.display())))?;
    let wrote = write(&generated, dir, args.format)?;
    let (system, n) = (&generated.system, generated.system.rows());
    let size = format!(
        "{}, blocks {1}×{1}, {2}",
        plural(n, "unknown"),
        system.block(),
        plural(system.stages(), "stage")
    );
    output::print(&summary::table(&[
        ("problem", vec![generated.spec.clone(), size]),
        ("wrote", wrote.iter().map(|p| p.display().to_string()).collect()),
        ("next", vec![format!("krylith solve {}", dir.join("system.toml").display())]),
    ]));
    Ok(DONE)
}

fn write(generated: &Generated, dir: &Path, format: MatrixFormat) -> Result<Vec<PathBuf>> {
    let mut wrote = Vec::new();
    let mut matrix = |name: &str, a: &Csr| -> Result<PathBuf> {
        let file = PathBuf::from(match format {
            MatrixFormat::Petsc => format!("{name}.petsc"),
            MatrixFormat::Mtx => format!("{name}.mtx"),
        });
        let path = dir.join(&file);
        match format {
            MatrixFormat::Petsc => petsc::write(&path, &[petsc::Item::Matrix(a)])?,
            MatrixFormat::Mtx => matrix_market::write(&path, a)?,
        }
        wrote.push(path);
        Ok(file)
    };
    let mut file = SystemFile { rhs: Some("rhs.npy".into()), ..Default::default() };
    let stages = generated.system.stages();
    match &generated.system {
        SystemKind::Csr(a) => {
            (file.matrix, file.block) = (Some(matrix("A", a)?), Some(1));
        }
        SystemKind::Bsr(a) => {
            (file.matrix, file.block) = (Some(matrix("A", &a.to_csr())?), Some(a.block()));
        }
        SystemKind::Kronecker(k) => {
            file.kronecker = Some(KroneckerFile {
                m: matrix("M", &k.m.to_csr())?,
                l: matrix("L", &k.l.to_csr())?,
                block: Some(k.block()),
                tau: k.tau,
                scheme: None,
                a: Some(rows(&k.a)),
                b: Some(rows(&k.b)),
            });
        }
    }
    let rhs = match &generated.system {
        SystemKind::Kronecker(_) => {
            Array::new(vec![generated.rhs.len() / stages, stages], generated.rhs.clone())?
        }
        _ => Array::vector(generated.rhs.clone()),
    };
    numpy::write(dir.join("rhs.npy"), &rhs)?;
    wrote.push(dir.join("rhs.npy"));
    if let Some(points) = &generated.coordinates {
        let array = Array::new(vec![points.len(), 3], points.as_flattened().to_vec())?;
        numpy::write(dir.join("coordinates.npy"), &array)?;
        wrote.push(dir.join("coordinates.npy"));
        file.coordinates = Some("coordinates.npy".into());
        let tetrahedra = generated.mesh.as_ref().map(|m| m.tetrahedra()).unwrap_or_default();
        vtu::write(dir.join("mesh.vtu"), points, &tetrahedra, &[])?;
        wrote.push(dir.join("mesh.vtu"));
    }
    // Last: a folder with a system.toml has everything that it names.
    krylith::io::system::write(dir.join("system.toml"), &file)?;
    wrote.push(dir.join("system.toml"));
    Ok(wrote)
}

fn rows(a: &Dense) -> Vec<Vec<f64>> {
    a.values().chunks_exact(a.columns()).map(<[f64]>::to_vec).collect()
}
