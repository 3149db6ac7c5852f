//! What all incomplete factors share on the host: patterns with the fill of ILU(k), the order of elimination,
//! levels, and pivots. [`Ildu`](super::Ildu) and [`Schwarz`](super::Schwarz) build their plans with it.

pub(super) mod fill;
pub(crate) mod levels;
pub(crate) mod order;
pub(super) mod pivots;
