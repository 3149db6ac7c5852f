//! Usability of the command: suggestions for typing errors, any case, narrow terminals, colours, completions
//! and the manual.

use crate::common::{Folder, Ran, mtx};

fn small() -> String {
    mtx(2, 2, &[(1, 1, 2.0), (2, 2, 4.0)])
}

/// Runs a line with additional environment variables.
fn with(f: &Folder, line: &str, environment: &[(&str, &str)]) -> Ran {
    let mut command = f.command(&line.split_whitespace().collect::<Vec<_>>());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM"] {
        command.env_remove(name);
    }
    environment.iter().for_each(|(name, value)| {
        command.env(name, value);
    });
    Ran::new(command.output().unwrap())
}

#[test]
fn words_of_other_programs_are_answered_with_ours() {
    let f = Folder::new();
    f.write("a.mtx", small());
    f.write("tol.toml", "matrix = 'a.mtx'\n[solver]\ntol = 1e-3\n");
    f.write("order.toml", "matrix = 'a.mtx'\n[solver]\nordering = 'segregate'\n");
    for (line, meant) in [
        ("solve a.mtx --tol 1e-8", "'--rtol'"),
        ("solve a.mtx --tolerance 1e-8", "'--rtol'"),
        ("solve a.mtx --ksp_rtol 1e-8", "'--rtol'"),
        ("solve a.mtx --maxiter 5", "'--max-iters'"),
        ("solve a.mtx --max_it 5", "'--max-iters'"),
        ("solve a.mtx --pc_type ilu", "'--precond'"),
        ("solve a.mtx --output x.npy", "'--out'"),
        ("solve a.mtx -o x.npy", "'--out'"),
        ("solve a.mtx --Rtol 1e-8", "'--rtol'"),
        ("solve a.mtx --nthreads 2", "'--threads'"),
        ("solve a.mtx --reprot r.json", "'--report'"),
        ("info a.mtx --block-size 2", "'--block'"),
        ("solve a.mtx --precond ilu", "did you mean `ildu`?"),
        ("solve a.mtx --precond ilu0", "did you mean `ildu`?"),
        ("solve a.mtx --precond hypre", "did you mean `amg`?"),
        ("solve a.mtx --precond jacobbi", "did you mean `jacobi`?"),
        ("solve a.mtx --precond ildu:fil=1", "did you mean `fill`?"),
        ("solve a.mtx --precond amg:coarsening=smoothed", "did you mean `coarsen`?"),
        ("solve a.mtx --method bcgs", "did you mean `bicgstab`?"),
        ("solve a.mtx --method BiCG-stab", "did you mean `bicgstab`?"),
        ("solve a.mtx --method gmers", "did you mean `gmres`?"),
        ("solve a.mtx --device gpu", "did you mean `cuda`?"),
        ("solve a.mtx --precision single", "did you mean `f32`?"),
        ("solve a.mtx --ordering segregate", "did you mean `segregated`?"),
        ("solve a.mtx --rhs onse", "did you mean `ones`?"),
        ("solve stoks:4x4x4", "did you mean `stokes`?"),
        ("solve laplce", "did you mean `laplace`?"),
        ("solve stokes:4x4x4,tua=1", "did you mean `tau`?"),
        ("solve stokes:4x4x4,scheme=radau-ia-2", "did you mean `radau-iia-2`?"),
        ("solve tol.toml", "did you mean `rtol`?"),
        ("solve order.toml", "did you mean `segregated`?"),
        ("newton cavty:9x9", "did you mean `cavity`?"),
        ("man slove", "did you mean `solve`?"),
        ("a.mtx", "krylith solve a.mtx"),
        ("slove a.mtx", "'solve'"),
    ] {
        f.line(line).fails(2, &[meant]);
    }
    assert_eq!(f.names(), ["a.mtx", "order.toml", "tol.toml"]);
}

