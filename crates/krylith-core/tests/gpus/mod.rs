//! The conformance tests among the GPUs of one machine; `cuda.rs` runs them.

pub mod stress;

use crate::conformance::lender::Application;
use crate::conformance::memory::Lender;
use crate::{common, conformance};
use krylith_core::comm::{Communicator, Team, agree};
use krylith_core::device::cuda::{Cuda, Device, Fabric, Transport, devices};
use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::space::Space;
use krylith_core::{Precision, Problem, Solver, Stop};
use std::sync::Arc;

/// All GPUs of this machine, opened once.
pub fn all_gpus() -> &'static [Arc<Device>] {
    static ALL: std::sync::OnceLock<Vec<Arc<Device>>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| (0..devices().unwrap().len()).map(|i| Device::open(i).unwrap()).collect())
}

/// Numbers of ranks that this machine has GPUs for.
pub fn gpu_counts() -> Vec<usize> {
    [1, 2, 3, 4, 8].into_iter().filter(|&p| p <= all_gpus().len()).collect()
}

/// A rank's share on the GPU of its number.
pub fn share(
    transport: Transport,
) -> impl Fn(&Arc<dyn Communicator>, usize) -> krylith_core::Result<Cuda> + Sync {
    move |comm, len| {
        let fabric = Fabric::new(&all_gpus()[comm.rank()], comm, transport)?;
        agree(&**comm, Cuda::distributed(&fabric, len))
    }
}

/// All counts, or the largest alone where joining takes a second each time.
pub fn counts_for(transport: Transport) -> Vec<usize> {
    let mut counts = gpu_counts();
    if transport == Transport::Nccl {
        counts.drain(..counts.len() - 1);
    }
    counts
}

/// Whole solves on the first GPU, and on the first two where there are two.
pub fn on_gpus(check: fn(&str)) {
    check("cuda:0");
    if devices().is_ok_and(|all| all.len() > 1) {
        check("cuda:0,1");
    }
}

pub fn passes_of_ranks() {
    let transport = Transport::Auto;
    conformance::passes::passes_of_ranks(&counts_for(transport), &share(transport));
}

pub fn tiles_of_ranks() {
    let alone = |n: usize| Cuda::new(&all_gpus()[0], n).unwrap();
    for transport in [Transport::Auto, Transport::Nccl] {
        conformance::block_tiles::tiles_of_ranks(&counts_for(transport), &alone, &share(transport));
        if counts_for(transport).contains(&4) {
            conformance::block_tiles::tiles_of_boxes_are_those_by_hand(&share(transport));
        }
    }
}

pub fn schwarz_of_ranks() {
    let alone = |n: usize| Cuda::new(&all_gpus()[0], n).unwrap();
    for transport in [Transport::Auto, Transport::Nccl] {
        conformance::schwarz::schwarz_of_ranks(&counts_for(transport), &alone, &share(transport));
    }
}

/// The hierarchy of all GPUs.
pub fn levels_of_ranks() {
    let alone = |n: usize| Cuda::new(&all_gpus()[0], n).unwrap();
    for transport in [Transport::Auto, Transport::Nccl] {
        let counts = counts_for(transport);
        conformance::ranks_levels::ranks_share_levels(&counts, &alone, &share(transport));
    }
}

pub fn a_wait_for_a_gpu_ends() {
    conformance::lender::a_wait_for_a_gpu_ends("a_wait_for_a_gpu_ends");
}

pub fn air_of_ranks() {
    let alone = |n: usize| Cuda::new(&all_gpus()[0], n).unwrap();
    conformance::air::ranks_share_air(&counts_for(Transport::Auto), &alone, &share(Transport::Auto));
}

pub fn levels_of_blocks_of_ranks() {
    let alone = |n: usize| Cuda::new(&all_gpus()[0], n).unwrap();
    let counts = counts_for(Transport::Auto);
    conformance::ranks_levels::ranks_share_levels_of_blocks(&counts, &alone, &share(Transport::Auto));
    conformance::near_null_ranks::ranks_share_near_null_levels(&counts, &alone, &share(Transport::Auto));
}

