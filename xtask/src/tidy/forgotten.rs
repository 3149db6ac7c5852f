//! Finds conformance tests that no device runs. Each binary uses only some of the shared tests, so the
//! compiler does not report unused ones.

use super::code::{code_only, words};
use std::collections::BTreeMap;

/// The folder of the tests that devices share.
const SHARED: &str = "crates/krylith-core/tests/conformance/";
const TESTS: &str = "crates/krylith-core/tests/";

/// Returns public functions of the shared tests that no other code names: file, line and name.
pub fn find<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<(String, usize, String)> {
    let (mut uses, mut defined) = (BTreeMap::<String, usize>::new(), Vec::new());
    for (name, text) in files.filter(|(name, _)| name.starts_with(TESTS) && name.ends_with(".rs")) {
        for (i, line) in code_only(text).lines().enumerate() {
            for word in words(line) {
                *uses.entry(word.into()).or_default() += 1;
            }
            let function = line.strip_prefix("pub fn ").and_then(|rest| words(rest).next());
            if let Some(function) = function.filter(|_| name.starts_with(SHARED)) {
                defined.push((name.to_string(), i + 1, function.to_string()));
            }
        }
    }
    defined.retain(|(_, _, function)| uses.get(function).is_none_or(|uses| *uses < 2));
    defined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_no_device_runs_is_found() {
        let files = [
            (
                "crates/krylith-core/tests/conformance/a.rs",
                "pub fn runs() {}\npub fn forgotten() {}\nfn own() {}",
            ),
            ("crates/krylith-core/tests/cuda.rs", "fn main() { conformance::a::runs() } // forgotten"),
            ("crates/krylith-core/src/lib.rs", "fn forgotten() {}"),
        ];
        assert_eq!(
            find(files.into_iter()),
            [("crates/krylith-core/tests/conformance/a.rs".into(), 2, "forgotten".into())]
        );
    }
}
