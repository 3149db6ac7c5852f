//! The paper's kernels on tall, skinny matrices: batched GEMM of cuBLAS, and one kernel for the rest.

use super::*;
use crate::cbcg::{S, block_coefficients, block_less, block_numbers};
use crate::cuda::kernels::Module;
use std::borrow::Cow;

/// Rows of a batch in the paper.
const BATCH: usize = 128;

/// Threads per block, which the registers limit.
const THREADS: usize = 128;

pub(super) fn macros() -> [(&'static str, usize); 2] {
    [("S", S), ("THREADS", THREADS)]
}

/// A block of S columns, or single columns, padded with zeros to whole batches.
struct Columns {
    buffer: Buffer<f64>,
    padded: usize,
    n: usize,
}

impl Columns {
    /// Uploads `count` columns, given by number.
    fn new<'a>(
        vendor: &Vendor,
        n: usize,
        count: usize,
        column: impl Fn(usize) -> Cow<'a, [f64]>,
    ) -> Result<Self> {
        let padded = n.next_multiple_of(BATCH);
        let mut buffer = vendor.zeros(count * padded)?;
        for k in 0..count {
            vendor.device.write(&column(k), &mut buffer, k * padded)?;
        }
        Ok(Self { buffer, padded, n })
    }

    fn read(&self, vendor: &Vendor) -> Result<Vec<f64>> {
        let all = vendor.read(&self.buffer)?;
        Ok(all.chunks(self.padded).flat_map(|column| &column[..self.n]).copied().collect())
    }
}

/// Returns the kernels of a step on blocks of vectors. If `check` is true, they have the numbers of
/// [`block_numbers`], with which the host compares their results. Else all columns are the same, because
/// random numbers of a large case take long.
pub(super) fn kernels<'k>(vendor: &Rc<Vendor>, n: usize, check: bool) -> Result<Vec<Kernel<'k>>> {
    let module = Module::load(vendor, SKINNY, &macros())?;
    let same = if check { Vec::new() } else { block_numbers(51, 0, n) };
    let columns = |kernel: u64, from: usize, count: usize| {
        Columns::new(vendor, n, count, |k| match check {
            true => block_numbers(kernel, from + k, n).into(),
            false => Cow::from(&same),
        })
    };
    let block = |kernel: u64, k: usize| columns(kernel, k * S, S);
    Ok(vec![
        products(vendor, &module, [block(51, 0)?, block(51, 1)?])?,
        update(
            vendor,
            &module,
            [block(62, 0)?, block(62, 1)?, block(62, 2)?, block(62, 3)?],
            [columns(62, 4 * S, 1)?, columns(62, 4 * S + 1, 1)?],
        )?,
        residual(vendor, &module, block(63, 0)?, columns(63, S, 1)?)?,
    ])
}

/// (AQ)ᵀS by batches of 128 rows, and the sum of the batches' results: line 11 of Alg. 2, and line 5 with Q.
fn products<'k>(vendor: &Rc<Vendor>, module: &Module, [aq, s]: [Columns; 2]) -> Result<Kernel<'k>> {
    let (n, padded, v) = (aq.n, aq.padded, vendor.clone());
    let batches = padded / BATCH;
    let results = vendor.zeros(batches * S * S)?;
    let each = 8 * vendor.device.multiprocessors();
    let (middle, sums) = (vendor.zeros(each * S * S)?, Rc::new(vendor.zeros(S * S)?));
    let addresses = |first: u64, stride: usize| -> Result<Buffer<u64>> {
        let all: Vec<u64> = (0..batches).map(|b| first + 8 * (b * stride) as u64).collect();
        vendor.device.upload(&all, "the batches' addresses")
    };
    let lists = [
        addresses(aq.buffer.pointer(), BATCH)?,
        addresses(s.buffer.pointer(), BATCH)?,
        addresses(results.pointer(), S * S)?,
    ];
    let sum = module.kernel("sum_batches", S * S, 0)?;
    let (at, own) = (sums.clone(), vendor.clone());
    Ok(Kernel {
        name: format!("the paper's batched GEMM (AQ)ᵀS, s = {S}"),
        role: Role::Matrix,
        ours: false,
        flops: (2 * S) as f64,
        // The results of the batches are written and read.
        bytes: 16.0 + 16.0 * S as f64 / BATCH as f64,
        paper: Some([48.0, 35.0, 0.95]),
        products: S,
        runs: 2,
        run: Box::new(move || {
            // The lists hold the addresses of both blocks.
            let _ = (&aq, &s);
            let at = [0, 1, 2].map(|k| lists[k].pointer());
            v.gram_batched((BATCH, S, padded), at, batches)?;
            let first = [Arg::Int(batches as i32)];
            sum.launch(each, &[&first[..], &pointers([&results, &middle])].concat())?;
            let second = [Arg::Int(each as i32)];
            sum.launch(1, &[&second[..], &pointers([&middle, &sums])].concat())
        }),
        answer: Box::new(move || own.read(&at)),
        expected: Box::new(move || {
            let all: Vec<Vec<f64>> = (0..2 * S).map(|k| block_numbers(51, k, n)).collect();
            (0..S * S).map(|k| dot(&all[k / S], &all[S + k % S])).collect()
        }),
    })
}

