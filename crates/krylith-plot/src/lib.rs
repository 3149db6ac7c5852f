//! Pictures, tables and pages: SVG and HTML with nothing to load.

pub mod html;
pub mod svg;
