//! Time of an iteration of any method with most preconditioners, from what each rank computes and sends.
//!
//! * Products and exchanges are those of [`Machine::predict`]: BiCGSTAB has two of each in an iteration, and two preconditioners.
//! * A preconditioner takes its bytes over the read bandwidth, and a launch for each of its kernels. Incomplete factors have levels that wait for
//!   each other besides, which bytes do not tell: their time is the least that it can be.
//! * Passes over vectors take the bytes of the method's own ledger ([`MethodSpec::iteration_bytes`]) and a launch each; GMRES's are measured.
//! * Sums of several GPUs take an all-reduce each; a batch of iterations ends with a meeting of the hosts.

use super::multilevel::{self, Hierarchy};
use super::predict::{Load, Shape};
use super::{Machine, cycle_bytes, orthogonalization_bytes};
use krylith::method::{CgForm, MethodSpec, Reductions};
use krylith::operator::Terms;
use krylith::precond::PrecondSpec;
use krylith::{Error, Result};

/// Iterations of a method that does not restart, after which the host looks.
const BATCH: f64 = 8.0;

/// What an application of a preconditioner moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// Bytes of a block row, vectors included.
    row: f64,
    /// Bytes of a stored block, of all terms together.
    block: f64,
    /// Its kernels.
    launches: f64,
    /// Nothing is left out but what hides behind bytes.
    exact: bool,
    /// Coarse levels, on one GPU.
    levels: Option<Hierarchy>,
}

impl Applied {
    /// Of a preconditioner for a system; coarse levels are set up on this host for their sizes.
    ///
    /// # Errors
    /// One whose time bytes do not tell, with why; what a set-up says.
    pub fn of(precond: &PrecondSpec, terms: &Terms, threads: usize) -> Result<Self> {
        let (b, s, count) = (terms.block() as f64, terms.stages() as f64, terms.terms.len() as f64);
        let order = b * s;
        // A block's place in a tile, and its numbers; M and L of one pattern have one factor.
        let kept = |order: f64| 8.0 * order * order + 2.0;
        let patterns = if terms.shared_pattern() { 1.0 / count } else { 1.0 };
        // Vectors in and out.
        let vectors = 16.0 * order;
        let moves = |row: f64, block: f64, launches: f64, exact: bool| Self {
            row,
            block,
            launches,
            exact,
            levels: None,
        };
        Ok(match precond {
            PrecondSpec::None => moves(0.0, 0.0, 0.0, true),
            PrecondSpec::Jacobi { .. } => moves(8.0 * order * order + vectors, 0.0, 1.0, true),
            // Four numbers a row of IC(0) on seven points, read forwards and backwards.
            PrecondSpec::BlockJacobi(_) => moves(8.0 * 4.0 + vectors, 0.0, 1.0, true),
            PrecondSpec::Ildu(ildu) => {
                moves(vectors, (1.0 + ildu.fill as f64) * patterns * kept(order), 1.0, false)
            }
            // Each stage its factors, and the product that couples it with those before.
            PrecondSpec::Stage(ildu) => {
                let factors = (1.0 + ildu.fill as f64) * patterns * s * kept(b);
                moves(2.0 * vectors, factors + 8.0 * b * b / count, 2.0 * s, false)
            }
            PrecondSpec::Amg(_) => {
                let options = multilevel::options(precond, order as usize, terms.rows())?;
                let levels = Some(multilevel::hierarchy(terms, options, threads)?);
                Self { levels, ..moves(0.0, 0.0, 0.0, true) }
            }
            PrecondSpec::Lu(_) => {
                return Err(Error::Unsupported("direct factors are applied on the host".into()));
            }
            other => {
                return Err(Error::Unsupported(format!("bytes do not tell how long {other} takes")));
            }
        })
    }

    /// Nothing is left out but what hides behind bytes.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// True where one GPU alone can be predicted.
    pub fn is_of_one_gpu(&self) -> bool {
        self.levels.is_some()
    }

    fn seconds(&self, machine: &Machine, load: &Load) -> f64 {
        if let Some(levels) = &self.levels {
            return machine.multilevel(levels)[0];
        }
        (self.row * load.rows + self.block * load.blocks) / machine.read + self.launches * machine.launch
    }
}

