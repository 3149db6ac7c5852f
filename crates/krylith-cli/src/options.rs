//! Values of options, as the command line and the `[solver]` section of a `system.toml` both spell them.

use crate::failure::{Failure, Result};
use krylith::Store;
use krylith::io::SolverDefaults;
use krylith::matrix::MAX_BLOCK;
use krylith::method::{Orthogonalization, Reductions};
use krylith::partition::Partitioner;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

pub use crate::precond::spelling::Precond;

/// Refuses a name and lists the known ones.
pub fn unknown<T>(what: &str, name: &str, known: &[&str]) -> Parsed<T> {
    Err(format!("unknown {what} `{name}`; the known ones are {}", known.join(", ")))
}

/// A value, or why the text is none.
pub type Parsed<T> = std::result::Result<T, String>;

/// Where a solve runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Device {
    /// The best there is.
    #[default]
    Auto,
    /// Host threads.
    Cpu,
    /// GPUs by number; none named means the first.
    Cuda(Vec<usize>),
}

impl FromStr for Device {
    type Err = String;
    fn from_str(text: &str) -> Parsed<Self> {
        let (name, list) = text.split_once(':').map_or((text, None), |(n, l)| (n, Some(l)));
        match (name, list) {
            ("auto", None) => Ok(Device::Auto),
            ("cpu", None) => Ok(Device::Cpu),
            ("cuda", None) => Ok(Device::Cuda(Vec::new())),
            ("cuda", Some(list)) => {
                let numbers: std::result::Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
                let numbers = numbers
                    .map_err(|_| format!("`{text}`: GPUs are given by number, such as cuda:0 or cuda:0,1"))?;
                match numbers.iter().enumerate().find(|(i, n)| numbers[..*i].contains(n)) {
                    Some((_, n)) => Err(format!("`{text}` names GPU {n} twice")),
                    None => Ok(Device::Cuda(numbers)),
                }
            }
            ("auto" | "cpu", Some(_)) => Err(format!("`{text}`: only cuda takes numbers")),
            _ => unknown("device", name, &["auto", "cpu", "cuda[:0,1,…]"]),
        }
    }
}

/// Krylov methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Let the program pick.
    #[default]
    Auto,
    /// Restarted GMRES.
    Gmres,
    /// BiCGSTAB.
    Bicgstab,
}

impl Method {
    /// The name in reports, which know what `auto` took.
    pub fn name(self) -> &'static str {
        match self {
            Method::Auto => "auto",
            Method::Gmres => "gmres",
            Method::Bicgstab => "bicgstab",
        }
    }
}

impl FromStr for Method {
    type Err = String;
    fn from_str(text: &str) -> Parsed<Self> {
        match text {
            "auto" => Ok(Method::Auto),
            "gmres" => Ok(Method::Gmres),
            "bicgstab" => Ok(Method::Bicgstab),
            _ => unknown("method", text, &["auto", "gmres", "bicgstab"]),
        }
    }
}

/// How the user's matrix and vectors are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ordering {
    /// Node by node, the components of a node together.
    #[default]
    Interleaved,
    /// Field by field.
    Segregated,
}

impl FromStr for Ordering {
    type Err = String;
    fn from_str(text: &str) -> Parsed<Self> {
        match text {
            "interleaved" => Ok(Ordering::Interleaved),
            "segregated" => Ok(Ordering::Segregated),
            _ => unknown("ordering", text, &["interleaved", "segregated"]),
        }
    }
}

/// A right-hand side.
#[derive(Debug, Clone, PartialEq)]
pub enum Rhs {
    /// Ones.
    Ones,
    /// Numbers in (−1, 1) from a seed.
    Random(u64),
    /// A vector's file.
    File(PathBuf),
}

impl FromStr for Rhs {
    type Err = String;
    fn from_str(text: &str) -> Parsed<Self> {
        match text.split_once(':').map_or((text, None), |(n, s)| (n, Some(s))) {
            ("ones", None) => Ok(Rhs::Ones),
            ("random", None) => Ok(Rhs::Random(0)),
            ("random", Some(seed)) => {
                seed.parse().map(Rhs::Random).map_err(|_| format!("`{seed}` is no seed; give a whole number"))
            }
            _ => Ok(Rhs::File(text.into())),
        }
    }
}

/// Null vectors of a singular consistent system.
#[derive(Debug, Clone, PartialEq)]
pub enum Null {
    /// Constants of the fields that the matrix maps to zero.
    Constant,
    /// Vectors from a file, one a column.
    File(PathBuf),
}

impl FromStr for Null {
    type Err = String;
    fn from_str(text: &str) -> Parsed<Self> {
        Ok(if text == "constant" { Null::Constant } else { Null::File(text.into()) })
    }
}

