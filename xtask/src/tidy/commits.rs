//! Checks commit messages: a subject that says what the commit does, and a body that says why.

use crate::shell::{git, read, works};

/// The rules apply to commits after this one.
pub const BASE: &str = "75d87f1d30f6f62d282874985bcb00ea5574447e";

/// Longest subject, in characters.
const SUBJECT: usize = 72;

/// Commands that change a message.
const REMEDY: &str = "`git commit --amend` rewrites the last commit, `git rebase -i` an older one";

/// Imperative verbs with endings of past tenses, participles or nouns.
const VERBS: [&str; 19] = [
    "Need", "Feed", "Seed", "Speed", "Heed", "Weed", "Exceed", "Proceed", "Succeed", "Embed", "Shed",
    "Bring", "String", "Ring", "Ping", "Swing", "Focus", "Alias", "Bias",
];

/// First words that are not verbs.
const NO_VERBS: [&str; 62] = [
    "A", "After", "All", "Also", "An", "And", "Another", "As", "At", "Because", "Before", "Better", "But",
    "By", "Each", "Every", "Faster", "First", "For", "From", "Here", "How", "I", "If", "In", "It", "Less",
    "Many", "Minor", "Misc", "More", "New", "No", "Not", "Now", "Of", "On", "One", "Only", "Or", "Other",
    "Our", "Several", "Small", "Some", "That", "The", "Then", "There", "These", "They", "Those", "To", "We",
    "What", "When", "Where", "Which", "Who", "Why", "With", "Without",
];

/// A commit as stored by git.
#[derive(Debug, PartialEq)]
struct Commit {
    hash: String,
    parents: usize,
    message: String,
}

/// Checks new commits. Returns a note on what was checked, and the findings.
pub fn check() -> (String, Vec<String>) {
    let commits = match new() {
        Ok(commits) => commits,
        Err(why) => return (format!("commits skipped: {why}"), Vec::new()),
    };
    let mut findings = Vec::new();
    for commit in commits.iter().filter(|commit| commit.parents < 2) {
        for fault in faults(&commit.message) {
            findings.push(format!("commit {}: {fault}; {REMEDY}", &commit.hash[..commit.hash.len().min(12)]));
        }
    }
    (format!("commits after {}: {}", &BASE[..7], commits.len()), findings)
}

/// Returns the commits of HEAD that are not in the base. In a shallow clone without the base, returns all
/// that it has.
fn new() -> Result<Vec<Commit>, String> {
    if !works(&mut git(&["rev-parse", "--verify", "HEAD"])) {
        return Err("no git, or no repository".into());
    }
    let range = match works(&mut git(&["cat-file", "-e", &format!("{BASE}^{{commit}}")])) {
        true => format!("{BASE}..HEAD"),
        false if read(&mut git(&["rev-parse", "--is-shallow-repository"]))?.trim() == "true" => "HEAD".into(),
        false => return Err(format!("the history has no {}", &BASE[..7])),
    };
    let said = read(&mut git(&["rev-list", "--header", &range]))?;
    let mut commits: Vec<Commit> = said.split('\0').filter_map(parse).collect();
    // At the end of a shallow clone, git hides the parents of a commit; the stored commit names them.
    for commit in commits.iter_mut().filter(|commit| commit.parents == 0) {
        commit.parents = count_parents(&read(&mut git(&["cat-file", "commit", &commit.hash]))?);
    }
    Ok(commits)
}

/// Parses a record of `git rev-list --header`: the hash, the header, and the message, which is indented.
fn parse(record: &str) -> Option<Commit> {
    let (hash, rest) = record.split_once('\n')?;
    let message = rest.split_once("\n\n").map_or("", |(_, message)| message);
    let message: Vec<&str> = message.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    Some(Commit { hash: hash.into(), parents: count_parents(rest), message: message.join("\n") })
}

fn count_parents(header: &str) -> usize {
    header.lines().take_while(|line| !line.is_empty()).filter(|line| line.starts_with("parent ")).count()
}