pub fn a_gpu_that_fails_ends_all() {
    conformance::ranks_levels::a_rank_that_fails_ends_all(
        &counts_for(Transport::Auto),
        &share(Transport::Auto),
    );
}

/// Whole vectors from those of all GPUs.
pub fn gpus_gather_vectors() {
    for transport in [Transport::Auto, Transport::Nccl] {
        conformance::gathered::ranks_gather_vectors(&counts_for(transport), &share(transport));
    }
}

pub fn gpus_solve_as_one(transport: Transport) {
    conformance::residual::residuals_of_ranks_are_rounded_once(&counts_for(transport), &share(transport));
    conformance::distributed::many_ranks_solve_as_one(&counts_for(transport), &share(transport));
    conformance::distributed::cg_over_ranks_is_cg(&counts_for(transport), &share(transport));
    conformance::distributed::minres_over_ranks_is_minres(&counts_for(transport), &share(transport));
}

pub fn gpus_share_diagonals(transport: Transport) {
    conformance::dia::ranks_share_diagonals(&counts_for(transport), &share(transport));
}

pub fn gpus_share_scalar_rows(transport: Transport) {
    conformance::csr::scalar_rows_of_ranks(&counts_for(transport), &share(transport));
}

/// Whole vectors on the GPU of a rank's number.
fn whole(comm: &Arc<dyn Communicator>, len: usize) -> krylith_core::Result<Cuda> {
    Cuda::new(&all_gpus()[comm.rank()], len)
}

pub fn products_of_whole_vectors() {
    conformance::replicated::products_of_whole_vectors(&gpu_counts(), &whole);
    conformance::replicated::the_fastest_of_the_modes(&gpu_counts(), &whole);
    conformance::replicated::other_systems_are_refused::<Cuda>(all_gpus().len(), &whole);
    if all_gpus().len() > 1 {
        conformance::replicated::a_rank_that_fails_ends_the_others::<Cuda>(all_gpus().len(), &whole);
    }
}

pub fn cg_of_whole_vectors() {
    conformance::replicated::cg_of_whole_vectors(&gpu_counts(), &whole, &share(Transport::Peers));
}

/// Solves of two GPUs with whole vectors, in every mode, as with halos: scalar rows and blocks, also with new
/// values.
pub fn solves_with_whole_vectors() {
    if all_gpus().len() < 2 {
        eprintln!("skipped: there is one GPU");
        return;
    }
    for (block, method) in [(1, "cg"), (3, "cg"), (1, "gmres"), (2, "bicgstab")] {
        let a = conformance::method::symmetric(&mut common::Random(220), block, 3000, 1.0);
        let n = a.block() * a.block_rows();
        let b = common::Random(221).numbers(n);
        let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
        let solve = |share: &str| {
            let text = format!("device=cuda:0,1 precond=jacobi rtol=1e-10 method={method} share={share}");
            let mut solver = Solver::new(&a, &text.parse().unwrap()).unwrap();
            let mut x = [vec![0.0; n], vec![0.0; n]];
            for (values, x) in [a.values(), &doubled].into_iter().zip(&mut x) {
                solver.update_values(values).unwrap();
                let solution = solver.solve(&b, x.as_mut_slice()).unwrap();
                assert!(solution.converged(), "{text}: {}", solution.outcome());
                let name = solution.share.as_deref().unwrap_or_default();
                assert!(share == "auto" || name.starts_with(share), "{text}: {name}");
            }
            x
        };
        let [once, twice] = solve("halo");
        for share in ["nz", "2nz", "nz:8", "lra", "lra+rc", "lra+rc:0.3/0.2", "fused", "alone", "auto"] {
            let x = solve(share);
            for (x, expected) in x.iter().zip([&once, &twice]) {
                let away = common::distance(x, expected);
                assert!(away <= 1e-7, "{method}, blocks of {block}, share={share}: x differs by {away:e}");
            }
        }
    }
}

pub fn cbcg_of_ranks() {
    for transport in [Transport::Auto, Transport::Nccl] {
        conformance::cbcg::cbcg_of_ranks(&counts_for(transport), &share(transport));
    }
}

