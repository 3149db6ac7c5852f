//! A session whose ranks are threads of a team: each creates its own solver, then all execute the same
//! commands.

use super::{Job, Session, Solve, Times};
use krylith_core::comm::{Communicator, Team, TeamRank};
use krylith_core::partition::Part;
use krylith_core::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A function that creates a rank's solver in the thread of the rank.
pub(crate) type Make = Box<dyn FnOnce(&Place) -> Result<Box<dyn Session>> + Send>;

/// Actions that end waits inside a library.
type Actions = Arc<Mutex<Vec<Box<dyn FnMut() + Send>>>>;

/// The thread of one rank.
pub(crate) struct Place {
    pub comm: Arc<TeamRank>,
    actions: Actions,
}

impl Place {
    /// Registers an action for the first failure, so that no rank waits inside a library.
    pub fn on_failure(&self, action: Box<dyn FnMut() + Send>) {
        self.actions.lock().unwrap_or_else(|e| e.into_inner()).push(action);
    }

    /// Runs the work unless a rank has failed; a failure or panic here is reported to all ranks.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let rank = self.comm.rank();
        let panicked = |_| Err(Error::invalid(format!("the thread of rank {rank} panicked")));
        let done =
            self.comm.check().and_then(|()| catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked));
        if let Err(e) = &done {
            self.comm.fail(&e.to_string());
            let actions = std::mem::take(&mut *self.actions.lock().unwrap_or_else(|e| e.into_inner()));
            actions.into_iter().for_each(|mut action| action());
        }
        done
    }
}

/// A command: solve, timed or not, or return x.
#[derive(Clone, Copy)]
enum Command {
    Solve { timed: bool },
    Solution,
}

type Answer = (Solve, Vec<f64>);

pub(crate) struct Crew {
    commands: Vec<Sender<Command>>,
    answers: Receiver<(usize, Result<Answer>)>,
    threads: Vec<JoinHandle<()>>,
}

/// Longest wait for another thread, and for a thread's answer.
const LIMITS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(300)];

impl Crew {
    /// Starts a thread for each of `makers` and waits until all are ready.
    ///
    /// # Errors
    /// Returns the error of the first rank whose solver could not be created.
    pub fn start(makers: Vec<Make>) -> Result<Self> {
        let ((to_us, answers), actions) = (channel(), Actions::default());
        let (mut commands, mut threads) = (Vec::new(), Vec::new());
        let team = Team::with_time_limit(makers.len(), LIMITS[0])?;
        for (rank, (make, comm)) in makers.into_iter().zip(team).enumerate() {
            let (sender, orders) = channel();
            commands.push(sender);
            let (to_us, place) = (to_us.clone(), Place { comm: Arc::new(comm), actions: actions.clone() });
            let body = move || serve(&place, make, &orders, &to_us);
            let spawned = std::thread::Builder::new().name(format!("rank {rank}")).spawn(body);
            threads.push(spawned.map_err(|e| {
                Error::invalid(format!("the operating system refused to start a thread for rank {rank}: {e}"))
            })?);
        }
        let mut crew = Self { commands, answers, threads };
        crew.collect()?;
        Ok(crew)
    }

    /// Starts a thread for each GPU of a job; each gets its GPU, every rank's rows, and its share of the
    /// right-hand side.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start).
    pub fn on<M: Session + 'static>(
        job: &Job,
        make: impl Fn(&Place, usize, &Arc<Vec<Part>>, &[f64]) -> Result<M> + Send + Sync + 'static,
    ) -> Result<Box<dyn Session>> {
        let of_node = job.case.kronecker.block() * job.case.kronecker.stages();
        let all = Arc::new(make);
        let makers = job.gpus.iter().zip(job.parts.iter()).map(|(&gpu, part)| {
            let (make, parts) = (all.clone(), job.parts.clone());
            let first = part.rows.first().map_or(0, |&row| row as usize);
            let rhs = job.case.rhs[first * of_node..(first + part.halo.own) * of_node].to_vec();
            let one: Make = Box::new(move |place| Ok(Box::new(make(place, gpu, &parts, &rhs)?)));
            one
        });
        Ok(Box::new(Self::start(makers.collect())?))
    }

    fn ask(&mut self, command: Command) -> Result<Vec<Answer>> {
        for sender in &self.commands {
            let _ = sender.send(command); // a missing thread is detected below
        }
        self.collect()
    }

    /// Collects an answer of every thread, by rank.
    fn collect(&mut self) -> Result<Vec<Answer>> {
        let mut all: Vec<Option<Answer>> = self.commands.iter().map(|_| None).collect();
        let mut first: Option<Error> = None;
        for _ in 0..all.len() {
            let Ok((rank, answer)) = self.answers.recv_timeout(LIMITS[1]) else {
                // Do not wait for it at the end either; the other threads end at their time limit.
                self.threads.clear();
                return Err(first.unwrap_or_else(|| Error::invalid("a thread of a baseline did not answer")));
            };
            match answer {
                Ok(answer) => all[rank] = Some(answer),
                // A rank's own error says more than other ranks' reports of it.
                Err(e) if first.is_none() || matches!(first, Some(Error::Rank { .. })) => first = Some(e),
                Err(_) => (),
            }
        }
        first.map_or_else(|| Ok(all.into_iter().flatten().collect()), Err)
    }
}

