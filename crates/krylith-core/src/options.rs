//! Everything that a solve can be asked, in one struct that is also a line of text.
//!
//! What is not given is `None` and left to the solver, or to whom the options are merged with: the command line comes before
//! the `[solver]` section of a file, and both before the defaults ([`Options::or`]).

mod method;
mod threads;

pub use crate::names::{tolerance, whole_number};

use crate::matching::MatchingChoice;
use crate::matrix::ZerosChoice;
use crate::method::cbcg::MOST_STEPS;
use crate::method::{CbcgBasis, CgForm, MethodName, MethodSpec, Orthogonalization, Reductions};
pub(crate) use crate::names::{named, unknown};
use crate::operator::Format;
use crate::partition::{PartitionSpec, SubdomainSpec};
use crate::precond::PrecondSpec;
use crate::space::{Stop, Store};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::str::FromStr;

/// Options of a [`Solver`](crate::Solver).
///
/// # Examples
/// As text they are `key=value` pairs, separated by spaces; options of a method and of a preconditioner follow its name:
///
/// ```
/// use krylith::Options;
/// let options: Options = "method=gmres:restart=50 precond=ildu:fill=1 rtol=1e-8 device=cuda:0,1".parse()?;
/// assert_eq!(options.restart, Some(50));
/// assert_eq!(options.to_string().parse::<Options>()?, options);
/// // What one leaves open the other may say.
/// let file: Options = "rtol=1e-4 max_iters=500".parse()?;
/// let both = options.or(&file);
/// assert_eq!((both.rtol, both.max_iters), (Some(1e-8), Some(500)));
/// # Ok::<(), krylith::Error>(())
/// ```
///
/// In a `system.toml` the section `[solver]` has the same keys, and the same can be written by hand:
///
/// ```
/// use krylith::{Options, options::MethodName};
/// let options = Options { method: Some(MethodName::Bicgstab), ..Options::new().rtol(1e-8) };
/// assert_eq!(options.to_string(), "method=bicgstab rtol=1e-8");
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Krylov method. The default is `auto`.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub method: Option<MethodName>,
    /// Of GMRES: basis vectors before a restart. The default is 30, and more where a solve needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<usize>,
    /// Of GMRES: how a basis vector is made orthogonal to the others.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub orthogonalization: Option<Orthogonalization>,
    /// Of BiCGSTAB: how inner products are gathered into reductions.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub reductions: Option<Reductions>,
    /// Of CG: the form of its recurrence.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub form: Option<CgForm>,
    /// Of CBCG: directions of a step, products between two pairs of reductions, from 1 to 16. The default is 12.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<usize>,
    /// Of CBCG: the polynomials that span a step's directions.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub basis: Option<CbcgBasis>,
    /// Preconditioner. The default is `auto`.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub precond: Option<PrecondSpec>,
    /// Stop when ‖b − A x‖ ≤ rtol·‖b‖. The default is 1e-6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtol: Option<f64>,
    /// Stop when ‖b − A x‖ ≤ atol, whichever comes first. The default is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atol: Option<f64>,
    /// Most iterations. The default is 10,000, and 20 √n for n > 250,000 unknowns.
    #[serde(alias = "max-iters", skip_serializing_if = "Option::is_none")]
    pub max_iters: Option<usize>,
    /// Most seconds of iterating. The default is no limit.
    #[serde(alias = "time-limit", skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<f64>,
    /// Precision in which matrix, preconditioner and basis are stored. The default is f64.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// How the product of one matrix of scalar rows is stored. The default is `auto`: by diagonals where entries lie on few.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Where to run. The default is `auto`.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceSpec>,
    /// Threads of the host that work at once, of each rank, for set-up and solve. The default is one a core, shared among the ranks of a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Bitwise equal results from run to run. Results of this version are, whatever is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deterministic: Option<bool>,
    /// Scale rows and columns before the preconditioner is built. The default is no, unless the preconditioner is `auto`
    /// and entries differ by more than 1e6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equilibrate: Option<bool>,
    /// Permute and scale rows before the preconditioner is built, so that its diagonal is large. The default is `auto`.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub matching: Option<MatchingChoice>,
    /// What becomes of zeros that matrices store: `auto` drops those off the diagonal where they are more than a tenth of a term's
    /// entries, of blocks where whole blocks are zero. The default is `auto`.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub zeros: Option<ZerosChoice>,
    /// How block rows are given to several GPUs of this process. The default is `auto`.
    #[serde(with = "as_text", skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionSpec>,
    /// Most bytes that a device of this solve may hold; a solve that needs more is refused. The default is what is free.
    #[serde(alias = "memory-limit", skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
}

