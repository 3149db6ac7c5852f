//! The list of all preconditioners, for errors, for types of other languages and for editors.

use super::PrecondSpec;
use crate::names::bare;

/// The names of all preconditioners with their keys, and the forms of compositions.
pub(super) const KNOWN: &[&str] = &[
    "auto",
    "none",
    "jacobi[:block=B]",
    "block-jacobi[:tile=XxYxZ|whole|slab,factor=ic0|ilu0]",
    "ildu[:fill=K,rows=N,cut=NAME,shift=S]",
    "stage[:the same keys] or stage(P)",
    "ras[:overlap=D,parts=N,sub=ilu|lu,fill=K,order=natural|rcm,factor=random|exact,eta=N,solve=auto|random|jacobi|exact,gamma=N,fdp=N,\
     deterministic]",
    "amg[:cycle=v|w|k,coarsen=classical|aggregation|smoothed|air|air1,strength=T,truncate=N,aggressive=N,filter=T,relax=N,border=auto|global|local,\
     smoother=jacobi|chebyshev|ildu|ffc,sweeps=N,degree=N,coarsest=N,levels=N,precision=f64|f32,compute=f64|f32|bf16]",
    "coarse[:the same keys]",
    "lu[:most=N,over=auto|mumps|one|gpus,on=auto|device|host]",
    "vanka[:kind=diagonal|full,field=NAME,damping=W,precision=f64|f32,levels=N,sweeps=N]",
    "`P+Q`, `P then Q` and `symmetric(P then Q)` of them",
    "split(FIELD: P, FIELD: Q[; form=diagonal|lower|upper|full or schur=…,S=NAME])",
    "cpr(FIELD: P[; decouple=quasi-impes|impes(NAME)|row-sums|none])",
    "aux(MATRIX: P[; block=B])",
    "cg(P[; iterations=N])",
    "chebyshev(P[; degree=N,low=R])",
];

impl PrecondSpec {
    /// Returns the names of all preconditioners.
    ///
    /// ```
    /// use krylith::precond::PrecondSpec;
    /// assert_eq!(PrecondSpec::names().take(3).collect::<Vec<_>>(), ["auto", "none", "jacobi"]);
    /// ```
    pub fn names() -> impl Iterator<Item = &'static str> {
        bare(KNOWN)
    }

    /// Returns the keys of the preconditioner of this name, and what each takes: a letter for a number,
    /// names, or nothing for a flag.
    ///
    /// ```
    /// use krylith::precond::PrecondSpec;
    /// assert_eq!(PrecondSpec::keys("ildu")[0], ("fill", "K"));
    /// ```
    pub fn keys(name: &str) -> Vec<(&'static str, &'static str)> {
        let of = |name: &str| {
            let listed = KNOWN.iter().find(|known| bare(&[**known]).next() == Some(name))?;
            Some(listed.split_once("[:")?.1.split_once(']')?.0)
        };
        // The list of some repeats that of the preconditioner before it.
        let list = match of(name) {
            Some("the same keys") => of(if name == "stage" { "ildu" } else { "amg" }),
            list => list,
        };
        let keys = list.into_iter().flat_map(|list| list.split(','));
        keys.map(|key| key.split_once('=').unwrap_or((key, ""))).collect()
    }
}