/// Returns the faults of a message.
fn faults(message: &str) -> Vec<String> {
    let mut lines = message.lines().map(str::trim_end);
    let subject = lines.next().unwrap_or_default();
    let mut faults = Vec::new();
    let mut find = |fault: String| faults.push(format!("{fault}: \"{subject}\""));
    let length = subject.chars().count();
    if length > SUBJECT {
        find(format!("the subject has {length} characters; at most {SUBJECT} are allowed"));
    }
    if !subject.starts_with(char::is_uppercase) {
        find("the subject does not begin with an upper-case letter".into());
    } else if !is_imperative(subject) {
        find("the subject does not begin with a verb in the imperative, such as Add or Fix".into());
    }
    if subject.ends_with('.') {
        find("the subject ends in a period".into());
    }
    if subject.contains(';') {
        find("the subject has a semicolon: one change a commit".into());
    }
    if lines.next().is_some_and(|second| !second.is_empty()) {
        find("the second line is not blank".into());
    }
    // Trailers such as `Signed-off-by: …` give no reason.
    let is_trailer = |line: &str| line.split_once(": ").is_some_and(|(key, _)| key.ends_with("-by"));
    if !lines.any(|line| !line.is_empty() && !is_trailer(line)) {
        find("there is no body that says why".into());
    }
    faults
}

/// Returns true if the first word may be an imperative verb, judged by its ending and by lists of words.
fn is_imperative(subject: &str) -> bool {
    let word = subject.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap_or_default();
    let ends = |end: &str| word.ends_with(end);
    VERBS.contains(&word)
        || !NO_VERBS.contains(&word) && !ends("ed") && !ends("ing") && (ends("ss") || !ends("s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "\n\nIt was slow.";

    #[test]
    fn good_messages_pass() {
        let long = format!("Add {}", "x".repeat(SUBJECT - 4));
        for subject in [
            "Add a test",
            "Say why",
            "Fix the sum of §3",
            "Address a race",
            "Pass ranks on",
            "Process rows",
            "Bypass MPI",
            "Focus on rows",
            "Need less",
            "Embed kernels",
            "Bring back x",
            "Re-use buffers",
            "Bound x: two cases",
            &long,
        ] {
            assert_eq!(faults(&format!("{subject}{BODY}")), [""; 0], "{subject}");
        }
        assert_eq!(faults("Add a test\n\nIt was slow.\n\nSigned-off-by: A B <a@b.example>\n"), [""; 0]);
    }

    #[test]
    fn each_rule_of_a_message_is_checked() {
        let long = format!("Add {}{BODY}", "é".repeat(SUBJECT - 3));
        let cases = [
            (long.as_str(), "73 characters"),
            ("add a test\n\nWhy.", "upper-case"),
            ("`x` is gone\n\nWhy.", "upper-case"),
            ("Added a test\n\nWhy.", "imperative"),
            ("Adding a test\n\nWhy.", "imperative"),
            ("Adds a test\n\nWhy.", "imperative"),
            ("The test is there\n\nWhy.", "imperative"),
            ("What is new\n\nWhy.", "imperative"),
            ("Docs: a page\n\nWhy.", "imperative"),
            ("Add a test.\n\nWhy.", "period"),
            ("Add a test; mend it\n\nWhy.", "semicolon"),
            ("Add a test\nWhy.\nAnd how.", "not blank"),
            ("Add a test", "no body"),
            ("Add a test\n\n\n", "no body"),
            ("Add a test\n\nReviewed-by: A B\n", "no body"),
        ];
        for (message, word) in cases {
            let found = faults(message);
            assert!(found.len() == 1 && found[0].contains(word), "{message:?}: {found:?}");
        }
        assert!(!faults("").is_empty());
    }

    #[test]
    fn records_of_git_are_read() {
        let record = "abc\ntree t\nparent p\nparent q\nauthor a\n\n    Merge x\n    \n    parent y\n";
        let expected = Commit { hash: "abc".into(), parents: 2, message: "Merge x\n\nparent y".into() };
        assert_eq!(parse(record), Some(expected));
        assert_eq!(parse(""), None);
        assert_eq!(count_parents("tree t\nauthor a\n\nparent p"), 0);
    }
}