/// Where a solve runs: `auto`, `cpu`, `cuda`, or `cuda:0,1` for GPUs by number.
///
/// # Examples
/// ```
/// use krylith::DeviceSpec;
/// assert_eq!("cuda:0,1".parse::<DeviceSpec>()?, DeviceSpec::Cuda(vec![0, 1]));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceSpec {
    /// The first GPU if one can be used, else the CPU.
    #[default]
    Auto,
    /// Host threads.
    Cpu,
    /// GPUs by number; none named means the first.
    Cuda(Vec<usize>),
}

impl FromStr for DeviceSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, list) = text.split_once(':').map_or((text, None), |(n, l)| (n, Some(l)));
        match (name.to_ascii_lowercase().as_str(), list) {
            ("auto", None) => Ok(DeviceSpec::Auto),
            ("cpu", None) => Ok(DeviceSpec::Cpu),
            ("cuda", None) => Ok(DeviceSpec::Cuda(Vec::new())),
            ("cuda", Some(list)) => {
                let numbers: std::result::Result<Vec<usize>, _> = list.split(',').map(str::parse).collect();
                let numbers = numbers.map_err(|_| {
                    Error::invalid(format!("`{text}`: GPUs are given by number, such as cuda:0 or cuda:0,1"))
                })?;
                match numbers.iter().enumerate().find(|(i, n)| numbers[..*i].contains(n)) {
                    Some((_, n)) => Err(Error::invalid(format!("`{text}` names GPU {n} twice"))),
                    None => Ok(DeviceSpec::Cuda(numbers)),
                }
            }
            ("auto" | "cpu", Some(_)) => Err(Error::invalid(format!("`{text}`: only cuda takes numbers"))),
            _ => unknown("device", name, &["auto", "cpu", "cuda[:0,1,…]"]),
        }
    }
}

impl Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Auto => f.write_str("auto"),
            DeviceSpec::Cpu => f.write_str("cpu"),
            DeviceSpec::Cuda(list) if list.is_empty() => f.write_str("cuda"),
            DeviceSpec::Cuda(list) => {
                let list: Vec<String> = list.iter().map(usize::to_string).collect();
                write!(f, "cuda:{}", list.join(","))
            }
        }
    }
}

impl Store {
    /// `f64` or `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Store::F64 => "f64",
            Store::F32 => "f32",
        }
    }
}

impl FromStr for Store {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        named("precision", text, &[Store::F64, Store::F32], |s| s.name())
    }
}

impl Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Most basis vectors of GMRES; more are a slip of the finger.
pub const MOST_RESTART: usize = 1_000_000;
/// Most iterations: the history keeps a number for each.
pub const MOST_ITERATIONS: usize = 100_000_000;
/// Most threads of a team.
pub const MOST_THREADS: usize = 1024;

/// Bytes, as a plain number or with a unit of 1024.
fn bytes(text: &str) -> Result<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => 64,
    };
    let scaled = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1u64.checked_shl(shift)?));
    scaled.ok_or_else(|| Error::invalid("expected a number of bytes, such as 8000000000 or 8GiB"))
}

fn seconds(text: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|t: &f64| *t > 0.0 && t.is_finite());
    number.ok_or_else(|| Error::invalid("expected a positive number of seconds, such as 60"))
}

fn yes_or_no(text: &str) -> Result<bool> {
    let plain = text.to_ascii_lowercase();
    plain.parse().map_err(|_| Error::invalid("expected true or false"))
}

/// The keys of the text form.
pub(crate) const KEYS: [&str; 22] = [
    "method=NAME[:key=value,…]",
    "restart",
    "orthogonalization",
    "reductions",
    "form",
    "s",
    "basis",
    "precond",
    "rtol",
    "atol",
    "max_iters",
    "time_limit",
    "store",
    "format",
    "device",
    "threads",
    "deterministic",
    "equilibrate",
    "matching",
    "zeros",
    "partition",
    "memory_limit",
];

