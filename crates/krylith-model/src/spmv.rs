//! Time of a product in which every GPU holds the whole vectors, by the modes of Gao, Ji and Wang 2024 (NZ,
//! 2NZ, LRA, LRA+RC) and by stores that are sent during the product.
//!
//! * A block of rows takes the time of the product on one GPU, by the bytes that it moves: 12 per entry, 16
//!   per row, and x once.
//! * Each GPU sends its result to every other: over the host's links by the machine file's curve, and between
//!   hosts once per host, whose GPUs share the links.
//! * A second block hides the transfer of the first, redundant rows hide that of the last. Stores by the
//!   product hide all but what exceeds its time.
//!
//! Blocks are found as by the product itself, from a [`Profile`] of the matrix: entries before each 256th of
//! its rows. Not modelled: more GPUs read x from the same caches, and transfers take memory bandwidth from
//! kernels.

use super::Machine;
use crate::means;
use krylith_core::{Error, Result};
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};

/// The name of Krylith's product on one device in the suite's results.
pub const OURS: &str = "Krylith";

/// Returns the name of a row of the suite over all matrices: it omits shares of rows, which differ between
/// matrices, and keeps mode and number of blocks.
pub fn kind(name: &str) -> String {
    match name.find(':') {
        Some(colon) if name[..colon].ends_with("nz") => name.into(),
        Some(colon) => format!("{}{}", &name[..colon], if name.ends_with(')') { ")" } else { "" }),
        None => name.into(),
    }
}

/// Names of the modes in the suite.
const MODES: [&str; 6] = ["nz", "2nz", "lra", "lra+rc", "nz:8", "fused"];
/// Entries per row below which the paper's Table 3 has other parameters.
const SHORT: f64 = 8.0;

/// A matrix, as far as the model needs it.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, spmv::Profile};
/// // 10⁸ rows of three entries each.
/// let even = Profile {
///     name: "even".into(),
///     rows: 1e8,
///     entries: 3e8,
///     before: vec![0.0, 0.5, 1.0], // half of the entries in the first half of the rows
///     longest: 0.0,
///     seconds: None,
///     measured: Vec::new(),
/// };
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let (mode, seconds) = machine.product(&even, 1)[0];
/// assert_eq!((mode, seconds), ("nz", (12.0 * 3e8 + 24.0 * 1e8) / machine.read)); // bytes at the bandwidth
/// let all = machine.product(&even, 4);
/// let of = |mode: &str| all.iter().find(|(name, _)| *name == mode).map(|(_, seconds)| *seconds);
/// assert!(of("fused") < of("nz")); // the exchange is hidden behind the product
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name of the matrix.
    pub name: String,
    /// Number of rows.
    pub rows: f64,
    /// Entries before each of equal parts of the rows, as a share of all; from 0 to 1.
    pub before: Vec<f64>,
    /// Number of entries.
    pub entries: f64,
    /// Position of the longest row, as a share of the rows.
    pub longest: f64,
    /// Measured seconds of the product on one GPU; without them the model uses its bytes over the machine's
    /// bandwidth.
    pub seconds: Option<f64>,
    /// Measurements: number of GPUs, mode and seconds.
    pub measured: Vec<(usize, String, f64)>,
}

/// Rows and entries of a block.
type Block = [f64; 2];

impl Profile {
    /// Returns the share of the entries in the first share `x` of the rows.
    fn share(&self, x: f64) -> f64 {
        let parts = (self.before.len() - 1) as f64;
        let at = (x.clamp(0.0, 1.0) * parts).min(parts - 1e-9);
        let (i, rest) = (at as usize, at.fract());
        self.before[i] + rest * (self.before[i + 1] - self.before[i])
    }

    /// Returns the block of rows from share `a` to share `b`.
    fn block(&self, a: f64, b: f64) -> Block {
        [self.rows * (b - a).max(0.0), self.entries * (self.share(b) - self.share(a)).max(0.0)]
    }

