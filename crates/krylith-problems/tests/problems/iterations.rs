//! Iterations that the generated duct takes: GMRES(30) with right point-block Jacobi, to 1e-6 from x = 0.
//!
//! `cargo test -p krylith-problems --test problems iterations -- --ignored --nocapture`. TARGETS: 121–141
//! iterations on 8³ nodes, 233–329 on 12³, 300–722 on 16³ (ν = 0.01 and 1).

use krylith_core::matrix::{Bsr, Csr};
use krylith_problems::{Generated, SystemKind, generate};

/// Inverses of the diagonal blocks, by Gauss–Jordan with row exchanges.
fn inverse_diagonal(a: &Bsr) -> Vec<f64> {
    let b = a.block();
    let mut all = vec![0.0; a.block_rows() * b * b];
    for (i, inverse) in all.chunks_exact_mut(b * b).enumerate() {
        let mut d = a.diagonal_block(i).unwrap().to_vec();
        (0..b).for_each(|r| inverse[r * b + r] = 1.0);
        for p in 0..b {
            let top = (p..b).max_by(|&r, &q| d[r * b + p].abs().total_cmp(&d[q * b + p].abs())).unwrap();
            for c in 0..b {
                d.swap(p * b + c, top * b + c);
                inverse.swap(p * b + c, top * b + c);
            }
            let pivot = d[p * b + p];
            assert!(pivot != 0.0, "block {i} is singular");
            for c in 0..b {
                d[p * b + c] /= pivot;
                inverse[p * b + c] /= pivot;
            }
            for r in (0..b).filter(|&r| r != p) {
                let factor = d[r * b + p];
                for c in 0..b {
                    d[r * b + c] -= factor * d[p * b + c];
                    inverse[r * b + c] -= factor * inverse[p * b + c];
                }
            }
        }
    }
    all
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn multiply(a: &Csr, x: &[f64]) -> Vec<f64> {
    (0..a.rows())
        .map(|i| {
            let (col, values) = a.row(i);
            col.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum()
        })
        .collect()
}

/// Returns the iterations of GMRES(30) to a residual of 1e-6·‖rhs‖, at most `most`, and the true relative
/// residual.
fn gmres(generated: &Generated, most: usize) -> (usize, f64) {
    const M: usize = 30;
    let SystemKind::Kronecker(system) = &generated.system else { panic!("stages expected") };
    let assembled = system.assemble();
    let (a, bs, inverse) = (assembled.to_csr(), assembled.block(), inverse_diagonal(&assembled));
    let precondition = |x: &[f64]| -> Vec<f64> {
        let block = |i: usize, r: usize| dot(&inverse[(i * bs + r) * bs..][..bs], &x[i * bs..][..bs]);
        (0..x.len()).map(|p| block(p / bs, p % bs)).collect()
    };
    let rhs = &generated.rhs;
    let goal = 1e-6 * dot(rhs, rhs).sqrt();
    let (mut x, mut iterations) = (vec![0.0; rhs.len()], 0);
    loop {
        let mut r: Vec<f64> = multiply(&a, &x).iter().zip(rhs).map(|(ax, b)| b - ax).collect();
        let beta = dot(&r, &r).sqrt();
        if beta <= goal || iterations >= most {
            return (iterations, beta * 1e-6 / goal);
        }
        r.iter_mut().for_each(|v| *v /= beta);
        let mut basis = vec![r];
        let mut h: Vec<Vec<f64>> = Vec::new(); // columns, triangular after the rotations
        let mut rotations: Vec<(f64, f64)> = Vec::new();
        let mut g = vec![beta];
        while h.len() < M && iterations < most && g[h.len()].abs() > goal {
            let mut w = multiply(&a, &precondition(&basis[h.len()]));
            let mut column = vec![0.0; basis.len() + 1];
            for _ in 0..2 {
                for (k, v) in basis.iter().enumerate() {
                    let c = dot(v, &w);
                    column[k] += c;
                    w.iter_mut().zip(v).for_each(|(w, v)| *w -= c * v);
                }
            }
            let norm = dot(&w, &w).sqrt();
            w.iter_mut().for_each(|v| *v /= norm);
            column[basis.len()] = norm;
            basis.push(w);
            for (k, &(c, s)) in rotations.iter().enumerate() {
                (column[k], column[k + 1]) =
                    (c * column[k] + s * column[k + 1], c * column[k + 1] - s * column[k]);
            }
            let k = h.len();
            let length = column[k].hypot(column[k + 1]);
            let (c, s) = (column[k] / length, column[k + 1] / length);
            column[k] = length;
            rotations.push((c, s));
            g.push(-s * g[k]);
            g[k] *= c;
            h.push(column);
            iterations += 1;
        }
        let mut y = g[..h.len()].to_vec();
        for k in (0..h.len()).rev() {
            y[k] /= h[k][k];
            for j in 0..k {
                y[j] -= h[k][j] * y[k];
            }
        }
        let mut update = vec![0.0; x.len()];
        for (y, v) in y.iter().zip(&basis) {
            update.iter_mut().zip(v).for_each(|(u, v)| *u += y * v);
        }
        x.iter_mut().zip(precondition(&update)).for_each(|(x, u)| *x += u);
    }
}

#[test]
fn point_block_jacobi_converges_on_a_small_duct() {
    for nu in [0.01, 1.0] {
        let (iterations, residual) = gmres(&generate(&format!("stokes:8x8x8,nu={nu}")).unwrap(), 1000);
        println!("8³, nu {nu}: {iterations} iterations, {residual:.2e}");
        assert!(iterations <= 250 && residual <= 1e-6);
    }
}

#[test]
#[ignore = "long"]
fn iteration_counts() {
    for n in [8, 12, 16, 24] {
        for nu in [0.01, 1.0] {
            let variants = ["", ",scale=1", ",scheme=radau-iia-3", ",scheme=gauss-2"];
            for rest in &variants[..if n < 20 { 4 } else { 1 }] {
                let spec = format!("stokes:{n}x{n}x{n},nu={nu}{rest}");
                let (iterations, residual) = gmres(&generate(&spec).unwrap(), 3000);
                println!("{spec:45} {iterations:5} {residual:.2e}");
                assert!(rest.contains("scale") || residual <= 1e-6);
            }
        }
    }
}

#[test]
#[ignore = "long"]
fn the_size_of_the_paper_takes_seconds() {
    let start = std::time::Instant::now();
    let generated = generate("stokes:53x53x54").unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let SystemKind::Kronecker(system) = &generated.system else { panic!() };
    println!("{}: {} blocks a matrix in {seconds:.2} s", generated.spec, system.m.blocks());
    assert_eq!(system.m.block_rows(), 151_686);
    assert!(seconds < 10.0);
}
