//! Options of a solve: one struct, with a text form of one line.
//!
//! Each option is declared once, below. Its field, parsing, printing and merging come from that line. The
//! command's flag, Python's keyword, the key in C and the rows of the guide come from it, too. After a
//! change, `KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes the guide and Python's types
//! anew.
//!
//! An option that is not given is `None`. [`Options::or`] then takes it from other options: the command line
//! comes before the section `[solver]` of a file, and both before the defaults. If none gives it, the solver
//! decides.

mod declare;
mod device;
mod method;
mod ranks;
mod read;
mod threads;

pub use crate::names::{tolerance, whole_number};
pub use declare::{Group, Kind, OptionInfo};
pub use device::DeviceSpec;
pub use ranks::RanksPerGpu;

use crate::matching::MatchingChoice;
use crate::matrix::ZerosChoice;
use crate::method::cbcg::MOST_STEPS;
use crate::method::{CbcgBasis, CgForm, MethodName, MethodSpec, Orthogonalization, Reductions};
use crate::names::{same, unknown};
use crate::operator::{Format, ShareSpec};
use crate::partition::{PartitionSpec, SubdomainSpec};
use crate::precond::PrecondSpec;
use crate::space::{Criterion, Precision, PrecondPrecision, RelativeTo, Stop};
use crate::{Error, Result};
use declare::{Bytes, Choice, Codec, Count, CountOr, Flag, Real, Text, options, seconds};
use std::fmt::{self, Display};
use std::str::FromStr;

/// The largest restart length of GMRES. A larger number is a typing error.
const MOST_RESTART: usize = 1_000_000;
/// The largest iteration limit. The history keeps a number for each iteration.
const MOST_ITERATIONS: usize = 100_000_000;
/// The largest number of threads.
const MOST_THREADS: usize = 1024;

