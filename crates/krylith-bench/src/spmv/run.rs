//! Measures the matrices one after the other, each in its own process if a program is given, and keeps the
//! results.

use super::found::{self, Found};
use super::ground::{Ground, Threads};
use super::matrix::{Case, wanted};
use super::{Part, Plan, cg, multi, report, single};
use crate::options::DeviceChoice;
use crate::platform::Platform;
use crate::publish::Report;
use krylith_core::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) fn all(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let names = wanted(plan.options)?;
    let key = key(plan);
    let mut found = Vec::new();
    for name in &names {
        found.push(one(name, &key, plan, progress)?);
        // The next part may take long: keep the results so far in case it is interrupted.
        report::make(&found, plan).write(plan.options.out.as_deref(), "spmv")?;
    }
    let mut report = report::make(&found, plan);
    report.write(plan.options.out.as_deref(), "spmv")?;
    Ok(report)
}

/// Returns the file of a matrix's results; characters that file names do not allow are replaced.
fn raw(folder: &Path, name: &str, plan: &Plan) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let order = if plan.options.permuted { ".permuted" } else { "" };
    folder.join("raw").join(format!("{}{order}.json", name.chars().map(plain).collect::<String>()))
}

/// Returns the results of the same build and options, including failures.
fn left(path: &Path, key: &str) -> Option<Found> {
    let found: Found = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    (found.key == key).then_some(found)
}

/// Returns the results of the same build and options, without failures, which are tried again.
fn kept(path: &Path, key: &str) -> Option<Found> {
    left(path, key).filter(|found| found.failure.is_none())
}

/// Returns the build, by a hash of its bytes, and every option that changes a number.
fn key(plan: &Plan) -> String {
    let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    // FNV-1a, eight bytes at a time.
    let build = program.chunks(8).fold(0xcbf2_9ce4_8422_2325u64, |hash, bytes| {
        let word = bytes.iter().fold(0u64, |word, &b| word << 8 | u64::from(b));
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    });
    format!(
        "{} {build:016x} {:?} scale={} permuted={} parts={:?} repetitions={} iterations={} threads={} ranks={} matrices={:?}",
        env!("CARGO_PKG_VERSION"),
        plan.options.device,
        plan.scale,
        plan.options.permuted,
        plan.parts,
        plan.repetitions,
        plan.iterations,
        plan.options.threads,
        plan.ranks,
        plan.options.matrices,
    )
}

