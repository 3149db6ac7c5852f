//! Two hosts on one machine: network namespaces joined by a pair of virtual links, each with its own host
//! name, and `mpirun` between them over TCP. They need administrator rights, `ip` and Open MPI.

use libtest_mimic::Failed;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Runs a command, and gives its output where it ends well.
pub fn output(program: &str, args: &[&str]) -> Result<String, Failed> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{program} {}: {error}", args.join(" ")).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Two hosts, as long as this lives.
pub struct Hosts {
    /// Names of the namespaces, and of the hosts in them.
    pub names: [String; 2],
    /// The agent by which mpirun reaches the other host.
    folder: tempfile::TempDir,
}

/// The hosts' addresses, in a network that the two have to themselves.
pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Hosts {
    pub fn new() -> Result<Self, Failed> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let id = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|host| format!("krylith-{id}-{host}"));
        let hosts = Self { names, folder: tempfile::tempdir()? };
        let [a, b] = &hosts.names;
        for name in &hosts.names {
            output("ip", &["netns", "add", name])?;
        }
        let link = ["link", "add", "net0", "netns", a, "type", "veth", "peer", "name", "net0", "netns", b];
        output("ip", &link)?;
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            output("ip", &["-n", name, "addr", "add", &format!("{address}/24"), "dev", "net0"])?;
            output("ip", &["-n", name, "link", "set", "lo", "up"])?;
            output("ip", &["-n", name, "link", "set", "net0", "up"])?;
            // The launcher tells its remote half that a rank has ended, and would retry for a quarter of an
            // hour; this limits it to 13 s.
            let retries = "echo 5 > /proc/sys/net/ipv4/tcp_retries2";
            output("ip", &["netns", "exec", name, "sh", "-c", retries])?;
        }
        // A replacement for ssh: the first argument is the host, the others are a command for its shell. If
        // that host dies, this side of ssh ends later than the connection.
        let agent = format!(
            "#!/bin/sh\nhost={b}\n[ \"$1\" = {} ] && host={a}\nshift\n\
             ip netns exec $host unshare --uts sh -c 'hostname \"$0\"; eval \"$1\"' $host \"$*\"\n\
             status=$?\n[ $status -lt 128 ] || sleep 2\nexit $status\n",
            ADDRESSES[0]
        );
        std::fs::write(hosts.agent(), agent)?;
        std::fs::set_permissions(hosts.agent(), std::fs::Permissions::from_mode(0o755))?;
        Ok(hosts)
    }

    fn agent(&self) -> std::path::PathBuf {
        self.folder.path().join("agent")
    }

    /// The command that starts so many ranks on each host, from the first.
    pub fn mpirun(&self, each: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0], "unshare", "--uts", "sh", "-c"]);
        command.args(["hostname \"$0\"; exec \"$@\"", &self.names[0], "mpirun"]);
        command.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
        command.args(["--mca", "plm", "rsh", "--mca", "plm_rsh_agent"]).arg(self.agent());
        for layer in ["btl_tcp_if_include", "oob_tcp_if_include"] {
            command.args(["--mca", layer, "10.77.0.0/24"]);
        }
        command.args(["--mca", "btl", "self,tcp"]);
        command.args(["-x", "KRYLITH_TIMEOUT", "-x", "KRYLITH_TEST_FOLDER"]);
        let hosts = ADDRESSES.map(|address| format!("{address}:{each}")).join(",");
        command.args(["-H", &hosts, "-n", &(2 * each).to_string()]);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // Nothing that runs there outlives its test.
            for pid in output("ip", &["netns", "pids", name]).unwrap_or_default().lines() {
                let _ = output("kill", &["-KILL", pid]); // it may have ended by itself
            }
            let _ = output("ip", &["netns", "del", name]); // there is none if making it failed
        }
    }
}

/// True where this process may make hosts, and Open MPI starts ranks on them.
pub fn are_possible() -> bool {
    let version = output("mpirun", &["--version"]).unwrap_or_default();
    version.contains("Open MPI")
        && output("unshare", &["--uts", "true"]).is_ok()
        && Hosts::new().is_ok_and(|hosts| output("ip", &["netns", "exec", &hosts.names[0], "true"]).is_ok())
}