// name: type = values, values in help, group, the method that uses it, default, help.
options! {
    /// Options of a [`Solver`](crate::Solver).
    ///
    /// # Examples
    /// As text they are `key=value` pairs, separated by spaces; options of a method and of a preconditioner
    /// follow its name:
    ///
    /// ```
    /// use krylith::Options;
    /// let text = "method=gmres:restart=50 precond=ildu:fill=1 rtol=1e-8 device=cuda:0,1";
    /// let options: Options = text.parse()?;
    /// assert_eq!(options.restart, Some(50));
    /// assert_eq!(options.to_string().parse::<Options>()?, options);
    /// // Options that `options` does not set come from `file`.
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
    pub struct Options;

    method: MethodName = Choice, "auto|NAME[:key=value,…]", Method, default
        "`auto`, which prefers `cg` for symmetric systems and `bicgstab` for others, and tries `gmres` later",
        "Krylov method. `gmres` is restarted GMRES. `fgmres` is flexible GMRES, for preconditioners that vary \
         from iteration to iteration. `bicgstab` has short recurrences and two products per iteration. `cg` \
         is for symmetric positive definite systems. `cbcg` is CG for many ranks: it needs only two \
         reductions for every `s` products. `minres` is for symmetric indefinite systems, with a \
         preconditioner that is symmetric and positive definite. Options of the method may follow its name, \
         such as `gmres:restart=50`.";
    restart: usize = Count(1, MOST_RESTART), "M", Method of Gmres, default "30, and 100 to 300 in later attempts",
        "Number of basis vectors before GMRES restarts. More vectors take more memory and save iterations.";
    orthogonalization: Orthogonalization = Choice, "lowsync|cgs2|mgs", Method of Gmres, default "`lowsync`",
        "Orthogonalization in GMRES. `lowsync` takes one reduction per iteration, `cgs2` three, and `mgs` one \
         for each basis vector.";
    reductions: Reductions = Choice, "merged|classical", Method of Bicgstab, default "`merged`",
        "Reductions in BiCGSTAB. `merged` takes two per iteration, `classical` three.";
    form: CgForm = Choice, "textbook|one-reduction|flexible|pipelined", Method of Cg, default "`textbook`",
        "Recurrence of CG. `textbook` takes two reductions per iteration. `one-reduction` takes one. \
         `flexible` allows preconditioners that vary. `pipelined` overlaps its reduction with the next \
         product.";
    s: usize = Count(1, MOST_STEPS), "S", Method of Cbcg, default "12",
        "Number s of products in a step of CBCG, from 1 to 16. A step has two reductions. CBCG stores 4s + 7 \
         vectors.";
    basis: CbcgBasis = Choice, "chebyshev|monomial", Method of Cbcg, default "`chebyshev`",
        "Polynomials that span the search directions of a CBCG step. `monomial` is stable only for s up to 5.";
    precond: PrecondSpec = Text, "auto|NAME[:key=value,…]", Method, default
        "`auto`, which tries a cheap preconditioner first, and stronger ones if it fails",
        "Preconditioner. Its keys follow its name, as in `ildu:fill=1,cut=whole`. In this list, the keys of \
         a name are in parentheses. `jacobi` inverts the diagonal block of each node. `jacobi:block=B` \
         inverts smaller diagonal blocks, of B unknowns of a node. `block-jacobi` computes incomplete \
         factors of each tile, a box of cells of a structured grid (tile=XxYxZ|whole|slab, factor=ic0|ilu0). \
         `ildu` computes incomplete factors of subdomains (fill=K, rows=N, cut=NAME, shift=S). \
         `stage` computes such factors for each stage of a Kronecker system, with the same keys; \
         `stage(P)` uses the preconditioner P. `ras` is restricted additive Schwarz (overlap=D, \
         parts=N, sub=ilu|lu, fill=K, order=natural|rcm, factor=random|exact, eta=N, \
         solve=auto|random|jacobi|exact, gamma=N, fdp=N, deterministic). `amg` is algebraic \
         multigrid (cycle=v|w|k, coarsen=classical|aggregation|smoothed|air|air1, strength=T, truncate=N, \
         aggressive=N, filter=T, relax=N, \
         border=auto|global|local, smoother=jacobi|chebyshev|ildu|ffc, sweeps=N, degree=N, coarsest=N, levels=N, \
         precision=f64|f32, compute=f64|f32|bf16). `coarse` is `amg` without smoothing on the finest level. `lu` computes complete \
         factors (most=N, over=auto|mumps|one|gpus, on=auto|device|host). `none` is the identity. `P+Q` adds two preconditioners. `P then Q` applies Q to \
         the residual that P leaves. `symmetric(P then Q)` applies P once more at the end, as `cg` needs. \
         `split(u: P, p: Q; schur=upper, S=NAME)` gives each field its own preconditioner. `cpr(p: P)` \
         corrects only the field p. `aux(NAME: P; R=NAME)` corrects in the range of the matrix NAME. `vanka` solves \
         local systems around the constraints of a saddle point (kind=diagonal|full, field=NAME, damping=W, \
         precision=f64|f32, levels=N, sweeps=N). `cg(P; \
         iterations=N)` and `chebyshev(P; degree=N,low=R)` make a fixed number of iterations with the \
         preconditioner P. The guide explains all keys.";

    rtol: f64 = Real(tolerance), "TOL", Stop, default "1e-6",
        "Relative tolerance. The solve stops when ‖b − A x‖₂ ≤ max(rtol·‖b‖₂, atol).";
    atol: f64 = Real(tolerance), "TOL", Stop, default "0",
        "Absolute tolerance.";
    criterion: Criterion = Choice, "residual|rows|backward", Stop, default "`residual`",
        "Quantity of r = b − A x that is compared with the tolerance. `residual` is ‖r‖₂, relative to ‖b‖₂. \
         `rows` is ‖D⁻¹r‖₂, relative to ‖D⁻¹b‖₂, where D has the 1-norms of the rows of A. `backward` is the \
         component-wise backward error, the largest |rᵢ|/(|A||x| + |b|)ᵢ.";
    relative_to: RelativeTo = Choice, "b|r0", Stop, default "`b`",
        "Vector whose norm divides the residual: b, or the residual r₀ = b − A x₀ of the initial guess. \
         `backward` has no such vector.";
    max_iters: usize = Count(0, MOST_ITERATIONS), "N", Limit, default
        "10000, or 20 √n for n > 250,000 unknowns",
        "Limit of the number of iterations of a solve, over all of its restarts and attempts.";
    time_limit: f64 = Real(seconds), "SECONDS", Stop, default "no limit",
        "Time limit of a solve in seconds. The set-up before the first iteration does not count. At the \
         limit, the solve returns the best x so far.";
    precision was "store": Precision = Choice, "f64|f32", Machine, default "`f64`",
        "Precision in which matrix, preconditioner and basis are stored. Arithmetic is in f64. \
         `f32` halves the memory traffic, and the solve meets the same tolerance.";
    precond_precision: PrecondPrecision = Choice, "f64|f32|bf16", Machine, default
        "that of `precision`; `amg` computes in f32 from 100,000 unknowns on",
        "Precision in which the preconditioner is stored. With `f32`, `amg`, `ildu` and `ras` also compute in f32 \
         if the range of the numbers permits it. `bf16` is the same, except that `amg` with scalar nodes stores the \
         matrices of its cycles in bf16. If they then fail, they are set up again in f64. The solve meets the same \
         tolerance.";
    format: Format = Choice, "auto|csr|dia|dia-full", Machine, default
        "`auto`, which takes `dia` if all entries lie on at most 32 diagonals and fill most of them",
        "Format in which a matrix of block size 1 is stored for products. `csr` stores rows. `dia` stores \
         diagonals, and only half of them if the matrix is symmetric. `dia-full` stores all diagonals.";
    device: DeviceSpec = Text, "auto|cpu|cuda[:0,1,…]", Machine, default
        "`auto`, which takes the first GPU if it is estimated to be faster than the CPU",
        "Device of the solve. `cuda:0,1` names GPUs by number, and these GPUs solve together. Under \
         mpirun, each rank of `krylith solve` takes one GPU.";
    ranks_per_gpu: RanksPerGpu = CountOr(&["auto"]), "auto|N", Machine, default
        "`auto` if `device=cuda` is given, else 1",
        "Number of ranks of a host that share a GPU. Their rows gather on one of them, which solves for all; \
         b and x travel in each solve. `auto` takes as many ranks as needed, so that each GPU of the host has \
         one. With 1, each rank solves for its own rows. On a CPU, too, N ranks gather on one.";
    threads: usize = Count(1, MOST_THREADS), "N", Machine, default
        "one per core; under mpirun, the ranks of a host share its cores",
        "Number of host threads for reading, set-up and solve. Results do not depend on this number. Under \
         mpirun, each rank of `krylith solve` has this number of threads.";
    deterministic: bool = Flag, "true|false", Machine, default "false",
        "Makes results bitwise equal from run to run, on a GPU too. Randomized sweeps of `ras` then run in a \
         fixed order, and `auto` chooses the device without measured times.";
    equilibrate: bool = Flag, "true|false", System, default
        "false, but if you name no preconditioner, Krylith may scale a badly scaled system",
        "Scales rows and columns before the preconditioner is built. Residuals and tolerances stay those \
         of the given system.";
    matching: MatchingChoice = Choice, "auto|on|off", System, default
        "`auto`, which may match if you name no preconditioner, rows are scalar, and the diagonal is weak",
        "Matches rows with columns before the preconditioner is built: permutes rows, and scales rows and \
         columns, so that the diagonal is large. Residuals and tolerances stay those of the given system.";
    zeros: ZerosChoice = Choice, "auto|keep|drop", System, default "`auto`",
        "Treatment of stored zeros outside the diagonal. `drop` removes them. `auto` removes them if they \
         are more than a tenth of the entries. In a matrix of blocks, only a whole block of zeros counts as \
         a zero.";
    partition: PartitionSpec = Choice, "auto|NAME", Machine, default
        "`auto`, which takes ranges of rows, or `boxes` or `multilevel` if ranges need many copies of remote \
         unknowns",
        "Distribution of block rows over several GPUs, or over the ranks of `krylith solve` under mpirun. \
         `rows` is ranges of consecutive rows, equal in number. `nonzeros` is such ranges, equal in stored \
         blocks. `boxes` or `boxes:PxQxR` is boxes of a structured grid. `geometric` is boxes in space. `multilevel` and `graph` partition the graph of the matrix: \
         the first by Krylith itself, the second by METIS.";
    share: ShareSpec = Text, "halo|auto|MODE", Machine, default
        "`halo`, which was the fastest for most matrices on GPUs with NVLink",
        "How several GPUs, or the ranks of `mpirun`, share products. With `halo`, vectors are \
         distributed, and a product receives ghosts. In the other modes every rank holds whole vectors and \
         receives whole results. `nz` computes a block of rows per rank, of equal nonzeros. `2nz` and `nz:K` \
         send one of 2 or K blocks while they compute the next. `lra` and `lra:L` compute long rows last, \
         where L is their share of the rows. `lra+rc` and `lra+rc:L/C` also compute a share C of the rows on \
         every rank. `fused` stores results from the kernel into all GPUs of a process. `alone` computes all \
         rows on every rank. `auto` measures halos and these modes at set-up, and keeps the fastest. The \
         preconditioner of a mode is `jacobi` or `none`.";
    memory_limit: u64 = Bytes, "BYTES", Machine, default "the free memory",
        "Limit of the memory that a solve may use on each device, such as `8GiB`. A solve that needs more \
         is refused.";
}