impl Options {
    /// Everything left open.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a relative tolerance.
    pub fn rtol(self, rtol: f64) -> Self {
        Self { rtol: Some(rtol), ..self }
    }

    /// The same with an absolute tolerance.
    pub fn atol(self, atol: f64) -> Self {
        Self { atol: Some(atol), ..self }
    }

    /// The same with a limit of iterations.
    pub fn max_iters(self, iterations: usize) -> Self {
        Self { max_iters: Some(iterations), ..self }
    }

    /// The same with a limit of seconds.
    pub fn time_limit(self, seconds: f64) -> Self {
        Self { time_limit: Some(seconds), ..self }
    }

    /// The same with a method and all of its options.
    pub fn method(self, method: MethodSpec) -> Self {
        let cleared = Self {
            restart: None,
            orthogonalization: None,
            reductions: None,
            form: None,
            s: None,
            basis: None,
            ..self
        };
        method.options().or(&cleared)
    }

    /// The same with a preconditioner.
    pub fn precond(self, precond: PrecondSpec) -> Self {
        Self { precond: Some(precond), ..self }
    }

    /// The same on a device.
    pub fn device(self, device: DeviceSpec) -> Self {
        Self { device: Some(device), ..self }
    }

    /// The same with a number of threads.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// The same with a precision of what is stored.
    pub fn store(self, store: Store) -> Self {
        Self { store: Some(store), ..self }
    }

