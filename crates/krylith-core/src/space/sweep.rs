//! Fused elementwise passes from one body: a Rust loop on a CPU, a CUDA kernel on a GPU.
//!
//! The body uses the common subset of both languages (`let`, `=`, `+=`, `-=`, arithmetic, `sqrt`, `if (…)
//! {…}`), so a formula is written once. Each method lists its sweeps in one [`sweeps!`](crate::sweeps) block,
//! whose constant enumerates their sources: the kernels compiled in CI and shipped with a release are exactly
//! those.
//!
//! Only elementwise passes are sweeps. They differ from method to method, and would otherwise be many small
//! kernels, each written twice. Products, projections on a basis and block diagonals need several elements at
//! a time and are kernel files. There a macro would hide the mapping of threads to data, which makes them
//! fast.
//!
//! Sweeps lose little bandwidth: r = b − q with ‖r‖² moves 4089 GB/s on an H200, and the driver's copy 4253
//! GB/s (`bench/runs/2026-11-21-h200`).

/// Source of a sweep, for a device that compiles kernels.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct SweepSource {
    /// Name of the sweep and of its kernel.
    pub name: &'static str,
    /// Names of the scalars read.
    pub scalars: &'static [&'static str],
    /// Names of the vectors read.
    pub inputs: &'static [&'static str],
    /// Names of the vectors updated.
    pub updates: &'static [&'static str],
    /// Names of the sums.
    pub sums: &'static [&'static str],
    /// The statements, as written.
    pub body: &'static str,
}

/// One sweep: its source and its Rust body, with `A` scalars, `X` inputs, `Y` updated vectors and `O` sums.
///
/// # Examples
/// [`sweeps!`](crate::sweeps) generates the implementations.
/// ```
/// use krylith_core::space::Sweep;
/// krylith_core::sweeps! {
///     /// The passes of a method.
///     const SWEEPS;
///     /// x += α p.
///     advance: (alpha) [p] [x] -> [] { x += alpha * p; }
/// }
/// assert_eq!(advance::at([0.5], [4.0], [1.0], []), ([3.0], [])); // at one element
/// assert_eq!(SWEEPS[0].name, "advance");
/// ```
pub trait Sweep<const A: usize, const X: usize, const Y: usize, const O: usize>: Copy + Send + Sync {
    /// The same body, for devices that compile kernels.
    const SOURCE: SweepSource;
    /// Runs the body at one element; returns the updated elements and the running sums.
    fn at(a: [f64; A], x: [f64; X], y: [f64; Y], o: [f64; O]) -> ([f64; Y], [f64; O]);
}

/// A sweep whose scalars and sums are the fields of the same names in a method's [`steps!`](crate::steps).
#[doc(hidden)]
pub trait BoundSweep<const A: usize, const X: usize, const Y: usize, const O: usize>:
    Sweep<A, X, Y, O>
{
    /// Slots of the scalars that it reads.
    const READS: [usize; A];
    /// Slots of its sums. They are adjacent, so that several ranks can add them in one message.
    const SUMS: [usize; O];
}

/// Returns true if the slots are consecutive.
#[doc(hidden)]
pub const fn side_by_side(slots: &[usize]) -> bool {
    let mut k = 1;
    while k < slots.len() {
        if slots[k] != slots[k - 1] + 1 {
            return false;
        }
        k += 1;
    }
    true
}