/// Returns the option of this name, in upper or lower case, with `-` or `_`. Names of earlier versions work,
/// too.
///
/// ```
/// use krylith_core::options::info;
/// assert_eq!(info("max-iters").unwrap().name, "max_iters");
/// assert_eq!(info("store").unwrap().name, "precision");
/// assert!(info("tol").is_none());
/// ```
pub fn info(name: &str) -> Option<&'static OptionInfo> {
    let called =
        |option: &&OptionInfo| same(option.name, name) || option.old_names.iter().any(|old| same(old, name));
    TABLE.iter().find(called)
}

/// Returns the current name of an option.
fn canonical(name: &str) -> Option<&'static str> {
    info(name).map(|option| option.name)
}

impl Options {
    /// Creates options of which none is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns these options with a relative tolerance.
    pub fn rtol(self, rtol: f64) -> Self {
        Self { rtol: Some(rtol), ..self }
    }

    /// Returns these options with an absolute tolerance.
    pub fn atol(self, atol: f64) -> Self {
        Self { atol: Some(atol), ..self }
    }

    /// Returns these options with an iteration limit.
    pub fn max_iters(self, iterations: usize) -> Self {
        Self { max_iters: Some(iterations), ..self }
    }

    /// Returns these options with a time limit in seconds.
    pub fn time_limit(self, seconds: f64) -> Self {
        Self { time_limit: Some(seconds), ..self }
    }

