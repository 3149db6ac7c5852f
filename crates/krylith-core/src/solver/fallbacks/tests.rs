use super::rules::{DIRECT, FEW_DIRECT};
use super::*;
use crate::Problem;
use crate::matrix::Bsr;

fn names(options: &str, n: usize) -> Vec<String> {
    let diagonal = vec![1.0; n];
    let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), diagonal).unwrap();
    let options = options.parse::<Options>().unwrap().settled().unwrap();
    let problem = Problem::bsr(&a).unwrap();
    let fallbacks =
        attempts(&problem.part_of_one(), &options, usize::MAX, Seen { spread: 1e9, ..Seen::default() });
    let scaled = |a: &Attempt| options.precond.is_none() && !matches!(a.precond, PrecondSpec::Amg(_));
    assert!(fallbacks.iter().all(|a| a.equilibrate == scaled(a)));
    fallbacks.iter().map(Attempt::name).collect()
}

#[test]
fn what_is_named_stays_and_what_is_open_climbs() {
    const LARGE: usize = 20_000; // more than fit in one subdomain
    let all = names("", LARGE);
    assert_eq!(all[..2], ["ildu:cut=whole with bicgstab", "amg with bicgstab"]);
    // Direct factors come after multigrid here. The attempt that they may be faster than follows them again.
    let direct = usize::from(cfg!(feature = "lu"));
    assert_eq!(
        all.iter().position(|name| *name == format!("{FEW_DIRECT} with bicgstab")),
        (direct > 0).then_some(2)
    );
    assert_eq!(
        all[2 + direct..4 + direct],
        ["ildu:cut=whole with bicgstab", "ildu:cut=whole with gmres(100)"]
    );
    assert_eq!(all.len(), 8 + 2 * direct, "direct factors are the last resort too");
    let all = names("precond=jacobi", LARGE);
    let methods = ["bicgstab", "gmres(100)", "gmres(200)", "gmres(300)"];
    assert_eq!(all, methods.map(|m| format!("jacobi with {m}")));
    // Sweeps without a fixed order give a different preconditioner in each application.
    let restarts = [30, 100, 200, 300].map(|m| format!("ras with fgmres({m})"));
    assert_eq!(names("precond=ras", LARGE), restarts);
    assert_eq!(names("precond=ras:solve=exact", LARGE)[0], "ras:solve=exact with bicgstab");
    assert_eq!(names("precond=ras:deterministic", LARGE)[0], "ras:deterministic with bicgstab");
    assert_eq!(names("precond=ras deterministic=true", LARGE)[0], "ras:deterministic with bicgstab");
    assert_eq!(names("precond=ras method=bicgstab", LARGE), ["ras with bicgstab"]);
    let all = names("method=gmres:restart=7", LARGE);
    assert!(all.len() == 7 + 2 * direct && all.iter().all(|a| a.ends_with("gmres(7)")), "{all:?}");
    assert_eq!(names("method=gmres:restart=7 precond=jacobi", LARGE), ["jacobi with gmres(7)"]);
    assert_eq!(names("method=minres", LARGE), ["jacobi with minres", "none with minres"]);
    assert_eq!(names("method=minres precond=amg", LARGE), ["amg with minres"]);
    // A small system is one subdomain, and no basis is longer than the system.
    let all = names("method=gmres", 20);
    assert_eq!(all[0], "ildu with gmres(20)");
    let direct = all.iter().position(|name| *name == format!("{DIRECT} with gmres(20)"));
    assert_eq!(direct, cfg!(feature = "lu").then_some(1));
    assert!(all[1..4].contains(&"ildu:fill=1,cut=whole with gmres(20)".to_string()), "{all:?}");
}

/// GMRES keeps the preconditioned vectors if a preconditioner in f32 meets a tight tolerance.
#[test]
fn gmres_is_flexible_where_f32_would_cost_a_restart() {
    let last = |options: &str| names(options, 20_000).pop().unwrap();
    for precond in ["ildu", "amg", "ras:deterministic", "split(u: amg, p: jacobi; form=lower)"] {
        let of = |more: &str| last(&format!("precond={precond} {more}"));
        assert_eq!(of("precond_precision=f32 rtol=1e-8"), format!("{precond} with fgmres(300)"));
        assert_eq!(of("precond_precision=f32 rtol=1e-6"), format!("{precond} with gmres(300)"));
        assert_eq!(of("precond_precision=f64 rtol=1e-10"), format!("{precond} with gmres(300)"));
        assert_eq!(of("precond_precision=f32 rtol=1e-10 method=gmres"), format!("{precond} with gmres(300)"));
    }
    assert_eq!(last("precond=jacobi precond_precision=f32 rtol=1e-10"), "jacobi with gmres(300)");
    assert_eq!(
        last("precond=amg:compute=f64 precond_precision=f32 rtol=1e-10"),
        "amg:compute=f64 with gmres(300)"
    );
}

