//! include/krylith.h is what cbindgen makes of the sources. KRYLITH_WRITE_HEADER=1 writes it.

use std::path::Path;

const PREFACE: &str = "\
/* krylith.h: solve sparse point-block systems on CPUs and GPUs.
 *
 * A problem is a matrix, or a sum of two; a solver is a problem on a device; both are handles, made and freed by functions.
 * Every function that can fail returns a krylith_status, and krylith_last_error() says why, in the thread that called. A solve that does not
 * converge is no failure: see the outcome in krylith_solution.
 *
 * Arrays are the caller's and are used during the call alone. All are on the host, or, where a call takes a krylith_memory, on a GPU.
 * Functions may be called from any thread.
 *
 *     krylith_problem *problem;
 *     krylith_solution solution;
 *     if (krylith_problem_csr(rows, entries, row_ptr, col, values, 0, NULL, &problem) != KRYLITH_OK ||
 *         krylith_solve(problem, \"rtol=1e-8\", b, x, NULL, &solution) != KRYLITH_OK)
 *         fprintf(stderr, \"%s\\n\", krylith_last_error());
 *     krylith_problem_free(problem);
 *
 * Made by cbindgen of crates/krylith-c/src. */
";

fn generated() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    config.header = Some(PREFACE.into());
    let [major, minor, patch] =
        ["MAJOR", "MINOR", "PATCH"].map(|part| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap());
    config.after_includes = Some(format!(
        "\n#define KRYLITH_VERSION \"{major}.{minor}.{patch}\"\n#define KRYLITH_VERSION_MAJOR {major}\n#define KRYLITH_VERSION_MINOR {minor}\n#define KRYLITH_VERSION_PATCH {patch}"
    ));
    let mut out = Vec::new();
    cbindgen::Builder::new().with_crate(folder).with_config(config).generate().unwrap().write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/krylith.h");
    let now = generated();
    if std::env::var_os("KRYLITH_WRITE_HEADER").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let line = now.lines().zip(kept.lines()).position(|(now, kept)| now != kept);
    assert!(
        now == kept,
        "include/krylith.h differs from the sources, first in line {:?}; write it anew with KRYLITH_WRITE_HEADER=1 cargo test -p krylith-c",
        line.map(|line| line + 1)
    );
}