    /// Returns these options with a method and all of its options.
    pub fn method(self, method: MethodSpec) -> Self {
        let cleared = Self::default().merged(&self, |of| of.is_none());
        method.options().or(&cleared)
    }

    /// Returns these options with a preconditioner.
    pub fn precond(self, precond: PrecondSpec) -> Self {
        Self { precond: Some(precond), ..self }
    }

    /// Returns these options with a device.
    pub fn device(self, device: DeviceSpec) -> Self {
        Self { device: Some(device), ..self }
    }

    /// Returns these options with a number of threads.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Returns these options with a precision of storage.
    pub fn precision(self, precision: Precision) -> Self {
        Self { precision: Some(precision), ..self }
    }

    /// Returns these options with a storage format for products.
    pub fn format(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Returns these options with a memory limit on each device, in bytes.
    pub fn memory_limit(self, bytes: u64) -> Self {
        Self { memory_limit: Some(bytes), ..self }
    }

    /// Combines two sets of options: an option that is not set here comes from `other`. If a method is named
    /// here, options of `other` that belong to other methods are dropped.
    pub fn or(&self, other: &Options) -> Options {
        let named = self.method.filter(|method| *method != MethodName::Auto);
        self.merged(other, |of| match (of, named) {
            (Some(of), Some(named)) => fits(of, named),
            _ => true,
        })
    }

    /// Combines options that were given together. No option is dropped, so [`settled`](Self::settled) finds
    /// options that contradict each other.
    pub fn and(&self, other: &Options) -> Options {
        self.merged(other, |_| true)
    }

    /// Parses one option from its name and the text of its value, such as a flag or a keyword argument.
    ///
    /// # Errors
    /// An unknown name; a value that the option does not accept.
    ///
    /// ```
    /// assert_eq!(krylith::Options::one("restart", "7")?.restart, Some(7));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn one(name: &str, value: &str) -> Result<Options> {
        let mut options = Options::default();
        options.set(name, value)?;
        Ok(options)
    }

