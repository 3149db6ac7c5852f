//! The other ranks: which share this host, and whether their processes are still running.
//!
//! A launcher ends a job whose process ends, but it does not notice every failure. So ranks in a long wait
//! check the processes too.

use crate::comm::HostShare;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two checks of the other processes.
const LOOK: Duration = Duration::from_secs(1);

/// Identifies one process among all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Identity {
    /// The host name and boot identifier, because host names repeat.
    host: String,
    /// The PID namespace: containers have their own process numbers.
    namespace: String,
    pid: u32,
    /// Start time in ticks since the host booted, because process numbers are reused.
    start: u64,
}

impl Identity {
    pub(super) fn own() -> Self {
        let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Self {
            host: format!(
                "{} {}",
                line("/proc/sys/kernel/hostname"),
                line("/proc/sys/kernel/random/boot_id")
            ),
            namespace: namespace.to_string_lossy().into_owned(),
            pid: std::process::id(),
            start: state(std::process::id()).map_or(0, |(_, start)| start),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        format!("{}\n{}\n{}\n{}", self.host, self.namespace, self.pid, self.start).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split('\n');
        let mut next = || lines.next().unwrap_or_default();
        let (host, namespace) = (next().to_string(), next().to_string());
        Self { host, namespace, pid: next().parse().unwrap_or(0), start: next().parse().unwrap_or(0) }
    }
}

impl Identity {
    /// The host name.
    fn host_name(&self) -> String {
        self.host.split(' ').next().unwrap_or_default().into()
    }
}

/// The system's data on a process, from field 3 of its line on; `None` if there is no such process.
fn fields_of(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 2, the name in parentheses, may hold any characters.
    text.rsplit_once(") ").map(|(_, fields)| fields.into())
}

/// State letter and start time of a process, fields 3 and 22; `None` if there is no such process.
fn state(pid: u32) -> Option<(char, u64)> {
    let fields = fields_of(pid)?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

/// The parent of a process, field 4.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    fields_of(pid)?.split(' ').nth(1)?.parse().ok()
}

/// The ranks of a job as seen from one of them.
pub(super) struct Peers {
    host: HostShare,
    /// Host names by rank; empty if all ranks are on one host.
    hosts: Vec<String>,
    /// Processes whose end is visible from this rank.
    visible: Vec<(usize, Identity)>,
    looked: Mutex<Instant>,
}

impl Peers {
    /// Creates the peers from the identities of all ranks, ordered by rank.
    pub(super) fn new(rank: usize, identities: Vec<Identity>) -> Self {
        let own = identities[rank].clone();
        let ranks_on_host: Vec<usize> =
            (0..identities.len()).filter(|&q| identities[q].host == own.host).collect();
        let rank_on_host = ranks_on_host.iter().position(|&q| q == rank).unwrap_or(0);
        let hosts = match ranks_on_host.len() == identities.len() {
            true => Vec::new(),
            false => identities.iter().map(Identity::host_name).collect(),
        };
        // Without /proc the state of a process is unknown.
        let sees = Path::new("/proc/self/stat").exists();
        let visible = identities.into_iter().enumerate().filter(|(q, other)| {
            sees && *q != rank && (&other.host, &other.namespace) == (&own.host, &own.namespace)
        });
        let visible = visible.collect();
        let host = HostShare { rank_on_host, ranks_on_host };
        Self { host, hosts, visible, looked: Mutex::new(Instant::now()) }
    }

    /// The host of a rank, if there are several hosts.
    pub(super) fn host_of(&self, rank: usize) -> Option<&str> {
        self.hosts.get(rank).map(String::as_str)
    }

    pub(super) fn host(&self) -> HostShare {
        self.host.clone()
    }

    pub(super) fn ranks_on_host(&self) -> usize {
        self.host.ranks_on_host.len()
    }

    /// A rank whose process has ended, with a description; checks at most once a second.
    pub(super) fn dead(&self) -> Option<(usize, String)> {
        let mut looked = self.looked.lock().unwrap_or_else(|e| e.into_inner());
        if looked.elapsed() < LOOK {
            return None;
        }
        *looked = Instant::now();
        drop(looked);
        self.visible.iter().find_map(|(rank, identity)| {
            let gone = match state(identity.pid) {
                None => true,
                Some((letter, start)) => matches!(letter, 'Z' | 'X') || start != identity.start,
            };
            gone.then(|| (*rank, format!("its process {} has ended", identity.pid)))
        })
    }

    /// A rank whose process is stopped, with a description.
    pub(super) fn stopped(&self) -> Option<(usize, String)> {
        self.visible.iter().find_map(|(rank, identity)| {
            let (letter, _) = state(identity.pid)?;
            matches!(letter, 'T' | 't').then(|| (*rank, format!("its process {} is suspended", identity.pid)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_identity_survives_the_journey() {
        let own = Identity::own();
        assert!(own.pid > 0 && own.start > 0, "{own:?}");
        assert_eq!(Identity::from_bytes(&own.to_bytes()), own);
        assert_eq!(Identity::from_bytes(b"garbage").pid, 0);
    }

    #[test]
    fn a_process_that_ended_is_dead_even_before_it_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let own = Identity::own();
        let start = state(child.id()).unwrap().1;
        let other = Identity { pid: child.id(), start, ..own.clone() };
        let again = Identity { pid: own.pid, start: own.start + 1, ..own.clone() };
        let elsewhere = Identity { host: "elsewhere".into(), pid: 1, ..own.clone() };
        let due = |peers: Peers| {
            *peers.looked.lock().unwrap() = Instant::now() - 2 * LOOK;
            peers
        };
        let peers = due(Peers::new(0, vec![own.clone(), elsewhere, other]));
        assert_eq!(peers.host(), HostShare { rank_on_host: 0, ranks_on_host: vec![0, 2] });
        assert_eq!((peers.host_of(1), peers.host_of(3)), (Some("elsewhere"), None));
        assert_eq!(peers.dead(), None);
        drop(child.stdin.take());
        while state(child.id()).is_some_and(|(letter, _)| letter != 'Z') {
            std::thread::yield_now();
        }
        assert_eq!(due(peers).dead().unwrap().0, 2);
        child.wait().unwrap();
        // A new process with an old number.
        assert_eq!(due(Peers::new(1, vec![again, own])).dead().unwrap().0, 0);
    }
}
