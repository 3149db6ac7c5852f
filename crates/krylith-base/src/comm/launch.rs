//! Detects from the environment whether an MPI launcher started this process. Krylith does not load MPI in a
//! process that was started without a launcher.

use crate::{Error, Result};

/// The launcher that started this process, and the process's place among the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) launcher: Launcher,
    /// Number of ranks, if the launcher gives it.
    pub(super) ranks: Option<usize>,
    pub(super) rank: Option<usize>,
}

/// The protocol between a launcher and the MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launcher {
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's and Intel's mpirun, srun.
    Pmi,
    /// prterun, `srun --mpi=pmix`; usually with Open MPI.
    Pmix,
}

impl Launcher {
    pub(super) fn name(self) -> &'static str {
        match self {
            Launcher::OpenMpi => "Open MPI's launcher",
            Launcher::Pmi => "a launcher of MPICH's family (PMI)",
            Launcher::Pmix => "a PMIx launcher",
        }
    }
}

impl Launch {
    /// The launcher that started this process, if one did.
    pub(super) fn here() -> Option<Self> {
        Self::read(&|name| std::env::var(name).ok())
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        // An outer launcher may leave its variables: Slurm sets those of PMI for the step in which mpirun
        // runs.
        let launchers = [
            (Launcher::OpenMpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
            (Launcher::Pmi, "PMI_SIZE", "PMI_RANK"),
            (Launcher::Pmix, "", "PMIX_RANK"),
        ];
        let (launcher, size, rank) = launchers
            .into_iter()
            .find(|(_, size, rank)| variable(size).is_some() || variable(rank).is_some())?;
        // A Slurm task need not be a rank; if it is one, this is the number of ranks.
        let ranks = number(size).or_else(|| number("SLURM_STEP_NUM_TASKS"));
        Some(Self { launcher, ranks, rank: number(rank) })
    }

    /// False for a process that was started as the only rank.
    pub(super) fn is_one_of_several(&self) -> bool {
        self.ranks != Some(1)
    }

    /// Describes the process, such as `one of 4 ranks by Open MPI's launcher`.
    pub(super) fn describe(&self) -> String {
        match self.ranks {
            Some(n) => format!("one of {n} ranks by {}", self.launcher.name()),
            None => format!("one of several ranks by {}", self.launcher.name()),
        }
    }
}

/// True if a launcher such as mpirun started this process.
pub fn launched() -> bool {
    Launch::here().is_some()
}

/// Returns an error if this process is one of several ranks, because `what` is work for one process.
///
/// # Errors
/// [`Error::Unsupported`] in a process that a launcher started as one of several.
pub fn check_alone(what: &str) -> Result<()> {
    match Launch::here() {
        Some(launch) if launch.is_one_of_several() => Err(Error::Unsupported(format!(
            "{what} works only in a single process, but this process was started as {}; start it without \
             mpirun",
            launch.describe()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Option<Launch> {
        Launch::read(&|asked| {
            variables.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        let launch = |launcher, ranks, rank| Some(Launch { launcher, ranks, rank });
        for (variables, expected) in [
            (&[("PATH", "4"), ("SLURM_STEP_NUM_TASKS", "4")][..], None),
            (
                &[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3"), ("PMIX_RANK", "3")],
                launch(Launcher::OpenMpi, Some(4), Some(3)),
            ),
            (&[("PMI_SIZE", "2"), ("PMI_RANK", "1")], launch(Launcher::Pmi, Some(2), Some(1))),
            // mpirun inside a Slurm step.
            (
                &[("PMI_SIZE", "1"), ("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_RANK", "0")],
                launch(Launcher::OpenMpi, Some(8), Some(0)),
            ),
            (&[("PMIX_RANK", "0")], launch(Launcher::Pmix, None, Some(0))),
            (&[("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "1")], launch(Launcher::Pmix, Some(1), Some(0))),
        ] {
            assert_eq!(read(variables), expected, "{variables:?}");
        }
        let several = |variables| read(variables).is_some_and(|launch| launch.is_one_of_several());
        assert!(several(&[("PMIX_RANK", "0")]) && !several(&[("PMI_SIZE", "1")]));
    }
}
