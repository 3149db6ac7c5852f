//! The paper's figures as pictures.

use super::found::{Found, auto};
use super::ground::{CUSPARSE, OURS, VECTOR};
use super::means::{SETS, means};
use super::{cg, report};
use krylith_plot::svg;

/// A heading and a picture.
type Picture = (String, String);

pub(super) fn all(found: &[&Found]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    if found.iter().any(|f| f.ours().is_finite()) {
        pictures.push(one_device(found));
    }
    if found.iter().any(|f| !f.multi.is_empty()) {
        pictures.extend([transfers(found), speedups(found), average(found)]);
    }
    if found.iter().any(|f| !f.sweep.is_empty()) {
        pictures.extend([sweep(found, 1), sweep(found, 2)]);
    }
    if found.iter().any(|f| f.cg.len() > 1) {
        pictures.push(conjugate(found));
    }
    pictures
}

fn labels(found: &[&Found]) -> Vec<String> {
    found.iter().map(|f| f.name.clone()).collect()
}

fn one_device(found: &[&Found]) -> Picture {
    let title = "One device: share of the measured bandwidth, %".to_string();
    let share = |f: &Found, seconds: f64| 100.0 * f.shape.bytes() as f64 / seconds / f.bandwidth.1;
    let mut lines: Vec<(String, Vec<f64>)> = vec![
        (OURS.into(), found.iter().map(|f| share(f, f.ours())).collect()),
        (VECTOR.into(), found.iter().map(|f| share(f, f.single(VECTOR))).collect()),
    ];
    let vendor = |f: &&Found| f.fastest(CUSPARSE).map_or(f64::NAN, |r| share(f, r.seconds()));
    lines.push(("cuSPARSE's best".into(), found.iter().map(vendor).collect()));
    lines.retain(|l| l.1.iter().any(|v| v.is_finite()));
    (title.clone(), svg::over_names(&title, &labels(found), &lines))
}

/// Fig. 6.
fn transfers(found: &[&Found]) -> Picture {
    let title = "nz: share of transfers in a product, % (Fig. 6)".to_string();
    let values = found.iter().map(|f| 100.0 * report::transfer_share(f)).collect();
    (title.clone(), svg::over_names(&title, &labels(found), &[("transfer".into(), values)]))
}

/// Figs. 11 to 13.
fn speedups(found: &[&Found]) -> Picture {
    let title = "Speed-up over our product on one device (Figs. 11 to 13)".to_string();
    let mut lines: Vec<(String, Vec<f64>)> = report::ways(found)
        .into_iter()
        .map(|way| {
            let values = found.iter().map(|f| f.ours() / report::seconds(&f.multi, &way)).collect();
            (way, values)
        })
        .collect();
    let picked = |f: &&Found| auto(f).map_or(f64::NAN, |a| f.ours() / a.1);
    lines.push(("auto".into(), found.iter().map(picked).collect()));
    (title.clone(), svg::over_names(&title, &labels(found), &lines))
}

/// Fig. 14.
fn average(found: &[&Found]) -> Picture {
    let title = "Average speed-up over our product on one device (Fig. 14)".to_string();
    let ways = report::ways(found);
    let lines: Vec<(String, Vec<f64>)> = SETS
        .iter()
        .map(|(set, inside)| {
            let mean = |way: &String| {
                let chosen = found.iter().filter(|f| inside(f.id));
                means(chosen.map(|f| f.ours() / report::seconds(&f.multi, way))).0
            };
            (set.to_string(), ways.iter().map(mean).collect())
        })
        .collect();
    (title.clone(), svg::over_names(&title, &ways, &lines))
}

/// Figs. 7 to 9 of one of the sets of means.
fn sweep(found: &[&Found], set: usize) -> Picture {
    let (name, inside) = SETS[set];
    let title = format!("Average speed-up over d_c, a line for each d_l, {name} (Figs. 7 to 9)");
    let (longs, redundants) = report::axes(found);
    let lines: Vec<(String, Vec<f64>)> = longs
        .iter()
        .map(|&long| {
            let values = redundants.iter().map(|&c| report::swept(found, inside, long, c)).collect();
            (format!("d_l {long:.2}"), values)
        })
        .collect();
    let labels: Vec<String> = redundants.iter().map(|c| format!("{c:.2}")).collect();
    (title.clone(), svg::over_names(&title, &labels, &lines))
}

/// Figs. 15 to 17.
fn conjugate(found: &[&Found]) -> Picture {
    let title = "Conjugate gradients: speed-up over one device (Figs. 15 to 17)".to_string();
    let mut ways: Vec<String> = Vec::new();
    for row in found.iter().flat_map(|f| &f.cg) {
        let way = report::kind(&row.name);
        if way != cg::ONE && !ways.contains(&way) {
            ways.push(way);
        }
    }
    let lines: Vec<(String, Vec<f64>)> = ways
        .into_iter()
        .map(|way| {
            let speed = |f: &&Found| report::seconds(&f.cg, cg::ONE) / report::seconds(&f.cg, &way);
            let values = found.iter().map(speed).collect();
            (way, values)
        })
        .collect();
    (title.clone(), svg::over_names(&title, &labels(found), &lines))
}
