//! Whole solves: one program on every device.

use crate::common::*;
use krylith_core::Solver;

/// The same program on each device, several GPUs among them, gives the same solutions by every method, also
/// with new values.
pub fn the_same_program_gives_the_same(devices: &[String]) {
    let stages = super::distributed::grid(3, 1, 10);
    let line = super::method::line(700);
    let rhs = Random(71).numbers(stages.rows().max(line.rows()));
    for method in [
        "gmres:restart=20",
        "bicgstab",
        "auto",
        "cg",
        "cg:form=one-reduction",
        "cg:form=flexible",
        "cg:form=pipelined",
    ] {
        for precond in ["jacobi", "ildu:rows=120"] {
            let answers = devices.iter().map(|device| {
                let text = format!("method={method} precond={precond} rtol=1e-11 device={device}");
                let options = text.parse().unwrap();
                let mut answers = Vec::new();
                if method != "gmres:restart=20" {
                    let mut solver = Solver::new(&line, &options).unwrap();
                    for factor in [1.0, 2.5] {
                        let values: Vec<f64> = line.values().iter().map(|v| factor * v).collect();
                        solver.update_values(&values).unwrap();
                        let mut x = vec![0.0; line.rows()];
                        let solution = solver.solve(&rhs[..x.len()], &mut x).unwrap();
                        assert!(solution.converged(), "{text}: {}", solution.history.outcome);
                        answers.push(x);
                    }
                }
                if !method.starts_with("cg") {
                    let mut solver = Solver::new(&stages, &options).unwrap();
                    for tau in [0.5 * stages.tau, stages.tau] {
                        solver.set_tau(tau).unwrap();
                        let mut x = vec![0.0; stages.rows()];
                        let solution = solver.solve(&rhs[..x.len()], &mut x).unwrap();
                        assert!(solution.converged(), "{text}: {}", solution.history.outcome);
                        answers.push(x);
                    }
                }
                answers
            });
            let answers: Vec<_> = answers.collect();
            for gpus in &answers[1..] {
                for (x, expected) in gpus.iter().zip(&answers[0]) {
                    let d = distance(x, expected);
                    assert!(d <= 1e-6, "{method} {precond}: {d:e}");
                }
            }
        }
    }
}

/// Two solvers on the same device or devices, each used by its own thread, 1,000 solves each: neither blocks
/// for ever, and every solution is correct.
pub fn two_solvers_at_once(device: &str) {
    let k = super::distributed::grid(3, 1, 8);
    let rhs = Random(72).numbers(k.rows());
    let solves = |text: String| {
        let mut solver = Solver::new(&k, &text.parse().unwrap()).unwrap();
        let mut x = Vec::new();
        for step in 0..1000 {
            x = vec![0.0; k.rows()];
            assert!(solver.solve(&rhs, &mut x).unwrap().converged(), "{text}, solve {step}");
        }
        let original = solver.problem().original();
        let r = original.norm(&original.residual(&rhs, &x).unwrap()).unwrap();
        assert!(r <= 1e-8 * original.norm(&rhs).unwrap(), "{text}: {r:e}");
    };
    let device = format!("rtol=1e-8 device={device}");
    std::thread::scope(|scope| {
        scope.spawn(|| solves(format!("method=gmres precond=jacobi {device}")));
        scope.spawn(|| solves(format!("method=bicgstab precond=ildu:rows=60 {device}")));
    });
}

/// Solvers on several threads request the same and different kernels at the same time; later ones find them
/// compiled. Each obtains the solution of one CPU thread. Parts of each set-up add up.
pub fn solvers_on_many_threads(device: &str) {
    const CASES: [(usize, &str); 6] = [
        (1, "method=cg precond=jacobi"),
        (1, "method=bicgstab precond=ildu"),
        (2, "method=bicgstab precond=ildu"),
        (3, "method=gmres restart=20 precond=jacobi"),
        (4, "method=bicgstab precond=ildu+jacobi"),
        (4, "method=gmres restart=20 precond=ildu precision=f32"),
    ];
    let one = |(block, text): (usize, &str)| {
        // A chain of nodes whose blocks are well conditioned.
        let n = 700;
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0usize..n {
            for j in i.saturating_sub(1)..=(i + 1).min(n - 1) {
                col.push(j as u32);
                for e in 0..block * block {
                    let diagonal = i == j && e % (block + 1) == 0;
                    values.push(if diagonal { 4.0 } else { -0.3 / (1 + e % block) as f64 });
                }
            }
            row_ptr.push(col.len());
        }
        let a = krylith_core::matrix::Bsr::new(block, n, n, row_ptr, col, values).unwrap();
        let b: Vec<f64> = (0..n * block).map(|i| (i as f64 * 0.7).sin()).collect();
        let solve = |device: &str| {
            let options = format!("{text} rtol=1e-11 device={device}").parse().unwrap();
            let mut solver = krylith_core::Solver::new(&a, &options).unwrap();
            let mut x = vec![0.0; b.len()];
            let solution = solver.solve(&b, &mut x).unwrap();
            assert!(solution.converged(), "{block} {text} {device}: {}", solution.outcome());
            let parts = &solution.setup_parts;
            assert!((parts.total() - solution.setup_seconds).abs() <= 1e-9, "{block} {text} {device}");
            assert!(parts.of(krylith_core::solver::SetupPart::Product) > 0.0, "{block} {text} {device}");
            x
        };
        let (here, cpu) = (solve(device), solve("cpu threads=1"));
        let worst = here.iter().zip(&cpu).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(worst <= 1e-9, "{block} {text}: {worst:e}");
    };
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                CASES.into_iter().cycle().take(12).map(|case| scope.spawn(move || one(case))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
