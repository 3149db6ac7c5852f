//! Two sizes: the number of methods that a device must implement, which is limited, and the length of the
//! library.

use super::code::code_only;

/// Traits that a device implements.
const DEVICE: [&str; 13] = [
    "Space",
    "Schedule",
    "Clock",
    "Transfer",
    "PointBlockSum",
    "BlockDiagonal",
    "IncompleteFactors",
    "SubdomainFactors",
    "TileFactors",
    "SchwarzFactors",
    "Coarsen",
    "SharedRows",
    "SolverSpace",
];
/// Largest number of methods without a default body in all of these traits.
const REQUIRED: usize = 51;
/// Folder that contains the traits.
const TRAITS: &str = "crates/krylith-core/src/";

/// Source folders of the library.
const LIBRARY: [&str; 3] =
    ["crates/krylith-base/src/", "crates/krylith-matrix/src/", "crates/krylith-core/src/"];

/// Attributes before code that only tests compile.
const TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(any(test, feature = \"testing\"))]"];

/// Returns a text with both sizes, and the findings.
pub fn check<'a>(files: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> (String, Vec<String>) {
    let (mut findings, mut missing) = (Vec::new(), DEVICE.to_vec());
    let mut required = 0;
    for (name, text) in files.clone().filter(|(name, _)| name.starts_with(TRAITS) && name.ends_with(".rs")) {
        if name.starts_with("crates/krylith-core/src/device/") {
            continue;
        }
        for (of, body) in traits(&code_only(text)) {
            if let Some(at) = missing.iter().position(|known| *known == of) {
                missing.remove(at);
                required += without_body(&body);
            }
        }
    }
    if !missing.is_empty() {
        findings.push(format!("traits of a device that are not there: {}", missing.join(", ")));
    }
    if required > REQUIRED {
        findings.push(format!("a device must implement {required} methods; at most {REQUIRED} are allowed"));
    }
    let is_code = |name: &str| [".rs", ".cu", ".cuh"].iter().any(|end| name.ends_with(end));
    // `testing.rs` files are compiled only with the feature `testing`.
    let is_test = |name: &str| {
        ["/tests.rs", "/testing.rs"].iter().any(|end| name.ends_with(end)) || name.contains("/tests/")
    };
    let library = files.filter(|(name, _)| LIBRARY.iter().any(|folder| name.starts_with(folder)));
    let lines: usize =
        library.filter(|(name, _)| is_code(name) && !is_test(name)).map(|(_, text)| lines(text)).sum();
    (format!("a device: {required} required methods; the library: {lines} lines without tests"), findings)
}

/// Returns the public traits of a file with their bodies.
fn traits(code: &str) -> Vec<(String, String)> {
    let found = code.match_indices("pub trait ").map(|(at, word)| {
        let rest = &code[at + word.len()..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let open = rest.find('{').unwrap_or(rest.len());
        (name, body(&rest[open..]).to_string())
    });
    found.collect()
}

/// Returns the text from an opening brace to the brace that closes it.
fn body(text: &str) -> &str {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// Counts the functions in a trait's body that end in a semicolon.
fn without_body(body: &str) -> usize {
    let (mut depth, mut count, mut signature) = (0, 0, None::<i32>);
    let mut word = String::new();
    for c in body.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if word == "fn" && depth == 1 {
            signature = Some(0);
        }
        word.clear();
        let nested = signature.is_some_and(|inside| inside > 0);
        match c {
            '(' | '[' => signature = signature.map(|inside| inside + 1),
            ')' | ']' => signature = signature.map(|inside| inside - 1),
            ';' if signature.is_some() && !nested => {
                (count, signature) = (count + 1, None);
            }
            '{' => {
                depth += 1;
                signature = None;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    count
}

/// Counts the lines of a file, except code that only tests compile.
fn lines(text: &str) -> usize {
    let (mut count, mut rest) = (0, text.lines());
    while let Some(line) = rest.next() {
        if !TESTS.iter().any(|of| line.trim_start().starts_with(of)) {
            count += 1;
            continue;
        }
        // Skips the item after the attribute, to its semicolon or closing brace.
        let mut depth = 0;
        for line in rest.by_ref() {
            let braces = |c: char| line.matches(c).count() as i32;
            depth += braces('{') - braces('}');
            let ends = line.trim_end().ends_with([';', '}', ',']);
            if depth == 0 && ends && !line.trim_start().starts_with("#[") {
                break;
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_without_a_body_are_counted() {
        let code = "pub trait Space: Schedule {\n type V;\n fn len(&self) -> usize;\n fn is_empty(&self) -> bool {\n self.len() == 0;\n }\n fn of(a: [f64; 3]) -> u8\n where\n A: B;\n}\nfn free();";
        let found = traits(code);
        assert_eq!((found.len(), found[0].0.as_str()), (1, "Space"));
        assert_eq!(without_body(&found[0].1), 2);
    }

    #[test]
    fn tests_are_no_lines_of_the_library() {
        assert_eq!(lines("a\n#[cfg(test)]\nmod tests {\n    b {\n    }\n}\nc\n"), 2);
        assert_eq!(lines("a\n#[cfg(test)]\nuse b;\nc\n"), 2);
        assert_eq!(lines("a\nb\n"), 2);
    }

    #[test]
    fn a_device_that_must_do_more_is_found() {
        let many: String = (0..62).map(|i| format!("    fn f{i}();\n")).collect();
        let text = format!("pub trait Space {{\n{many}}}\n");
        let findings = check([("crates/krylith-core/src/space/mod.rs", text.as_str())].into_iter()).1;
        assert!(findings.iter().any(|finding| finding.contains("62 methods")), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.contains("not there: Schedule")), "{findings:?}");
    }
}