#[test]
fn more_fill_than_what_takes_too_long_is_not_tried() {
    let diagonal = Bsr::new(1, 9, 9, (0..=9).collect(), (0..9).collect(), vec![1.0; 9]).unwrap();
    let options = "method=gmres".parse::<Options>().unwrap().settled().unwrap();
    let problem = Problem::bsr(&diagonal).unwrap();
    let all = attempts(&problem.part_of_one(), &options, usize::MAX, Seen::default());
    let names = |of: &str| -> Vec<String> {
        let k = all.iter().position(|a| a.precond.to_string() == of).unwrap();
        deeper(&all, k).into_iter().map(|k| all[k].precond.to_string()).collect()
    };
    let more = ["ildu:fill=2,cut=whole,shift=1e-6", "ildu:fill=5,cut=whole,shift=1e-3"];
    assert_eq!(names("ildu:fill=1,cut=whole"), more);
    assert!(names("auto").is_empty());
}

#[test]
fn symmetric_systems_begin_with_cg() {
    let a = Bsr::new(1, 3, 3, vec![0, 1, 2, 3], vec![0, 1, 2], vec![1.0; 3]).unwrap();
    let problem = Problem::bsr(&a).unwrap();
    let direct = if cfg!(feature = "lu") { "lu:most=300000000 with bicgstab" } else { "jacobi with cg" };
    for (options, first) in [
        ("", ["ildu with cg", direct]),
        ("precond=jacobi+ildu", ["jacobi+ildu with cg", "jacobi+ildu with bicgstab"]),
        ("precond=jacobi then ildu", ["jacobi then ildu with bicgstab", "jacobi then ildu with gmres(3)"]),
        ("precond=amg", ["amg with cg", "amg with bicgstab"]),
        ("precond=amg:cycle=k", ["amg:cycle=k with cg", "amg:cycle=k with fgmres(3)"]),
        ("precond=ildu:shift=1e-3", ["ildu:shift=1e-3 with bicgstab", "ildu:shift=1e-3 with gmres(3)"]),
    ] {
        let options = options.parse::<Options>().unwrap().settled().unwrap();
        let fallbacks = attempts(
            &problem.part_of_one(),
            &options,
            usize::MAX,
            Seen { symmetric: true, ..Seen::default() },
        );
        assert_eq!([fallbacks[0].name(), fallbacks[1].name()], first);
    }
    // Flexible CG keeps its directions conjugate although cycles vary.
    let form = |options: &str| {
        let options = options.parse::<Options>().unwrap().settled().unwrap();
        attempts(&problem.part_of_one(), &options, usize::MAX, Seen { symmetric: true, ..Seen::default() })[0]
            .method
            .description()
    };
    assert_eq!(form("precond=amg"), "textbook form");
    assert_eq!(form("precond=amg:cycle=k"), "flexible form");
    assert_eq!(form("precond=amg:cycle=k method=cg"), "flexible form");
    assert_eq!(form("precond=amg:cycle=k form=one-reduction"), "one-reduction form");
}