    /// Cuts some ranges of rows into `ranks` blocks of equally many entries, by bisection over their rows.
    fn cut(&self, runs: &[[f64; 2]], ranks: usize) -> Vec<Block> {
        let all: f64 = runs.iter().map(|r| self.block(r[0], r[1])[1]).sum();
        let length: f64 = runs.iter().map(|r| (r[1] - r[0]).max(0.0)).sum();
        // The first share `x` of the ranges' rows, one range after the other.
        let up_to = |x: f64| -> Block {
            let (mut left, mut sum) = (x, [0.0; 2]);
            for r in runs {
                let part = (r[1] - r[0]).max(0.0).min(left);
                let block = self.block(r[0], r[0] + part);
                (sum, left) = ([sum[0] + block[0], sum[1] + block[1]], left - part);
            }
            sum
        };
        let end = |p: usize| -> Block {
            let wanted = all * p as f64 / ranks as f64;
            let (mut low, mut high) = (0.0, length);
            for _ in 0..50 {
                let middle = 0.5 * (low + high);
                if up_to(middle)[1] < wanted { low = middle } else { high = middle }
            }
            up_to(if p == ranks { length } else { low })
        };
        let ends: Vec<Block> = (0..=ranks).map(end).collect();
        ends.windows(2).map(|w| [w[1][0] - w[0][0], w[1][1] - w[0][1]]).collect()
    }

    fn bytes(&self, [rows, entries]: Block) -> f64 {
        12.0 * entries + 16.0 * rows
    }
}

/// Returns the range of A_l, the paper's block of rows around the longest row. A_l is at the start of the
/// rows if the longest row is there, at the end if it is there, otherwise around it.
fn long_block(longest: f64, share: f64) -> [f64; 2] {
    match longest {
        x if x <= share => [0.0, share],
        x if x >= 1.0 - share => [1.0 - share, 1.0],
        x => [x - 0.5 * share, x + 0.5 * share],
    }
}

/// Returns the paper's parameters by its Table 3: d_l of LRA, then d_l and d_c of LRA+RC.
fn rule(mean: f64, gpus: usize) -> [f64; 3] {
    match (mean < SHORT, gpus <= 2) {
        (true, true) => [0.5, 0.4, 0.15],
        (true, false) => [0.5, 0.35, 0.2],
        (false, true) => [0.3, 0.25, 0.05],
        (false, false) => [0.35, 0.25, 0.05],
    }
}

impl Machine {
    /// Returns the seconds until each of `gpus` GPUs has sent its rows to all others.
    fn spread(&self, blocks: &[Block], gpus: usize) -> f64 {
        if gpus < 2 {
            return 0.0;
        }
        let rows = |f: fn(f64, f64) -> f64| blocks.iter().map(|b| b[0]).fold(0.0, f);
        let near = gpus.min(self.gpus_per_host.max(1));
        let host =
            self.peers.iter().rev().find(|h| h.gpus <= near).or(self.peers.first()).or(self.nccl.first());
        let own = 8.0 * rows(f64::max) * (near - 1) as f64;
        let inside = if near > 1 { host.map_or(0.0, |h| h.exchange.at(own)) } else { 0.0 };
        let hosts = gpus.div_ceil(self.gpus_per_host.max(1)) as f64;
        let outside = self.network.as_ref().filter(|_| hosts > 1.0).map_or(0.0, |n| {
            let foreign = 8.0 * rows(|a, b| a + b) * (1.0 - 1.0 / hosts);
            n.latency + foreign / (near as f64 * n.bandwidth)
        });
        inside + outside
    }

