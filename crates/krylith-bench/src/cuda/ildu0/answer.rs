//! Solvers that a user would write with the vendor's libraries, from arrays to x: cuSPARSE's product and
//! cuBLAS with point Jacobi, and cuSPARSE's ILU(0) with its analysis. Before a clock runs, indices are
//! converted, kernels compiled and settings chosen.

use super::bicgstab::{BiCgStab, Modules};
use super::factors::{Ilu, Solve};
use super::kernels::{Arg, File, Kernel};
use super::{CudaPlatform, Map, POLICIES, Policy, SubdomainSystem, policy_name, seconds};
use crate::answer::{Answer, Named, RTOL, Take};
use crate::cuda::products::{HostBlocks, Layout, Matrix};
use crate::cuda::vendor::Vendor;
use crate::ildu0::Solver;
use cudarc::cusparse::sys::cusparseSpMVAlg_t as Algorithm;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use krylith_core::matrix::Bsr;
use std::rc::Rc;
use std::time::Instant;

const THREADS: usize = 256;

/// Inputs of every variant: the system on the host in the libraries' form, settings, and compiled kernels.
struct Inputs {
    vendor: Rc<Vendor>,
    system: SubdomainSystem,
    /// The layout with the faster product.
    layout: Layout,
    rhs: Vec<f64>,
    algorithm: Option<Algorithm>,
    modules: Rc<Modules>,
    invert: Kernel,
    multiply: Rc<Kernel>,
    most: usize,
}

impl CudaPlatform {
    /// Returns variants that solve A x = b with the vendor's libraries.
    ///
    /// # Errors
    /// Returns an error if the libraries do not support the matrix: 2³¹ blocks or more, or a row without a
    /// diagonal.
    pub fn vendor_answers(
        &self,
        a: &Bsr,
        symmetric: bool,
        rhs: &[f64],
        most: usize,
    ) -> Result<Vec<Named<'static>>> {
        let v = &self.vendor;
        let (algorithm, layout) = {
            let matrix = Matrix::best(v, a)?;
            (matrix.algorithm(), matrix.blocks.layout)
        };
        let jacobi = File::Jacobi.load(v, a.block(), THREADS)?;
        let inputs = Rc::new(Inputs {
            vendor: v.clone(),
            layout,
            rhs: rhs.to_vec(),
            algorithm,
            modules: Rc::new(Modules::load(v, a.block())?),
            invert: jacobi.kernel("invert_diagonal", 0)?,
            multiply: Rc::new(jacobi.kernel("multiply", 0)?),
            most,
            system: SubdomainSystem::whole(a)?,
        });
        let (simple, incomplete) = (inputs.clone(), inputs.clone());
        let method = if symmetric { "CG" } else { "BiCGSTAB" };
        let simple: Take = Box::new(move || simple.jacobi(symmetric));
        let factors = |inputs: Rc<Inputs>, cg: bool| -> Take<'static> {
            let mut chosen: Option<Policy> = None;
            Box::new(move || {
                if let Some(policy) = chosen {
                    return inputs.factors(policy, cg);
                }
                // The first run is discarded: it finds the faster of the library's two policies.
                let [one, other] = POLICIES;
                let (first, second) = (inputs.factors(one, cg)?, inputs.factors(other, cg)?);
                let faster = first.total <= second.total;
                chosen = Some(if faster { one } else { other });
                Ok(if faster { first } else { second })
            })
        };
        let mut all = vec![
            (format!("cuSPARSE and cuBLAS, Jacobi-{method}"), simple),
            ("cuSPARSE ILU(0), BiCGSTAB".into(), factors(inputs, false)),
        ];
        if symmetric {
            // For a symmetric matrix, L D Lᵀ is the preconditioner of IC(0), and its solves need no
            // transpose.
            all.push(("cuSPARSE IC(0) as ILU(0), CG".into(), factors(incomplete, true)));
        }
        Ok(all)
    }
}

/// A clock that is read after each part.
struct Parts<'a> {
    vendor: &'a Vendor,
    begin: Instant,
    parts: Vec<(&'static str, f64)>,
}

impl<'a> Parts<'a> {
    fn begin(vendor: &'a Vendor) -> Result<Self> {
        vendor.device.wait()?;
        Ok(Self { vendor, begin: Instant::now(), parts: Vec::new() })
    }

    fn part<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (made, t) = seconds(self.vendor, work)?;
        self.parts.push((name, t));
        Ok(made)
    }

    fn end(self, residuals: &[f64], x: Vec<f64>, means: String) -> Answer {
        Answer {
            total: self.begin.elapsed().as_secs_f64(),
            parts: self.parts,
            iterations: residuals.len() - 1,
            converged: residuals.last().is_some_and(|r| *r <= RTOL),
            x,
            means,
            ..Answer::default()
        }
    }
}

impl Inputs {
    /// Uploads the matrix and b, and creates the product.
    fn uploaded(&self, host: &HostBlocks, parts: &mut Parts) -> Result<(Buffer<f64>, Rc<Matrix>)> {
        let v = &self.vendor;
        let (arrays, b) = parts.part("upload", || {
            Ok((Rc::new(host.upload(v)?), v.device.upload(&self.rhs, "the right-hand side")?))
        })?;
        let product = parts.part("product", || Matrix::with(v, arrays, self.algorithm))?;
        Ok((b, Rc::new(product)))
    }

