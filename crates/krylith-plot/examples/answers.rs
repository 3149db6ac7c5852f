//! Draws the picture of docs/performance.md: times of whole calls from Python, as measured by a run in
//! bench/runs.
//!
//! `cargo run -p krylith-plot --example answers -- bench/runs/2026-11-24-h200-python-host/gpu.md
//! docs/pictures/answers.svg`

use krylith_plot::bars;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, picture] = arguments.as_slice() else { return Err("answers TABLE.md PICTURE.svg".into()) };
    let text = std::fs::read_to_string(table).map_err(|e| format!("{table}: {e}"))?;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let Some((header, rows)) = rows.split_first() else { return Err(format!("{table}: no table")) };
    // Systems of a kind are adjacent, as in the page's table.
    let kind = |row: &[&str]| row[0].split(' ').next().map(String::from);
    let mut rows = rows.to_vec();
    let kinds: Vec<_> = rows.iter().map(|row| kind(row)).collect();
    rows.sort_by_key(|row| kinds.iter().position(|k| *k == kind(row)));
    // Columns of libraries that start with the matrix on the host.
    let own = header.iter().position(|name| *name == "krylith").ok_or("no column `krylith`")?;
    let is_other = |name: &str| name.starts_with("PyAMG") || name.ends_with("from the host");
    let others: Vec<usize> = (0..header.len()).filter(|&i| is_other(header[i])).collect();
    let (mut names, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| !row[0].starts_with("--")) {
        let number = |i: usize| row.get(i).and_then(|cell| cell.parse::<f64>().ok()); // `too long`, `failed`
        let fastest = others.iter().filter_map(|&i| number(i)).fold(f64::INFINITY, f64::min);
        names.push(row[0].to_string());
        ours.push(number(own).unwrap_or(f64::NAN));
        theirs.push(fastest);
    }
    let series = [("Krylith".to_string(), ours), ("the fastest of CuPy and PyAMG".to_string(), theirs)];
    let scene = bars::over_names("Milliseconds of a whole call from Python", &names, &series);
    std::fs::write(picture, scene.svg()).map_err(|e| format!("{picture}: {e}"))
}
