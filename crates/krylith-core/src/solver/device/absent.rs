//! The functions of a build without GPU support, which refuse every GPU.

use crate::comm::Communicator;
use crate::options::Options;
use crate::problem::LocalProblem;
use crate::solver::attempt::Engine;
use crate::space::HeldVectors;
use crate::{Error, Result};
use std::sync::Arc;

/// Placeholder: this build has no GPU support.
#[doc(hidden)]
pub struct Opening;

/// Does nothing: this build has no GPU support.
pub fn open_ahead(_: &[usize]) -> Opening {
    Opening
}

/// Returns nothing: this build compiles no kernels.
pub fn first_use() -> Option<String> {
    None
}

pub(in super::super) fn seems_there() -> bool {
    false
}

pub(in super::super) fn is_open(_: usize) -> bool {
    false
}

pub(in super::super) fn missing(_: usize) -> Option<String> {
    Some("this build has no GPU support".into())
}

/// Returns an error: this build has no GPU support.
///
/// # Errors
/// Always.
pub fn check(_: &[usize]) -> Result<()> {
    let message = "this build has no GPU support; build with the feature `cuda`".into();
    Err(Error::NoDevice { device: "cuda".into(), message })
}

pub(in super::super) fn look_cuda(_: usize, _: usize) -> Result<(String, u64, usize)> {
    check(&[]).map(|()| unreachable!("GPUs were refused"))
}

/// Returns no GPU: this build sees none.
pub(in super::super) fn visible(_: &[usize]) -> Vec<[u8; 16]> {
    Vec::new()
}

pub(in super::super) fn own_gpu(
    _: &dyn Communicator,
    _: &[usize],
) -> Result<std::result::Result<usize, String>> {
    Ok(missing(1).map_or(Ok(0), Err))
}

pub(in super::super) fn gpu_of_rank(_: &dyn Communicator, _: &[usize]) -> Result<Option<usize>> {
    check(&[]).map(|()| None)
}

pub(in super::super) fn gpu_vectors(_: usize, _: usize, _: usize) -> Result<Box<dyn HeldVectors>> {
    check(&[]).map(|()| unreachable!("GPUs were refused"))
}

pub(in super::super) fn open_cuda(
    _: &[usize],
    _: Option<usize>,
    _: &str,
    _: &LocalProblem,
    _: &Arc<dyn Communicator>,
    _: &Arc<Options>,
) -> Result<Box<dyn Engine>> {
    check(&[]).map(|()| unreachable!("GPUs were refused"))
}
