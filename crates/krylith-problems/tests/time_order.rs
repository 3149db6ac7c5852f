//! Orders in τ on a fixed mesh.

mod common;

use krylith_problems::{StokesDuct, StokesOptions};

#[test]
fn explore() {
    for nu in [0.01, 0.1] {
    let duct = StokesDuct::new(StokesOptions { nodes: [4, 4, 4], nu, ..Default::default() }).unwrap();
    let reference = common::march(&duct, "radau-iia-4", 1.5, 128);
    let r2 = common::march(&duct, "radau-iia-4", 1.5, 64);
    println!("nu {nu} ref {:?} size {:?}", common::difference(&reference, &r2), common::difference(&reference, &vec![0.0; r2.len()]));
    for &name in krylith::matrix::Butcher::names() {
        let mut last = [0.0; 2];
        for count in [2, 4, 8, 16, 32, 64] {
            let e = common::difference(&common::march(&duct, name, 1.5, count), &reference);
            let order: [f64; 2] = std::array::from_fn(|d| (last[d] / e[d]).log2());
            println!("{name:15} {count:3}  u {:.2e} {:5.2}   p {:.2e} {:5.2}", e[0], order[0], e[1], order[1]);
            last = e;
        }
    }}
}
