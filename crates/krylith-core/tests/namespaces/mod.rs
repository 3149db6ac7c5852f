//! Jobs of two hosts on one machine. The tests are ignored where such hosts cannot be made.

pub mod hosts;

use crate::{GONE, ranks, run};
use hosts::{ADDRESSES, Hosts, output};
use krylith_core::comm::{Communicator, Team};
use libtest_mimic::Failed;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Returns true once every rank has noted that it begins.
fn begun(folder: &Path, ranks: usize) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let begun = |text: std::io::Result<String>| text.is_ok_and(|text| text.contains("begins"));
    entries.flatten().filter(|entry| begun(std::fs::read_to_string(entry.path()))).count() == ranks
}

pub fn same_bits() -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    for each in [1, 2, 4] {
        let end = run(hosts.mpirun(each), "solve", "60", &mut |_| Ok(()))?;
        end.must(end.output.status.success() && end.took < Duration::from_secs(60), "expected success")?;
        let lines = Team::run(2 * each, |comm| ranks::solve::answer(&(comm as Arc<dyn Communicator>)))?;
        let same = end.text().matches(&lines[0]).count() == 2 * each;
        end.must(same, &format!("expected of every rank: {}", lines[0]))?;
    }
    Ok(())
}

pub fn cut_off() -> Result<(), Failed> {
    for scenario in ["sums", "halos"] {
        let hosts = Hosts::new()?;
        let mut cut = false;
        let end = run(hosts.mpirun(1), scenario, "2", &mut |folder| {
            if !cut && begun(folder, 2) {
                cut = true;
                output("ip", &["-n", &hosts.names[1], "link", "set", "net0", "down"])?;
            }
            Ok(())
        })?;
        end.must(!end.output.status.success() && end.took < GONE, "expected an end")?;
        for (rank, other) in [(0, 1), (1, 0)] {
            let error = format!("on rank {rank}: rank {other}: ");
            let named = end.errors.lines().any(|line| {
                line.starts_with(&error)
                    && line.contains("no answer within 2 s")
                    && line.ends_with(&format!("rank {other} runs on host {}", hosts.names[other]))
            });
            end.must(named, &format!("expected of rank {rank} the name of the other's host"))?;
        }
    }
    Ok(())
}

pub fn dies() -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    let mut killed = false;
    let end = run(hosts.mpirun(1), "sums", "3", &mut |folder| {
        if !killed && begun(folder, 2) {
            killed = true;
            for pid in output("ip", &["netns", "pids", &hosts.names[1]])?.lines() {
                let _ = output("kill", &["-KILL", pid]); // its parent's end may have been its own
            }
        }
        Ok(())
    })?;
    end.must(killed && !end.output.status.success() && end.took < GONE, "expected an end")?;
    // The launcher sees it first, or the rank that waits.
    end.must(
        end.text().contains(&hosts.names[1]) || end.text().contains(ADDRESSES[1]),
        "expected the host's name",
    )
}
