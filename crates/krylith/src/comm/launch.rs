//! Whether MPI started this process, told from the environment: an ordinary start must not touch MPI, and a build
//! without MPI must not solve the whole system once on every rank.

use crate::{Error, Result};

/// What launchers set to the number of ranks: Open MPI's mpirun, and everything that speaks PMI (MPICH, Intel, srun).
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
/// What launchers set that give no number of ranks: PMIx alone (prte, srun --mpi=pmix).
const RANKS: [&str; 2] = ["PMIX_RANK", "PMI_RANK"];
/// What Slurm tells besides: tasks need not be ranks of MPI, but where they are, this is their number.
const TASKS: &str = "SLURM_STEP_NUM_TASKS";

/// True if a launcher such as mpirun started this process.
pub fn launched() -> bool {
    SIZES.iter().chain(&RANKS).any(|name| std::env::var_os(name).is_some())
}

/// Refuses to be one of several ranks in a build without MPI, where each would solve the whole system.
///
/// # Errors
/// [`Error::Unsupported`] in a build without feature `mpi` that mpirun started as one of several.
pub fn check_launch() -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    refuse(cfg!(feature = "mpi"), &variable)
}

fn refuse(has_mpi: bool, variable: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    let size = SIZES
        .iter()
        .find_map(|name| number(name))
        .or_else(|| RANKS.iter().any(|name| variable(name).is_some()).then(|| number(TASKS)).flatten());
    let several = match size {
        Some(1) => false,
        Some(_) => true,
        None => RANKS.iter().any(|name| variable(name).is_some()),
    };
    if has_mpi || !several {
        return Ok(());
    }
    let ranks = size.map_or("several ranks".into(), |n| format!("{n} ranks"));
    Err(Error::Unsupported(format!(
        "started as one of {ranks}, and this build has no MPI; build one with `cargo build --release --features mpi`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_mpi_refuses_to_be_one_of_several() {
        let with = |name: &'static str, value: &'static str| {
            move |asked: &str| match asked {
                "SLURM_STEP_NUM_TASKS" => Some("1".to_string()),
                _ => (asked == name).then(|| value.to_string()),
            }
        };
        for (name, value, refused) in [
            ("OMPI_COMM_WORLD_SIZE", "4", true),
            ("PMI_SIZE", "2", true),
            ("PMIX_RANK", "0", false), // Slurm says that it is the only one
            ("OMPI_COMM_WORLD_SIZE", "1", false),
            ("PATH", "4", false),
        ] {
            let found = refuse(false, &with(name, value));
            assert_eq!(found.is_err(), refused, "{name}={value}: {found:?}");
            refuse(true, &with(name, value)).unwrap();
        }
        let alone = |asked: &str| (asked == "PMIX_RANK").then(|| "0".to_string());
        assert!(refuse(false, &alone).is_err(), "of an unknown number");
        let text = refuse(false, &with("PMI_SIZE", "3")).unwrap_err().to_string();
        assert!(text.contains("3 ranks") && text.contains("--features mpi"), "{text}");
    }
}
