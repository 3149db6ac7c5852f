//! The suites of `krylith bench` at small sizes. All tests form one binary, as in crate krylith.

mod answer;
mod cbcg;
mod command;
mod ildu0;
mod multilevel;
mod okp;
mod ras;
mod spmv;

use krylith_bench::{Asked, Report, Suite};
use serde_json::Value;
use tempfile::TempDir;

/// Runs a suite with these options. Returns the folder (files are in `made`), the report, its data, and the
/// progress lines.
#[track_caller]
fn run(suite: Suite, name: &str, options: Asked) -> (TempDir, Report, Value, Vec<String>) {
    let (folder, mut heard) = (tempfile::tempdir().unwrap(), Vec::new());
    let (out, command) = (Some(folder.path().join("made")), "test <&>".into());
    let options = Asked { out, threads: 2, command, ..options };
    let report = suite(&options, &mut |text| heard.push(text.to_string())).unwrap();
    assert_eq!(report.failures, Vec::<String>::new());
    // Every suite except `answer` has a page.
    assert!(name == "answer" || (report.html.contains("<svg") && report.html.contains("test &lt;&amp;&gt;")));
    let text = std::fs::read_to_string(folder.path().join(format!("made/{name}.json"))).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((json["schema"].as_u64(), json["suite"].as_str()), (Some(1), Some(name)));
    (folder, report, json, heard)
}

/// Asserts that a suite rejects each of these options.
#[track_caller]
fn refused(suite: Suite, all: impl IntoIterator<Item = Asked>) {
    for options in all {
        assert!(suite(&options, &mut |_| ()).is_err(), "{options:?}");
    }
}
