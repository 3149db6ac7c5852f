//! Draws every kind of chart, for visual inspection. `cargo run -p krylith-plot --example gallery -- FOLDER`
//! writes `gallery.html` and a PNG of each.

use krylith_plot::html::{Table, page};
use krylith_plot::{bars, lines, scene::Scene};
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or(".".into()));
    std::fs::create_dir_all(&folder)?;
    let scenes = charts();
    for (k, scene) in scenes.iter().enumerate() {
        std::fs::write(folder.join(format!("{k}.png")), scene.png().unwrap_or_default())?;
        std::fs::write(folder.join(format!("{k}.svg")), scene.svg())?;
    }
    let pictures: Vec<_> = scenes.iter().map(|s| (s.title.clone(), s.svg())).collect();
    let header =
        ["way", "alone, ms", "rotating, ms", "GFLOPS", "GB/s (least bytes)", "share of read", "× baseline"];
    let mut table = Table::new("Product (A⊗M + τB⊗L)x, 53×53×54", &header);
    for name in ["CU-Solver (axpy + bsrmv) [blocks by columns]", "Krylith, structured blocks"] {
        let numbers = ["0.436 (0.435–0.445)", "0.441 (0.434–0.451)", "671", "1347", "29.7 %", "1.00"];
        table.rows.push(std::iter::once(name).chain(numbers).map(String::from).collect());
    }
    let facts =
        ["One accelerator; read bandwidth 4527 GB/s".into(), "command: krylith bench okp --out okp".into()];
    std::fs::write(folder.join("gallery.html"), page("Gallery", &facts, &pictures, &[table]))
}

fn charts() -> Vec<Scene> {
    let names = [
        "CU-Solver (MGS)",
        "CU kernels, CGS2 by gemv",
        "dense blocks",
        "structured blocks",
        "structured, f32",
    ];
    let parts =
        [[445.3, 482.0, 9.2], [445.3, 255.4, 6.6], [157.2, 92.4, 4.1], [55.6, 92.3, 4.6], [55.6, 62.9, 4.5]];
    let bars: Vec<_> = names.iter().zip(parts).map(|(n, p)| (n.to_string(), p.to_vec())).collect();
    let points = names.iter().zip([0.5, 0.5, 0.5, 1.6, 2.8]).enumerate();
    let points: Vec<_> =
        points.map(|(k, (n, x))| (n.to_string(), x, [6.7e11, 4.6e11, 1.9e12, 5.4e12, 6.4e12][k])).collect();
    let residual = |pace: f64| -> Vec<f64> {
        let at = |i: i32| 10f64.powf(-pace * f64::from(i)) * (1.0 + 0.3 * (f64::from(i) * 0.7).sin());
        (0..=300).map(at).collect()
    };
    let residuals = [residual(0.02), residual(0.028), residual(0.02)];
    let curves = residuals.iter().zip(["GMRES(30)", "BiCGSTAB", "P-CBCG"]);
    let curves: Vec<(String, &[f64])> = curves.map(|(r, n)| (n.to_string(), r.as_slice())).collect();
    let gpus = [1, 2, 4, 8];
    let speed = names.iter().enumerate();
    let speed: Vec<_> = speed
        .map(|(k, n)| {
            let of = |p: usize| (p as f64).powf(0.95 - 0.03 * k as f64);
            (n.to_string(), gpus.iter().map(|p| of(*p)).collect())
        })
        .collect();
    let sets: Vec<String> = ["all 24", "long rows", "short rows"].map(String::from).to_vec();
    let ways = names[..3].iter().enumerate();
    let ways: Vec<_> =
        ways.map(|(k, n)| (n.to_string(), vec![1.4 + k as f64, 2.25, 3.1 - 0.5 * k as f64])).collect();
    let matrices: Vec<String> = (1..=24).map(|i| format!("matrix {i}")).collect();
    let shares = names.iter().enumerate();
    let shares: Vec<_> = shares
        .map(|(k, n)| {
            let of = |i: usize| 90.0 - 9.0 * k as f64 - ((i * 7 + k * 3) % 11) as f64;
            (n.to_string(), (0..24).map(of).collect())
        })
        .collect();
    vec![
        bars::stacked(&bars::Bars {
            title: "Where an iteration's time goes",
            subtitle: "parts from a run with clocks between them; mark and number: a run without",
            unit: "µs",
            parts: &["product (T_Kx)", "orthogonalisation (T_Gn)", "other"],
            bars: &bars,
            whole: Some(&[934.7, 703.9, 245.8, 144.5, 114.9]),
        }),
        lines::roofline("Roofline: random blocks, 53×53×54", 4.527e12, Some(3.4e13), &points),
        lines::curves("Relative residual", &curves),
        lines::over_counts("Strong scaling: speed-up over one GPU", "GPUs", &gpus, &speed),
        bars::over_names("Average speed-up over our product on one device (Fig. 14)", &sets, &ways),
        bars::over_names("One device: share of the measured bandwidth, %", &matrices, &shares),
    ]
}