    /// Solves with point Jacobi, with CG if the matrix is symmetric.
    fn jacobi(&self, symmetric: bool) -> Result<Answer> {
        let (v, n) = (&self.vendor, self.rhs.len());
        let (x, host) = (self.room(), HostBlocks::new(&self.system.a, self.layout));
        let mut parts = Parts::begin(v)?;
        let (b, product) = self.uploaded(&host, &mut parts)?;
        let grid = n.div_ceil(THREADS).min(8 * v.device.multiprocessors());
        let inverse = parts.part("preconditioner", || {
            let d = v.zeros(n)?;
            let [rows, columns, values] = product.blocks.addresses();
            let addresses = [rows, columns, values, d.pointer()].map(Arg::Pointer);
            self.invert.launch(grid, &[&[Arg::Int(n as i32)][..], &addresses].concat())?;
            Ok(d)
        })?;
        let multiply = self.multiply.clone();
        let map = move |x: u64, y: u64| {
            let vectors = [inverse.pointer(), x, y].map(Arg::Pointer);
            multiply.launch(grid, &[&[Arg::Int(n as i32)][..], &vectors].concat())
        };
        if !symmetric {
            return self.bicgstab(parts, product, b, Rc::new(map), x, String::new());
        }
        self.cg(parts, product, b, Rc::new(map), x, String::new())
    }

    /// Runs CG with dot products by cuBLAS.
    fn cg(
        &self,
        mut parts: Parts,
        product: Rc<Matrix>,
        b: Buffer<f64>,
        map: Map,
        mut x: Vec<f64>,
        means: String,
    ) -> Result<Answer> {
        let (v, n) = (&self.vendor, self.rhs.len());
        let [z, p, q, solution] =
            parts.part("method", || Ok([v.zeros(n)?, v.zeros(n)?, v.zeros(n)?, v.zeros(n)?]))?;
        let residuals = parts.part("solve", || {
            // x = 0 and r = b; r overwrites b.
            let (r, norm) = (b.pointer(), v.norm(n, b.pointer())?);
            let mut residuals = vec![1.0];
            map(r, z.pointer())?;
            v.copy(z.pointer(), p.pointer(), n)?;
            let mut rho = v.dot(n, r, z.pointer())?;
            while residuals.last().is_some_and(|r| *r > RTOL) && residuals.len() <= self.most {
                product.multiply(p.pointer(), 0.0, q.pointer())?;
                let alpha = rho / v.dot(n, p.pointer(), q.pointer())?;
                v.axpy(n, alpha, p.pointer(), solution.pointer())?;
                v.axpy(n, -alpha, q.pointer(), r)?;
                residuals.push(v.norm(n, r)? / norm);
                map(r, z.pointer())?;
                let before = std::mem::replace(&mut rho, v.dot(n, r, z.pointer())?);
                v.scale(n, rho / before, p.pointer())?;
                v.axpy(n, 1.0, z.pointer(), p.pointer())?;
            }
            Ok(residuals)
        })?;
        parts.part("read back", || v.device.read(&solution, 0, &mut x))?;
        Ok(parts.end(&residuals, x, means))
    }

    /// Solves with the library's ILU(0) of the whole matrix and its triangular solves, in CG or BiCGSTAB.
    fn factors(&self, policy: Policy, cg: bool) -> Result<Answer> {
        let (v, n) = (&self.vendor, self.rhs.len());
        let (x, host) = (self.room(), HostBlocks::new(&self.system.a, self.layout));
        let mut parts = Parts::begin(v)?;
        let (b, product) = self.uploaded(&host, &mut parts)?;
        let map: Map = parts.part("preconditioner", || {
            let (factors, middle) = (Rc::new(product.blocks.refilled(v)?), v.zeros(n)?);
            let ilu = Ilu::new(v, &factors, policy)?;
            ilu.factorize(&factors)?;
            ilu.check(&self.system.rows)?;
            let [lower, upper] = [false, true].map(|upper| Solve::new(v, &factors, upper, policy));
            let (lower, upper) = (lower?, upper?);
            Ok(Rc::new(move |x, y| {
                lower.run(&factors, x, middle.pointer())?;
                upper.run(&factors, middle.pointer(), y)
            }) as Map)
        })?;
        match cg {
            true => self.cg(parts, product, b, map, x, policy_name(policy).into()),
            false => self.bicgstab(parts, product, b, map, x, policy_name(policy).into()),
        }
    }

    fn bicgstab(
        &self,
        mut parts: Parts,
        product: Rc<Matrix>,
        b: Buffer<f64>,
        map: Map,
        mut x: Vec<f64>,
        means: String,
    ) -> Result<Answer> {
        let v = &self.vendor;
        let mut method = parts.part("method", || {
            BiCgStab::around(v, product, &self.system, b, (String::new(), map), 0.0, &self.modules)
        })?;
        let residuals = parts.part("solve", || method.solve(RTOL, self.most))?;
        parts.part("read back", || v.device.read(method.x(), 0, &mut x))?;
        Ok(parts.end(&residuals, x, means))
    }

    /// Allocates x with pages already mapped.
    fn room(&self) -> Vec<f64> {
        let mut x = vec![1.0; self.rhs.len()];
        x.fill(0.0);
        x
    }
}
