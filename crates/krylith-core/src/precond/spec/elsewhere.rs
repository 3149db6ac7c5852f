//! Words for preconditioners in other programs and in papers, and what to write here.

use crate::{Error, Result};

/// Returns an error with what to write, if `name` is a word of other programs.
pub(super) fn meant(name: &str) -> Option<Result<super::PrecondSpec>> {
    let text = match name {
        "fieldsplit" | "schur" => {
            "write split(u: P, p: Q; schur=upper, S=NAME), with the names of your fields"
        }
        "simple" | "simpler" => {
            "SIMPLE is a form of split: split(u: P, p: Q; schur=simple, S=selfp), with the names of your fields"
        }
        "lsc" | "pcd" | "selfp" => {
            "it approximates a Schur complement: split(u: P, p: Q; S=lsc) or S=pcd(F, L, M)"
        }
        "mgr" => "write cpr(p: amg) then ildu, or split(…), with the names of your fields",
        "ams" | "ads" | "hx" => {
            "write aux(G: amg) with a discrete gradient G; docs/coupled.md has the whole method"
        }
        "woodbury" => "write split(x: P, m: lu; schur=full, S=explicit) for [[A, U], [Vᵀ, −I]]",
        "minres" | "gmres" | "fgmres" | "bicgstab" | "cbcg" => {
            return Some(Err(Error::invalid(format!(
                "unknown preconditioner `{name}`; {name} is a method: write method={name}"
            ))));
        }
        _ => return None,
    };
    Some(Err(Error::invalid(format!("unknown preconditioner `{name}`; {text}"))))
}