#[test]
fn names_are_taken_in_any_case() {
    let f = Folder::new();
    for line in [
        "Solve LAPLACE:4X4X4 --method CG --precond Jacobi",
        "solve Stokes:3x3x3,SCHEME=Radau-IIA-2 --precond ILDU:Fill=1 --method GMRES:Restart=5",
        "solve laplace:4x4x4 --precond Symmetric(Jacobi THEN coarse) --device CPU --precision F64 --format CSR",
        "solve random:20 --rhs RANDOM:3 --orthogonalization CGS2 --matching Off --partition ROWS",
        "solve random:20,pattern=Different --rhs Ones",
    ] {
        // A composition is a single argument although it contains blanks.
        let words = line.replace("Symmetric(Jacobi THEN coarse)", "Symmetric(Jacobi\u{1}THEN\u{1}coarse)");
        let words: Vec<String> = words.split(' ').map(|word| word.replace('\u{1}', " ")).collect();
        f.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).works();
    }
    f.write("a.mtx", small());
    f.write("s.toml", "matrix = 'a.mtx'\n[solver]\nmethod = 'BiCGSTAB'\nordering = 'Interleaved'\n");
    assert!(f.line("solve s.toml").works().out.contains("BiCGSTAB"));
}

/// All text fits 60 columns, except words that are longer; wrapping loses nothing.
#[test]
fn sixty_columns_are_enough() {
    let f = Folder::new();
    f.write("a.mtx", small());
    for line in [
        "solve stokes:4x4x4 -vv",
        "solve a.mtx",
        "newton cavity:9x9,re=10 -v",
        "info stokes:4x4x4 --ranks 2",
        "spy stokes:4x4x4 --ranks 2",
        "problem",
        "problem random:20 --out d",
        "solve --help",
        "problem --help",
        "newton --help",
        "steps --help",
        "steps stokes:4x4x4 --steps 2",
        "spy --help",
        "--help",
    ] {
        let wide = with(&f, line, &[]);
        let narrow = with(&f, line, &[("COLUMNS", "60")]);
        let usual = with(&f, line, &[("COLUMNS", "120")]);
        assert_eq!((wide.code, narrow.code, usual.code), (0, 0, 0), "{line}");
        for (ran, columns) in [(&narrow, 60), (&usual, 120)] {
            for text in ran.out.lines() {
                let long = text.split_whitespace().any(|word| word.chars().count() > columns / 3);
                assert!(text.chars().count() <= columns || long, "{line}: {columns}: `{text}`");
            }
        }
        let words = |ran: &Ran| ran.out.split_whitespace().filter(|w| w.len() > 3).count();
        let (all, kept) = (words(&wide), words(&narrow));
        assert!(line.starts_with("spy") || kept + 5 >= all * 9 / 10, "{line}: {kept} of {all} words");
    }
    for line in ["solve a.mtx --precond ilu", "solve a.mtx --rtol abc", "solve"] {
        let narrow = with(&f, line, &[("COLUMNS", "60")]);
        assert_eq!(narrow.code, 2, "{line}");
        assert!(narrow.err.lines().count() > 1, "{line}: {}", narrow.err);
        assert!(narrow.err.lines().all(|text| text.chars().count() <= 60), "{line}: {}", narrow.err);
    }
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let f = Folder::new();
    f.write("a.mtx", small());
    let coloured = |ran: &Ran| ran.out.contains('\u{1b}');
    for line in ["solve a.mtx", "solve --help", "spy a.mtx --ranks 2"] {
        assert!(!coloured(with(&f, line, &[]).works()), "{line}");
        assert!(coloured(with(&f, line, &[("CLICOLOR_FORCE", "1")]).works()), "{line}");
        assert!(!coloured(with(&f, line, &[("NO_COLOR", "1")]).works()), "{line}");
    }
    let failed = with(&f, "solve nothing.mtx", &[("CLICOLOR_FORCE", "1")]);
    assert!(failed.code == 2 && failed.err.starts_with("\u{1b}["), "{failed:?}");
    assert!(with(&f, "solve nothing.mtx", &[]).err.starts_with("error: nothing.mtx"));
}

#[test]
fn shells_complete_and_man_has_pages() {
    let f = Folder::new();
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef krylith"), ("fish", "complete -c krylith")]
    {
        let ran = f.run(&["completions", shell]);
        let out = &ran.works().out;
        assert!(out.contains(word) && out.contains("near-nullspace") && out.contains("spy"), "{shell}");
    }
    f.line("completions tcsh").fails(2, &["bash", "zsh", "fish"]);
    let page = f.line("man").works().out.clone();
    assert!(page.contains(".TH krylith") && page.contains("krylith\\-solve"), "{page}");
    let page = f.line("man solve").works().out.clone();
    assert!(page.contains(".TH krylith-solve") && page.contains("\\-\\-rtol"), "{page}");
    f.line("man --out pages").works();
    let pages = std::fs::read_dir(f.path("pages")).unwrap().count();
    assert!(pages > 6 && f.path("pages/krylith-solve.1").exists(), "{pages} pages");
}

