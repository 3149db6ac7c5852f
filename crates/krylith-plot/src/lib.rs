//! Pictures, tables and pages: SVG, PNG and HTML that load nothing.
//!
//! ```
//! use krylith_plot::{html::{Table, page}, lines::curves};
//! let residuals = [1.0, 1e-2, 1e-5, 1e-9];
//! let picture = curves("Residuals", &[("cg".into(), &residuals[..])]).svg();
//! let mut table = Table::new("Iterations", &["method", "count"]);
//! table.rows.push(vec!["cg".into(), "3".into()]);
//! let html = page("A solve", &["laplace:64x64x64".into()], &[("Residuals".into(), picture)], &[table]);
//! assert!(html.contains("<svg") && html.contains("<table>"));
//! ```
//!
//! [`lines`], [`bars`] and [`raster`] draw charts, and [`html`] puts them on a page with tables. [`frame`],
//! [`ticks`], [`font`] and [`theme`] are the building blocks of charts, and [`check`] verifies the result in
//! tests.
//!
//! A chart becomes a [`scene::Scene`], a list of outlines, texts and rasters, which is written as SVG or
//! painted as PNG.
//!
//! Why not a plotting crate: `plotters` writes colours into every element, so pictures cannot follow a dark
//! screen, and it places text without knowing its width; `charming` needs a browser. A full SVG renderer
//! (`resvg`) for PNG would compile five times as much code for the three kinds of items in a scene;
//! `tiny-skia`, on which it is built, paints these directly.

pub mod bars;
pub mod check;
pub mod font;
pub mod frame;
pub mod html;
pub mod lines;
mod png;
pub mod raster;
pub mod residuals;
pub mod scene;
pub mod svg;
pub mod theme;
pub mod ticks;
