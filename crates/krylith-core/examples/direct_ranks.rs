//! Times direct factors of a distributed matrix: `mpirun -n N direct_ranks FILE [auto|mumps|one]`. The file
//! has the format of the example `direct`. Each rank has a run of rows.
//!
//! Rank 0 prints the processor seconds of each rank and their elapsed seconds for the first factors, for
//! factors of new values and for a solve, the numbers in the factors, the relative residual of a solve, and
//! the memory that the factors added on each rank, in bytes.

#[cfg(feature = "lu")]
mod process;

#[cfg(feature = "lu")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use krylith_core::comm::{Communicator, Mpi, Solo, gather};
    use krylith_core::matrix::Dense;
    use krylith_core::operator::{LinearOperator, TermValues};
    use krylith_core::partition::{RowBlocks, RowNumbers, Rows, distribute};
    use krylith_core::precond::{LuOver, RanksLu, RanksLuOptions};
    use process::{peak, processor};
    use std::sync::Arc;
    use std::time::Instant;

    let mpi = Mpi::init()?;
    let comm: Arc<dyn Communicator> = match &mpi {
        Some(mpi) => mpi.clone(),
        None => Arc::new(Solo),
    };
    let args: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(args.get(1).ok_or("direct_ranks FILE [auto|mumps|one]")?)?;
    let over = match args.get(2).map(String::as_str) {
        Some("mumps") => LuOver::Mumps,
        Some("one") => LuOver::One,
        _ => LuOver::Auto,
    };
    let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0) as usize;
    let (n, entries) = (word(0), word(8));
    let (columns, values) = (16 + 8 * (n + 1), 16 + 8 * (n + 1) + 4 * entries);
    let column = |p: usize| word(columns + 4 * p) as u32;
    let numbers: Vec<u64> =
        (n * comm.rank() / comm.size()..n * (comm.rank() + 1) / comm.size()).map(|i| i as u64).collect();
    let mut own = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
    for &i in &numbers {
        for p in word(16 + 8 * i as usize)..word(24 + 8 * i as usize) {
            own.col.push(u64::from(column(p)));
            own.values.push(f64::from_bits(word(values + 8 * p) as u64));
        }
        own.row_ptr.push(own.col.len());
    }
    drop(bytes);
    let local = own.clone();
    let terms = vec![(Dense::identity(1), own)];
    let part = distribute(&*comm, Rows { numbers: numbers.clone(), block: 1, terms })?;
    comm.sum(&mut [0.0])?;
    let before = peak();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let line = pool.install(|| -> krylith_core::Result<String> {
        let numbers = RowNumbers::List(&numbers);
        let mut times = Vec::new();
        let (clock, begin) = (processor(), Instant::now());
        let options = RanksLuOptions { over, ..RanksLuOptions::default() };
        let mut lu = RanksLu::new(&*comm, &part.terms, numbers, &[], options)?;
        times.extend([processor() - clock, begin.elapsed().as_secs_f64()]);
        let added = peak() - before;
        let space = krylith_core::device::cpu::Cpu::distributed(
            numbers.len(),
            Arc::new(krylith_core::device::cpu::Pool::new(1)),
            comm.clone(),
        );
        let (b, mut x) = (vec![1.0; numbers.len()], vec![0.0; numbers.len()]);
        let (clock, begin) = (processor(), Instant::now());
        lu.apply(&space, &b, &mut x)?;
        times.extend([processor() - clock, begin.elapsed().as_secs_f64()]);
        let mut all = vec![0.0; n];
        numbers.put(1, &x, &mut all);
        comm.sum(&mut all)?;
        let row = |i: usize| {
            let product = (local.row_ptr[i]..local.row_ptr[i + 1])
                .map(|p| local.values[p] * all[local.col[p] as usize])
                .sum::<f64>();
            (1.0 - product) * (1.0 - product)
        };
        let mut residual = [(0..numbers.len()).map(row).sum::<f64>()];
        comm.sum(&mut residual)?;
        let values: Vec<f64> = part.terms.terms()[0].1.values().iter().map(|v| 1.5 * v).collect();
        let (clock, begin) = (processor(), Instant::now());
        lu.update_values(&*comm, TermValues::matrix(&values[..]))?;
        times.extend([processor() - clock, begin.elapsed().as_secs_f64()]);
        times.push(added as f64);
        let bytes: Vec<u8> = times.iter().flat_map(|t| t.to_le_bytes()).collect();
        let ranks = gather(&*comm, &bytes)?;
        let of = |k: usize| -> Vec<f64> {
            let number = |bytes: &Vec<u8>| bytes[8 * k..8 * k + 8].try_into().map_or(0.0, f64::from_le_bytes);
            ranks.iter().map(number).collect()
        };
        Ok(format!(
            "{{\"way\": \"{}\", \"kind\": \"{}\", \"factors_s\": {:?}, \"factors_elapsed_s\": {:?}, \
             \"solve_s\": {:?}, \"solve_elapsed_s\": {:?}, \"again_s\": {:?}, \"again_elapsed_s\": {:?}, \
             \"added_bytes\": {:?}, \"numbers\": {}, \"residual\": {:.1e}}}",
            lu.way(),
            lu.kind(),
            of(0),
            of(1),
            of(2),
            of(3),
            of(4),
            of(5),
            of(6),
            lu.numbers().0,
            (residual[0] / n as f64).sqrt()
        ))
    })?;
    if comm.rank() == 0 {
        println!("{line}");
    }
    mpi.map_or(Ok(()), |mpi| mpi.finish())?;
    Ok(())
}

#[cfg(not(feature = "lu"))]
fn main() {
    println!("this build has no direct factors: build it with --features lu");
}