#[test]
fn problems_are_listed_without_one() {
    let f = Folder::new();
    let listed = f.line("problem").works().out.clone();
    assert!(krylith_problems::catalogue().iter().all(|p| listed.contains(p.example)), "{listed}");
    let listed = f.line("newton").works().out.clone();
    assert!(krylith_problems::nonlinear::catalogue().iter().all(|p| listed.contains(p.example)), "{listed}");
    f.line("problem stokes:4x4x4").fails(2, &["--out DIR", "krylith solve stokes:4x4x4"]);
    assert!(f.names().is_empty());
}

/// Each further `v` prints more.
#[test]
fn more_is_said_where_it_is_asked_for() {
    let f = Folder::new();
    let labels = |line: &str| -> Vec<String> {
        let out = f.line(line).works().out.clone();
        out.lines().filter_map(|l| l.split("  ").next()).filter(|l| !l.is_empty()).map(String::from).collect()
    };
    let usual = labels("solve stokes:4x4x4");
    let more = labels("solve stokes:4x4x4 -v");
    let most = labels("solve stokes:4x4x4 -vv");
    let has = |labels: &[String], name: &str| labels.iter().any(|label| label == name);
    for (name, [a, b, c]) in [
        ("outcome", [true, true, true]),
        ("chosen", [false, true, true]),
        ("events", [false, true, true]),
        ("set-up", [false, false, true]),
        ("machine", [false, false, true]),
    ] {
        assert_eq!([has(&usual, name), has(&more, name), has(&most, name)], [a, b, c], "{name}");
    }
    let text = f.line("solve stokes:4x4x4 -vv").works().out.clone();
    for words in ["method bicgstab", "device cpu (", "survey", "MiB moved per iteration"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    f.line("solve stokes:4x4x4 -v --quiet").fails(2, &["cannot be used with"]);
    assert!(f.line("newton cavity:9x9,re=10 -vv").works().out.contains("set-up  "));
}

/// An x that is not written is mentioned once, and not with `-q` or for reports on stdout.
#[test]
fn an_x_that_goes_nowhere_is_mentioned() {
    let f = Folder::new();
    let hints = |line: &str| f.line(line).works().out.matches("x is not written").count();
    assert_eq!(hints("solve laplace:4x4x4"), 1);
    assert!(f.line("solve laplace:4x4x4").out.trim_end().ends_with("ParaView"));
    assert_eq!(hints("solve laplace:4x4x4 --out x.npy"), 0);
    assert_eq!(hints("solve laplace:4x4x4 --vtu x.vtu"), 0);
    assert_eq!(hints("solve laplace:4x4x4 --quiet"), 0);
    assert_eq!(hints("solve laplace:4x4x4 --report -"), 0); // only the report is on stdout
}

#[test]
fn patterns_are_drawn() {
    let f = Folder::new();
    let drawn = f.line("spy stokes:8x8x8").works().out.clone();
    let dots = drawn.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
    assert!(drawn.contains("blocks 4×4") && drawn.contains("┌──") && dots > 50, "{drawn}");
    assert!(drawn.contains("up to 5×5 blocks"), "{drawn}");
    f.write("a.mtx", small());
    let drawn = f.line("spy a.mtx").works().out.clone();
    assert!(drawn.contains("a dot is an entry") && drawn.contains("┌─┐\n│⠑│\n└─┘"), "{drawn}");
    let drawn = f.line("spy stokes:8x8x8 --ranks 4 --partition multilevel").works().out.clone();
    assert!(drawn.contains("■ rank 3") && drawn.contains("blocks cut"), "{drawn}");
    f.line("spy a.mtx --ranks 3").fails(2, &["a.mtx", "3 ranks"]);
    f.line("spy a.mtx --partition rows").fails(2, &["--ranks"]);
    f.line("spy a.mtx --out a.mtx").fails(2, &["would replace the input"]);
    f.line("spy a.mtx --out spy.pdf").fails(2, &[".svg or .png", "spy.svg"]);
    f.line("spy stokes:8x8x8 --ranks 4 --out spy.svg").works();
    let svg = std::fs::read_to_string(f.path("spy.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("stokes:8x8x8"));
    f.line("spy stokes:8x8x8 --out spy.png").works();
    assert!(std::fs::read(f.path("spy.png")).unwrap().starts_with(b"\x89PNG"));
}
