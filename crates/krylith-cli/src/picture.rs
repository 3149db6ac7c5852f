//! An image of a solution, in colours.

use krylith_plot::raster::{self, Raster};
use krylith_plot::scene::Scene;
use krylith_problems::nonlinear::Picture;

/// Draws the solution of a problem.
pub fn draw(picture: &Picture, spec: &str) -> Scene {
    raster::draw(&Raster {
        title: &picture.title,
        subtitle: spec,
        unit: picture.unit,
        columns: picture.columns,
        rows: picture.rows,
        values: &picture.values,
        axes: picture.axes,
    })
}
