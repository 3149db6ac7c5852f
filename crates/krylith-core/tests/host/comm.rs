//! Ranks that are threads: what every communicator must do, and how a team ends when one of its ranks does.

use crate::ranks;
use crate::ranks::delayed::Delayed;
use krylith_core::comm::{Communicator, Message, Solo, Team, TeamRank};
use krylith_core::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_team_conforms() {
    for size in 1..=8 {
        Team::run(size, |comm| {
            assert_eq!(comm.size(), size);
            assert!(comm.shares_address_space());
            ranks::conform(&*comm);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{size} ranks: {e}"));
    }
}

#[test]
fn a_slow_network_changes_no_bit() {
    let delay = Duration::from_micros(200);
    let slow = Team::run(3, |comm| {
        let comm: Arc<dyn Communicator> = Arc::new(Delayed::new(comm, delay));
        ranks::conform(&*comm);
        let begin = Instant::now();
        for _ in 0..20 {
            comm.sum(&mut [1.0])?;
        }
        assert!(begin.elapsed() >= 20 * delay, "20 sums took {:?}", begin.elapsed());
        // What travels together takes as long as one.
        comm.start_sum(&mut [1.0])?;
        std::thread::sleep(delay);
        let begin = Instant::now();
        comm.finish_sum(&mut [1.0])?;
        assert!(begin.elapsed() < Duration::from_millis(100), "an old sum took {:?}", begin.elapsed());
        ranks::solve::answer(&comm)
    });
    let plain = Team::run(3, |comm| ranks::solve::answer(&(comm as Arc<dyn Communicator>)));
    assert_eq!(slow.unwrap(), plain.unwrap());
}

#[test]
fn one_rank_alone_conforms() {
    let mut values = [1.0, 2.0];
    Solo.sum(&mut values).unwrap();
    assert_eq!(values, [1.0, 2.0]);
    assert_eq!(Solo.all_to_all(vec![vec![7]]).unwrap(), [[7]]);
    assert_eq!(Solo.host().ranks_on_host, [0]);
}

#[test]
fn values_come_by_rank() {
    assert_eq!(Team::run(5, |comm| Ok(10 * comm.rank())).unwrap(), [0, 10, 20, 30, 40]);
    assert!(Team::new(0).is_err());
}

/// A halo in which everybody sends a number to everybody.
fn everybody(comm: &TeamRank) -> Vec<Message> {
    let others = (0..comm.size()).filter(|&q| q != comm.rank()).enumerate();
    others.map(|(i, rank)| Message { rank, send: i..i + 1, receive: i..i + 1 }).collect()
}

type Wait = fn(&TeamRank) -> Result<()>;

/// Every way of waiting for others, with its name.
const WAITS: [(&str, Wait); 3] = [
    ("sum", |comm| comm.sum(&mut [0.0])),
    ("all_to_all", |comm| comm.all_to_all(vec![Vec::new(); comm.size()]).map(drop)),
    ("channel", |comm| comm.channel(&everybody(comm)).map(drop)),
];

/// Runs a team in which rank `bad` ends by `end` while the others wait; returns the result of every other
/// rank.
///
/// Besides the waits above one waits in an exchange.
fn others_get(size: usize, bad: usize, end: fn(Arc<TeamRank>), check: impl Fn(&str, Error) + Sync) {
    let limit = Duration::from_secs(60);
    for way in 0..=WAITS.len() {
        let begin = Instant::now();
        let threads: Vec<_> = Team::with_time_limit(size, limit).unwrap();
        std::thread::scope(|scope| {
            for comm in threads {
                let check = &check;
                scope.spawn(move || {
                    let mut halo = comm.channel(&everybody(&comm)).unwrap();
                    comm.sum(&mut [1.0]).unwrap();
                    if comm.rank() == bad {
                        drop(halo);
                        std::thread::sleep(Duration::from_millis(20)); // the others sleep by now
                        return end(Arc::new(comm));
                    }
                    let (name, wait) = WAITS.get(way).copied().unwrap_or(("exchange", |_| Ok(())));
                    let waited = match name {
                        "exchange" => halo.start().and_then(|()| halo.finish().map(drop)),
                        _ => wait(&comm),
                    };
                    check(name, waited.expect_err(name));
                });
            }
        });
        assert!(begin.elapsed() < limit / 2, "the time limit ended it");
    }
}

#[test]
fn a_rank_that_fails_ends_all_waits_and_later_calls() {
    for (size, bad) in [(2, 0), (5, 3), (8, 7)] {
        let fail = |comm: Arc<TeamRank>| {
            comm.fail("disk full");
            comm.fail("a second reason does not count");
        };
        others_get(size, bad, fail, |name, e| match e {
            Error::Rank { rank, message, exit_code, .. } => {
                assert_eq!((rank, message.as_str(), exit_code), (bad, "disk full", 3), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        });
    }
    let mut team = Team::new(2).unwrap();
    let (one, zero) = (team.pop().unwrap(), team.pop().unwrap());
    zero.check().unwrap();
    one.fail("over");
    for comm in [&zero, &one] {
        assert_eq!(comm.check().unwrap_err().to_string(), "rank 1: over");
        for (name, wait) in WAITS {
            assert_eq!(wait(comm).unwrap_err().to_string(), "rank 1: over", "{name}");
        }
    }
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    for (size, bad) in [(2, 1), (4, 0)] {
        others_get(size, bad, drop, |name, e| match e {
            Error::Rank { rank, message, exit_code: 3, .. } => {
                assert_eq!(rank, bad, "{name}");
                assert!(message.contains("ended while other ranks"), "{name}: {message}");
            }
            other => panic!("{name}: {other:?}"),
        });
    }
}

#[test]
fn who_has_got_everything_does_not_miss_a_rank_that_left() {
    Team::run(3, |comm| {
        let mut halo = comm.channel(&everybody(&comm))?;
        halo.outgoing().fill(comm.rank() as f64);
        halo.start()?;
        if comm.rank() == 2 {
            return Ok(()); // what it has sent stays
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(halo.finish()?[1], 2.0);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_rank_that_panics_is_the_cause() {
    let result = Team::run(4, |comm| {
        comm.sum(&mut [1.0])?;
        assert!(comm.rank() != 2, "index out of bounds");
        comm.sum(&mut [1.0])?;
        Ok(())
    });
    match result.unwrap_err() {
        Error::Rank { rank: 2, message, exit_code: 3, .. } => {
            assert!(message.contains("panicked: index out of bounds"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_error_is_the_one_that_counts() {
    // Rank 3 fails; the others follow, each in its own way.
    let result = Team::run(5, |comm| {
        comm.sum(&mut [1.0])?;
        if comm.rank() == 3 {
            return Err(Error::invalid("row 17 is empty"));
        }
        std::thread::sleep(Duration::from_millis(comm.rank() as u64));
        comm.sum(&mut [1.0]).map_err(|_| Error::invalid("a follow-up"))
    });
    assert!(matches!(result.unwrap_err(), Error::Invalid(text) if text == "row 17 is empty"));

    // All ranks learn of it by agreement, and the cause may return last.
    let result = Team::run(3, |comm| {
        let mine = if comm.rank() == 1 { Err(Error::invalid("row 18 is empty")) } else { Ok(()) };
        let agreed = krylith_core::comm::agree(&*comm, mine);
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(50));
        }
        agreed
    });
    assert!(matches!(result.unwrap_err(), Error::Invalid(text) if text == "row 18 is empty"));
}

#[test]
fn the_time_limit_ends_a_wait_and_names_who_is_missing() {
    let team = Team::with_time_limit(3, Duration::from_millis(200)).unwrap();
    let result = Team::run_on(team, |comm| {
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_secs(2));
            return Ok(());
        }
        let begin = Instant::now();
        let e = comm.sum(&mut [1.0]).unwrap_err();
        assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
        Err::<(), _>(e)
    });
    match result.unwrap_err() {
        Error::Rank { rank: 1, message, exit_code: 3, .. } => {
            assert!(message.contains("0.2 s") && message.contains("KRYLITH_TIMEOUT"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranks_in_different_calls_are_told() {
    let result = Team::run(2, |comm| comm.sum(&mut vec![1.0; 1 + comm.rank()]));
    assert!(result.unwrap_err().to_string().contains("same calls in the same order"));
    let result = Team::run(2, |comm| match comm.rank() {
        0 => comm.sum(&mut [1.0]),
        _ => gather_nothing(&comm),
    });
    assert!(result.unwrap_err().to_string().contains("same calls in the same order"));
}

fn gather_nothing(comm: &TeamRank) -> Result<()> {
    comm.all_to_all(vec![Vec::new(); comm.size()]).map(drop)
}
