//! Suites whose ranks run on two hosts. The hosts are network namespaces of this machine, which some
//! containers forbid.

#[path = "../../krylith-core/tests/namespaces/hosts.rs"]
mod hosts;
#[allow(dead_code)] // only `run_where` is used
#[path = "../../krylith-core/tests/launchers/mod.rs"]
mod launchers;

use std::process::ExitCode;

fn main() -> ExitCode {
    let tests: &[(&str, fn())] = &[("all_suites_run_on_two_hosts", all_suites_run_on_two_hosts)];
    launchers::run_where(hosts::are_possible(), tests)
}

fn all_suites_run_on_two_hosts() {
    let (two, folder) = (hosts::Hosts::new().unwrap(), tempfile::tempdir().unwrap());
    for (suite, line) in [
        ("okp", "--scale 0.001 --series strong --solves 1"),
        ("ildu0", "--scale 0.0005 --solves 1"),
        ("cbcg", "--systems poisson-multiphase:8x8x16 --solves 1"),
        ("spmv", "--scale 0.0003 --only nlpkkt160 --parts multi,cg --rounds 2 --iterations 5"),
        ("ras", "--scale 0.0004 --solves 1"),
        ("multilevel", "--scale 0.0001 --rounds 1 --ways amg"),
    ] {
        let mut command = two.mpirun(1);
        command.arg(env!("CARGO_BIN_EXE_krylith-bench")).args([suite, "--device", "cpu", "--threads", "1"]);
        command.args(["--out", "made"]).args(line.split(' ')).current_dir(folder.path());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{suite}: {}", text(&output.stderr));
        let wrote = format!("wrote made/{suite}.json");
        assert_eq!(text(&output.stdout).matches(&wrote).count(), 1, "{suite}: {}", text(&output.stdout));
    }
}
