//! The figures of the paper that `spmv/mod.rs` names, as pictures.

use super::found::Found;
use super::ground::{CUSPARSE, OURS, VECTOR};
use super::means::{SETS, means};
use super::report::{self, Columns};
use crate::publish::Pages;
use krylith_plot::svg;

pub(super) fn all(found: &[&Found], pages: &mut Pages) {
    let names: Vec<String> = found.iter().map(|f| f.name.clone()).collect();
    let mut draw = |title: &str, labels: &[String], lines: Columns| {
        // A set without any of the measured matrices has nothing to show.
        if lines.iter().any(|line| line.1.iter().any(|v| v.is_finite())) {
            pages.picture(title, |title| svg::over_names(title, labels, &lines));
        }
    };
    if found.iter().any(|f| f.ours().is_finite()) {
        draw("One device: share of the measured bandwidth, %", &names, one_device(found));
    }
    if found.iter().any(|f| !f.multi.is_empty()) {
        let ways = report::ways(found);
        let shares = found.iter().map(|f| 100.0 * report::transfer_share(f)).collect();
        draw("nz: share of transfers in a product, % (Fig. 6)", &names, vec![("transfer".into(), shares)]);
        let mut speedups = report::speedups(found, Found::ours);
        speedups.retain(|(way, _)| way == "auto" || ways.contains(way));
        draw("Speed-up over our product on one device (Figs. 11 to 13)", &names, speedups);
        let average = |inside: fn(usize) -> bool| {
            let mean = |way: &String| {
                let chosen = found.iter().filter(|f| inside(f.id));
                means(chosen.map(|f| f.ours() / report::seconds(&f.multi, way))).0
            };
            ways.iter().map(mean).collect()
        };
        let averages = SETS.iter().map(|(set, inside)| (set.to_string(), average(*inside))).collect();
        draw("Average speed-up over our product on one device (Fig. 14)", &ways, averages);
    }
    if found.iter().any(|f| !f.sweep.is_empty()) {
        let (longs, redundants) = report::axes(found);
        let labels: Vec<String> = redundants.iter().map(|c| format!("{c:.2}")).collect();
        for (name, inside) in &SETS[1..3] {
            let line = |&long: &f64| {
                let values = redundants.iter().map(|&c| report::swept(found, *inside, long, c)).collect();
                (format!("d_l {long:.2}"), values)
            };
            let title = format!("Average speed-up over d_c, a mark for each d_l, {name} (Figs. 7 to 9)");
            draw(&title, &labels, longs.iter().map(line).collect());
        }
    }
    if found.iter().any(|f| f.cg.len() > 1) {
        let title = "Conjugate gradients: speed-up over one device (Figs. 15 to 17)";
        draw(title, &names, report::conjugate_speedups(found));
    }
}

fn one_device(found: &[&Found]) -> Columns {
    let share = |f: &Found, seconds: f64| 100.0 * f.shape.bytes() as f64 / seconds / f.bandwidth.1;
    let mut lines: Columns = vec![
        (OURS.into(), found.iter().map(|f| share(f, f.ours())).collect()),
        (VECTOR.into(), found.iter().map(|f| share(f, f.single(VECTOR))).collect()),
    ];
    let vendor = |f: &&Found| f.fastest(CUSPARSE).map_or(f64::NAN, |r| share(f, r.seconds()));
    lines.push(("cuSPARSE's best".into(), found.iter().map(vendor).collect()));
    lines.retain(|l| l.1.iter().any(|v| v.is_finite()));
    lines
}
