//! The charts as SVG text that loads nothing.

use crate::bars::{self, Bars};
use crate::lines;
use crate::scene::Scene;

pub use crate::check::assert_well_formed;
pub use crate::scene::escape;

/// Returns horizontal bars of stacked parts: `bars` holds a name and one number per part.
pub fn stacked_bars(title: &str, unit: &str, parts: &[&str], bars: &[(String, Vec<f64>)]) -> String {
    stacked(title, unit, parts, bars).svg()
}

fn stacked(title: &str, unit: &str, parts: &[&str], bars: &[(String, Vec<f64>)]) -> Scene {
    bars::stacked(&Bars { title, subtitle: "", unit, parts, bars, whole: None })
}

/// Returns a plot of flops a second over flops a byte, both logarithmic, below the roofs of memory and
/// arithmetic.
pub fn roofline(title: &str, bandwidth: f64, peak: Option<f64>, points: &[(String, f64, f64)]) -> String {
    lines::roofline(title, bandwidth, peak, points).svg()
}

/// Returns curves over the iteration, with a logarithmic vertical axis.
pub fn curves(title: &str, curves: &[(String, &[f64])]) -> String {
    lines::curves(title, curves).svg()
}

/// Returns values over the number of GPUs from 0 upwards, one line per name.
pub fn over_gpus(title: &str, gpus: &[usize], lines: &[(String, Vec<f64>)]) -> String {
    over_counts(title, "GPUs", gpus, lines)
}

/// Returns values over evenly spaced counts from 0 upwards, one line per name; `axis` names the counts.
pub fn over_counts(title: &str, axis: &str, counts: &[usize], lines: &[(String, Vec<f64>)]) -> String {
    lines::over_counts(title, axis, counts, lines).svg()
}

/// Returns values of named things from 0 upwards, one colour per series.
pub fn over_names(title: &str, names: &[String], series: &[(String, Vec<f64>)]) -> String {
    bars::over_names(title, names, series).svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::assert_legible;
    use crate::scene::{Shape, Stroke, Thing};
    use crate::theme::Ink;

    #[test]
    fn markers_of_more_series_than_colours_stay_within_their_rows() {
        let names = ["a", "b", "c"].map(String::from);
        let series: Vec<(String, Vec<f64>)> =
            (0..11).map(|k| (format!("way {k} of a product"), vec![1.0 + f64::from(k); 3])).collect();
        let scene = bars::over_names("markers", &names, &series);
        // Markers in rows have hints; those in the legend do not.
        let rows: Vec<f64> = scene
            .things
            .iter()
            .filter_map(|thing| match thing {
                Thing::Shape { shape: Shape::Circle([_, y, _]), hint: Some(_), .. } => Some(*y),
                Thing::Shape { shape: Shape::Rect([_, y, _, h]), hint: Some(_), .. } => Some(y + 0.5 * h),
                _ => None,
            })
            .collect();
        let axis = scene.things.iter().find_map(|thing| match thing {
            Thing::Shape { shape: Shape::Line(at, false), stroke: Some(Stroke(Ink::Axis, ..)), .. } => {
                Some(at[0][1])
            }
            _ => None,
        });
        let lowest = rows.iter().copied().fold(0.0, f64::max);
        assert!(rows.len() > 6 && lowest < axis.unwrap(), "{lowest} {axis:?}");
    }

    #[test]
    fn pictures_are_well_formed_and_legible() {
        let bars = [
            ("a < b & \"c\"".to_string(), vec![1.0, 2.0, 3.0]),
            (
                "a name that is much too long for one line of it, and for two".to_string(),
                vec![0.0, f64::NAN, 1.0],
            ),
        ];
        let points = [("ours".to_string(), 0.5, 1e12), ("untimed".to_string(), 0.5, f64::NAN)];
        let curve = [1.0, 0.5, 0.0, f64::NAN, 1e-3];
        let lines = [("a & b".to_string(), vec![1.0, f64::NAN, 3.5]), ("none".to_string(), vec![])];
        let many: Vec<String> = (0..24).map(|i| format!("matrix number {i}")).collect();
        let long: Vec<(String, Vec<f64>)> = (0..12)
            .map(|k| (format!("way {k} of a product"), (0..24).map(|i| (i * k) as f64).collect()))
            .collect();
        let counts: Vec<usize> = (0..60).map(|i| 1000 * i).collect();
        let scenes = [
            stacked("phases", "µs", &["T_Kx", "T_Gn", "other"], &bars),
            stacked("none", "µs", &[], &[]),
            lines::roofline("roof", 4.4e12, None, &points),
            lines::roofline("roof", 4.4e12, Some(3.4e13), &points),
            lines::roofline("empty", 1e10, Some(1e11), &[]),
            lines::curves("residuals", &[("x".into(), &curve[..]), ("flat".into(), &[][..])]),
            lines::curves("none", &[]),
            lines::over_counts("speed-up", "GPUs", &[1, 2, 4], &lines),
            lines::over_counts("none", "GPUs", &[], &[]),
            lines::over_counts("many", "runs", &counts, &long),
            bars::over_names("bars", &["a < b".to_string(), "c".to_string()], &lines),
            bars::over_names("markers", &many, &long),
            bars::over_names("wide", &many[..2], &[("x".into(), vec![200_000.0, 1.0])]),
            bars::over_names("none", &[], &[]),
        ];
        for scene in scenes {
            let svg = scene.svg();
            assert_well_formed(&svg);
            assert_legible(&scene);
            for foreign in ["<script", "<link", "src=", "@import", "url(", "http://www.w3.org/1999"] {
                assert!(!svg.contains(foreign), "{foreign}");
            }
            let png = scene.png().unwrap();
            let header = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
            let size = header.info().size();
            assert_eq!(size, ((2.0 * scene.width) as u32, (2.0 * scene.height) as u32), "{}", scene.title);
        }
    }
}