    /// The same with a format of the product.
    pub fn format(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// The same with a limit of bytes on each device.
    pub fn memory_limit(self, bytes: u64) -> Self {
        Self { memory_limit: Some(bytes), ..self }
    }

    /// These options, and where they say nothing the others'. A method that is named here sets options of other methods
    /// there aside.
    pub fn or(&self, other: &Options) -> Options {
        let aside = self.method.filter(|m| *m != MethodName::Auto);
        let of = |owner| aside.is_none_or(|m| m == owner);
        let gmres = aside.is_none_or(MethodName::is_gmres);
        let bicgstab = of(MethodName::Bicgstab);
        let (cg, cbcg) = (of(MethodName::Cg), of(MethodName::Cbcg));
        Options {
            method: self.method.or(other.method),
            restart: self.restart.or(other.restart.filter(|_| gmres)),
            orthogonalization: self.orthogonalization.or(other.orthogonalization.filter(|_| gmres)),
            reductions: self.reductions.or(other.reductions.filter(|_| bicgstab)),
            form: self.form.or(other.form.filter(|_| cg)),
            s: self.s.or(other.s.filter(|_| cbcg)),
            basis: self.basis.or(other.basis.filter(|_| cbcg)),
            precond: self.precond.clone().or_else(|| other.precond.clone()),
            rtol: self.rtol.or(other.rtol),
            atol: self.atol.or(other.atol),
            max_iters: self.max_iters.or(other.max_iters),
            time_limit: self.time_limit.or(other.time_limit),
            store: self.store.or(other.store),
            format: self.format.or(other.format),
            device: self.device.clone().or_else(|| other.device.clone()),
            threads: self.threads.or(other.threads),
            deterministic: self.deterministic.or(other.deterministic),
            equilibrate: self.equilibrate.or(other.equilibrate),
            matching: self.matching.or(other.matching),
            zeros: self.zeros.or(other.zeros),
            partition: self.partition.or(other.partition),
            memory_limit: self.memory_limit.or(other.memory_limit),
        }
    }

    /// The same with the method that is meant: where it is left open and options of one are given, that one.
    ///
    /// # Errors
    /// [`Error::Option`] for an option of another method than the one that is taken; numbers out of their range.
    pub fn settled(&self) -> Result<Options> {
        let wrong = |key: &'static str, message: String| Err::<Options, _>(Error::Option { key, message });
        for (key, value, from, to) in [
            ("restart", self.restart, 1, MOST_RESTART),
            ("s", self.s, 1, MOST_STEPS),
            ("max_iters", self.max_iters, 0, MOST_ITERATIONS),
            ("threads", self.threads, 1, MOST_THREADS),
        ] {
            if let Some(n) = value.filter(|n| !(from..=to).contains(n)) {
                return wrong(key, format!("is {n}; expected a whole number from {from} to {to}"));
            }
        }
        for (key, value) in [("rtol", self.rtol), ("atol", self.atol)] {
            if let Some(v) = value.filter(|v| !(v.is_finite() && *v >= 0.0)) {
                return wrong(key, format!("is {v}; it must be finite and not negative"));
            }
        }
        if let Some(v) = self.time_limit.filter(|v| !(*v > 0.0 && v.is_finite())) {
            return wrong("time_limit", format!("is {v}; expected a positive number of seconds"));
        }
        let method = MethodSpec::meant(self)?;
        if let (MethodName::Cg | MethodName::Cbcg, Some(part)) = (method, self.precond_or_auto().one_way()) {
            let needs = "which is not symmetric: take symmetric(A then B), which goes back by A, or method bicgstab or gmres";
            return wrong(
                "precond",
                format!("has `{part}`, {needs}; {method} needs a symmetric preconditioner"),
            );
        }
        let mut precond = self.precond.clone();
        if self.deterministic == Some(true) {
            precond = precond.map(|precond| precond.in_fixed_order());
        }
        Ok(Options { method: Some(method), precond, ..self.clone() })
    }

    /// When to stop.
    pub fn stop(&self) -> Stop {
        let default = Stop::default();
        Stop {
            rtol: self.rtol.unwrap_or(default.rtol),
            atol: self.atol.unwrap_or(default.atol),
            max_iterations: self.max_iters.unwrap_or(default.max_iterations),
        }
    }

    /// When to stop with so many unknowns: unless it is named, the limit of iterations grows with the diameter of a grid in the plane.
    ///
    /// ```
    /// let options = krylith::Options::new();
    /// assert_eq!(options.stop_of(1_000).max_iterations, 10_000);
    /// assert_eq!(options.stop_of(4_000_000).max_iterations, 40_000);
    /// assert_eq!(options.max_iters(5).stop_of(4_000_000).max_iterations, 5);
    /// ```
    pub fn stop_of(&self, unknowns: usize) -> Stop {
        let grown = self.stop().max_iterations.max((20.0 * (unknowns as f64).sqrt()) as usize);
        Stop { max_iterations: self.max_iters.unwrap_or(grown), ..self.stop() }
    }

    /// The subdomains that the preconditioner will want first, if any, for blocks of order b·s: what ranks then own wholly.
    pub fn subdomains(&self, order: usize) -> Option<SubdomainSpec> {
        self.precond_or_auto().subdomains(order)
    }

    /// Planes of a grid that a tile of the preconditioner has, where it wants ranks to hold whole planes.
    pub fn planes(&self) -> Option<usize> {
        self.precond_or_auto().planes()
    }

    /// The preconditioner, or `auto`.
    pub(crate) fn precond_or_auto(&self) -> &PrecondSpec {
        self.precond.as_ref().unwrap_or(&PrecondSpec::Auto)
    }

    /// One `key=value` of the text form.
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let plain = key.to_ascii_lowercase().replace('-', "_");
        match plain.as_str() {
            "method" => {
                let (name, options) = value.split_once(':').map_or((value, ""), |(n, o)| (n, o));
                self.method = Some(name.parse()?);
                for pair in options.split(',').filter(|pair| !pair.is_empty()) {
                    let (key, value) = pair
                        .split_once('=')
                        .ok_or_else(|| Error::invalid(format!("`{pair}` in `{value}` is not key=value")))?;
                    match key.to_ascii_lowercase().as_str() {
                        "restart" | "orthogonalization" | "reductions" | "form" | "s" | "basis" => {
                            self.set(key, value)?
                        }
                        _ => {
                            let known = ["restart", "orthogonalization", "reductions", "form", "s", "basis"];
                            unknown("key of a method", key, &known)?
                        }
                    }
                }
            }
            "restart" => self.restart = Some(whole_number(value, 1, MOST_RESTART)?),
            "orthogonalization" => self.orthogonalization = Some(value.parse()?),
            "reductions" => self.reductions = Some(value.parse()?),
            "form" => self.form = Some(value.parse()?),
            "s" => self.s = Some(whole_number(value, 1, MOST_STEPS)?),
            "basis" => self.basis = Some(value.parse()?),
            "precond" => self.precond = Some(value.parse()?),
            "rtol" => self.rtol = Some(tolerance(value)?),
            "atol" => self.atol = Some(tolerance(value)?),
            "max_iters" => self.max_iters = Some(whole_number(value, 0, MOST_ITERATIONS)?),
            "time_limit" => self.time_limit = Some(seconds(value)?),
            "store" => self.store = Some(value.parse()?),
            "format" => self.format = Some(value.parse()?),
            "device" => self.device = Some(value.parse()?),
            "threads" => self.threads = Some(whole_number(value, 1, MOST_THREADS)?),
            "deterministic" => self.deterministic = Some(yes_or_no(value)?),
            "equilibrate" => self.equilibrate = Some(yes_or_no(value)?),
            "matching" => self.matching = Some(value.parse()?),
            "zeros" => self.zeros = Some(value.parse()?),
            "partition" => self.partition = Some(value.parse()?),
            "memory_limit" => self.memory_limit = Some(bytes(value)?),
            _ => unknown("option", key, &KEYS)?,
        }
        Ok(())
    }
}

