//! Time of an iteration of any method with most preconditioners, predicted from each rank's work and
//! messages.
//!
//! * Products and exchanges are those of [`Machine::predict`]. BiCGSTAB has two of each per iteration, and
//!   applies the preconditioner twice. GMRES applies it once more at the end of a cycle; FGMRES does not.
//! * A preconditioner takes its bytes over the bandwidth of passes over vectors ([`Machine::passes`]), and a
//!   launch for each of its kernels. Levels of incomplete factors also wait for each other, which the byte
//!   count does not include: their time is a lower bound.
//! * Passes over vectors take the bytes that the method counts for itself ([`MethodSpec::iteration_bytes`]).
//!   They add a launch for each pass and for each small step on scalars in between. For GMRES with delayed
//!   Gram–Schmidt these times are measured.
//! * Each sum over several GPUs takes an all-reduce; each batch of iterations ends with a synchronisation of
//!   the hosts.
//!
//! Not modelled: unused launches that a batch contains for a restart, and storage in f32 other than GMRES's
//! basis.

use super::multilevel::{self, Hierarchy};
use super::predict::{Load, Shape};
use super::{Machine, cycle_bytes};
use krylith_core::method::{CgForm, GmresOptions, MethodSpec, Orthogonalization, Reductions};
use krylith_core::operator::Terms;
use krylith_core::precond::{PrecondSpec, TileFactor};
use krylith_core::{Error, Result};

/// Iterations of a batch, after which the host checks the solve, for methods without a cycle of their own.
const BATCH: f64 = 8.0;

/// Memory traffic of one application of a preconditioner.
///
/// # Examples
/// ```
/// use krylith::operator::Terms;
/// use krylith_model::{Applied, Load, Machine, Shape};
/// # let system = krylith_problems::generate("laplace:12x12x12")?.system;
/// # let krylith_problems::SystemKind::Csr(a) = system else { panic!() };
/// let terms = Terms::csr(&a)?;
/// let jacobi = Applied::of(&"jacobi".parse()?, &terms, 1)?;
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let load = Load { rows: 1e7, blocks: 7e7, ..Load::default() };
/// let t = machine.iteration(&[load], &Shape::of(&terms, true), true, &"cg".parse()?, &jacobi, 1)?;
/// // One kernel moves x, y and the inverse of the diagonal.
/// assert_eq!(t.preconditioner, machine.passes(24.0 * 1e7, 1.0));
/// // Levels of incomplete factors wait for each other, which the bytes do not show.
/// assert!(jacobi.is_exact() && !Applied::of(&"ildu".parse()?, &terms, 1)?.is_exact());
/// assert!(Applied::of(&"lu".parse()?, &terms, 1).is_err()); // applied on the host
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// Bytes of a block row, vectors included.
    row: f64,
    /// Bytes per stored block, all terms together.
    block: f64,
    /// Number of kernels.
    launches: f64,
    /// Exchanges of the preconditioner's own products.
    exchanges: f64,
    /// True if the preconditioner's pass also computes the sums of `textbook` CG.
    sums: bool,
    /// True if the time includes everything that matters; false if it is a lower bound.
    exact: bool,
    /// The AMG hierarchy, predicted on one GPU.
    levels: Option<Hierarchy>,
}