pub fn updates_reach_all_gpus() {
    for transport in [Transport::Auto, Transport::Nccl] {
        conformance::distributed::updates_reach_all_ranks(&counts_for(transport), &share(transport));
    }
}

/// Each GPU cuts out its own contiguous rows, from the host or from the memory of either GPU. The solution is
/// that of one GPU, in as many iterations if the preconditioner is the same, also with new values.
pub fn runs_are_cut_on_the_gpus() {
    if all_gpus().len() < 2 {
        eprintln!("skipped: there is one GPU");
        return;
    }
    // A lower neighbour in x, y and z comes before the run's own rows, an upper one behind them.
    let stencil = |[nx, ny, nz]: [usize; 3], block: usize, seed: u64| -> Bsr {
        let n = nx * ny * nz;
        let (mut row_ptr, mut col) = (vec![0], Vec::new());
        for i in 0..n {
            let (x, y, z) = (i % nx, i / nx % ny, i / (nx * ny));
            let near = [(z > 0, nx * ny), (y > 0, nx), (x > 0, 1)];
            col.extend(near.iter().filter(|(is, _)| *is).map(|(_, by)| (i - by) as u32));
            col.push(i as u32);
            let far = [(x + 1 < nx, 1), (y + 1 < ny, nx), (z + 1 < nz, nx * ny)];
            col.extend(far.iter().filter(|(is, _)| *is).map(|(_, by)| (i + by) as u32));
            row_ptr.push(col.len());
        }
        let mut values = common::Random(seed).numbers(col.len() * block * block);
        for i in 0..n {
            let diagonal = (row_ptr[i]..row_ptr[i + 1]).find(|&p| col[p] as usize == i).unwrap();
            (0..block).for_each(|c| values[(diagonal * block + c) * block + c] = 8.0 * block as f64);
        }
        Bsr::new(block, n, n, row_ptr, col, values).unwrap()
    };
    for (grid, block, precond, partition) in [
        ([8, 8, 32], 1, "ildu:rows=64", "auto"),
        ([5, 3, 40], 3, "ildu:rows=60", "auto"),
        ([7, 6, 33], 2, "jacobi", "auto"),
        ([40, 1, 1], 4, "none", "auto"),
        ([3, 3, 1], 1, "ildu:rows=4", "auto"), // boxes cannot be shared evenly: the host cuts
        ([8, 8, 32], 1, "ildu:rows=64", "boxes:2x1x1"), // the host cuts boxes, with whole subdomains
        ([7, 6, 33], 2, "jacobi", "boxes:1x2x1"),
        ([5, 3, 40], 3, "none", "boxes"),
    ] {
        let (a, new) = (stencil(grid, block, 5), stencil(grid, block, 6));
        let rhs = common::Random(7).numbers(a.rows());
        let solve = |a: &Bsr, new: &[Numbers], device: &str| {
            // One GPU has no boxes.
            let partition = if device.contains(',') { partition } else { "auto" };
            let options = format!(
                "device={device} precond={precond} partition={partition} method=bicgstab rtol=1e-10 \
                 equilibrate=true"
            );
            let problem = Problem::bsr(a).unwrap().with_grid(grid).unwrap();
            let mut solver = Solver::new(&problem, &options.parse().unwrap()).unwrap();
            let mut all = Vec::new();
            for update in 0..=new.len() {
                if update > 0 {
                    solver.update_values(new[update - 1]).unwrap();
                }
                let mut x = vec![0.0; rhs.len()];
                let solution = solver.solve(&rhs, &mut x).unwrap();
                assert!(solution.converged(), "{grid:?} {precond} on {device}: {:?}", solution.outcome());
                all.push((x, solution.history.iterations, solution.device.reason.clone()));
            }
            all
        };
        let expected = solve(&a, &[Numbers::from(new.values())], "cuda:0");
        for source in [None, Some(0), Some(1)] {
            let application = Application::new(source.unwrap_or(0), false);
            let (mut old, mut fresh) =
                (application.lender(a.stored(), true), application.lender(a.stored(), true));
            old.fill(a.values());
            fresh.fill(new.values());
            let matrix;
            let (matrix, new) = match source {
                None => (&a, Numbers::from(new.values())),
                Some(_) => {
                    // The pattern goes to the GPU with the first values that lie there.
                    let mut on_gpu = a.clone();
                    on_gpu.update_values(old.lend()).unwrap();
                    matrix = on_gpu;
                    (&matrix, fresh.lend())
                }
            };
            let found = solve(matrix, &[new, new], "cuda:0,1");
            let even = precond != "ildu:rows=4" && partition == "auto";
            assert_eq!(found[0].2.contains("cut on the devices"), even, "{grid:?}: {}", found[0].2);
            for ((x, iterations, _), (y, wanted, _)) in
                found.iter().zip([&expected[0], &expected[1], &expected[1]])
            {
                let differ = x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(differ < 1e-8, "{grid:?} {precond} from {source:?}: x differs by {differ:e}");
                assert!(
                    iterations.abs_diff(*wanted) <= 1,
                    "{grid:?} {precond}: {iterations}, not {wanted} iterations"
                );
            }
        }
    }
}

