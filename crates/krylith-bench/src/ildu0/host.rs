//! Baselines on a CPU: the sequential loops of the reference, and BiCGSTAB with them.

use super::reference::Factors;
use super::system::SubdomainSystem;
use super::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves, count, ours};
use crate::cpu::CpuPlatform;
use crate::platform::{OnHost, Order};
use crate::samples::Samples;
use crate::systems::dot;
use krylith_core::Result;
use std::rc::Rc;
use std::time::Instant;

struct Factorised<'a> {
    system: &'a SubdomainSystem,
    factors: Factors,
    of: Of,
}

impl Factorised<'_> {
    fn name(&self) -> &'static str {
        match self.of {
            Of::Whole => "sequential ILU(0), whole matrix",
            Of::Decomposed => "sequential ILU(0), decomposed",
        }
    }
    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let (s, f) = (self.system, &self.factors);
        f.upper(s, &f.scale(s, &f.lower(s, x)))
    }
}

/// BiCGSTAB by plain loops, preconditioned from the right; vectors in the order of the given matrix.
struct Plain<'a> {
    case: &'a Case,
    factorised: Rc<Factorised<'a>>,
    setup: f64,
    x: Vec<f64>,
}

impl Plain<'_> {
    /// Returns A K⁻¹ x and K⁻¹ x.
    fn product(&self, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (a, b) = (&self.case.a, self.case.a.block());
        let system = self.factorised.system;
        let z = system.unsort(&self.factorised.apply(&system.sort(x)));
        let mut y = vec![0.0; x.len()];
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let zj = &z[a.col()[p] as usize * b..][..b];
                for (at, v) in a.block_values(p).iter().enumerate() {
                    y[i * b + at / b] += v * zj[at % b];
                }
            }
        }
        (y, z)
    }
}

impl Solver for Plain<'_> {
    fn name(&self) -> String {
        self.factorised.name().into()
    }
    fn setup(&self) -> f64 {
        self.setup
    }
    fn solve(&mut self, rtol: f64, most: usize) -> Result<Vec<f64>> {
        let n = self.case.rhs.len();
        let mut r = self.case.rhs.clone();
        let (shadow, norm) = (r.clone(), dot(&r, &r).sqrt());
        let (mut x, mut p, mut v) = (vec![0.0; n], r.clone(), vec![0.0; n]);
        let mut rho = dot(&shadow, &r);
        let (mut beta, mut omega) = (0.0, 0.0);
        let mut residuals = vec![1.0];
        while residuals.last().is_some_and(|r| *r > rtol) && residuals.len() <= most {
            for i in 0..n {
                p[i] = r[i] + beta * (p[i] - omega * v[i]);
            }
            let p_hat;
            (v, p_hat) = self.product(&p);
            let alpha = rho / dot(&shadow, &v);
            for i in 0..n {
                r[i] -= alpha * v[i];
            }
            let (t, s_hat) = self.product(&r);
            omega = dot(&t, &r) / dot(&t, &t);
            for i in 0..n {
                x[i] += alpha * p_hat[i] + omega * s_hat[i];
                r[i] -= omega * t[i];
            }
            let last = rho;
            rho = dot(&shadow, &r);
            beta = rho / last * (alpha / omega);
            residuals.push(dot(&r, &r).sqrt() / norm);
        }
        self.x = x;
        Ok(residuals)
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        Ok(self.x.clone())
    }
}

impl Ground for CpuPlatform {
    fn baselines<'a>(&'a self, case: &'a Case, _: &mut dyn FnMut(&str)) -> Result<Candidates<'a>> {
        let mut made = Candidates::default();
        for (system, of) in [(&case.whole, Of::Whole), (&case.decomposed, Of::Decomposed)] {
            let begin = Instant::now();
            let factorised = Rc::new(Factorised { system, factors: Factors::new(system)?, of });
            let seconds = begin.elapsed().as_secs_f64();
            let name = format!("factorisation, {}", factorised.name());
            made.setups.push(Setup { name, samples: Samples(vec![seconds]) });
            let cut = if of == Of::Decomposed { case.partition.iter().sum() } else { 0.0 };
            let (loops, n) = (factorised.clone(), system.len());
            let run = move |_: usize, x: &[f64], y: &mut [f64]| y.copy_from_slice(&loops.apply(x));
            let vectors = OnHost::new(Order::Subdomains(system), n, 1, run);
            let (named, bytes) = ((factorised.name(), String::new()), count::triangles(system));
            made.applications.push(Application::baseline(named, (of, Solves::All), bytes, vectors));
            made.solvers.push(Box::new(Plain { case, factorised, setup: seconds + cut, x: Vec::new() }));
        }
        Ok(made)
    }
    fn ours<'a>(&'a self, case: &'a Case, made: &mut Candidates<'a>) -> Result<()> {
        ours::add(self, case, true, made)
    }
}