/// `f64` or `f32`.
pub fn store(text: &str) -> Parsed<Store> {
    match text {
        "f64" => Ok(Store::F64),
        "f32" => Ok(Store::F32),
        _ => unknown("precision", text, &["f64", "f32"]),
    }
}

/// `lowsync`, `cgs2` or `mgs`.
pub fn orthogonalization(text: &str) -> Parsed<Orthogonalization> {
    match text {
        "lowsync" => Ok(Orthogonalization::Lowsync),
        "cgs2" => Ok(Orthogonalization::Cgs2),
        "mgs" => Ok(Orthogonalization::Mgs),
        _ => unknown("orthogonalization", text, &["lowsync", "cgs2", "mgs"]),
    }
}

/// `merged` or `classical`.
pub fn reductions(text: &str) -> Parsed<Reductions> {
    match text {
        "merged" => Ok(Reductions::Merged),
        "classical" => Ok(Reductions::Classical),
        _ => unknown("way of reductions", text, &["merged", "classical"]),
    }
}

/// A block size that the kernels know.
pub fn block_size(text: &str) -> Parsed<usize> {
    whole(text, 1, MAX_BLOCK)
}

/// Threads of a team; more than this is a slip of the finger.
pub fn threads(text: &str) -> Parsed<usize> {
    whole(text, 1, 1024)
}

/// Ranks of a partition; each is a process with a device of its own.
pub fn ranks(text: &str) -> Parsed<usize> {
    whole(text, 1, 1_000_000)
}

/// A way to share block rows, by its name.
pub fn partitioner(text: &str) -> Parsed<Partitioner> {
    let names = Partitioner::ALL.map(Partitioner::name);
    let known = Partitioner::ALL.into_iter().find(|way| way.name() == text);
    known.map_or_else(|| unknown("partition", text, &names), Ok)
}

/// Iterations before a restart.
pub fn restart(text: &str) -> Parsed<usize> {
    whole(text, 1, 1_000_000)
}

/// Most iterations; the history keeps a number for each.
pub fn max_iters(text: &str) -> Parsed<usize> {
    whole(text, 0, 100_000_000)
}

/// A whole number between bounds.
pub fn whole(text: &str, from: usize, to: usize) -> Parsed<usize> {
    text.parse()
        .ok()
        .filter(|n| (from..=to).contains(n))
        .ok_or_else(|| format!("expected a whole number from {from} to {to}"))
}

/// A tolerance.
pub fn tolerance(text: &str) -> Parsed<f64> {
    text.parse()
        .ok()
        .filter(|t: &f64| t.is_finite() && *t >= 0.0)
        .ok_or_else(|| "expected a number that is finite and not negative, such as 1e-6".into())
}

/// What the command line says of the solver; what it leaves open the system's file or the default decides.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `--method`.
    pub method: Option<Method>,
    /// `--restart`.
    pub restart: Option<usize>,
    /// `--orthogonalization`.
    pub orthogonalization: Option<Orthogonalization>,
    /// `--reductions`.
    pub reductions: Option<Reductions>,
    /// `--precond`.
    pub precond: Option<Precond>,
    /// `--rtol`.
    pub rtol: Option<f64>,
    /// `--atol`.
    pub atol: Option<f64>,
    /// `--max-iters`.
    pub max_iters: Option<usize>,
    /// `--store`.
    pub store: Option<Store>,
    /// `--device`.
    pub device: Option<Device>,
}

/// The same, decided.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Method.
    pub method: Method,
    /// Iterations between restarts, where they were named.
    pub restart: Option<usize>,
    /// Orthogonalisation.
    pub orthogonalization: Orthogonalization,
    /// Reductions of BiCGSTAB.
    pub reductions: Reductions,
    /// Preconditioner.
    pub precond: Precond,
    /// Relative to ‖b‖.
    pub rtol: f64,
    /// Absolute.
    pub atol: f64,
    /// Most iterations.
    pub max_iters: usize,
    /// Precision of matrices, preconditioner and basis.
    pub store: Store,
    /// Where to run.
    pub device: Device,
}

