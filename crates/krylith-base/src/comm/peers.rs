//! Who the other ranks are: which share this host, and whether their processes still live.
//!
//! A launcher kills a job whose process dies, and does not see all that can happen to it; so who waits long looks too.

use crate::comm::HostShare;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two looks at the other processes.
const LOOK: Duration = Duration::from_secs(1);

/// What tells one process from all others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Identity {
    /// The host, and since when it runs: host names repeat.
    host: String,
    /// Where its process number means something: containers have their own.
    namespace: String,
    pid: u32,
    /// Process numbers come again: when it started, in ticks since the host did.
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
    /// What people call the host.
    fn host_name(&self) -> String {
        self.host.split(' ').next().unwrap_or_default().into()
    }
}

/// What the system knows of a process, from field 3 of its line on; `None` if there is none.
fn fields_of(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses, field 2, may hold anything.
    text.rsplit_once(") ").map(|(_, fields)| fields.into())
}

/// State letter and start time of a process, fields 3 and 22; `None` if there is none.
fn state(pid: u32) -> Option<(char, u64)> {
    let fields = fields_of(pid)?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

/// The process that started another, field 4.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    fields_of(pid)?.split(' ').nth(1)?.parse().ok()
}

/// The ranks of a job, seen from one of them.
pub(super) struct Peers {
    host: HostShare,
    /// Names of the hosts, by rank; empty where all ranks are on one.
    hosts: Vec<String>,
    /// Processes whose end can be seen from here.
    visible: Vec<(usize, Identity)>,
    looked: Mutex<Instant>,
}

impl Peers {
    /// Everybody's identity, by rank.
    pub(super) fn new(rank: usize, identities: Vec<Identity>) -> Self {
        let own = identities[rank].clone();
        let ranks_on_host: Vec<usize> =
            (0..identities.len()).filter(|&q| identities[q].host == own.host).collect();
        let rank_on_host = ranks_on_host.iter().position(|&q| q == rank).unwrap_or(0);
        let hosts = match ranks_on_host.len() == identities.len() {
            true => Vec::new(),
            false => identities.iter().map(Identity::host_name).collect(),
        };
        // Without /proc nothing can be said of a process.
        let sees = Path::new("/proc/self/stat").exists();
        let visible = identities.into_iter().enumerate().filter(|(q, other)| {
            sees && *q != rank && (&other.host, &other.namespace) == (&own.host, &own.namespace)
        });
        let visible = visible.collect();
        let host = HostShare { rank_on_host, ranks_on_host };
        Self { host, hosts, visible, looked: Mutex::new(Instant::now()) }
    }

    /// The host of a rank, where there are several.
    pub(super) fn host_of(&self, rank: usize) -> Option<&str> {
        self.hosts.get(rank).map(String::as_str)
    }

    pub(super) fn host(&self) -> HostShare {
        self.host.clone()
    }

    pub(super) fn ranks_on_host(&self) -> usize {
        self.host.ranks_on_host.len()
    }

    /// A rank whose process is gone, and how; looks at most once a second.
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
            gone.then(|| (*rank, format!("its process {} is gone", identity.pid)))
        })
    }

    /// A rank whose process is stopped, and by what it is known.
    pub(super) fn stopped(&self) -> Option<(usize, String)> {
        self.visible.iter().find_map(|(rank, identity)| {
            let (letter, _) = state(identity.pid)?;
            matches!(letter, 'T' | 't').then(|| (*rank, format!("its process {} is stopped", identity.pid)))
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
