//! Prints a Markdown table that shows how closely look-alikes match their originals.
//!
//! `cargo run --release -p krylith-problems --example lookalikes -- [SCALE] [--permuted] [NAME…]`; the
//! default is 1/256 and all 24 matrices. At scale 1 the largest takes 25 GB; they are generated one after the
//! other.

use krylith_problems::lookalike::{Shape, TABLE2, by_name};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut scale, mut permuted, mut names) = (1.0 / 256.0, false, Vec::new());
    for text in std::env::args().skip(1) {
        let (over, under) = text.split_once('/').unwrap_or((&text, "1"));
        match (over.parse::<f64>(), under.parse::<f64>()) {
            (Ok(over), Ok(under)) => scale = over / under,
            _ if text == "--permuted" => permuted = true,
            _ => names.push(by_name(&text).ok_or(format!("unknown matrix `{text}`"))?),
        }
    }
    if names.is_empty() {
        names.extend(&TABLE2);
    }
    println!("| matrix | rows | | nonzeros | | mean | | min | | max | | seconds | 10⁶ nonzeros/s |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    println!("| | wanted | got | wanted | got | wanted | got | wanted | got | wanted | got | | |");
    for matrix in names {
        let want = matrix.scaled(scale)?;
        let start = Instant::now();
        let a = matrix.generate(scale, 1, permuted)?;
        let seconds = start.elapsed().as_secs_f64();
        let got = Shape::of(&a);
        println!(
            "| {} | {} | {} | {} | {} | {:.3} | {:.3} | {} | {} | {} | {} | {seconds:.2} | {:.1} |",
            matrix.name,
            want.rows,
            got.rows,
            want.nonzeros,
            got.nonzeros,
            want.mean,
            got.mean,
            want.min,
            got.min,
            want.max,
            got.max,
            got.nonzeros as f64 / seconds / 1e6,
        );
    }
    Ok(())
}