impl Given {
    /// The command line first, then the file's `[solver]` section, then the defaults.
    ///
    /// # Errors
    /// A value in the file that no option would take; `place` names the file. An option of another method than the one
    /// that is taken, unless a method on the command line set the file's aside.
    pub fn settle(self, file: &SolverDefaults, place: &str) -> Result<Settings> {
        fn read<T>(
            place: &str,
            key: &str,
            text: Option<impl Display>,
            parse: impl Fn(&str) -> Parsed<T>,
        ) -> Result<Option<T>> {
            text.map(|t| parse(&t.to_string()))
                .transpose()
                .map_err(|e| Failure::usage(format!("{place}: `solver.{key}`: {e}")))
        }
        let method = read(place, "method", file.method.as_ref(), str::parse)?;
        let restart = read(place, "restart", file.restart, restart)?;
        let orth = read(place, "orthogonalization", file.orthogonalization.as_ref(), orthogonalization)?;
        let red = read(place, "reductions", file.reductions.as_ref(), reductions)?;
        let precond = read(place, "precond", file.precond.as_ref(), str::parse)?;
        let rtol = read(place, "rtol", file.rtol, tolerance)?;
        let atol = read(place, "atol", file.atol, tolerance)?;
        let max_iters = read(place, "max_iters", file.max_iters, max_iters)?;
        let store = read(place, "store", file.store.as_ref(), store)?;
        let device = read(place, "device", file.device.as_ref(), str::parse)?;
        let wanted = self.method.or(method).unwrap_or_default();
        // Options of one method, on the command line and in the file.
        let gmres = [
            ("restart", self.restart.is_some(), restart.is_some()),
            ("orthogonalization", self.orthogonalization.is_some(), orth.is_some()),
        ];
        let bicgstab = [("reductions", self.reductions.is_some(), red.is_some())];
        // A method that is left open is the one whose options are named.
        let named = |options: &[(&str, bool, bool)]| options.iter().any(|o| o.1 || o.2);
        let taken = match wanted {
            Method::Auto if named(&gmres) => Method::Gmres,
            Method::Auto if named(&bicgstab) => Method::Bicgstab,
            _ => wanted,
        };
        let (others, owner): (&[_], _) = match taken {
            Method::Auto => (&[], ""),
            Method::Gmres => (&bicgstab, "bicgstab"),
            Method::Bicgstab => (&gmres, "gmres"),
        };
        for &(key, given, in_file) in others {
            let why = format!("is for method {owner}, and {} has no use for it; leave it out", taken.name());
            if given {
                return Err(Failure::usage(format!("--{key} {why}")));
            }
            if in_file && self.method.is_none() {
                return Err(Failure::usage(format!("{place}: `solver.{key}` {why}")));
            }
        }
        Ok(Settings {
            method: taken,
            restart: self.restart.or(restart),
            orthogonalization: self.orthogonalization.or(orth).unwrap_or_default(),
            reductions: self.reductions.or(red).unwrap_or_default(),
            precond: self.precond.or(precond).unwrap_or_default(),
            rtol: self.rtol.or(rtol).unwrap_or(1e-6),
            atol: self.atol.or(atol).unwrap_or(0.0),
            max_iters: self.max_iters.or(max_iters).unwrap_or(10_000),
            store: self.store.or(store).unwrap_or_default(),
            device: self.device.or(device).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        assert_eq!("cuda:0,1".parse(), Ok(Device::Cuda(vec![0, 1])));
        assert_eq!("cuda".parse(), Ok(Device::Cuda(vec![])));
        for text in ["cuda:", "cuda:a", "cuda:1,1", "cpu:0", "gpu"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }

    #[test]
    fn right_hand_sides() {
        assert_eq!("random:7".parse(), Ok(Rhs::Random(7)));
        assert_eq!("b.npy".parse(), Ok(Rhs::File("b.npy".into())));
        assert!("random:x".parse::<Rhs>().is_err());
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let file = SolverDefaults { rtol: Some(1e-9), restart: Some(7), ..Default::default() };
        let given = Given { rtol: Some(1e-3), ..Default::default() };
        let settings = given.settle(&file, "system.toml").unwrap();
        assert_eq!((settings.rtol, settings.restart, settings.max_iters), (1e-3, Some(7), 10_000));
        // A method's own options, given to the other one.
        let bicgstab = || SolverDefaults { method: Some("bicgstab".into()), ..Default::default() };
        let given = Given { restart: Some(5), ..Default::default() };
        let error = given.settle(&bicgstab(), "s.toml").unwrap_err().message;
        assert!(error.contains("--restart is for method gmres"), "{error}");
        let file = SolverDefaults { restart: Some(7), ..bicgstab() };
        let error = Given::default().settle(&file, "s.toml").unwrap_err().message;
        assert!(error.contains("s.toml: `solver.restart` is for method gmres"), "{error}");
        let given = Given { method: Some(Method::Gmres), ..Default::default() };
        assert_eq!(given.settle(&file, "s.toml").unwrap().restart, Some(7));
        let file = SolverDefaults { restart: Some(7), ..Default::default() };
        let given = Given { method: Some(Method::Bicgstab), ..Default::default() };
        assert_eq!(given.settle(&file, "s.toml").unwrap().method, Method::Bicgstab);
        let file = SolverDefaults { method: Some("cg".into()), ..Default::default() };
        let error = Given::default().settle(&file, "s.toml").unwrap_err().message;
        assert!(error.contains("s.toml: `solver.method`: unknown method `cg`"), "{error}");
    }
}