    /// Returns true if the option of this name is set.
    pub fn has(&self, name: &str) -> bool {
        self.given().iter().any(|given| given.0 == name)
    }

    /// Checks the options and sets the method: the named method, else the method whose options are given.
    ///
    /// # Errors
    /// [`Error::Option`] for an option of another method, or for a value out of range.
    pub fn settled(&self) -> Result<Options> {
        let wrong = |key: &'static str, message: String| Err::<Options, _>(Error::Option { key, message });
        // A program can set a field to an invalid value, so each value goes through its parser.
        for (key, value) in self.given() {
            if let Err(e) = Options::default().put(key, &value) {
                return wrong(key, format!("is {value}; {e}"));
            }
        }
        self.stop().check()?;
        let mut method = MethodSpec::meant(self)?;
        let open = self.method.is_none_or(|method| method == MethodName::Auto);
        if method == MethodName::Gmres && open && self.precond_or_auto().varies() {
            method = MethodName::Fgmres;
        }
        let fixed = matches!(method, MethodName::Gmres | MethodName::Bicgstab | MethodName::Cbcg);
        if let (true, Some(part)) = (fixed, self.precond_or_auto().inner_cg()) {
            let text = format!(
                "has `{part}`, which varies between applications; {method} needs a fixed preconditioner: use the method \
                 fgmres, or chebyshev(…) for cg(…)"
            );
            return wrong("precond", text);
        }
        if let (MethodName::Cg | MethodName::Cbcg, Some(part)) = (method, self.precond_or_auto().one_way()) {
            let text = format!(
                "has `{part}`, which is not symmetric, but {method} needs a symmetric preconditioner; use \
                 symmetric(P then Q), or the method bicgstab or gmres"
            );
            return wrong("precond", text);
        }
        let named = self.precond_or_auto();
        if let (MethodName::Minres, Some(part)) = (method, named.unfit_for_minres()) {
            let why =
                if part.varies() { "varies between applications" } else { "is not symmetric and definite" };
            let text = format!(
                "has `{part}`, which {why}; minres needs a fixed, symmetric and definite preconditioner: use \
                 the method fgmres, or form=diagonal or schur=diagonal in a split"
            );
            return wrong("precond", text);
        }
        let mut precond = self.precond.clone();
        if self.deterministic == Some(true) {
            precond = precond.map(|precond| precond.in_fixed_order());
        }
        Ok(Options { method: Some(method), precond, ..self.clone() })
    }

    /// Returns the tolerances and the iteration limit.
    pub fn stop(&self) -> Stop {
        let default = Stop::default();
        Stop {
            rtol: self.rtol.unwrap_or(default.rtol),
            atol: self.atol.unwrap_or(default.atol),
            max_iters: self.max_iters.unwrap_or(default.max_iters),
            criterion: self.criterion.unwrap_or_default(),
            relative_to: self.relative_to.unwrap_or_default(),
            ..default
        }
    }

    /// Returns the tolerances and the iteration limit for a number of unknowns. The default limit grows with
    /// the diameter of a plane grid of that size.
    ///
    /// ```
    /// let options = krylith::Options::new();
    /// assert_eq!(options.stop_of(1_000).max_iters, 10_000);
    /// assert_eq!(options.stop_of(4_000_000).max_iters, 40_000);
    /// assert_eq!(options.max_iters(5).stop_of(4_000_000).max_iters, 5);
    /// ```
    pub fn stop_of(&self, unknowns: usize) -> Stop {
        let grown = self.stop().max_iters.max((20.0 * (unknowns as f64).sqrt()) as usize);
        Stop { max_iters: self.max_iters.unwrap_or(grown), ..self.stop() }
    }

    /// Returns the subdomains that the preconditioner needs, if any, for blocks of order b·s. A rank then
    /// owns whole subdomains.
    pub fn subdomains(&self, order: usize) -> Option<SubdomainSpec> {
        self.precond_or_auto().subdomains(order)
    }

