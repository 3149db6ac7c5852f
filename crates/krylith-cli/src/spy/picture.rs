//! The pattern as an image, on a finer raster than that of the terminal.

use super::Raster;
use krylith_plot::font;
use krylith_plot::scene::{Anchor, MARGIN, SMALL, Scene, Shape, Stroke, WIDTH};
use krylith_plot::theme::Ink;
use std::ops::Range;
use std::path::Path;

/// Number of colours for ranks, which repeat for further ranks.
const INKS: usize = 7;

/// The content of an image.
pub struct Picture<'a> {
    /// The pattern.
    pub raster: &'a Raster,
    /// Number of ranks.
    pub ranks: usize,
    /// The name of the system.
    pub title: &'a str,
    /// The size of the system, and the meaning of a cell.
    pub subtitle: &'a str,
}

/// Writes an image atomically, as SVG or PNG by the extension of the name.
///
/// # Errors
/// The file system reports an error, or there is not enough memory for the image.
pub fn write(picture: &Picture, path: &Path) -> krylith_core::Result<()> {
    krylith_report::plot::write(&draw(picture), path)
}

fn draw(picture: &Picture) -> Scene {
    let Picture { raster, ranks, title, subtitle } = *picture;
    let mut scene = Scene::new(title);
    let mut top = scene.head(subtitle);
    if ranks > 1 {
        top = legend(&mut scene, ranks, top);
    }
    let side = WIDTH - 2.0 * MARGIN;
    let cell = side / raster.cells as f64;
    for row in 0..raster.cells {
        for (columns, ink) in runs(raster, row, ranks) {
            let (from, across) = (columns.start as f64, columns.len() as f64);
            // Slightly larger than a cell, so that no gaps are visible between cells.
            let place = [MARGIN + cell * from, top + cell * row as f64, cell * across + 0.1, cell + 0.1];
            scene.rect(place, ink, None);
        }
    }
    let frame = Some(Stroke(Ink::Axis, 1.0, 0));
    scene.shape(Shape::Rect([MARGIN, top, side, side]), None, frame, None);
    scene.finish()
}

/// Returns the runs of consecutive cells of a row that have the same colour.
fn runs(raster: &Raster, row: usize, ranks: usize) -> Vec<(Range<usize>, Ink)> {
    let mut runs: Vec<(Range<usize>, Ink)> = Vec::new();
    for column in 0..raster.cells {
        let at = row * raster.cells + column;
        if raster.count[at] == 0 {
            continue;
        }
        let ink = match ranks > 1 && raster.is_cut(at) {
            true => Ink::Bad,
            false => Ink::Series(raster.owner[row] % INKS),
        };
        match runs.last_mut() {
            Some((run, of)) if run.end == column && *of == ink => run.end += 1,
            _ => runs.push((column..column + 1, ink)),
        }
    }
    runs
}

/// Draws the legend of the colours, and returns the position below it.
fn legend(scene: &mut Scene, ranks: usize, top: f64) -> f64 {
    let mut names: Vec<(String, Ink)> =
        (0..ranks.min(INKS)).map(|rank| (format!("rank {rank}"), Ink::Series(rank))).collect();
    if ranks > INKS {
        names.push((format!("and so on, {ranks} ranks"), Ink::Soft));
    }
    names.push(("cut between ranks".into(), Ink::Bad));
    let (mut x, mut y) = (MARGIN, top + SMALL);
    for (name, ink) in names {
        let width = 14.0 + font::width(&name, SMALL);
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + SMALL + 6.0);
        }
        scene.rect([x, y - 9.0, 9.0, 9.0], ink, None);
        scene.text([x + 14.0, y], Anchor::Start, SMALL, Ink::Soft, name);
        x += width + 16.0;
    }
    y + 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith_plot::check::{assert_legible, assert_well_formed};

    #[test]
    fn cells_that_follow_one_another_are_one() {
        let count = vec![1, 2, 0, 0, 1, 1, 3, 0, 1];
        let cut = vec![0, 0, 0, 0, 0, 1, 3, 0, 0];
        let raster = Raster { cells: 3, count, cut, owner: vec![0, 0, 1] };
        assert_eq!(runs(&raster, 0, 1), [(0..2, Ink::Series(0))]);
        assert_eq!(runs(&raster, 1, 2), [(1..2, Ink::Series(0)), (2..3, Ink::Bad)]);
        assert_eq!(runs(&raster, 2, 2), [(0..1, Ink::Bad), (2..3, Ink::Series(1))]);
        for ranks in [1, 2, 40] {
            let scene = draw(&Picture { raster: &raster, ranks, title: "a < b", subtitle: "9 entries" });
            assert_well_formed(&scene.svg());
            assert_legible(&scene);
        }
    }
}