/// Seconds of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Iteration {
    /// Products.
    pub product: f64,
    /// What of their exchanges is seen.
    pub exchange: f64,
    /// Applications of the preconditioner.
    pub preconditioner: f64,
    /// Passes over vectors, of GMRES the orthogonalisation and the end of a cycle.
    pub vectors: f64,
    /// Sums over several GPUs.
    pub sums: f64,
}

impl Iteration {
    /// All of it.
    pub fn all(&self) -> f64 {
        self.product + self.exchange + self.preconditioner + self.vectors + self.sums
    }
}

/// Products and preconditioners of an iteration, passes over vectors beside them, and sums.
fn ledger(method: &MethodSpec) -> [f64; 3] {
    match method {
        MethodSpec::Gmres(_) => [1.0, 2.0, 1.0],
        MethodSpec::Bicgstab(b) if b.reductions == Reductions::Merged => [2.0, 4.0, 2.0],
        MethodSpec::Bicgstab(_) => [2.0, 5.0, 3.0],
        MethodSpec::Cg(cg) if matches!(cg.form, CgForm::OneReduction | CgForm::Pipelined) => [1.0, 2.0, 1.0],
        MethodSpec::Cg(_) => [1.0, 3.0, 2.0],
        // Two reductions in s products.
        MethodSpec::Cbcg(cbcg) => [1.0, 2.0, 2.0 / cbcg.steps as f64],
    }
}

impl Machine {
    /// Time of an iteration on as many GPUs as there are loads, spread evenly over hosts.
    ///
    /// # Errors
    /// A machine file that says nothing of these kernels, of several GPUs or of several hosts; coarse levels of several GPUs.
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
            return Err(Error::Unsupported("coarse levels are predicted on one GPU".into()));
        }
        let m = method.restart().unwrap_or(1);
        let bare = self.predict(loads, shape, dense, m, hosts)?;
        let [products, passes, sums] = ledger(method);
        let slowest = loads.iter().map(|load| applied.seconds(self, load)).fold(0.0, f64::max);
        let (all_reduce, meeting) = self.sums(gpus, hosts)?;
        let unknowns = loads.iter().map(|l| l.rows).fold(0.0, f64::max) * shape.node() / 8.0;
        let (vectors, sums) = match method.restart() {
            // As measured, the end of a cycle included.
            Some(m) => {
                let kernels = self.kernels.orthogonalization.at(orthogonalization_bytes(unknowns, m));
                let end = cycle_bytes(unknowns, m) / self.read + bare.product + bare.communication;
                (kernels + end / m as f64, all_reduce + (all_reduce + meeting) / m as f64)
            }
            None => {
                let preconditioned = slowest > 0.0;
                let bytes = method.iteration_bytes(0.0, preconditioned, unknowns, 100);
                (bytes / self.read + passes * self.launch, sums * all_reduce + meeting / BATCH)
            }
        };
        Ok(Iteration {
            product: products * bare.product,
            exchange: products * bare.communication,
            preconditioner: products * slowest,
            vectors,
            sums,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::round;
    use super::*;

    const SCALAR: Shape = Shape { block: 1, stages: 1, terms: 1, shared: true, slots: 1 };

    fn load() -> Load {
        Load { rows: 1e6, blocks: 7e6, boundary: 1e4, near: 1e4, far: 0.0 }
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
        // 7e6 entries of 12 bytes, 1e6 rows of 4 and 16: 104 MB; 24 bytes a row of Jacobi; 12 vectors in three passes.
        close(t.product, 10e-6 + 104e6 / 1e12);
        close(t.preconditioner, 24e6 / 1e12 + 1e-6);
        close(t.vectors, 96e6 / 1e12 + 3e-6);
        assert_eq!((t.exchange, t.sums), (0.0, 0.0));
        // Two sums of 3 µs on four GPUs, and a meeting of 30 in eight iterations.
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
        // 7e6 entries of 10 bytes, and vectors.
        close(ildu, 86e6 / 1e12 + 1e-6);
        assert!(jacobi < ildu && ildu < of("ildu:fill=1").0 && !factors.is_exact());
        let (_, amg) = of("amg");
        assert!(amg.is_of_one_gpu());
        let error = machine.iteration(&[load(); 2], &SCALAR, true, &cg, &amg, 1).unwrap_err().to_string();
        assert!(error.contains("one GPU"), "{error}");
        for (text, word) in [("lu", "on the host"), ("ras", "bytes do not tell")] {
            let error = Applied::of(&text.parse().unwrap(), &terms, 1).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