    /// Returns the number of planes in a tile of the preconditioner, if each rank must have a multiple of
    /// that number of whole planes of the grid.
    pub fn planes(&self) -> Option<usize> {
        self.precond_or_auto().planes()
    }

    /// Returns the preconditioner, or `auto` if none is set.
    pub(crate) fn precond_or_auto(&self) -> &PrecondSpec {
        self.precond.as_ref().unwrap_or(&PrecondSpec::Auto)
    }

    /// Sets one `key=value` of the text form. Options of a method may follow its name.
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let Some(name) = canonical(key) else {
            let known = TABLE.iter().map(|option| option.name).collect::<Vec<_>>();
            return unknown("option", key, &known);
        };
        self.note_old(key, name);
        if name == "precond" && value.contains("store=") {
            self.renamed.push(("store", "precision"));
        }
        if name == "method" && value.contains(char::is_whitespace) {
            return Err(Error::invalid(format!("`{value}` is not NAME[:key=value,…]: it has a space")));
        }
        let Some((method, options)) = value.split_once(':').filter(|_| name == "method") else {
            return self.put(name, value);
        };
        self.put(name, method)?;
        let known: Vec<&str> =
            TABLE.iter().filter(|o| o.method.is_some()).map(|option| option.name).collect();
        for pair in options.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| Error::invalid(format!("`{pair}` in `{value}` is not key=value")))?;
            match canonical(key).filter(|name| known.contains(name)) {
                Some(name) => self.put(name, value)?,
                None => unknown("key of a method", key, &known)?,
            }
        }
        Ok(())
    }

    /// Records that an option was given by an old name.
    fn note_old(&mut self, written: &str, name: &'static str) {
        let old = info(name).and_then(|option| option.old_names.iter().find(|old| same(old, written)));
        if let Some(old) = old.filter(|old| !self.renamed.iter().any(|noted| noted.0 == **old)) {
            self.renamed.push((old, name));
        }
    }
}

/// Returns true if options of the method `owner` are also options of `method`.
fn fits(owner: MethodName, method: MethodName) -> bool {
    owner == method || (owner.is_gmres() && method.is_gmres())
}

impl FromStr for Options {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        // A word begins an option if it has a `=` before any `:`. Other words, such as `then`, belong to the
        // value before.
        let begins = |word: &str| word.split_once('=').is_some_and(|(key, _)| !key.contains(':'));
        let is_open = |value: &str| value.matches('(').count() > value.matches(')').count();
        let mut pairs: Vec<(&str, String)> = Vec::new();
        for word in text.split_whitespace() {
            match (word.split_once('='), pairs.last_mut()) {
                // In parentheses every word belongs to the value.
                (_, Some((_, value))) if is_open(value) => *value += &format!(" {word}"),
                (Some((key, value)), _) if begins(word) => pairs.push((key, value.into())),
                (_, Some((_, value))) => *value += &format!(" {word}"),
                _ => return Err(Error::invalid(format!("`{word}` is not key=value"))),
            }
        }
        let mut options = Options::default();
        for (i, (key, value)) in pairs.iter().enumerate() {
            let same_option =
                |other: &str| same(other, key) || info(key).is_some() && canonical(other) == canonical(key);
            if pairs[..i].iter().any(|other| same_option(other.0)) {
                return Err(Error::invalid(format!("`{key}` is given twice")));
            }
            options.set(key, value).map_err(|e| Error::invalid(format!("{key}={value}: {e}")))?;
        }
        Ok(options)
    }
}

impl Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |(name, value): &(&str, String)| format!("{name}={value}");
        let given = self.given();
        let of_method = |name: &str| info(name).is_some_and(|option| option.method.is_some());
        let own: Vec<String> = given.iter().filter(|given| of_method(given.0)).map(pair).collect();
        let mut words = match self.method {
            Some(method) if own.is_empty() => vec![format!("method={method}")],
            Some(method) => vec![format!("method={method}:{}", own.join(","))],
            None => own,
        };
        words.extend(given.iter().filter(|given| given.0 != "method" && !of_method(given.0)).map(pair));
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests;
