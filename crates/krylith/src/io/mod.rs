//! Files in and out.
pub mod array;
pub mod atomic;
mod coordinate;
pub mod matrix_market;
mod source;