#[test]
fn coarse_levels_come_first_for_many_unknowns_and_second_for_some() {
    let with = |n: usize, block: usize, seen: Seen| {
        let nodes = n / block;
        let values = vec![1.0; n * block];
        let a = Bsr::new(block, nodes, nodes, (0..=nodes).collect(), (0..nodes as u32).collect(), values);
        let (a, options) = (a.unwrap(), Options::new().settled().unwrap());
        let problem = Problem::bsr(&a).unwrap();
        attempts(&problem.part_of_one(), &options, 1 << 10, seen)
    };
    let attempts_of =
        |n, block, symmetric| with(n, block, Seen { symmetric, spread: 1e9, ..Seen::default() });
    let names = |attempts: &[Attempt]| attempts.iter().map(Attempt::name).collect::<Vec<_>>();
    let many = attempts_of(1 << 20, 1, true);
    assert_eq!(names(&many)[..3], ["amg with cg", "ildu with cg", "jacobi with cg"]);
    assert_eq!(many[0].budget, Budget::CYCLES);
    assert_eq!(many[1].budget, Budget::USUAL);
    // Constants are smooth only without scaling.
    assert!(!many[0].equilibrate && many[1].equilibrate);
    let hub = Seen { symmetric: true, longest_row: 2000, ..Seen::default() };
    assert_eq!(names(&with(1 << 20, 1, hub))[..2], ["jacobi with cg", "ildu with cg"]);
    assert_eq!(names(&attempts_of(1 << 18, 4, true))[0], "amg with cg");
    let some = attempts_of(1 << 19, 1, true);
    assert_eq!(names(&some)[..4], ["jacobi with cg", "amg with cg", "ildu with cg", "jacobi with cg"]);
    let budget = [Budget::until(250.0), Budget::CYCLES, Budget::USUAL, Budget::USUAL];
    assert!(some.iter().zip(budget).all(|(attempt, budget)| attempt.budget == budget));
    let nonsymmetric = attempts_of(1 << 20, 2, false);
    assert_eq!(names(&nonsymmetric)[..2], ["ildu with bicgstab", "amg with bicgstab"]);
    assert_eq!(nonsymmetric[0].budget, Budget::until(120.0));
    assert!(names(&attempts_of(1 << 11, 1, true)).iter().all(|name| !name.starts_with("amg")));
}

/// Returns the attempts at a diagonal matrix with these properties.
fn of_diagonal(n: usize, seen: Seen) -> Vec<Attempt> {
    let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
    let (problem, options) = (Problem::bsr(&a).unwrap(), Options::new().settled().unwrap());
    attempts(&problem.part_of_one(), &options, 1 << 10, seen)
}

/// Direct factors come after attempts that cost about as much.
#[test]
#[cfg(feature = "lu")]
fn direct_factors_stand_by_their_cost() {
    let direct = |n: usize, seconds: f64, seen: Seen| {
        let costs = Costs { direct: seconds, incomplete: 0.01, iteration: 1e-3, ..Costs::default() };
        let all = of_diagonal(n, Seen { costs, ..seen });
        let at = all.iter().position(|a| matches!(a.precond, PrecondSpec::Lu(_)));
        (at, all[0].budget)
    };
    let (plain, n) = (Seen::default(), 100_000);
    let (cg, weak) = (Seen { symmetric: true, ..plain }, Seen { weak: 1, ..plain });
    let first: Vec<String> = of_diagonal(n, weak).iter().take(2).map(Attempt::name).collect();
    assert_eq!(first, ["ras with fgmres(30)", "ildu with bicgstab"]);
    assert!(of_diagonal(n, weak).iter().take(2).map(|a| a.matching).eq([false, true]));
    // Incomplete factors and 60 iterations take 0.13 s, or 0.07 s with CG. Matched rows cost more.
    assert_eq!(direct(n, 0.06, plain).0, Some(0));
    assert_eq!(direct(n, 0.12, plain), (Some(1), Budget::of(8, 30.0)), "after a trial");
    assert_eq!(direct(n, 0.08, cg), (Some(1), Budget::until(80.0)));
    assert_eq!(direct(n, 0.06, cg).0, Some(0));
    assert_eq!(direct(n, 0.07, weak).0, Some(0));
    assert_eq!(direct(n, 0.5, weak), (Some(1), Budget::of(8, 125.0)), "after a trial");
    assert_eq!(direct(500, 0.06, cg).0, Some(1), "small systems");
    // Direct factors come before algebraic multigrid, and after it.
    assert_eq!(direct(n, 0.1, cg), (Some(1), Budget::until(100.0)));
    assert_eq!(direct(n, 0.2, plain), (Some(3), Budget::until(120.0)), "after more fill");
    assert_eq!(direct(n, 0.3, plain), (Some(3), Budget::until(120.0)), "after more fill");
    assert_eq!(direct(n, 0.31, plain), (Some(2), Budget::until(120.0)), "too much fill");
    assert_eq!(direct(n, 0.3, cg), (Some(2), Budget::until(250.0)));
    assert_eq!(direct(1 << 19, 0.01, cg).0, Some(11), "the last resort");
    // With strong convection multigrid makes no progress.
    let budget = |seconds: f64| {
        let costs =
            Costs { direct: seconds, incomplete: 0.01, iteration: 1e-3, convective: 0.6, ..Costs::default() };
        let all = of_diagonal(n, Seen { costs, ..plain });
        let before = all.iter().take_while(|a| !matches!(a.precond, PrecondSpec::Lu(_)));
        assert!(before.clone().all(|a| !matches!(a.precond, PrecondSpec::Amg(_))), "{seconds}");
        all[0].budget
    };
    assert_eq!(budget(0.6), Budget::until(300.0), "half of the iterations of CG");
    assert_eq!(budget(9.0), Budget::until(500.0));
    let unknown = of_diagonal(10_000, plain);
    assert_eq!(unknown.iter().position(|a| matches!(a.precond, PrecondSpec::Lu(_))), Some(1));
    // No other set-up is needed if Jacobi converges quickly.
    let dominant = Seen { costs: Costs { others: 0.8, ..Costs::default() }, ..plain };
    assert_eq!(of_diagonal(n, dominant)[0].name(), "jacobi with bicgstab");
}