impl FromStr for Options {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        // A word begins an option where `=` comes before any `:`; other words, such as `then`, belong to the value before.
        let begins = |word: &str| word.split_once('=').is_some_and(|(key, _)| !key.contains(':'));
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for word in text.split_whitespace() {
            match (word.split_once('='), pairs.last_mut()) {
                (Some((key, value)), _) if begins(word) => pairs.push((key, value.into())),
                (_, Some((_, value))) => *value += &format!(" {word}"),
                _ => return Err(Error::invalid(format!("`{word}` is not key=value"))),
            }
        }
        let mut options = Options::default();
        for (i, (key, value)) in pairs.iter().enumerate() {
            if pairs[..i].iter().any(|other| crate::names::same(other.0, key)) {
                return Err(Error::invalid(format!("`{key}` is given twice")));
            }
            options.set(key, value).map_err(|e| Error::invalid(format!("{key}={value}: {e}")))?;
        }
        Ok(options)
    }
}

impl Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn add(words: &mut Vec<String>, key: &str, value: &Option<impl Display>) {
            words.extend(value.as_ref().map(|value| format!("{key}={value}")));
        }
        let mut own = Vec::new();
        add(&mut own, "restart", &self.restart);
        add(&mut own, "orthogonalization", &self.orthogonalization);
        add(&mut own, "reductions", &self.reductions);
        add(&mut own, "form", &self.form);
        add(&mut own, "s", &self.s);
        add(&mut own, "basis", &self.basis);
        let mut words = Vec::new();
        match (&self.method, own.is_empty()) {
            (Some(method), true) => words.push(format!("method={method}")),
            (Some(method), false) => words.push(format!("method={method}:{}", own.join(","))),
            (None, _) => words.extend(own),
        }
        let exact = |v: Option<f64>| v.map(|v| format!("{v:e}"));
        add(&mut words, "precond", &self.precond);
        add(&mut words, "rtol", &exact(self.rtol));
        add(&mut words, "atol", &exact(self.atol));
        add(&mut words, "max_iters", &self.max_iters);
        add(&mut words, "time_limit", &exact(self.time_limit));
        add(&mut words, "store", &self.store);
        add(&mut words, "format", &self.format);
        add(&mut words, "device", &self.device);
        add(&mut words, "threads", &self.threads);
        add(&mut words, "deterministic", &self.deterministic);
        add(&mut words, "equilibrate", &self.equilibrate);
        add(&mut words, "matching", &self.matching);
        add(&mut words, "zeros", &self.zeros);
        add(&mut words, "partition", &self.partition);
        add(&mut words, "memory_limit", &self.memory_limit);
        f.write_str(&words.join(" "))
    }
}

/// Values that a file holds as text.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::{fmt::Display, str::FromStr};

    pub(super) fn serialize<S: Serializer>(value: &Option<impl Display>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