/// 1,000 solves on all GPUs, and nothing is allocated after the second.
pub fn solves_on_many_gpus_leave_memory_flat() {
    let k = conformance::distributed::grid(4, 2, 8);
    let rhs = common::Random(31).numbers(k.rows());
    let terms = Terms::kronecker(&k);
    for &ranks in &gpu_counts() {
        let (_, partition) = conformance::distributed::partitions(terms.block_rows(), ranks).remove(0);
        let parts = krylith_core::partition::split(&terms, &partition).unwrap();
        let work = |comm: Arc<dyn Communicator>| {
            let part = &parts[comm.rank()];
            let own: Vec<f64> =
                part.rows.iter().flat_map(|&i| &rhs[i as usize * 8..][..8]).copied().collect();
            let space = share(Transport::Auto)(&comm, own.len())?;
            let a = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
            let (mut b, mut x) = (space.vector()?, space.vector()?);
            space.write(&own, &mut b)?;
            let mut gmres = Gmres::new(&space, GmresOptions::default())?;
            let mut before = (0, 0);
            for solve in 0..1000 {
                space.write(&vec![0.0; own.len()], &mut x)?;
                let stop = Stop { rtol: 1e-6, ..Stop::default() };
                let outcome = gmres.solve(&space, &a, None, &b, &mut x, &stop, &mut ())?.outcome;
                assert_eq!(outcome, krylith_core::Outcome::Converged);
                let now = (space.device().allocations(), space.device().bytes_held());
                if solve == 1 {
                    before = now;
                }
                assert!(
                    solve < 2 || now == before,
                    "solve {solve} on {ranks} GPUs: {before:?} became {now:?}"
                );
            }
            Ok(())
        };
        Team::run(ranks, |comm| work(comm)).unwrap();
    }
}

/// A rank that stops taking part: the others' kernels give up, and the error names it.
pub fn a_gpu_that_fails_ends_the_others() {
    let ranks = all_gpus().len();
    if ranks < 2 {
        return;
    }
    let k = conformance::distributed::grid(2, 1, 6);
    let terms = Terms::kronecker(&k);
    let (_, partition) = conformance::distributed::partitions(terms.block_rows(), ranks).remove(0);
    let parts = krylith_core::partition::split(&terms, &partition).unwrap();
    for transport in [Transport::Peers, Transport::Nccl] {
        let begin = std::time::Instant::now();
        let work = |comm: Arc<dyn Communicator>| {
            let part = &parts[comm.rank()];
            let space = share(transport)(&comm, part.rows.len() * 2)?;
            let a = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
            let (x, mut y) = (space.vector()?, space.vector()?);
            for step in 0..100 {
                if comm.rank() == 1 && step == 50 {
                    return Err(krylith_core::Error::invalid("a fault of its own"));
                }
                a.apply(&space, &x, &mut y)?;
                space.wait()?;
            }
            Ok(())
        };
        let e = Team::run(ranks, |comm| work(comm)).unwrap_err().to_string();
        assert!(e.contains("a fault of its own"), "{e}");
        assert!(begin.elapsed().as_secs() < 30, "{transport:?}: {:?}", begin.elapsed());
    }
}