/// Declares sweeps: `name: (scalars) [inputs] [updates] -> [sums] { body }`, and a constant that lists them.
///
/// After `pub const SWEEPS for Scalars;` scalars and sums are fields of that struct, which
/// [`steps!`](crate::steps) generated. The sums of one sweep must be adjacent fields. A reduction cannot be
/// skipped by the guard: after a halt it sums stale buffers again. So a step must consume sums at once, and
/// nothing else may be kept in their slots.
///
/// # Examples
/// [`Space`](crate::space::Space) runs a sweep on vectors.
/// ```
/// use krylith_core::space::Sweep;
/// krylith_core::sweeps! {
///     /// Both passes of steepest descent.
///     const SWEEPS;
///     /// (r, A r) and (r, r).
///     dots: () [r, q] [] -> [rq, rr] { rq += r * q; rr += r * r; }
///     /// x += α r and r −= α A r, with α = (r, r)/(r, A r).
///     step: (rr, rq) [q] [x, r] -> [] { let alpha = rr / rq; x += alpha * r; r -= alpha * q; }
/// }
/// assert_eq!(dots::at([], [2.0, 3.0], [], [0.0, 1.0]), ([], [6.0, 5.0])); // added to what was there
/// assert_eq!(step::at([8.0, 4.0], [1.0], [0.0, 2.0], []), ([4.0, 0.0], []));
/// ```
#[macro_export]
macro_rules! sweeps {
    (@n $($t:ident)*) => { <[&str]>::len(&[$(stringify!($t)),*]) };
    (@bind () $($rest:tt)*) => {};
    (@bind ($scalars:ident) $name:ident ($($a:ident)*) ($($x:ident)*) ($($y:ident)*) ($($o:ident)*)) => {
        impl $crate::space::BoundSweep<{$crate::sweeps!(@n $($a)*)}, {$crate::sweeps!(@n $($x)*)},
            {$crate::sweeps!(@n $($y)*)}, {$crate::sweeps!(@n $($o)*)}> for $name {
            const READS: [usize; $crate::sweeps!(@n $($a)*)] = [$($scalars::<usize, usize>::AT.$a),*];
            const SUMS: [usize; $crate::sweeps!(@n $($o)*)] = {
                let slots = [$($scalars::<usize, usize>::AT.$o),*];
                assert!($crate::space::side_by_side(&slots), "sums of a sweep must be declared as adjacent fields");
                slots
            };
        }
    };
    ($(#[$doc:meta])* $vis:vis const $list:ident;
     $($sweeps:tt)*) => { $crate::sweeps! { @all () $(#[$doc])* $vis const $list; $($sweeps)* } };
    ($(#[$doc:meta])* $vis:vis const $list:ident for $scalars:ident;
     $($sweeps:tt)*) => { $crate::sweeps! { @all ($scalars) $(#[$doc])* $vis const $list; $($sweeps)* } };
    (@all $bound:tt $(#[$doc:meta])* $vis:vis const $list:ident;
     $($(#[$sdoc:meta])* $name:ident: ($($a:ident),*) [$($x:ident),*] [$($y:ident),*] -> [$($o:ident),*] { $($body:tt)* })*) => {
        $(
            $(#[$sdoc])*
            #[doc(hidden)] // internal to a method
            #[derive(Clone, Copy)]
            #[allow(non_camel_case_types)]
            $vis struct $name;
            impl $crate::space::Sweep<{$crate::sweeps!(@n $($a)*)}, {$crate::sweeps!(@n $($x)*)},
                {$crate::sweeps!(@n $($y)*)}, {$crate::sweeps!(@n $($o)*)}> for $name {
                const SOURCE: $crate::space::SweepSource = $crate::space::SweepSource {
                    name: stringify!($name),
                    scalars: &[$(stringify!($a)),*],
                    inputs: &[$(stringify!($x)),*],
                    updates: &[$(stringify!($y)),*],
                    sums: &[$(stringify!($o)),*],
                    body: stringify!($($body)*),
                };
                #[inline(always)]
                #[allow(unused_mut, unused_assignments, unused_parens)]
                fn at(
                    [$($a),*]: [f64; $crate::sweeps!(@n $($a)*)],
                    [$($x),*]: [f64; $crate::sweeps!(@n $($x)*)],
                    [$(mut $y),*]: [f64; $crate::sweeps!(@n $($y)*)],
                    [$(mut $o),*]: [f64; $crate::sweeps!(@n $($o)*)],
                ) -> ([f64; $crate::sweeps!(@n $($y)*)], [f64; $crate::sweeps!(@n $($o)*)]) {
                    $($body)*
                    ([$($y),*], [$($o),*])
                }
            }
            $crate::sweeps! { @bind $bound $name ($($a)*) ($($x)*) ($($y)*) ($($o)*) }
        )*
        $(#[$doc])*
        $vis const $list: &[$crate::space::SweepSource] =
            &[$(<$name as $crate::space::Sweep<{$crate::sweeps!(@n $($a)*)}, {$crate::sweeps!(@n $($x)*)},
                {$crate::sweeps!(@n $($y)*)}, {$crate::sweeps!(@n $($o)*)}>>::SOURCE),*];
    };
}

/// Makes a pass whose scalars and sums have the slots of the named scalars that it was declared for.
pub(crate) fn sweep_bound<
    S: super::Space,
    K,
    const A: usize,
    const X: usize,
    const Y: usize,
    const O: usize,
>(
    on: &S,
    kernel: K,
    scalars: &mut S::Scalars,
    x: [&S::Vector; X],
    y: [&mut S::Vector; Y],
) -> crate::Result<()>
where
    K: BoundSweep<A, X, Y, O>,
{
    on.sweep(kernel, scalars, K::READS, x, y, K::SUMS)
}
