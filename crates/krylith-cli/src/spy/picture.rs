//! The pattern as a picture: what is on the raster of the terminal, on a finer one.

use super::Raster;
use krylith_plot::font;
use krylith_plot::scene::{Anchor, MARGIN, SMALL, Scene, Shape, Stroke, WIDTH};
use krylith_plot::theme::Ink;
use std::ops::Range;
use std::path::Path;

/// Inks that tell ranks apart; further ranks begin anew.
const INKS: usize = 7;

/// What the picture shows.
pub struct Picture<'a> {
    /// The pattern.
    pub raster: &'a Raster,
    /// Ranks that share it.
    pub ranks: usize,
    /// The system.
    pub title: &'a str,
    /// Its size, and what a cell is.
    pub subtitle: &'a str,
}

/// Writes it, as SVG or PNG by the name's ending; it appears whole or not at all.
///
/// # Errors
/// What the file system says; a picture that would not fit the memory.
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
            // A hair wider and higher, so that no paper shines through between cells.
            let place = [MARGIN + cell * from, top + cell * row as f64, cell * across + 0.1, cell + 0.1];
            scene.rect(place, ink, None);
        }
    }
    let frame = Some(Stroke(Ink::Axis, 1.0, 0));
    scene.shape(Shape::Rect([MARGIN, top, side, side]), None, frame, None);
    scene.finish()
}

/// Cells of a row that follow one another in one ink.
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

/// Names of the inks, in as many lines as they take; returns where the rest may begin.
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