/// ILU(0) fails for some plane systems that ILU(2) solves; without weak diagonals and a symmetric matrix
/// only.
#[test]
#[cfg(feature = "lu")]
fn more_fill_is_tried_on_plane_meshes() {
    let first = |seen: Seen| {
        let costs = Costs { direct: 0.25, incomplete: 0.01, iteration: 1e-3, ..Costs::default() };
        let all = of_diagonal(100_000, Seen { costs, ..seen });
        all.into_iter().take(2).map(|a| (a.name(), a.budget)).collect::<Vec<_>>()
    };
    let plain = first(Seen::default());
    // The device supports 1,024 rows.
    assert_eq!(plain[0].0, "ildu:rows=1024 with bicgstab");
    assert_eq!(plain[1], ("ildu:fill=2,rows=1024 with bicgstab".into(), Budget::of(8, 62.5)));
    for seen in [Seen { symmetric: true, ..Seen::default() }, Seen { weak: 1, ..Seen::default() }] {
        assert!(first(seen).iter().all(|(name, _)| !name.contains("fill=2")));
    }
}

/// Rows with a weak diagonal keep their places in a trial before direct factors.
#[test]
#[cfg(feature = "lu")]
fn a_trial_takes_rows_in_their_places() {
    let costs = Costs { direct: 0.5, incomplete: 0.01, iteration: 1e-3, ..Costs::default() };
    let all = of_diagonal(100_000, Seen { costs, weak: 1, ..Seen::default() });
    assert_eq!(all[0].name(), "ras:deterministic with bicgstab");
    assert!(!all[0].matching);
}

/// Diffusion starts with Jacobi, or with multigrid on long graphs, and never with direct factors.
#[test]
fn diffusion_needs_no_direct_factors() {
    let first = |n: usize, others: f64, levels: usize| {
        let costs =
            Costs { direct: 1e-3, incomplete: 0.01, iteration: 1e-3, others, levels, ..Costs::default() };
        let all = of_diagonal(n, Seen { symmetric: true, costs, ..Seen::default() });
        all.iter().take(2).map(Attempt::name).collect::<Vec<_>>()
    };
    assert_eq!(first(10_000, 1.0, 189), ["jacobi with cg", "amg with cg"]);
    assert_eq!(first(10_000, 1.0, 190)[0], "amg with cg");
    let hub = Seen { longest_row: 5000, symmetric: true, ..Seen::default() };
    assert_eq!(of_diagonal(1 << 20, hub)[0].name(), "jacobi with cg");
    let direct = |first: Vec<String>| first[0].starts_with("lu");
    assert_eq!(direct(first(10_000, 1.01, 190)), cfg!(feature = "lu"), "not dominant");
    assert_eq!(direct(first(4000, 1.0, 190)), cfg!(feature = "lu"), "too few to be coarsened");
}

