//! Measures the time to build a nonlinear problem, its residual and its Jacobian: `newton_problems
//! artery:1500000`.

use krylith_problems::nonlinear::by_text;
use std::time::Instant;

fn main() -> krylith_core::Result<()> {
    let texts: Vec<String> = std::env::args().skip(1).collect();
    for text in if texts.is_empty() { vec!["artery:100000".to_string()] } else { texts } {
        let start = Instant::now();
        let mut problem = by_text(&text)?;
        let made = start.elapsed();
        let x = problem.initial();
        let (n, blocks) = (problem.pattern().block_rows(), problem.pattern().blocks());
        println!(
            "{}: {n} block rows, {blocks} blocks, {:.2} a row",
            problem.spec(),
            blocks as f64 / n as f64
        );
        let (mut f, mut values) = (vec![0.0; x.len()], vec![0.0; problem.pattern().stored()]);
        println!("  made in {:.3} s", made.as_secs_f64());
        for _ in 0..2 {
            let start = Instant::now();
            problem.residual(&x, &mut f)?;
            let residual = start.elapsed();
            problem.jacobian(&x, &mut values)?;
            let all = start.elapsed();
            let norm = f.iter().map(|x| x * x).sum::<f64>().sqrt();
            println!(
                "  residual {:.3} s, Jacobian {:.3} s, |F| = {norm:.6e}",
                residual.as_secs_f64(),
                (all - residual).as_secs_f64()
            );
        }
    }
    Ok(())
}
