//! The OKP suite without the command line: `okp cpu|cuda[:i,j,…] OUT [--full] [--scale F] [--quick] [--solves N]`.

use krylith_bench::{OkpOptions, okp};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(sound) => ExitCode::from(u8::from(!sound)),
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let mut options = OkpOptions::default();
    let mut words = std::env::args().skip(1);
    let usage = "usage: okp cpu|cuda[:i,j,…] OUT [--full] [--scale F] [--quick] [--solves N]";
    options.device = words.next().ok_or(usage)?.parse()?;
    options.out = Some(words.next().ok_or(usage)?.into());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--solves" => options.solves = Some(words.next().ok_or(usage)?.parse()?),
            "--full" => options.full = true,
            "--scale" => options.scale = Some(words.next().ok_or(usage)?.parse()?),
            // For a look: too few samples to quote.
            "--quick" => {
                (options.repetitions, options.solves, options.iterations) = (3, Some(1), Some(60));
            }
            other => return Err(format!("unknown argument `{other}`; {usage}").into()),
        }
    }
    let begin = std::time::Instant::now();
    let report = okp(&options, &mut |text| eprintln!("[{:6.1} s] {text}", begin.elapsed().as_secs_f64()))?;
    println!("{}", report.tables);
    for file in &report.files {
        eprintln!("wrote {}", file.display());
    }
    Ok(report.failures.is_empty())
}