fn serve(place: &Place, make: Make, orders: &Receiver<Command>, to_us: &Sender<(usize, Result<Answer>)>) {
    let rank = place.comm.rank();
    let (mut member, made) = match place.guarded(|| make(place)) {
        Ok(member) => (Some(member), Ok(Answer::default())),
        Err(e) => (None, Err(e)),
    };
    let _ = to_us.send((rank, made)); // the receiver is gone once the crew is dropped
    while let (Some(member), Ok(command)) = (&mut member, orders.recv()) {
        let answer = place.guarded(|| match command {
            Command::Solve { timed } => Ok((member.solve(timed)?, Vec::new())),
            Command::Solution => Ok((Solve::default(), member.solution()?)),
        });
        if to_us.send((rank, answer)).is_err() {
            return;
        }
    }
}

impl Session for Crew {
    fn solve(&mut self, timed: bool) -> Result<Solve> {
        let mut all = Solve::default();
        for (rank, (one, _)) in self.ask(Command::Solve { timed })?.into_iter().enumerate() {
            if rank > 0 && one.residuals != all.residuals {
                return Err(Error::invalid(format!("rank {rank} has other residuals than rank 0")));
            }
            all.seconds = all.seconds.max(one.seconds);
            all.times = Times::max(all.times, one.times);
            (all.residuals, all.outcome) = (one.residuals, one.outcome);
        }
        Ok(all)
    }
    fn solution(&mut self) -> Result<Vec<f64>> {
        Ok(self.ask(Command::Solution)?.into_iter().flat_map(|(_, x)| x).collect())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.commands.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // its error was already part of its answers
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::share;
    use super::*;
    use crate::systems::{self, Random};
    use crate::textbook::Ours;
    use krylith_core::device::cpu::{Cpu, Pool};
    use krylith_core::matrix::KroneckerSum;
    use krylith_core::method::GmresOptions;
    use std::rc::Rc;

    /// Runs Krylith's GMRES on threads.
    fn crew(k: &KroneckerSum, rhs: &[f64], ranks: usize) -> Crew {
        let (parts, of_node) = (share::cut(k, ranks).unwrap(), k.block() * k.stages());
        let makers = (0..ranks).map(|rank| {
            let (parts, first) = (parts.clone(), parts[rank].rows[0] as usize);
            let b = rhs[first * of_node..(first + parts[rank].halo.own) * of_node].to_vec();
            let make: Make = Box::new(move |place| {
                let space = Rc::new(Cpu::distributed(b.len(), Arc::new(Pool::new(1)), place.comm.clone()));
                let options = (GmresOptions { restart: 8, ..GmresOptions::default() }, 20);
                let time = Box::new(|work: &mut dyn FnMut() -> Result<()>| work().map(|()| 0.0));
                Ok(Box::new(Ours::new(&space, (&parts[rank].terms, &b), true, options, time, |_, _| ())?))
            });
            make
        });
        Crew::start(makers.collect()).unwrap()
    }

    #[test]
    fn any_number_of_ranks_takes_the_same_iterations_to_the_same_answer() {
        let mut k = systems::random([4, 3, 4], 2, 2, 3).unwrap();
        (k.a, k.b) = systems::coefficients(2, 4).unwrap();
        let rhs = Random(6).numbers(k.rows());
        let norm = rhs.iter().map(|b| b * b).sum::<f64>().sqrt();
        let mut alone = crew(&k, &rhs, 1);
        let wanted = alone.solve(false).unwrap().residuals;
        assert_eq!(wanted.len(), 21);
        for parts in [2, 3, 4, 7] {
            let mut crew = crew(&k, &rhs, parts);
            for _ in 0..2 {
                let got = crew.solve(false).unwrap().residuals;
                for (i, (a, b)) in got.iter().zip(&wanted).enumerate() {
                    assert!((a - b).abs() <= 1e-11, "parts={parts} iteration={i}: {a} {b}");
                }
                let end = systems::residual(&k, &rhs, &crew.solution().unwrap()) / norm;
                assert!((end - got[20]).abs() <= 1e-12, "parts={parts}: {end} {}", got[20]);
            }
        }
    }

    /// A session that fails or panics at a given command.
    struct Faulty(Arc<TeamRank>, &'static str);

    impl Session for Faulty {
        fn solve(&mut self, _: bool) -> Result<Solve> {
            match (self.0.rank(), self.1) {
                (1, "error") => return Err(Error::invalid("out of luck")),
                (1, "panic") => std::panic::resume_unwind(Box::new("out of luck")),
                _ => self.0.sum(&mut [0.0]),
            }?;
            Ok(Solve::default())
        }
        fn solution(&mut self) -> Result<Vec<f64>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn one_rank_s_failure_is_everybody_s_and_is_told_as_its_own() {
        for (how, wanted) in [("error", "out of luck"), ("panic", "the thread of rank 1 panicked")] {
            let makers = (0..3).map(|_| {
                let make: Make = Box::new(move |place| Ok(Box::new(Faulty(place.comm.clone(), how))));
                make
            });
            let mut crew = Crew::start(makers.collect()).unwrap();
            assert_eq!(crew.solve(false).unwrap_err().to_string(), wanted);
            // The crew refuses further commands.
            assert!(crew.solve(false).unwrap_err().to_string().contains(wanted));
        }
    }

    #[test]
    fn a_rank_that_cannot_be_made_ends_the_start() {
        let makers = (0..2).map(|rank| {
            let make: Make = Box::new(move |place| match rank {
                0 => Err(Error::invalid("no GPU 0")),
                _ => Ok(Box::new(Faulty(place.comm.clone(), ""))),
            });
            make
        });
        let refused = Crew::start(makers.collect()).err().expect("a rank is missing");
        assert_eq!(refused.to_string(), "no GPU 0");
    }
}