fn one(name: &str, key: &str, plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Found> {
    let path = plan.options.out.as_ref().map(|folder| raw(folder, name, plan));
    // Only one of several processes has the folder, and all must measure the same.
    let alone = plan.options.launch.comm().is_none();
    if let Some(found) = path.as_ref().filter(|_| alone).and_then(|path| kept(path, key)) {
        progress(&format!("{name}: kept from an earlier run"));
        return Ok(found);
    }
    let found = match (&plan.options.program, &path) {
        (Some(program), Some(path)) => {
            let _ = std::fs::remove_file(path); // results of another build, or of a failure
            match child(program, name, plan) {
                Ok(end) => left(path, key).ok_or_else(|| format!("its process wrote no results: {end}")),
                Err(why) => Err(why),
            }
        }
        _ => here(name, plan, progress).map_err(|e| e.to_string()),
    };
    let mut found = found.unwrap_or_else(|why| {
        progress(&format!("{name}: not measured: {why}"));
        Found { name: name.into(), failure: Some(why), ..Found::default() }
    });
    found.key = key.into();
    if let Some(path) = &path {
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        let text = serde_json::to_string(&found).unwrap_or_default();
        krylith_core::io::atomic::write(path, |file| file.write_all(text.as_bytes()))?;
    }
    Ok(found)
}

/// Starts a process that measures one matrix and writes the results to the folder.
fn child(program: &Path, name: &str, plan: &Plan) -> std::result::Result<std::process::ExitStatus, String> {
    let mut command = Command::new(program);
    command.args(["spmv", "--in-process", "--only", name]);
    let device = plan.options.device.text(usize::MAX);
    command.args(["--device", &device, "--scale", &plan.scale.to_string()]);
    command.args(["--rounds", &plan.repetitions.to_string(), "--ranks", &plan.ranks.to_string()]);
    command.args(["--iterations", &plan.iterations.to_string()]);
    if !plan.options.parts.is_empty() {
        command.args(["--parts", &plan.options.parts.join(",")]);
    }
    if plan.options.threads > 0 {
        command.args(["--threads", &plan.options.threads.to_string()]);
    }
    if plan.options.permuted {
        command.arg("--permuted");
    }
    for (flag, path) in [("--out", &plan.options.out), ("--matrices", &plan.options.matrices)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut process = spawned.map_err(|e| format!("{}: {e}", program.display()))?;
    let (begin, limit) = (Instant::now(), plan.options.limit.unwrap_or(300.0));
    loop {
        match process.try_wait() {
            // Results that failed their check are written; a process that fails otherwise writes none.
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begin.elapsed().as_secs_f64() > limit => {
                let _ = process.kill();
                let _ = process.wait();
                return Err(format!("it took more than {limit} s"));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// Measures a matrix in this process.
fn here(name: &str, plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Found> {
    let options = plan.options;
    if options.launch.comm().is_some() {
        return crate::options::on_processes!(options, |ground| on(ground, name, plan, progress));
    }
    match &options.device {
        DeviceChoice::Cpu => {
            let (threads, launch) = (options.threads, options.launch.clone());
            on(&Threads { threads, ranks: plan.ranks, launch }, name, plan, progress)
        }
        #[cfg(feature = "cuda")]
        DeviceChoice::Cuda(gpus) => on(&crate::cuda::ground::Gpus::open(gpus)?, name, plan, progress),
        #[cfg(not(feature = "cuda"))]
        DeviceChoice::Cuda(_) => Err(crate::options::no_cuda()),
    }
}

fn on<G: Ground>(ground: &G, name: &str, plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Found> {
    progress(&format!("{name}: making the matrix"));
    let case = Case::new(name, plan)?;
    let (profile, longest) = found::profile(case.a.row_ptr());
    let mut found = Found {
        profile,
        longest,
        id: case.id,
        name: name.into(),
        source: case.source.clone(),
        shape: case.shape,
        table: case.table,
        made: case.made,
        ranks: ground.ranks(),
        iterations: plan.iterations,
        ..Found::default()
    };
    {
        let one = ground.one()?;
        let (of, bandwidth) = one.bandwidth()?;
        found.device = ground.launch().describe(one.describe());
        found.bandwidth = (of.into(), bandwidth);
        if plan.parts.contains(&Part::Single) {
            found.single = single::measure(&one, &case, plan, progress)?;
        }
    }
    if ground.ranks() > 1 {
        if plan.parts.contains(&Part::Multi) {
            found.multi = multi::measure(ground, &case, plan, progress);
        }
        if plan.parts.contains(&Part::Sweep) {
            found.sweep = multi::sweep(ground, &case, &mut found.notes, progress);
        }
    }
    if plan.parts.contains(&Part::Cg) {
        found.cg = cg::measure(ground, &case, plan, progress);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Asked;

    #[test]
    fn what_other_options_measured_is_not_taken() {
        let folder = std::env::temp_dir().join(format!("krylith-spmv-{}", std::process::id()));
        let options = Asked::default();
        let plan = Plan::new(&options).unwrap();
        let path = raw(&folder, "laplace:4x4x4", &plan);
        assert!(path.ends_with("raw/laplace_4x4x4.json"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let one = key(&plan);
        let write = |found: &Found| std::fs::write(&path, serde_json::to_string(found).unwrap()).unwrap();
        write(&Found { key: one.clone(), name: "n".into(), ..Found::default() });
        assert_eq!(kept(&path, &one).unwrap().name, "n");
        let options = Asked { permuted: true, ..options.clone() };
        let other = key(&Plan::new(&options).unwrap());
        assert!(other != one && kept(&path, &other).is_none());
        // Failures are tried again.
        write(&Found { key: one.clone(), failure: Some("no room".into()), ..Found::default() });
        assert!(kept(&path, &one).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
