use super::*;

#[test]
fn devices() {
    assert_eq!("cuda:0,1".parse::<DeviceSpec>().unwrap(), DeviceSpec::Cuda(vec![0, 1]));
    assert_eq!("cuda".parse::<DeviceSpec>().unwrap(), DeviceSpec::Cuda(vec![]));
    for text in ["cuda:", "cuda:a", "cuda:1,1", "cpu:0", "gpu"] {
        assert!(text.parse::<DeviceSpec>().is_err(), "{text}");
    }
}

#[test]
fn options_survive_the_way_through_text() {
    for text in [
        "",
        "method=gmres:restart=50,orthogonalization=cgs2 precond=ildu:fill=1 rtol=1e-8 device=cuda:0,1",
        "method=bicgstab:reductions=classical precond=jacobi then ildu+stage:shift=1e-3 max_iters=7",
        "restart=7 atol=1e-300 time_limit=1.5e0 precision=f32 format=dia-full device=cpu threads=3 deterministic=true",
        "equilibrate=false matching=on zeros=drop partition=graph memory_limit=8589934592",
        "method=auto precond=none",
        "precond=jacobi device=cuda:0,1 share=lra+rc:0.4/0.15",
        "share=auto",
        "method=cg:form=one-reduction",
        "method=cbcg:s=8,basis=monomial",
        "method=minres precond=split(u: amg, p: chebyshev(jacobi); schur=diagonal, S=mp)",
    ] {
        let options: Options = text.parse().unwrap();
        assert_eq!(options.to_string(), text);
        let file = toml::to_string(&options).unwrap();
        assert_eq!(toml::from_str::<Options>(&file).unwrap(), options, "{file}");
    }
    let options: Options = "memory_limit=8GiB".parse().unwrap();
    assert_eq!(options.memory_limit, Some(8 << 30));
    for (text, words) in [
        ("rtol=-1", "rtol=-1: expected a number that is finite and not negative"),
        ("tol=1", "unknown option `tol`; the known ones are method, restart"),
        ("cpu", "`cpu` is not key=value"),
        ("rtol=1 rtol=2", "`rtol` is given twice"),
        ("method=cbcg:s=17", "17"),
        ("method=gmres:m=3", "unknown key of a method `m`"),
        ("method=gmress", "unknown method `gmress`; the known ones are auto, gmres, fgmres, bicgstab"),
        ("memory_limit=8 GB", "a number of bytes"),
        ("memory_limit=99999999999999TiB", "a number of bytes"),
        ("deterministic=maybe", "true or false"),
        ("share=everything", "share=everything: share `everything`: expected halo, auto, nz, 2nz"),
        ("time_limit=0", "positive number of seconds"),
    ] {
        let error = text.parse::<Options>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn every_option_is_declared_well() {
    for option in TABLE.iter() {
        assert_eq!(info(option.name).unwrap().name, option.name);
        assert!(option.help.ends_with('.') && !option.default.is_empty(), "{option:?}");
        let names: Vec<&str> = std::iter::once(option.name).chain(option.old_names.iter().copied()).collect();
        let others = TABLE.iter().filter(|other| other.name != option.name);
        assert!(
            others.flat_map(|o| o.old_names.iter().chain([&o.name])).all(|n| !names.contains(n)),
            "{option:?}"
        );
        if let Kind::Choice(choices) = option.kind {
            for choice in choices {
                let options = Options::one(option.name, choice).unwrap();
                assert!(options.has(option.name) && options.settled().is_ok(), "{option:?} {choice}");
            }
        }
    }
}

#[test]
fn an_old_name_is_taken_with_a_warning() {
    let options: Options = "store=f32 rtol=1e-8".parse().unwrap();
    assert_eq!(
        (options.precision, &options.renamed[..]),
        (Some(Precision::F32), &[("store", "precision")][..])
    );
    assert_eq!(options.to_string(), "rtol=1e-8 precision=f32");
    let file: Options = toml::from_str("store = 'f32'").unwrap();
    assert_eq!(file.renamed, [("store", "precision")]);
    assert_eq!("precond=amg:store=f32".parse::<Options>().unwrap().renamed, [("store", "precision")]);
    let a = crate::matrix::Csr::from_triplets(1, 1, &[(0, 0, 2.0)]).unwrap();
    let mut solver = crate::Solver::new(&a, &options.device(DeviceSpec::Cpu)).unwrap();
    let warned = |events: &[crate::solver::Event]| {
        events.iter().any(|e| e.detail.contains("`store` is now called `precision`"))
    };
    assert!(warned(&solver.solve(&[1.0], &mut [0.0]).unwrap().events));
    assert!("store=f32 precision=f32".parse::<Options>().unwrap_err().to_string().contains("given twice"));
}

#[test]
fn files_hold_numbers_text_and_switches() {
    let options: Options =
        toml::from_str("rtol = 1e-8\nrestart = 7\nmax-iters = '50'\ndeterministic = true").unwrap();
    assert_eq!((options.rtol, options.restart, options.max_iters), (Some(1e-8), Some(7), Some(50)));
    assert_eq!(options.deterministic, Some(true));
    for (text, words) in [
        ("restart = 0", "expected a whole number from 1"),
        ("restart = 1.5", "whole number"),
        ("restart = [1]", "text, a number, or true and false"),
        ("max-iters = 1\nmax_iters = 2", "given twice"),
        ("tol = 1", "unknown field `tol`"),
    ] {
        let error = toml::from_str::<Options>(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn the_first_of_two_wins() {
    let parse = |text: &str| text.parse::<Options>().unwrap();
    let settle = |one: &str, other: &str| parse(one).or(&parse(other)).settled();
    let both = settle("rtol=1e-3", "rtol=1e-9 restart=7").unwrap();
    assert_eq!((both.rtol, both.restart, both.method), (Some(1e-3), Some(7), Some(MethodName::Gmres)));
    // A method's own options, given to another one.
    let error = settle("restart=5", "method=bicgstab").unwrap_err();
    assert!(matches!(&error, Error::Option { key: "restart", .. }), "{error}");
    assert!(
        error.to_string().contains("applies only to method gmres, and the method is bicgstab"),
        "{error}"
    );
    assert_eq!(settle("method=gmres", "method=bicgstab restart=7").unwrap().restart, Some(7));
    assert_eq!(settle("method=bicgstab", "restart=7").unwrap().restart, None);

    for (options, key) in [
        (Options { restart: Some(0), ..Options::new() }, "restart"),
        (Options::new().rtol(f64::NAN), "rtol"),
        (Options::new().time_limit(0.0), "time_limit"),
        (Options::new().threads(0), "threads"),
    ] {
        let error = options.settled().unwrap_err().to_string();
        assert!(error.contains(&format!("`{key}` is")), "{error}");
    }
}

#[test]
fn minres_takes_fixed_symmetric_definite_preconditioners() {
    let settle =
        |precond: &str| format!("method=minres precond={precond}").parse::<Options>().unwrap().settled();
    for fits in [
        "auto",
        "none",
        "jacobi+coarse",
        "ildu:shift=1e-3",
        "amg",
        "symmetric(jacobi then amg)",
        "chebyshev(jacobi)",
        "split(u: amg, p: jacobi; form=diagonal)",
        "split(u: amg, p: jacobi; form=full)",
        "split(u: amg, p: chebyshev(jacobi); schur=diagonal, S=Mp)",
        "split(u: symmetric(jacobi then aux(P: amg)), p: jacobi; schur=diagonal, S=lsc)",
    ] {
        assert!(settle(fits).is_ok(), "{fits}: {:?}", settle(fits));
    }
    for (unfit, part, why) in [
        ("cg(amg)", "cg(amg)", "varies"),
        ("ras", "ras", "varies"),
        ("jacobi+amg:coarsen=aggregation,cycle=k", "amg:", "varies"),
        ("chebyshev(cg(jacobi))", "cg(jacobi)", "varies"),
        ("split(u: cg(amg), p: jacobi; schur=diagonal, S=Mp)", "cg(amg)", "varies"),
        ("jacobi then ildu", "jacobi then ildu", "is not symmetric"),
        ("stage", "stage", "is not symmetric"),
        ("ras:solve=exact", "ras:solve=exact", "is not symmetric"),
        ("cpr(p: amg)", "cpr(p: amg)", "is not symmetric"),
        ("split(u: amg, p: jacobi)", "split(u: amg", "is not symmetric"),
        ("split(u: amg, p: jacobi; schur=upper, S=Mp)", "split(u: amg", "is not symmetric"),
        ("split(u: amg, p: jacobi; schur=full, S=Mp)", "split(u: amg", "is not symmetric"),
        ("split(u: amg, p: jacobi; schur=diagonal, S=pcd(F, L, M))", "split(u: amg", "is not symmetric"),
    ] {
        let error = settle(unfit).unwrap_err();
        assert!(matches!(&error, Error::Option { key: "precond", .. }), "{unfit}: {error}");
        let text = error.to_string();
        assert!(text.contains(&format!("has `{part}")) && text.contains(why), "{unfit}: {text}");
        assert!(text.contains("use the method fgmres"), "{unfit}: {text}");
    }
}

/// No word of another program hides a name of ours, and each leads to a name that exists.
#[test]
fn no_word_of_others_is_one_of_ours() {
    let precond = "auto none jacobi block-jacobi ildu stage ras amg coarse lu split cpr aux vanka"
        .split(' ')
        .collect::<Vec<_>>();
    let method: Vec<&str> = crate::method::MethodName::ALL.iter().map(|m| m.name()).collect();
    for (what, words) in crate::names::ELSEWHERE {
        let ours: Vec<&str> = match what {
            "method" => method.clone(),
            "preconditioner" => precond.clone(),
            "device" => vec!["auto", "cpu", "cuda"],
            "precision" => vec!["f64", "f32"],
            _ => TABLE.iter().map(|option| option.name).collect(),
        };
        let mut seen = Vec::new();
        for (theirs, to) in words {
            assert!(ours.contains(to), "{what} {to}");
            for name in *theirs {
                assert!(
                    !ours.iter().any(|ours| crate::names::plain(ours) == crate::names::plain(name)),
                    "{what} {name} is ours"
                );
                assert!(!seen.contains(&crate::names::plain(name)), "{what} {name} stands there twice");
                seen.push(crate::names::plain(name));
                assert_eq!(crate::names::meant(what, name, &ours), Some(*to));
            }
        }
    }
}

#[test]
fn varying_preconditioners_take_a_flexible_method() {
    let settled = |text: &str| text.parse::<Options>().unwrap().settled();
    let part = "split(u: cg(amg), p: jacobi)";
    assert_eq!(settled(&format!("restart=30 precond={part}")).unwrap().method, Some(MethodName::Fgmres));
    assert_eq!(settled("restart=30 precond=jacobi").unwrap().method, Some(MethodName::Gmres));
    for method in ["gmres", "bicgstab"] {
        let error = settled(&format!("method={method} precond={part}")).unwrap_err().to_string();
        assert!(error.contains("`cg(amg)`, which varies") && error.contains("fgmres"), "{error}");
    }
}
