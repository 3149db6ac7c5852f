use super::code::code_only;
use super::*;

fn messages(name: &str, text: &str) -> Vec<String> {
    check_file(name, text, "Ignored tests: `long_study` runs nightly.")
        .into_iter()
        .map(|f| f.message)
        .collect()
}

/// Asserts that `text` violates exactly one rule, whose message contains `word`.
fn breaches(name: &str, text: &str, word: &str) {
    let found = messages(name, text);
    assert!(found.len() == 1 && found[0].contains(word), "{name}: {text:?}: {found:?}");
}

fn passes(name: &str, text: &str) {
    assert_eq!(messages(name, text), [""; 0], "{name}: {text:?}");
}

const LIBRARY: &str = "crates/krylith-core/src/method/cg.rs";
const DEVICE: &str = "crates/krylith-core/src/device/cuda/launch.rs";

#[test]
fn long_files() {
    breaches("kernels/a.cu", &"x;\n".repeat(LINES + 1), "601 lines");
    passes("kernels/a.cu", &"x;\n".repeat(LINES));
    passes("docs/guide.md", &"x\n".repeat(LINES + 1));
}

#[test]
fn unfinished_work() {
    for word in UNFINISHED {
        breaches("python/a.py", &format!("# {word}: later\n"), word);
        passes("python/a.py", &format!("# {word}S\n"));
    }
    breaches(LIBRARY, "fn f() { todo!() }\n", "todo!");
    breaches("xtask/src/main.rs", "fn f() { unimplemented!(\"x\") }\n", "unimplemented!");
    passes(LIBRARY, "// what todo!() does\nconst A: &str = \"todo!()\";\n");
}

#[test]
fn printing() {
    breaches(LIBRARY, "fn f() { println!(\"{}\", 1); }\n", "println!");
    breaches(LIBRARY, "fn f() { dbg!(1); }\n", "dbg!");
    passes("crates/krylith-cli/src/main.rs", "fn f() { println!(); }\n");
    passes(LIBRARY, "/// println!()\nfn f() { my_println!(); }\n");
    passes(LIBRARY, "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() { println!(); }\n}\n");
    breaches(LIBRARY, "#[cfg(test)]\nmod tests;\nfn g() { println!(); }\n", "println!");
}

#[test]
fn pools() {
    let pool = "fn f() { rayon::ThreadPoolBuilder::new(); }\n";
    breaches(LIBRARY, pool, "a pool of rayon's");
    breaches("crates/krylith-py/src/lib.rs", pool, "a pool of rayon's");
    passes("crates/krylith-base/src/threads/tasks.rs", pool);
    passes("crates/krylith-core/tests/threads.rs", pool);
    passes("crates/krylith-core/src/io/tests.rs", pool);
    passes(LIBRARY, &format!("#[cfg(test)]\nmod tests {{\n{pool}}}\n"));
}

#[test]
fn unsafe_code() {
    breaches(LIBRARY, "fn f() { unsafe { g() } }\n", "unsafe outside");
    breaches("crates/krylith-cli/src/main.rs", "unsafe impl Send for A {}\n", "unsafe outside");
    passes(DEVICE, "fn f() { unsafe { g() } }\n");
    passes(LIBRARY, "#![deny(unsafe_op_in_unsafe_fn)]\n// unsafe\nconst A: &str = r#\"unsafe\"#;\n");
    breaches(DEVICE, "/// Reads.\npub unsafe fn f() {}\n", "# Safety");
    breaches(DEVICE, "/// Reads.\npub(super) const unsafe fn f() {}\n", "# Safety");
    passes(DEVICE, "/// Reads.\n///\n/// # Safety\n/// `p` is valid.\n#[inline]\npub unsafe fn f() {}\n");
    passes(DEVICE, "unsafe fn f() {}\npub type F = unsafe fn();\n");
}

#[test]
fn ignored_tests() {
    breaches("tests/a.rs", "#[test]\n#[ignore = \"long\"]\nfn unknown_study() {}\n", "`unknown_study`");
    passes("tests/a.rs", "#[test]\n#[ignore = \"long\"]\nfn long_study() {}\n");
    breaches("tests/a.rs", "#[test]\n#[ignore]\nfn long_study() {}\n", "without a reason");
}

#[test]
fn places() {
    for folder in FOLDERS {
        breaches("README.md", &format!("see {folder}x\n"), "one machine");
        breaches("a.toml", &format!("path = \"{folder}x\"\n"), "one machine");
        passes("README.md", &format!("see https://host.example{folder}x or ..{folder}\n"));
    }
    for host in REGISTRIES {
        breaches("README.md", &format!("see {host}\n"), host);
    }
    passes("Cargo.lock", &format!("source = \"{LOCK_SOURCE}\"\n"));
    breaches("Cargo.lock", "source = \"registry+https://mirror.example/index\"\n", "other than");
}

#[test]
fn trailing_whitespace() {
    breaches("README.md", "a \nb\n", "whitespace");
    breaches("README.md", "a\t\n", "whitespace");
    breaches("README.md", "a\r\n", "whitespace");
    passes("crates/krylith-core/tests/data/a.mtx", "1 1 \n");
}

#[test]
fn comments_strings_and_characters_are_blanked() {
    let text = "a /* b /* c */ \n d */ e \"f \\\" g\" 'h' '\\'' &'i j r#\"k\"l\"# r#m // n\no br\"p\" '\"' q";
    let code = code_only(text);
    let kept: Vec<&str> = words(&code).collect();
    assert_eq!(kept, ["a", "e", "i", "j", "r", "m", "o", "b", "q"]);
    assert_eq!(code.lines().count(), text.lines().count());
}