    /// Returns the seconds of a product on `gpus` GPUs by each of the modes `nz`, `2nz`, `lra`, `lra+rc`,
    /// `nz:8` and `fused`.
    pub fn product(&self, p: &Profile, gpus: usize) -> Vec<(&'static str, f64)> {
        let x = 8.0 * p.rows;
        let bytes = p.bytes([p.rows, p.entries]) + x;
        let one = p.seconds.unwrap_or(bytes / self.read);
        if gpus < 2 {
            return MODES.map(|mode| (mode, one)).to_vec();
        }
        // x is read once per GPU, by all its blocks together.
        let speed = bytes / one;
        let kernel = |block: &Block, share: f64| self.launch + (p.bytes(*block) + share * x) / speed;
        let longest =
            |blocks: &[Block], share: f64| blocks.iter().map(|b| kernel(b, share)).fold(0.0, f64::max);
        let two = |first: &[Block], second: &[Block], again: f64| {
            let (k1, k2) = (longest(first, 0.5), longest(second, 0.5));
            let (c1, c2) = (self.spread(first, gpus), self.spread(second, gpus));
            // The links start on the second block when its kernel and the first block's transfer are both
            // done.
            k1 + k2.max(c1) + c2.max(again)
        };
        let whole = p.cut(&[[0.0, 1.0]], gpus);
        let middle = {
            let half = p.cut(&[[0.0, 1.0]], 2)[0][0] / p.rows;
            [[0.0, half], [half, 1.0]]
        };
        let [long, long_rc, redundant] = rule(p.entries / p.rows.max(1.0), gpus);
        let lra = {
            let [a, b] = long_block(p.longest, long);
            two(&p.cut(&[[0.0, a], [b, 1.0]], gpus), &p.cut(&[[a, b]], gpus), 0.0)
        };
        let rc = {
            let [a, b] = long_block(p.longest, long_rc);
            // Of the candidates beside A_l and at the ends, the one with fewest entries.
            let places = [[0.0, redundant], [1.0 - redundant, 1.0], [a - redundant, a], [b, b + redundant]];
            let free =
                |r: &[f64; 2]| r[0] >= -1e-9 && r[1] <= 1.0 + 1e-9 && (r[1] <= a + 1e-9 || r[0] >= b - 1e-9);
            let entries = |r: &[f64; 2]| p.block(r[0], r[1])[1];
            let place = places.into_iter().filter(free).min_by(|r, s| entries(r).total_cmp(&entries(s)));
            let [c, d] = place.unwrap_or([a, a]);
            let runs = if d <= a { [[0.0, c], [d, a], [b, 1.0]] } else { [[0.0, a], [b, c], [d, 1.0]] };
            let again = kernel(&p.block(c, d), 0.0);
            two(&p.cut(&runs, gpus), &p.cut(&[[a, b]], gpus), again)
        };
        let nz = longest(&whole, 1.0);
        vec![
            ("nz", nz + self.spread(&whole, gpus)),
            ("2nz", two(&p.cut(&middle[..1], gpus), &p.cut(&middle[1..], gpus), 0.0)),
            ("lra", lra),
            ("lra+rc", rc),
            // All but the last of eight blocks are sent while others are computed.
            ("nz:8", {
                let (kernels, sent) = (nz + 7.0 * self.launch, self.spread(&whole, gpus));
                (kernels + sent / 8.0).max(kernels / 8.0 + sent)
            }),
            ("fused", nz.max(self.spread(&whole, gpus))),
        ]
    }
}

/// Reads the results of `krylith bench spmv` for the model.
///
/// # Errors
/// Returns an error for JSON of another kind.
pub fn profiles(json: &Value) -> Result<Vec<Profile>> {
    let matrices = json["matrices"].as_array().filter(|_| json["suite"] == "spmv");
    let matrices = matrices.ok_or_else(|| {
        Error::invalid(
            "the file must be written by `krylith bench spmv`; it has no list of matrices".to_string(),
        )
    })?;
    let number = |v: &Value| v.as_f64();
    let one = |m: &Value| -> Option<Profile> {
        let before: Vec<f64> = m["profile"].as_array()?.iter().filter_map(number).collect();
        if before.len() < 2 {
            return None;
        }
        let seconds = |row: &Value| {
            let samples = row["samples"].as_array()?.iter().filter_map(number).collect::<Vec<f64>>();
            Some(crate::Samples(samples).median()).filter(|s| s.is_finite())
        };
        let rows = |part: &str| m[part].as_array().cloned().unwrap_or_default();
        let gpu = m["device"]["kind"] == "cuda";
        let ours = rows("single").into_iter().find(|r| r["name"] == OURS);
        let measured = rows("multi").into_iter().filter_map(|r| {
            let mode = kind(r["name"].as_str()?);
            Some((r["ranks"].as_u64()? as usize, mode, seconds(&r)?))
        });
        Some(Profile {
            name: m["name"].as_str()?.into(),
            rows: number(&m["shape"]["rows"])?,
            entries: number(&m["shape"]["nonzeros"])?,
            before,
            longest: number(&m["longest"])?,
            // Times of a CPU do not apply to a machine of GPUs.
            seconds: ours.filter(|_| gpu).and_then(|r| seconds(&r)),
            measured: measured.filter(|_| gpu).collect(),
        })
    };
    Ok(matrices.iter().filter_map(one).collect())
}

