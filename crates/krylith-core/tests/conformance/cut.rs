//! Subdomains that a GPU cuts by a matrix's graph: those of the host.

use crate::common::{Random, pattern, random_bsr};
use krylith_core::device::cuda::{Cuda, Device};
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::partition::{SubdomainCut, Subdomains};
use std::sync::Arc;
use std::time::Instant;

/// Steps to half of the neighbours of a grid's point: on the axes, and those that tetrahedra add.
const STEPS: [[usize; 3]; 7] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]];

/// The pattern of a grid of points whose neighbours are `steps` away, numbered in order or at random.
fn grid(edge: usize, steps: &[[usize; 3]], shuffled: bool) -> Bsr {
    let n = edge.pow(3);
    let (mut name, mut rng) = ((0..n as u32).collect::<Vec<_>>(), Random(7));
    for i in (1..n).rev().filter(|_| shuffled) {
        let to = ((rng.number() + 1.0) / 2.0 * i as f64) as usize;
        name.swap(i, to.min(i));
    }
    let mut rows: Vec<Vec<u32>> = (0..n as u32).map(|i| vec![i]).collect();
    for i in 0..n {
        let at = [i % edge, i / edge % edge, i / (edge * edge)];
        for step in steps {
            let to: [usize; 3] = std::array::from_fn(|d| at[d] + step[d]);
            if to.iter().all(|&x| x < edge) {
                let (a, b) = (name[i], name[to[0] + edge * (to[1] + edge * to[2])]);
                rows[a as usize].push(b);
                rows[b as usize].push(a);
            }
        }
    }
    pattern(rows, n)
}

/// Meshes and grids, numbered in order and at random, with parts that several levels lie between.
pub fn cuts_are_those_of_the_host(device: &Arc<Device>) {
    for (what, edge, steps, shuffled) in [
        ("a mesh", 32, &STEPS[..], false),
        ("a shuffled mesh", 32, &STEPS[..], true),
        ("a grid", 33, &STEPS[..3], false),
        ("a shuffled grid", 33, &STEPS[..3], true),
    ] {
        let a = grid(edge, steps, shuffled);
        let terms = Terms::bsr(&a);
        let space = Cuda::new(device, a.rows()).unwrap();
        for rows in [100, 128, 512, 1500] {
            let cut = space.subdomains(&terms, rows).unwrap();
            let cut = cut.unwrap_or_else(|| panic!("{what} in {rows}: left to the host"));
            let (host, _) = Subdomains::cut(&terms, None, SubdomainCut::Multilevel, rows).unwrap();
            assert_eq!(cut.count(), host.count(), "{what} in {rows}");
            let differs = (0..host.count()).filter(|&p| cut.rows(p) != host.rows(p)).count();
            assert_eq!(differs, 0, "{what} in {rows}: subdomains differ of {}", host.count());
            let again = space.subdomains(&terms, rows).unwrap();
            assert!(again == Some(cut), "{what} in {rows}: a second cut differs");
        }
    }
}

/// Other patterns are left to the host, and said to be.
pub fn other_cuts_are_left_to_the_host(device: &Arc<Device>) {
    let left = |a: &Bsr, rows: usize, what: &str| {
        let space = Cuda::new(device, a.rows()).unwrap();
        assert!(space.subdomains(&Terms::bsr(a), rows).unwrap().is_none(), "{what}");
    };
    let mut rng = Random(3);
    left(&random_bsr(&mut rng, 2, 3000, 3000, 5, true), 512, "a pattern that is not symmetric");
    let mut star: Vec<Vec<u32>> = (0..3000).map(|i| vec![0, i]).collect();
    star[0] = (0..3000).collect();
    left(&pattern(star, 3000), 512, "a long row");
    left(&pattern((0..3000).map(|i| vec![i]).collect(), 3000), 512, "rows that are coupled to none");
    let mesh = grid(12, &STEPS, true);
    left(&mesh, 4, "subdomains of 4 rows");
    left(&mesh, 2000, "a system that is no larger than a subdomain");
    let space = Cuda::new(device, mesh.rows()).unwrap();
    let error = space.subdomains(&Terms::bsr(&mesh), 0).unwrap_err();
    assert!(error.to_string().contains("at least 1"), "{error}");
}

/// Seconds of a cut of two million rows in a random order, on the host and here.
pub fn seconds_of_a_cut(device: &Arc<Device>) {
    let a = grid(126, &STEPS, true);
    let terms = Terms::bsr(&a);
    let space = Cuda::new(device, a.rows()).unwrap();
    for rows in [512, 128] {
        let start = Instant::now();
        let (host, _) = Subdomains::cut(&terms, None, SubdomainCut::Multilevel, rows).unwrap();
        println!("{rows} rows: host {:.3} s", start.elapsed().as_secs_f64());
        for _ in 0..3 {
            let start = Instant::now();
            let cut = space.subdomains(&terms, rows).unwrap();
            println!("{rows} rows: GPU with the upload {:.3} s", start.elapsed().as_secs_f64());
            assert!(cut.as_ref() == Some(&host), "{rows} rows: another cut");
        }
    }
}
