//! Times direct factors of a matrix: `direct FILE [THREADS]`. `bench/python/direct.py` writes the file: the
//! numbers of rows and entries as u64, row pointers as u64, columns as u32, values as f64, all little-endian.
//!
//! It prints processor seconds of all threads (0 where /proc is missing) and seconds of wall clock of the
//! first factors, of factors of new values and of a solve, the numbers in the factors, the relative residual
//! of a solve and the largest resident memory in bytes.

#[cfg(feature = "lu")]
mod process;

#[cfg(feature = "lu")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use krylith_core::matrix::Csr;
    use krylith_core::operator::{LinearOperator, TermValues, Terms};
    use krylith_core::precond::SparseLu;
    use process::{peak, processor};
    use std::time::Instant;

    let args: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(args.get(1).ok_or("direct FILE [THREADS]")?)?;
    let threads = args.get(2).map_or(Ok(1), |t| t.parse())?;
    let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or(0) as usize;
    let (n, entries) = (word(0), word(8));
    let (columns, values) = (16 + 8 * (n + 1), 16 + 8 * (n + 1) + 4 * entries);
    let a = Csr::new(
        n,
        n,
        (0..=n).map(|i| word(16 + 8 * i)).collect(),
        bytes[columns..values]
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
        (0..entries).map(|e| f64::from_bits(word(values + 8 * e) as u64)).collect(),
    )?;
    drop(bytes);
    let before = peak();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| -> krylith_core::Result<()> {
        let terms = Terms::csr(&a)?;
        let (clock, wall) = (processor(), Instant::now());
        let mut lu = SparseLu::new(&terms, None)?;
        let (first, first_wall) = (processor() - clock, wall.elapsed().as_secs_f64());
        let most = peak();
        let (b, mut x) = (vec![1.0; n], vec![0.0; n]);
        let space = krylith::device::Cpu::new(n, 1);
        let (clock, wall) = (processor(), Instant::now());
        lu.apply(&space, &b, &mut x)?;
        let (solve, solve_wall) = (processor() - clock, wall.elapsed().as_secs_f64());
        let off = (0..n).map(|i| {
            let row = a.row(i).0.iter().zip(a.row(i).1);
            let r = 1.0 - row.map(|(j, v)| v * x[*j as usize]).sum::<f64>();
            r * r
        });
        let residual = (off.sum::<f64>() / n as f64).sqrt();
        let (clock, wall) = (processor(), Instant::now());
        lu.update_values(TermValues::matrix(a.values()))?;
        let (again, again_wall) = (processor() - clock, wall.elapsed().as_secs_f64());
        println!(
            "{{\"kind\": \"{}\", \"factors_s\": {first:.4}, \"again_s\": {again:.4}, \"solve_s\": {solve:.5}, \
             \"factors_wall_s\": {first_wall:.4}, \"again_wall_s\": {again_wall:.4}, \
             \"solve_wall_s\": {solve_wall:.5}, \
             \"numbers\": {}, \"residual\": {residual:.1e}, \"before_bytes\": {before}, \"peak_bytes\": {most}}}",
            lu.kind(),
            lu.numbers()
        );
        Ok(())
    })?;
    Ok(())
}

#[cfg(not(feature = "lu"))]
fn main() {
    println!("this build has no direct factors: build it with --features lu");
}