/// A study of several matrices on one machine.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, spmv};
/// use serde_json::json;
/// // As `krylith bench spmv` writes it: a product took 1 ms on one GPU, and 0.7 on two.
/// let suite = json!({ "suite": "spmv", "matrices": [{
///     "name": "a", "shape": { "rows": 1e7, "nonzeros": 3e8 }, "profile": [0.0, 0.5, 1.0], "longest": 0.0,
///     "device": { "kind": "cuda" }, "single": [{ "name": "Krylith", "samples": [1e-3] }],
///     "multi": [{ "name": "nz", "ranks": 2, "samples": [0.7e-3] }],
/// }]});
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let study = spmv::study(&machine, &spmv::profiles(&suite)?, &[1, 2]);
/// let rows = study.json["predictions"].as_array().unwrap();
/// assert_eq!(rows[0]["seconds"], 1e-3); // what was measured on one GPU
/// let two = rows.iter().find(|row| row["gpus"] == 2 && row["mode"] == "nz").unwrap();
/// let speedup = two["speedup"].as_f64().unwrap();
/// assert!(speedup > 1.0 && speedup < 2.0);
/// assert_eq!(study.json["errors"].as_array().unwrap().len(), 1); // beside the one measurement on two
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Study {
    /// Tables for a terminal.
    pub text: String,
    /// The tables as numbers.
    pub json: Value,
    /// The speed-up over the number of GPUs, as SVG.
    pub picture: String,
}