/// x += Q a, Q = V − Q B, AQ = AV − AQ B and the new Qᵀr: lines 8, 13, 14 and 6 of Alg. 2.
fn update<'k>(
    vendor: &Rc<Vendor>,
    module: &Module,
    blocks_of: [Columns; 4],
    single: [Columns; 2],
) -> Result<Kernel<'k>> {
    let (n, padded) = (blocks_of[0].n, blocks_of[0].padded);
    let small = block_coefficients(S * S + S);
    let count = blocks(vendor, padded, THREADS);
    let (partial, sums) = (vendor.zeros(count * S)?, vendor.zeros(S)?);
    let coefficients = vendor.device.upload(&small, "the small matrix")?;
    let [run, add] = [module.kernel("update", THREADS, 0)?, module.kernel("sum_blocks", S, 0)?];
    let held = Rc::new((blocks_of, single, sums));
    let (at, own) = (held.clone(), vendor.clone());
    Ok(Kernel {
        name: format!("the paper's GEMM and GEMV, x + Q a, S − Q B, AS − AQ B, Qᵀr, s = {S}"),
        role: Role::Matrix,
        ours: false,
        flops: (4 * S + 4) as f64,
        bytes: 8.0 * (6 * S + 3) as f64 / S as f64,
        paper: Some([54.0, 59.0, 0.81]),
        products: S,
        runs: 1,
        run: Box::new(move || {
            let ([v, av, q, aq], [x, r], sums) = &*held;
            let mut args = vec![Arg::Int(padded as i32)];
            args.extend(pointers([&v.buffer, &av.buffer, &coefficients, &r.buffer, &q.buffer, &aq.buffer]));
            args.extend(pointers([&x.buffer, &partial]));
            run.launch(count, &args)?;
            add.launch(1, &[&[Arg::Int(count as i32)][..], &pointers([&partial, sums])].concat())
        }),
        answer: Box::new(move || {
            let ([_, _, q, aq], [x, _], sums) = &*at;
            let mut all = q.read(&own)?;
            all.extend(aq.read(&own)?);
            all.extend(x.read(&own)?);
            all.extend(own.read(sums)?);
            Ok(all)
        }),
        expected: Box::new(move || {
            let all: Vec<Vec<f64>> = (0..4 * S + 2).map(|k| block_numbers(62, k, n)).collect();
            let (q, aq) = (block_less(&all, 0, 2 * S, &small), block_less(&all, S, 3 * S, &small));
            let r = &all[4 * S + 1];
            let moved = |i: usize| (0..S).map(|k| small[S * S + k] * all[2 * S + k][i]).sum::<f64>();
            let x: Vec<f64> = (0..n).map(|i| all[4 * S][i] + moved(i)).collect();
            let sums: Vec<f64> = q.iter().map(|v| dot(v, r)).collect();
            q.into_iter().chain(aq).flatten().chain(x).chain(sums).collect()
        }),
    })
}

/// r −= AQ a: line 9 of Alg. 2.
fn residual<'k>(vendor: &Rc<Vendor>, module: &Module, aq: Columns, r: Columns) -> Result<Kernel<'k>> {
    let (n, padded, small) = (aq.n, aq.padded, block_coefficients(S));
    let run = module.kernel("residual", THREADS, 0)?;
    let count = blocks(vendor, padded, THREADS);
    let a = vendor.device.upload(&small, "the small vector")?;
    let r = Rc::new(r);
    let (at, own) = (r.clone(), vendor.clone());
    Ok(Kernel {
        name: format!("the paper's GEMV r − AQ a, s = {S}"),
        role: Role::Matrix,
        ours: false,
        flops: 2.0,
        bytes: 8.0 * (S + 2) as f64 / S as f64,
        paper: None,
        products: S,
        runs: 1,
        run: Box::new(move || {
            let args = pointers([&aq.buffer, &a, &r.buffer]);
            run.launch(count, &[&[Arg::Int(padded as i32)][..], &args].concat())
        }),
        answer: Box::new(move || at.read(&own)),
        expected: Box::new(move || {
            let all: Vec<Vec<f64>> = (0..S + 1).map(|k| block_numbers(63, k, n)).collect();
            let sum = |i: usize| (0..S).map(|k| small[k] * all[k][i]).sum::<f64>();
            (0..n).map(|i| all[S][i] - sum(i)).collect()
        }),
    })
}
