//! The command line, date, machine and versions of a computation.

use super::Versions;
use krylith_core::comm::Mpi;
use krylith_core::device::cuda;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The command line and the time of the start.
struct Call {
    words: Vec<OsString>,
    at: SystemTime,
}

static CALL: OnceLock<Call> = OnceLock::new();

/// Stores a command line, whose first word is the program, and the time.
pub fn begin(words: &[OsString]) {
    let _ = CALL.set(Call { words: words.to_vec(), at: SystemTime::now() });
}

/// Returns the command line, quoted for a shell, with the program's name without its path.
pub fn command() -> String {
    let Some(call) = CALL.get() else { return String::new() };
    let words = call.words.iter().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("krylith".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Returns the start of the command in the format of RFC 3339, in UTC.
pub fn date() -> String {
    let at = CALL.get().map_or_else(SystemTime::now, |call| call.at);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Returns the name of this machine.
pub fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

/// Returns the versions of the command and, if it ran on a GPU, of the GPU's software.
pub fn versions(on_gpu: bool) -> Versions {
    let known = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
    let gpu = if on_gpu { cuda::Versions::found() } else { cuda::Versions::default() };
    Versions {
        krylith: env!("CARGO_PKG_VERSION").into(),
        commit: known(env!("KRYLITH_COMMIT")),
        rustc: known(env!("KRYLITH_RUSTC")),
        mpi: Mpi::library(),
        driver: gpu.driver,
        cuda: gpu.cuda,
        nvrtc: gpu.nvrtc,
    }
}

/// Quotes a word so that a shell reads it as one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+:,./@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("--precond=ildu:fill=1,rows=3"), "--precond=ildu:fill=1,rows=3");
        assert_eq!(quoted("A then B"), "'A then B'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn dates_are_utc_and_versions_known() {
        let date = date();
        assert!(
            date.len() == 20 && date.ends_with('Z') && date[4..5] == *"-" && date[10..11] == *"T",
            "{date}"
        );
        let versions = versions(false);
        assert!(versions.rustc.is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit())));
        assert!(versions.commit.is_none_or(|c| c.chars().all(|c| c.is_ascii_hexdigit())));
        assert_eq!((versions.driver, versions.nvrtc), (None, None));
    }
}
