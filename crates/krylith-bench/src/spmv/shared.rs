//! Vectors that every rank holds whole: the operator between them, by mode.

use super::matrix::Case;
use krylith::comm::Communicator;
use krylith::matrix::Csr;
use krylith::operator::LinearOperator;
use krylith::space::Space;
use krylith::{Error, Result};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    Nz,
    TwoNz,
    Lra { long: f64 },
    LraRc { long: f64, redundant: f64 },
    Fused,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Mode::Nz => write!(f, "nz"),
            Mode::TwoNz => write!(f, "2nz"),
            Mode::Lra { long } => write!(f, "lra:{long}"),
            Mode::LraRc { long, redundant } => write!(f, "lra+rc:{long}/{redundant}"),
            Mode::Fused => write!(f, "fused"),
        }
    }
}
impl Mode {
    pub fn by_rule(_: f64, _: usize) -> [Mode; 2] {
        [Mode::Lra { long: 0.5 }, Mode::LraRc { long: 0.4, redundant: 0.15 }]
    }
}

pub(super) trait Shared: Space + Sized {
    fn replicated(
        _: &Self,
        _: &Arc<dyn Communicator>,
        _: &Csr,
        _: &Mode,
    ) -> Result<(Box<dyn LinearOperator<Self>>, f64)> {
        Err(Error::invalid("not there yet"))
    }
    fn swept(_: &Self, _: &Arc<dyn Communicator>, _: &Case, _: &[Mode]) -> Result<Vec<f64>> {
        Err(Error::invalid("not there yet"))
    }
}
impl<S: Space> Shared for S {}
