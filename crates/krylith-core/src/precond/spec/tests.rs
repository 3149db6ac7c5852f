use super::*;

#[test]
fn names_are_known_or_refused_with_a_list() {
    assert_eq!("jacobi:block=1".parse::<PrecondSpec>().unwrap(), PrecondSpec::Jacobi { block: Some(1) });
    assert_eq!("jacobi".parse::<PrecondSpec>().unwrap(), PrecondSpec::Jacobi { block: None });
    assert_eq!("ildu0".parse::<PrecondSpec>().unwrap(), PrecondSpec::Ildu(IlduSpec::default()));
    let full = IlduSpec { fill: 2, rows: Some(100), cut: SubdomainCut::TwoLevel, shift: Some(1e-3) };
    assert_eq!(
        "ildu0:fill=2,rows=100,cut=two-level,shift=1e-3".parse::<PrecondSpec>().unwrap(),
        PrecondSpec::Ildu(full)
    );
    let (jacobi, ildu0) = (|| PrecondSpec::Jacobi { block: None }, || PrecondSpec::Ildu(IlduSpec::default()));
    let sum = |a, b| PrecondSpec::Sum(Box::new([a, b]));
    let then = |a, b| PrecondSpec::Multiplicative(Box::new([a, b]));
    assert_eq!("jacobi+ildu0".parse::<PrecondSpec>().unwrap(), sum(jacobi(), ildu0()));
    assert_eq!(" jacobi then  ildu0".parse::<PrecondSpec>().unwrap(), then(jacobi(), ildu0()));
    let nested = then(then(jacobi(), sum(ildu0(), jacobi())), ildu0());
    assert_eq!("jacobi then ildu0 + jacobi then ildu0".parse::<PrecondSpec>().unwrap(), nested);
    let shifted = |shift| PrecondSpec::Stage(IlduSpec { shift: Some(shift), ..IlduSpec::default() });
    assert_eq!("stage:shift=1e+3+jacobi".parse::<PrecondSpec>().unwrap(), sum(shifted(1000.0), jacobi()));
    assert!("jacobi + (ildu0)".parse::<PrecondSpec>().is_err());
    for text in [
        "jacobi:block=2",
        "block-jacobi",
        "block-jacobi:tile=whole",
        "block-jacobi:tile=16x8x4,factor=ilu0",
        "ildu",
        "ildu:fill=2,rows=100,cut=two-level,shift=1e-3",
        "auto",
        "none",
        "lu:most=100",
        "lu:over=one",
        "lu:over=gpus",
        "lu:most=100,over=mumps",
        "lu:on=device",
        "lu:most=100,over=one,on=host",
        "stage:fill=1",
        "jacobi then ildu+stage then jacobi",
        "symmetric(ildu:rows=100 then coarse)",
        "symmetric(jacobi+ildu then symmetric(jacobi then coarse:strength=0.5))+jacobi then ras",
    ] {
        assert_eq!(text.parse::<PrecondSpec>().unwrap().to_string(), text);
    }
    let three: PrecondSpec = "symmetric( jacobi then ildu  then amg )".parse().unwrap();
    assert_eq!(three.to_string(), "symmetric(jacobi then symmetric(ildu then amg))");
    assert!(three.keeps_symmetry() && three.multiplies() && three.one_way().is_none());
    let sum: PrecondSpec = "jacobi+ildu then jacobi + symmetric(jacobi then ildu)".parse().unwrap();
    assert!(!sum.keeps_symmetry() && sum.one_way().is_some());
    let deep = "symmetric(".repeat(200_000);
    assert!(deep.parse::<PrecondSpec>().unwrap_err().to_string().contains("200001 parts"));
    let many = "jacobi+".repeat(200_000) + "jacobi";
    let error = many.parse::<PrecondSpec>().unwrap_err().to_string();
    assert!(error.contains("200001 parts") && error.len() < 100, "{error}");
    for (text, words) in [
        ("jacobi+", "a part of a composed preconditioner is missing"),
        ("jacobi then none", "`none` cannot be a part"),
        ("auto+jacobi", "`auto` cannot be a part"),
        ("symmetric(jacobi)", "symmetric(jacobi): expected parts one after the other"),
        ("symmetric(jacobi then )", "a part of a composed preconditioner is missing"),
        ("symmetric(jacobi then auto)", "`auto` cannot be a part"),
        ("symmetric(ras then coarse)", "symmetric(ras then coarse): ras may be unsymmetric"),
        ("symmetric(jacobi then ildu:shift=1e-3)", "ildu:shift=1e-3 may be unsymmetric"),
        ("symmetric(jacobi then ildu", "a `(` without its `)`"),
        ("jacobi then ildu)", "a `)` without its `(`"),
        ("symmetric(jacobi then ildu)+symmetric)(", "a `)` without its `(`"),
        ("symmetric then jacobi", "unknown preconditioner `symmetric`"),
        ("jacobi then ilu", "unknown preconditioner `ilu`"),
        ("fieldsplit", "write split(u: P, p: Q; schur=upper, S=NAME)"),
        ("SIMPLE", "split(u: P, p: Q; schur=simple, S=selfp)"),
        ("ams", "write aux(G: amg) with a discrete gradient G"),
        ("minres", "minres is a method: write method=minres"),
        ("stage:b=1", "unknown key of stage `b`"),
        ("ilu", "the known ones are auto, none, jacobi"),
        ("ilu0", "ildu:cut=whole"),
        ("jacobi:overlap=2", "unknown key of jacobi `overlap`; the known ones are block"),
        ("jacobi:block", "not key=value"),
        ("block-jacobi:tile=3x4", "block-jacobi:tile=3x4: expected whole, slab, or cells"),
        ("block-jacobi:tile=3x0x4", "expected whole, slab, or cells"),
        ("block-jacobi:tile=3x4x5x6", "expected whole, slab, or cells"),
        ("block-jacobi:factor=ic1", "unknown factor `ic1`; the known ones are ic0, ilu0"),
        ("block-jacobi:rows=3", "unknown key of block-jacobi `rows`; the known ones are tile, factor"),
        ("jacobi:block=9", "from 1 to 8"),
        ("jacobi:block=1,block=2", "twice"),
        ("none:block=1", "no parameters"),
        ("lu:fill=1", "unknown key of lu `fill`; the known ones are most, over"),
        ("ildu0:block=1", "unknown key of ildu0 `block`; the known ones are fill, rows, cut, shift"),
        ("ildu0:rows=0", "ildu0:rows=0: expected a whole number from 1"),
        ("ildu0:shift=-1", "expected a positive number"),
        ("ildu0:cut=boxes", "unknown cut `boxes`; the known ones are auto, whole, runs, geometric"),
        ("", "unknown preconditioner"),
    ] {
        let error = text.parse::<PrecondSpec>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn small_systems_stand_as_one_where_nothing_bounds_a_subdomain() {
    let rows = |spec: IlduSpec, order, nodes, most| spec.as_one(order, nodes, most).most_rows(order);
    let (open, given) = (IlduSpec::default(), IlduSpec { rows: Some(100), ..IlduSpec::default() });
    assert_eq!(rows(open, 1, 2205, usize::MAX), 2205);
    assert_eq!(rows(open, 1, AS_ONE, usize::MAX), AS_ONE);
    assert_eq!(rows(open, 1, AS_ONE + 1, usize::MAX), 2048);
    assert_eq!(rows(open, 8, AS_ONE / 8, usize::MAX), AS_ONE / 8);
    assert_eq!(rows(open, 1, 500, usize::MAX), 2048);
    assert_eq!(rows(open, 1, 2205, 6000), 2048, "a GPU");
    assert_eq!(rows(given, 1, 2205, usize::MAX), 100);
}

#[test]
fn listed_names_and_keys_are_those_that_are_read() {
    let names: Vec<&str> = PrecondSpec::names().collect();
    assert!(names.len() > 10 && names.contains(&"chebyshev"), "{names:?}");
    for name in names {
        // Compositions need their parts in parentheses.
        let text = match name {
            "split" => "split(u: jacobi, p: jacobi)".into(),
            "cpr" | "aux" => format!("{name}(p: jacobi)"),
            "cg" | "chebyshev" => format!("{name}(jacobi)"),
            simple => simple.to_string(),
        };
        let read = text.parse::<PrecondSpec>().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(read.to_string().starts_with(name), "{text}: {read}");
        for (key, takes) in PrecondSpec::keys(name) {
            let text = if takes.is_empty() { format!("{name}:{key}") } else { format!("{name}:{key}=?") };
            let error = text.parse::<PrecondSpec>().map_or_else(|e| e.to_string(), |_| String::new());
            assert!(!error.contains("unknown key"), "{text}: {error}");
        }
    }
    assert_eq!(PrecondSpec::keys("stage"), PrecondSpec::keys("ildu"));
    assert!(PrecondSpec::keys("none").is_empty() && PrecondSpec::keys("split").is_empty());
}