impl Applied {
    /// Counts the traffic of a preconditioner for a system. AMG is set up on this host to get the sizes of
    /// its levels.
    ///
    /// # Errors
    /// Returns an error, with the reason, if the time does not follow from memory traffic, and the errors of
    /// a set-up.
    pub fn of(precond: &PrecondSpec, terms: &Terms, threads: usize) -> Result<Self> {
        let (b, s, count) = (terms.block() as f64, terms.stages() as f64, terms.terms().len() as f64);
        let order = b * s;
        // Per block: its values and its position in a tile. M and L with one pattern share one factor.
        let kept = |order: f64| 8.0 * order * order + 2.0;
        let patterns = if terms.shared_pattern() { 1.0 / count } else { 1.0 };
        // Input and output vectors.
        let vectors = 16.0 * order;
        let moves = |row: f64, block: f64, launches: f64, exact: bool| Self {
            row,
            block,
            launches,
            exchanges: 0.0,
            sums: false,
            exact,
            levels: None,
        };
        Ok(match precond {
            PrecondSpec::None => moves(0.0, 0.0, 0.0, true),
            // Blocks of all stages and of the requested components.
            PrecondSpec::Jacobi { block } => {
                let numbers = order * s * block.map_or(b, |size| size as f64);
                moves(8.0 * numbers + vectors, 0.0, 1.0, true)
            }
            // A 7-point row: IC(0) reads one half for both sweeps.
            PrecondSpec::BlockJacobi(tiles) => {
                let numbers = if tiles.factor == Some(TileFactor::Ilu0) { 7.0 } else { 4.0 };
                Self { sums: true, ..moves(8.0 * numbers + vectors, 0.0, 1.0, true) }
            }
            PrecondSpec::Ildu(ildu) => {
                moves(vectors, (1.0 + ildu.fill as f64) * patterns * kept(order), 1.0, false)
            }
            // Each stage reads its factors. y = 0 is written first; every stage but the first adds a product
            // with one of the terms and a residual.
            PrecondSpec::Stage(ildu) => {
                let factors = (1.0 + ildu.fill as f64) * patterns * s * kept(b);
                let (products, clear) = (s - 1.0, f64::from(s > 1.0));
                let row = vectors + clear * 8.0 * order + products * (40.0 * order + 4.0);
                let block = factors + products * (8.0 * b * b + 4.0) / count;
                Self { exchanges: products, ..moves(row, block, s + clear + 2.0 * products, false) }
            }
            PrecondSpec::Amg(_) => {
                let options = multilevel::options(precond, terms)?;
                let levels = Some(multilevel::hierarchy(terms, options, threads)?);
                Self { levels, ..moves(0.0, 0.0, 0.0, true) }
            }
            PrecondSpec::Lu(_) => {
                return Err(Error::Unsupported(
                    "direct factors are applied on the host, which the model does not cover".into(),
                ));
            }
            other => {
                return Err(Error::Unsupported(format!(
                    "the time of {other} depends on more than its memory traffic, which alone is modelled"
                )));
            }
        })
    }

    /// Returns true if the predicted time is complete, and false if it is a lower bound.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns true if only one GPU can be predicted.
    pub fn is_of_one_gpu(&self) -> bool {
        self.levels.is_some()
    }

    fn seconds(&self, machine: &Machine, load: &Load) -> f64 {
        if let Some(levels) = &self.levels {
            return machine.multilevel(levels)[0];
        }
        machine.passes(self.row * load.rows + self.block * load.blocks, self.launches)
    }
}

/// Predicted seconds of an iteration, by parts.
///
/// # Examples
/// ```
/// use krylith::{operator::Terms, precond::PrecondSpec};
/// use krylith_model::{Applied, Load, Machine, Shape};
/// # let system = krylith_problems::generate("laplace:12x12x12")?.system;
/// # let krylith_problems::SystemKind::Csr(a) = system else { panic!() };
/// let terms = Terms::csr(&a)?;
/// let none = Applied::of(&PrecondSpec::None, &terms, 1)?;
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let load = Load { rows: 1e6, blocks: 7e6, boundary: 2e4, near: 2e4, ..Load::default() };
/// let shape = Shape::of(&terms, true);
/// let of = |method: &str| machine.iteration(&[load; 4], &shape, true, &method.parse()?, &none, 1);
/// let (cg, pipelined, bicgstab) = (of("cg")?, of("cg:form=pipelined")?, of("bicgstab")?);
/// assert_eq!(bicgstab.product, 2.0 * cg.product);
/// // Pipelined CG has one sum instead of two, and more recurrences.
/// assert!(pipelined.sums < cg.sums && pipelined.vectors > cg.vectors);
/// let parts = cg.product + cg.exchange + cg.preconditioner + cg.vectors + cg.sums;
/// assert_eq!(cg.all(), parts);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Iteration {
    /// Seconds of products.
    pub product: f64,
    /// Seconds of exchanges that are not hidden behind products.
    pub exchange: f64,
    /// Seconds of applying the preconditioner.
    pub preconditioner: f64,
    /// Seconds of passes over vectors and of the steps in between; for GMRES, of the orthogonalisation and
    /// the end of a cycle.
    pub vectors: f64,
    /// Seconds of sums over several GPUs.
    pub sums: f64,
}

