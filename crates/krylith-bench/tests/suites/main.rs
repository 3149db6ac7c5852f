//! The suites of `krylith bench`, small. One binary, as in crate krylith.

mod answer;
mod cbcg;
mod command;
mod ildu0;
mod multilevel;
mod okp;
mod ras;
mod spmv;

use krylith_bench::{Asked, Suite};
use serde_json::Value;
use std::path::Path;

/// What a suite has written into a folder's `made`, which is its own.
fn written(folder: &Path, suite: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(format!("made/{suite}.json"))).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((json["schema"].as_u64(), json["suite"].as_str()), (Some(1), Some(suite)));
    json
}

/// What nobody can ask of a suite.
#[track_caller]
fn refused(suite: Suite, all: impl IntoIterator<Item = Asked>) {
    for options in all {
        assert!(suite(&options, &mut |_| ()).is_err(), "{options:?}");
    }
}