/// On a GPU, iterations are cheaper than set-ups, and multigrid is cheaper than direct factors, which are
/// computed on the host.
#[test]
fn a_gpu_begins_with_jacobi() {
    let names = |n: usize, seen: Seen| -> Vec<String> {
        let seen = Seen { costs: Costs { on_gpu: true, ..seen.costs }, ..seen };
        of_diagonal(n, seen).iter().map(Attempt::name).collect()
    };
    let (plain, cg) = (Seen::default(), Seen { symmetric: true, ..Seen::default() });
    let all = names(10_000, plain);
    assert_eq!(all[..2], ["jacobi with bicgstab", "ildu with bicgstab"]);
    assert_eq!(all[2..4], ["jacobi with gmres(30)", "amg with bicgstab"]);
    let direct = all.iter().position(|name| name.starts_with("lu"));
    assert_eq!(direct, cfg!(feature = "lu").then_some(4));
    assert_eq!(names(10_000, cg)[..3], ["jacobi with cg", "amg with cg", "ildu with cg"]);
    assert_eq!(names(1 << 20, cg)[0], "amg with cg");
    assert_eq!(names(1 << 20, plain)[..2], ["amg with bicgstab", "ildu with bicgstab"]);
    let strong = Seen { costs: Costs { convective: 0.9, ..Costs::default() }, ..plain };
    assert_eq!(names(1 << 20, strong)[0], "ildu with bicgstab");
    assert_eq!(names(10_000, Seen { tiles: true, ..cg })[0], format!("{TILES} with cg"));
    assert_eq!(names(10_000, Seen { weak: 1, ..plain })[0], "ras with fgmres(30)");
    // Graphs with hubs begin with Jacobi at any size, and have no coarse levels.
    let hub = names(1 << 20, Seen { longest_row: 5000, ..cg });
    assert_eq!(hub[..2], ["jacobi with cg", "ildu with cg"]);
    assert!(!hub.iter().any(|name| name.starts_with("amg")));
    assert_eq!(names(1 << 20, Seen { longest_row: 5000, ..plain })[0], "jacobi with bicgstab");
}

#[test]
fn an_indefinite_matrix_is_no_more_for_cg() {
    let all = of_diagonal(10_000, Seen { symmetric: true, ..Seen::default() });
    let ends = |fallbacks: &[Attempt], k: usize, reason: Reason| -> Vec<usize> {
        let history = History { reason: Some(reason.text()), ..History::with_capacity(0) };
        that_end_so(fallbacks, k, &history).collect()
    };
    let with_cg: Vec<usize> = (0..all.len()).filter(|&i| all[i].name().ends_with("with cg")).collect();
    assert!(with_cg.len() > 2 && with_cg.len() < all.len(), "{with_cg:?}");
    assert_eq!(ends(&all, 0, Reason::IndefiniteMatrix), with_cg);
    assert_eq!(ends(&all, 0, Reason::IndefinitePreconditioner), [0]);
    // If CG was named, there are no other attempts.
    assert_eq!(ends(&all[..1], 0, Reason::IndefiniteMatrix), [0]);
    let two = [all[with_cg[0]].clone(), all[with_cg[1]].clone()];
    assert_eq!(ends(&two, 1, Reason::IndefiniteMatrix), [1]);
}

#[test]
fn tiles_want_the_stencil_of_the_grid_that_is_there() {
    let (n, fits) = (12, |grid: [usize; 3], a: &Bsr| {
        let problem = Problem { grid: Some(grid), ..Problem::bsr(a).unwrap() };
        tiles_fit(&crate::device::cpu::Cpu::new(12, 1), &problem.part_of_one()).unwrap()
    });
    let diagonal = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
    assert!(fits([3, 2, 2], &diagonal) && fits([12, 1, 1], &diagonal));
    for grid in [[0, 3, 4], [3, 3, 3], [0; 3], [usize::MAX, 2, 2]] {
        assert!(!fits(grid, &diagonal), "{grid:?}");
    }
    let col = (0..n).flat_map(|_| 0..n as u32).collect();
    let full = Bsr::new(1, n, n, (0..=n).map(|i| i * n).collect(), col, vec![1.0; n * n]).unwrap();
    assert!(!fits([3, 2, 2], &full));
}

#[test]
fn histories_are_one_curve() {
    let history = |residuals: Vec<f64>| History {
        iterations: residuals.len() - 1,
        residuals,
        restarts: 1,
        ..History::with_capacity(0)
    };
    let mut all = history(vec![1.0, 0.5, 0.7]);
    join(&mut all, &history(vec![0.6, 0.1]));
    assert_eq!((all.residuals, all.iterations, all.restarts), (vec![1.0, 0.5, 0.6, 0.1], 3, 2));
}