impl Iteration {
    /// Returns the seconds of the whole iteration.
    pub fn all(&self) -> f64 {
        self.product + self.exchange + self.preconditioner + self.vectors + self.sums
    }
}

/// Returns the work per iteration: the number of products (and of preconditioner applications), of other
/// kernels (passes over vectors and small steps), and of sums.
fn ledger(method: &MethodSpec, preconditioned: bool) -> [f64; 3] {
    match method {
        // These are means over a cycle. CGS2 makes two rounds of projections and updates, MGS goes column by
        // column. Then follow a norm, a copy, the step and the new column.
        MethodSpec::Gmres(gmres) => {
            let m = gmres.restart as f64;
            match gmres.orthogonalization {
                Orthogonalization::Lowsync => [1.0, 2.0, 1.0],
                Orthogonalization::Cgs2 => [1.0, 8.0, 3.0],
                Orthogonalization::Mgs => [1.0, m + 5.0, 0.5 * (m + 3.0)],
            }
        }
        MethodSpec::Bicgstab(b) if b.reductions == Reductions::Merged => [2.0, 4.0 + 2.0, 2.0],
        MethodSpec::Bicgstab(_) => [2.0, 5.0 + 3.0, 3.0],
        MethodSpec::Cg(cg) => match cg.form {
            CgForm::OneReduction => [1.0, 2.0 + 2.0, 1.0],
            CgForm::Pipelined => [1.0, 1.0 + 2.0, 1.0],
            // If z is r, the pass that updates r also sums (r, z).
            CgForm::Textbook | CgForm::Flexible => [1.0, 3.0 + f64::from(preconditioned) + 2.0, 2.0],
        },
        // With P: (z, q), the next v, four sums, and the next w and x. Two steps.
        MethodSpec::Minres => [1.0, 3.0 + f64::from(preconditioned) + 2.0, 2.0],
        // Two sums, three passes over blocks of vectors and four steps in s products; z₀ is r if there is a
        // preconditioner.
        MethodSpec::Cbcg(cbcg) => {
            let s = cbcg.steps as f64;
            [1.0, 2.0 + (7.0 - f64::from(preconditioned)) / s, 2.0 / s]
        }
    }
}

impl Machine {
    /// Returns the seconds of `kernels` kernels that together move `bytes` bytes of vectors: a launch each,
    /// plus the bytes at the rate of large orthogonalisations, which read and write similarly.
    pub fn passes(&self, bytes: f64, kernels: f64) -> f64 {
        let measured = match self.kernels.orthogonalization.0.as_slice() {
            [.., [x0, t0], [x1, t1]] if t1 > t0 => (x1 - x0) / (t1 - t0),
            _ => self.read,
        };
        bytes / measured.min(self.read) + kernels * self.launch
    }

