//! Arguments of products that turn each number into a residual or a smoother step (`kernels/smooth.cuh`).

/// Mirrors `struct Smooth` in `kernels/smooth.cuh`: addresses, 0 for an array that is not needed.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Smooth {
    pub x: u64,
    pub b: u64,
    pub d: u64,
    pub p: u64,
    pub a: u64,
    pub c: u64,
    pub first: u64,
    pub last: i32,
    pub keeps: i32,
    pub exponent: u64,
    pub own: u64,
}

const _: () = assert!(size_of::<Smooth>() == 80);