/// Predicts speed-ups by mode and number of GPUs, and compares them with the measurements.
pub fn study(machine: &Machine, profiles: &[Profile], gpus: &[usize]) -> Study {
    let mut speed = Table::new(
        format!(
            "{}: predicted speed-up over one GPU, geometric mean of {} matrices",
            machine.name,
            profiles.len()
        ),
        &["GPUs", "nz", "2nz", "lra", "lra+rc", "nz:8", "fused"],
    );
    let mut lines: Vec<(String, Vec<f64>)> = MODES.iter().map(|m| (m.to_string(), Vec::new())).collect();
    let mut rows = Vec::new();
    for &count in gpus {
        let all: Vec<_> =
            profiles.iter().map(|p| (machine.product(p, 1)[0].1, machine.product(p, count))).collect();
        let mut line = vec![count.to_string()];
        for (k, mode) in MODES.iter().enumerate() {
            let mean = means(all.iter().map(|(one, modes)| one / modes[k].1)).1;
            lines[k].1.push(mean);
            line.push(if mean.is_finite() { format!("{mean:.2}") } else { "–".into() });
            rows.extend(profiles.iter().zip(&all).map(|(p, (one, modes))| {
                json!({ "matrix": p.name, "gpus": count, "mode": mode, "seconds": modes[k].1, "speedup": one / modes[k].1 })
            }));
        }
        speed.rows.push(line);
    }
    let mut beside = Table::new("", &["matrix", "GPUs", "mode", "predicted, µs", "measured, µs", "error"]);
    let mut errors = Vec::new();
    for p in profiles {
        for (count, mode, measured) in &p.measured {
            let modes = machine.product(p, *count);
            let Some((_, seconds)) = modes.iter().find(|m| m.0 == mode) else { continue };
            let error = seconds / measured - 1.0;
            errors.push(error.abs());
            let numbers = [seconds, measured].map(|s| format!("{:.1}", 1e6 * s));
            let mut line = vec![p.name.clone(), count.to_string(), mode.clone()];
            line.extend(numbers);
            line.push(format!("{:+.1} %", 100.0 * error));
            beside.rows.push(line);
        }
    }
    let good = errors.iter().filter(|e| **e <= 0.15).count();
    beside.title = format!("Compared with measurements: {good} of {} within 15 %", errors.len());
    let mut text = speed.text();
    if !errors.is_empty() {
        text += &format!("\n{}", beside.text());
    }
    let title = format!("{}: predicted speed-up of products", machine.name);
    let json = json!({ "schema": 1, "machine": machine.name, "predictions": rows, "errors": errors });
    Study { text, json, picture: svg::over_gpus(&title, gpus, &lines) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Network};

    fn profile(before: Vec<f64>, longest: f64) -> Profile {
        let (name, rows, entries) = ("m".to_string(), 1e8, 3e8);
        Profile { name, rows, before, entries, longest, seconds: None, measured: Vec::new() }
    }

    fn machine(bandwidth: f64) -> Machine {
        let exchange = crate::Curve::line(0.0, bandwidth);
        Machine {
            read: 4e12,
            launch: 0.0,
            gpus_per_host: 8,
            peers: vec![Host { gpus: 2, exchange, ..Host::default() }],
            network: Some(Network { latency: 0.0, bandwidth: 5e10, hop: 0.0 }),
            ..crate::tests::round()
        }
    }

    #[test]
    fn blocks_add_up_and_have_as_many_entries() {
        let p = profile(vec![0.0, 0.6, 0.7, 0.8, 1.0], 0.1);
        for runs in [vec![[0.0, 1.0]], vec![[0.0, 0.3], [0.5, 1.0]], vec![[0.2, 0.4]]] {
            let whole =
                runs.iter().map(|r| p.block(r[0], r[1])).fold([0.0; 2], |s, b| [s[0] + b[0], s[1] + b[1]]);
            for ranks in [1, 2, 5] {
                let blocks = p.cut(&runs, ranks);
                let sum = blocks.iter().fold([0.0; 2], |s, b| [s[0] + b[0], s[1] + b[1]]);
                assert!((sum[0] / whole[0] - 1.0).abs() < 1e-9 && (sum[1] / whole[1] - 1.0).abs() < 1e-9);
                assert!(
                    blocks.iter().all(|b| (b[1] * ranks as f64 / whole[1] - 1.0).abs() < 1e-6),
                    "{blocks:?}"
                );
            }
        }
        assert_eq!(long_block(0.1, 0.3), [0.0, 0.3]);
        assert_eq!(long_block(0.9, 0.3), [0.7, 1.0]);
        assert!((long_block(0.5, 0.3)[0] - 0.35).abs() < 1e-12);
    }

    #[test]
    fn free_links_leave_kernels_and_slow_ones_make_hiding_worth_it() {
        let p = profile((0..=256).map(|i| f64::from(i) / 256.0).collect(), 0.05);
        let of = |m: &Machine, gpus| -> Vec<f64> { m.product(&p, gpus).iter().map(|t| t.1).collect() };
        let fast = of(&machine(1e18), 2);
        // Half of the entries and rows, and all of x.
        let wanted = (0.5 * (12.0 * 3e8 + 16.0 * 1e8) + 8e8) / 4e12;
        assert!(fast[..3].iter().all(|t| (t / wanted - 1.0).abs() < 0.01), "{fast:?} {wanted}");
        assert!(fast[3] > fast[2], "redundant rows only cost where links are free");
        let slow = of(&machine(3e11), 2);
        assert!(slow[4] < slow[2] && slow[2] < slow[0], "{slow:?}");
        assert!(slow[3] < slow[0]);
        assert!(
            of(&machine(3e11), 16)[0] > 8e8 * 0.5 / (8.0 * 5e10),
            "the network between hosts is not free"
        );
        assert_eq!(of(&machine(1.0), 1)[0], (12.0 * 3e8 + 24.0 * 1e8) / 4e12);
    }

    #[test]
    fn only_what_the_suite_wrote_is_read() {
        assert!(profiles(&json!({ "suite": "okp" })).is_err());
        let matrix = json!({
            "name": "a", "shape": { "rows": 100, "nonzeros": 300 }, "profile": [0.0, 0.5, 1.0], "longest": 0.2,
            "device": { "kind": "cuda" }, "single": [{ "name": "Krylith", "samples": [1e-3] }],
            "multi": [{ "name": "lra:0.5", "ranks": 2, "samples": [7e-4] }],
        });
        let all = profiles(&json!({ "suite": "spmv", "matrices": [matrix, { "name": "failed" }] })).unwrap();
        assert_eq!((all.len(), all[0].seconds), (1, Some(1e-3)));
        assert_eq!(all[0].measured, [(2, "lra".to_string(), 7e-4)]);
        let made = study(&machine(3e11), &all, &[1, 2, 64]);
        assert!(made.text.contains("of 1 within 15 %"), "{}", made.text);
        krylith_plot::svg::assert_well_formed(&made.picture);
    }
}
