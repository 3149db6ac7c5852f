//! Pictures, tables and pages: SVG, PNG and HTML with nothing to load.
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
//! [`lines`], [`bars`] and [`raster`] draw charts, [`html`] puts them on a page with tables; [`frame`], [`ticks`], [`font`] and [`theme`]
//! are what charts are made of, and [`check`] looks at the result in tests.
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
pub mod residuals;
pub mod scene;
pub mod svg;
pub mod theme;
pub mod ticks;
