//! Pictures, tables and pages: SVG, PNG and HTML with nothing to load.
//!
//! A chart becomes a [`scene::Scene`], a list of outlines, texts and rasters, which is written as SVG or painted as PNG. Its own, and no
//! plotting crate's: `plotters` writes colours into every element, so that no picture follows a reader's dark screen, and sets text
//! without knowing its width; `charming` wants a browser. An SVG renderer (`resvg`) for PNG would be five times the code that is
//! compiled here, for the three kinds of things in a scene; `tiny-skia`, which it stands on, paints these.

pub mod bars;
pub mod check;
pub mod font;
pub mod frame;
pub mod html;
pub mod lines;
mod png;
pub mod raster;
pub mod scene;
pub mod svg;
pub mod theme;
pub mod ticks;
