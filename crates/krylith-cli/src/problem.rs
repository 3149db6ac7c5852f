//! `krylith problem`: writes a generated system to files that `krylith solve` and other programs read.

use crate::args::{MatrixFormat, ProblemArgs};
use crate::failure::{DONE, Failure, Result};
use crate::output;
use crate::term;
use krylith_core::fields::Field;
use krylith_core::io::system::{KroneckerFile, SystemFile};
use krylith_core::io::{Array, matrix_market, numpy, petsc, vtu};
use krylith_core::matrix::{Csr, Dense};
use krylith_core::text::{name, plural};
use krylith_problems::{Generated, SystemKind};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Examples of the use of generated systems.
pub const NEXT: &str = "
Write one and solve it from its files:
  krylith problem stokes:8x8x8 --out duct
  krylith solve duct/system.toml";

/// Returns a list of problems with their keys, defaults and units, for the help of a command.
pub fn catalogue(of: &[krylith_problems::Problem]) -> String {
    // Lines of at most 60 columns.
    let mut out = String::from(
        "Problems. A size is a number of nodes, or as stated.\nKeys follow the size as ,key=value.\n",
    );
    for problem in of {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n  {}:{}", problem.name, problem.size);
        wrapped(&mut out, "    ", "    ", problem.help);
        let width = |head: &str, f: fn(&krylith_problems::Key) -> &'static str| {
            problem.keys.iter().map(|k| f(k).chars().count()).chain([head.len()]).max().unwrap_or(0)
        };
        let columns = (width("key", |k| k.name), width("default", |k| k.default), width("unit", |k| k.unit));
        let (names, defaults, units) = columns;
        let mut row = |name: &str, default: &str, unit: &str, help: &str| {
            let unit = if unit.is_empty() { "-" } else { unit };
            let head = format!("      {name:names$}  {default:defaults$}  {unit:units$}  ");
            wrapped(&mut out, &head, &" ".repeat(head.chars().count()), help);
        };
        row("key", "default", "unit", "meaning");
        for key in problem.keys {
            row(key.name, key.default, key.unit, key.help);
        }
        let nonlinear = krylith_problems::nonlinear::catalogue().iter().any(|p| p.name == problem.name);
        let example = format!("krylith {} {}", if nonlinear { "newton" } else { "solve" }, problem.example);
        wrapped(&mut out, "    ", "      ", &example);
    }
    out
}

/// Width that the last column of a table needs, and the indentation if it is printed below its row instead.
const ROOM: usize = 28;
const BELOW: &str = "          ";

/// Width of the longest line.
const WIDEST: usize = 98;

/// Appends words in lines of at most [`WIDEST`] columns, or of the terminal's width if it is smaller. The
/// first line starts with `head`, the others with `indent`.
fn wrapped(out: &mut String, head: &str, indent: &str, text: &str) {
    let columns = crate::term::columns().unwrap_or(WIDEST).min(WIDEST);
    // If a table leaves too little width, its last column is printed below the row.
    let (mut line, indent) = match head.chars().count() {
        n if n + ROOM > columns && indent.len() == n => {
            out.push_str(head.trim_end());
            out.push('\n');
            (BELOW.to_string(), BELOW)
        }
        _ => (head.to_string(), indent),
    };
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > columns {
            out.push_str(line.trim_end());
            out.push('\n');
            (line, empty) = (indent.to_string(), true);
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Runs the command.
///
/// # Errors
/// The problem is unknown, or the folder cannot be written.
pub fn problem(args: ProblemArgs) -> Result<u8> {
    crate::interrupt::watch()?;
    let Some(spec) = &args.spec else {
        output::print(&(catalogue(krylith_problems::catalogue()) + NEXT + "\n"));
        return Ok(DONE);
    };
    let Some(dir) = &args.out else {
        let message =
            format!("--out DIR says where the files of {spec} go; `krylith solve {spec}` needs none");
        return Err(Failure::usage(message));
    };
    let generated = krylith_problems::generate(spec)?;
    std::fs::create_dir_all(dir)
        .map_err(|e| Failure::usage(format!("--out {}: the folder cannot be created ({e})", name(dir))))?;
    crate::interrupt::writing();
    let wrote = write(&generated, dir, args.format)?;
    let (system, n) = (&generated.system, generated.system.rows());
    let size = format!(
        "{}, blocks {1}×{1}, {2}",
        plural(n, "unknown"),
        system.block(),
        plural(system.stages(), "stage")
    );
    let rows = [
        ("problem", vec![generated.spec.clone(), size]),
        ("wrote", wrote.iter().map(name).collect()),
        ("next", vec![format!("krylith solve {}", name(dir.join("system.toml")))]),
    ];
    output::print(&term::table(&rows, term::columns(), |_| term::PLAIN));
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
    if !generated.fields.is_empty() {
        file.fields = Some(generated.fields.iter().map(field).collect::<Vec<_>>().join(","));
    }
    for (name, a) in &generated.matrices {
        file.matrices.insert(name.clone(), matrix(name, a)?);
    }
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
        vtu::write(dir.join("mesh.vtu"), points, &generated.tetrahedra, &[])?;
        wrote.push(dir.join("mesh.vtu"));
    }
    // Written last, so that a folder with a system.toml has all files that it names.
    krylith_core::io::system::write(dir.join("system.toml"), &file)?;
    wrote.push(dir.join("system.toml"));
    Ok(wrote)
}

/// Returns a field as [`fields_of_text`](krylith_core::fields::fields_of_text) reads it. Unknowns of
/// generated fields form one run.
fn field(field: &Field) -> String {
    let (name, block, unknowns) = (field.name(), field.block(), field.unknowns());
    let first = unknowns.first().copied().unwrap_or(0);
    let step = unknowns.get(1).map_or(1, |next| next - first);
    let stop = unknowns.last().map_or(0, |last| last + 1);
    format!("{name}[{block}]={first}:{stop}:{step}")
}

fn rows(a: &Dense) -> Vec<Vec<f64>> {
    a.values().chunks_exact(a.columns()).map(<[f64]>::to_vec).collect()
}
