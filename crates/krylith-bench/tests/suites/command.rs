//! The program `krylith-bench`, run as `krylith bench` starts it.

use std::path::PathBuf;
use std::process::Command;

/// The folder in which the program runs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// Runs a command line; returns the exit code, stdout and stderr.
    fn line(&self, line: &str) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_krylith-bench"));
        let output = command.args(line.split_whitespace()).current_dir(self.0.path()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }
    #[track_caller]
    fn fails(&self, line: &str, code: i32, words: &[&str]) {
        let (found, _, err) = self.line(line);
        assert_eq!(found, code, "{line}: {err}");
        for word in words {
            assert!(err.contains(word), "{line}: `{word}` is not in {err}");
        }
        assert!(!err.contains("panicked") && !err.contains("internal error"), "{line}: {err}");
    }
}

#[test]
fn suites_name_what_they_do_not_take() {
    let f = Folder::new();
    f.fails("all", 2, &["all", "okp", "ildu0"]);
    f.fails("ildu0 --device cpu --series weak", 2, &["--series", "okp"]);
    f.fails("ildu0 --device cpu --quick", 2, &["--quick"]);
    f.fails("ildu0 --device cpu --scale 0", 2, &["scale", "positive"]);
    f.fails("ildu0 --device cpu --only FullChip", 2, &["--only", "spmv"]);
    f.fails("cbcg --device cpu --parts sweep", 2, &["--parts", "kernels"]);
    f.fails("spmv --device cpu --only nosuch", 2, &["nosuch", "FullChip"]);
    f.fails("spmv --device cpu --parts kernels", 2, &["--parts", "single"]);
    f.fails("spmv --device cpu --scale 2", 2, &["scale", "at most 1"]);
    f.fails("spmv --device cpu --full", 2, &["--full", "okp", "ras"]);
    // The usage line names the command that the user typed.
    f.fails("", 2, &["Usage: krylith bench", "SUITE"]);
}

#[test]
fn links_are_those_of_gpus() {
    let f = Folder::new();
    f.fails("links --device cpu", 2, &["measures GPUs"]);
    f.fails("links --device cuda --full", 2, &["--full"]);
    f.fails("links --device cuda --out missing/m.toml", 2, &["missing"]);
    f.fails(
        "links --device cuda:0 --network m.toml --out ./m.toml",
        2,
        &["--out ./m.toml", "--network m.toml"],
    );
    f.fails("okp --device cpu --quick", 2, &["--quick", "bench links"]);
    if krylith_core::device::cuda::devices().is_err() {
        f.fails("links --device cuda:0,1 --out m.toml", 3, &["libcuda"]);
        f.fails("links --device cuda:0 --network h100", 2, &["h200-nvlink"]);
        f.fails("ildu0 --device cuda", 3, &["NVIDIA driver", "install"]);
        f.fails("spmv --device cuda:0,1", 3, &["NVIDIA driver", "install"]);
        assert!(!f.path("m.toml").exists());
    }
}

#[test]
fn matrices_are_measured_in_processes_of_their_own_and_predicted_from() {
    let f = Folder::new();
    let line = "spmv --device cpu --threads 1 --scale 0.0003 --only FullChip nlpkkt160 --parts single --rounds 2 --out b";
    let (code, out, err) = f.line(line);
    assert!(code == 0 && out.contains("wrote b/spmv.html"), "{out}{err}");
    assert!(f.path("b/raw/FullChip.json").exists() && f.path("b/raw/nlpkkt160.json").exists());
    // Stored results are not measured again.
    assert_eq!(f.line(line).0, 0);
    let read = std::fs::read_to_string(f.path("b/spmv.json")).unwrap();
    let profiles = krylith_model::spmv::profiles(&serde_json::from_str(&read).unwrap()).unwrap();
    let machine = krylith_model::Machine::open("h200-nvlink".as_ref()).unwrap();
    let study = krylith_model::spmv::study(&machine, &profiles, &[2, 64]);
    assert!(study.text.contains("geometric mean of 2 matrices"), "{}", study.text);
    let rows = study.json["predictions"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 6);
    assert!(rows.iter().all(|r| r["seconds"].as_f64().unwrap() > 0.0));
    assert!(study.json["errors"].as_array().unwrap().is_empty(), "a CPU's times are not compared");
}

#[test]
fn answers_come_with_the_seconds_of_whole_processes() {
    let f = Folder::new();
    let (code, out, err) =
        f.line("answer --device cpu --threads 1 --systems laplace:6x6x6 --rounds 1 --out a");
    assert!(code == 0 && out.contains("wrote a/answer.json"), "{out}{err}");
    let read = std::fs::read_to_string(f.path("a/answer.json")).unwrap();
    let made: serde_json::Value = serde_json::from_str(&read).unwrap();
    let process = made.pointer("/process/0").or(made.pointer("/meta/process/0"));
    assert!(process.is_some_and(|p| p["seconds"]["median"].as_f64() > Some(0.0)), "{read}");
}
