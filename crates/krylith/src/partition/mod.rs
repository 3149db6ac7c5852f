//! Who owns which block rows, and what ranks exchange for one product.
//!
//! Everything here counts nodes (block rows): a node's b·s numbers are contiguous in a vector, so a message is a
//! gather of runs and lands as it comes in its ghost slots. That replaces the pre-mapping and buffering of the OKP
//! paper (Alg. 5 and 6).

mod ghosts;
mod halo;

pub use ghosts::with_ghosts;
pub use halo::{Halo, Neighbour};