    /// Predicts an iteration on as many GPUs as there are loads, spread evenly over hosts. `dense` selects
    /// the kernel for dense blocks; `shape` must match it, and `applied` must belong to the same system.
    ///
    /// # Errors
    /// Returns an error if the machine file lacks these kernels, several GPUs or several hosts, and for AMG
    /// on several GPUs.
    pub fn iteration(
        &self,
        loads: &[Load],
        shape: &Shape,
        dense: bool,
        method: &MethodSpec,
        applied: &Applied,
        hosts: usize,
    ) -> Result<Iteration> {
        let gpus = loads.len();
        if gpus > 1 && applied.is_of_one_gpu() {
            return Err(Error::Unsupported("AMG is predicted on one GPU only".into()));
        }
        let m = method.restart().unwrap_or(1);
        let bare = self.predict(loads, shape, dense, m, hosts)?;
        let slowest = loads.iter().map(|load| applied.seconds(self, load)).fold(0.0, f64::max);
        let preconditioned = slowest > 0.0;
        let [products, kernels, sums] = ledger(method, preconditioned);
        let (all_reduce, meeting) = self.sums(gpus, hosts)?;
        let unknowns = loads.iter().map(|l| l.rows).fold(0.0, f64::max) * shape.node() / 8.0;
        let mut applications = products;
        let (vectors, sums) = match method {
            MethodSpec::Gmres(GmresOptions { orthogonalization, flexible, .. }) => {
                let bytes = method.iteration_bytes(0.0, preconditioned, unknowns, m);
                let steps = match orthogonalization {
                    Orthogonalization::Lowsync => self.kernels.orthogonalization.at(bytes),
                    _ => self.passes(bytes, kernels),
                };
                // Once per cycle: P⁻¹ V y, unless Z y is available, and the true residual.
                let m = m as f64;
                applications += if *flexible { 0.0 } else { 1.0 / m };
                let end = cycle_bytes(unknowns, m as usize) / self.read + bare.product + bare.communication;
                (steps + end / m, sums * all_reduce + (all_reduce + meeting) / m)
            }
            _ => {
                let mut bytes = method.iteration_bytes(0.0, preconditioned, unknowns, 100);
                let mut kernels = kernels;
                let textbook = matches!(method, MethodSpec::Cg(cg) if cg.form == CgForm::Textbook);
                // Skip reading r and z for their sums if the preconditioner computes them, and p and q if the
                // product by diagonals does.
                let sums_elsewhere = f64::from(applied.sums) + f64::from(shape.diagonals > 0);
                if textbook {
                    (bytes, kernels) = (bytes - 16.0 * unknowns * sums_elsewhere, kernels - sums_elsewhere);
                }
                let batch = if let MethodSpec::Cbcg(cbcg) = method { cbcg.steps as f64 } else { BATCH };
                (self.passes(bytes, kernels), sums * all_reduce + meeting / batch)
            }
        };
        Ok(Iteration {
            product: products * bare.product,
            exchange: (products + applications * applied.exchanges) * bare.communication,
            preconditioner: applications * slowest,
            vectors,
            sums,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::*;

    const SCALAR: Shape = Shape { block: 1, stages: 1, terms: 1, shared: true, slots: 1, diagonals: 0 };

    fn load() -> Load {
        Load { rows: 1e6, blocks: 7e6, boundary: 1e4, near: 1e4, ..Load::default() }
    }

    fn terms() -> Terms<'static> {
        let made = krylith_problems::generate("laplace:12x12x12").unwrap();
        let krylith_problems::SystemKind::Csr(a) = made.system else { panic!("scalars") };
        Terms::csr(&a).unwrap()
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a:e} {b:e}");
    }

    #[test]
    fn cg_with_jacobi_is_a_sum_by_hand() {
        let (machine, jacobi) = (round(), Applied::of(&"jacobi".parse().unwrap(), &terms(), 1).unwrap());
        let cg: MethodSpec = "cg".parse().unwrap();
        let one = Load { near: 0.0, ..load() };
        let t = machine.iteration(&[one], &SCALAR, true, &cg, &jacobi, 1).unwrap();
        // 7e6 entries of 12 bytes, 1e6 rows of 4 and 16: 104 MB; 24 bytes per row for Jacobi; 12 vectors in
        // four passes with two steps in between.
        close(t.product, 10e-6 + 104e6 / 1e12);
        close(t.preconditioner, 24e6 / 1e12 + 1e-6);
        close(t.vectors, 96e6 / 1e12 + 6e-6);
        assert_eq!((t.exchange, t.sums), (0.0, 0.0));
        // Two sums of 3 µs on four GPUs, and a synchronisation of 30 in eight iterations.
        let t = machine.iteration(&[load(); 4], &SCALAR, true, &cg, &jacobi, 1).unwrap();
        close(t.sums, 6e-6 + 30e-6 / 8.0);
        assert!(t.exchange > 0.0);
        let bicgstab: MethodSpec = "bicgstab".parse().unwrap();
        let two = machine.iteration(&[load(); 4], &SCALAR, true, &bicgstab, &jacobi, 1).unwrap();
        close(two.product, 2.0 * t.product);
        close(two.preconditioner, 2.0 * t.preconditioner);
    }

    #[test]
    fn gmres_without_a_preconditioner_is_what_predict_says() {
        let (machine, none) = (round(), Applied::of(&PrecondSpec::None, &terms(), 1).unwrap());
        let gmres: MethodSpec = "gmres:restart=30".parse().unwrap();
        for loads in [vec![Load { near: 0.0, ..load() }], vec![load(); 4]] {
            let t = machine.iteration(&loads, &SCALAR, true, &gmres, &none, 1).unwrap();
            close(t.all(), machine.predict(&loads, &SCALAR, true, 30, 1).unwrap().all());
        }
    }

    /// Counts the kernels that `method/*.rs` launches: sweeps, and steps outside of sweeps.
    #[test]
    fn kernels_and_sums_are_those_of_the_methods() {
        for (text, with, without, sums) in [
            ("cg", 6.0, 5.0, 2.0),
            ("cg:form=flexible", 6.0, 5.0, 2.0),
            ("cg:form=one-reduction", 4.0, 4.0, 1.0),
            ("cg:form=pipelined", 3.0, 3.0, 1.0),
            ("bicgstab", 6.0, 6.0, 2.0),
            ("bicgstab:reductions=classical", 8.0, 8.0, 3.0),
            // Six products: 5 passes, 6 steps and 7 kernels, plus the copy of r.
            ("cbcg:s=6", 18.0 / 6.0, 19.0 / 6.0, 2.0 / 6.0),
            ("minres", 6.0, 5.0, 2.0),
            ("gmres:orthogonalization=cgs2", 8.0, 8.0, 3.0),
            ("gmres:restart=9,orthogonalization=mgs", 14.0, 14.0, 6.0),
        ] {
            let method: MethodSpec = text.parse().unwrap();
            for (preconditioned, kernels) in [(true, with), (false, without)] {
                let [_, found, reductions] = ledger(&method, preconditioned);
                assert!(
                    (found - kernels).abs() < 1e-12 && (reductions - sums).abs() < 1e-12,
                    "{text}: {found} {reductions}"
                );
            }
        }
    }

    #[test]
    fn gmres_takes_its_orthogonalisation_and_one_application_more_a_cycle() {
        let (machine, terms) = (round(), terms());
        let jacobi = Applied::of(&"jacobi".parse().unwrap(), &terms, 1).unwrap();
        let of = |text: &str| {
            machine.iteration(&[load(); 4], &SCALAR, true, &text.parse().unwrap(), &jacobi, 1).unwrap()
        };
        let (gmres, once) = (of("gmres:restart=10"), 24e6 / 1e12 + 1e-6);
        close(gmres.preconditioner, 1.1 * once);
        close(of("fgmres:restart=10").preconditioner, once);
        // (4j + 8) N at j = 4.5, eight kernels, three sums of 3 µs; the end of a cycle is the same.
        let cgs2 = of("gmres:restart=10,orthogonalization=cgs2");
        close(cgs2.vectors - gmres.vectors, (26.0 - 15.0) * 8e6 / 1e12 + 8e-6 - 20e-6);
        close(cgs2.sums - gmres.sums, 6e-6);
        assert!(of("gmres:restart=10,orthogonalization=mgs").sums > cgs2.sums);
        // P-CBCG synchronises once per outer step.
        close(of("cbcg:s=12").sums, (2.0 * 3e-6 + 30e-6) / 12.0);
    }

    #[test]
    fn what_is_asked_of_a_preconditioner_is_what_it_moves() {
        let (machine, terms) = (round(), terms());
        let one = Load { near: 0.0, ..load() };
        let of = |text: &str, terms: &Terms| {
            let applied = Applied::of(&text.parse().unwrap(), terms, 1).unwrap();
            machine.iteration(&[one], &SCALAR, true, &"cg".parse().unwrap(), &applied, 1).unwrap()
        };
        // 48 bytes per cell, 72 with both halves; r and z are not read for their sums.
        let tiles = of("block-jacobi", &terms);
        close(tiles.preconditioner, 48e6 / 1e12 + 1e-6);
        close(tiles.vectors, 80e6 / 1e12 + 5e-6);
        close(of("block-jacobi:factor=ilu0", &terms).preconditioner, 72e6 / 1e12 + 1e-6);
        // Two stages of four unknowns: 8×8 numbers per node, or 4 blocks of 2×2 with `block=1`; two vectors
        // of 8.
        let made = krylith_problems::generate("stokes:4x4x4").unwrap();
        let krylith_problems::SystemKind::Kronecker(k) = made.system else { panic!("a Kronecker sum") };
        let stages = Terms::kronecker(&k);
        assert_eq!((stages.block(), stages.stages(), stages.shared_pattern()), (4, 2, true));
        close(of("jacobi", &stages).preconditioner, (64.0 + 16.0) * 8e6 / 1e12 + 1e-6);
        close(of("jacobi:block=1", &stages).preconditioner, (16.0 + 16.0) * 8e6 / 1e12 + 1e-6);
        // Per node: x and y of both stages, y = 0, a product with x and y, its index, and three more vectors.
        // Per block pair: factors of two stages, and one block of the product.
        let row = 128.0 + 64.0 + 128.0 + 4.0 + 192.0;
        let block = 0.5 * (2.0 * (128.0 + 2.0) + 128.0 + 4.0);
        close(of("stage", &stages).preconditioner, (row * 1e6 + block * 7e6) / 1e12 + 5e-6);
    }

    #[test]
    fn preconditioners_move_more_the_more_they_keep() {
        let (machine, terms) = (round(), terms());
        let cg: MethodSpec = "cg".parse().unwrap();
        let one = Load { near: 0.0, ..load() };
        let of = |text: &str| {
            let applied = Applied::of(&text.parse().unwrap(), &terms, 1).unwrap();
            (machine.iteration(&[one], &SCALAR, true, &cg, &applied, 1).unwrap().preconditioner, applied)
        };
        let (jacobi, _) = of("jacobi");
        let (ildu, factors) = of("ildu");
        // 7e6 entries of 10 bytes, plus vectors.
        close(ildu, 86e6 / 1e12 + 1e-6);
        assert!(jacobi < ildu && ildu < of("ildu:fill=1").0 && !factors.is_exact());
        let (_, amg) = of("amg");
        assert!(amg.is_of_one_gpu());
        let error = machine.iteration(&[load(); 2], &SCALAR, true, &cg, &amg, 1).unwrap_err().to_string();
        assert!(error.contains("one GPU"), "{error}");
        for (text, word) in [("lu", "on the host"), ("ras", "memory traffic")] {
            let error = Applied::of(&text.parse().unwrap(), &terms, 1).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
