//! Reservoir and radiation: matrices compared with formulas written out cell by cell, and their physical
//! properties.

use std::path::{Path, PathBuf};

use crate::common::lu::Lu;
use krylith_core::matrix::Csr;
use krylith_problems::{Generated, SystemKind, generate};

fn matrix(generated: &Generated) -> Csr {
    match &generated.system {
        SystemKind::Csr(a) => a.clone(),
        SystemKind::Bsr(a) => a.to_csr(),
        SystemKind::Kronecker(_) => panic!("{} has no stages", generated.spec),
    }
}

/// x of A x = b by a factorisation.
fn solve(a: &Csr, b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    Lu::new(a).solve(&mut x);
    x
}

fn product(a: &Csr, x: &[f64]) -> Vec<f64> {
    (0..a.rows())
        .map(|i| {
            let (col, values) = a.row(i);
            col.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum()
        })
        .collect()
}

/// Checks that the diagonal is positive and that no other entry is.
fn check_signs(a: &Csr, what: &str) {
    for i in 0..a.rows() {
        let (col, values) = a.row(i);
        for (&j, &v) in col.iter().zip(values) {
            assert!(if i == j as usize { v > 0.0 } else { v <= 0.0 }, "{what}: ({i}, {j}) is {v}");
        }
    }
}

/// A folder for one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("krylith-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn write(&self, name: &str, values: impl Iterator<Item = f64>) {
        let bytes: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        std::fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that remains in a temporary folder is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns an invented rock permeability, for data of the real size.
fn rock(i: usize) -> f64 {
    10f64.powi((i * 7919 % 13) as i32 - 4) * (1.0 + (i % 17) as f64)
}

fn made_up(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("spe10_kx_mD.f64le", (0..60 * 220 * 85).map(rock));
    folder.write("spe10_kz_mD.f64le", (0..60 * 220 * 85).map(|i| 0.1 * rock(i + 5)));
    folder
}

/// Builds the rows face by face: each face contributes to the rows on its two sides, by the resistances of
/// two half cells in series.
fn reservoir(n: [usize; 3], layer: usize, [injector, producer]: [f64; 2]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let cells = n[0] * n[1] * n[2];
    let number = |x: usize, y: usize, z: usize| (z * n[1] + y) * n[0] + x;
    let (mut a, mut b) = (vec![vec![0.0; cells]; cells], vec![0.0; cells]);
    let mobility = 1.127e-3 / 0.3;
    for x in 0..n[0] {
        for y in 0..n[1] {
            for z in 0..n[2] {
                let data = |x: usize, y: usize, z: usize| ((z + layer) * 220 + y) * 60 + x;
                let i = number(x, y, z);
                let others = [
                    (x + 1 < n[0], (x + 1, y, z), 20.0 * mobility, 20.0),
                    (y + 1 < n[1], (x, y + 1, z), 40.0 * mobility, 10.0),
                    (z + 1 < n[2], (x, y, z + 1), 200.0 * mobility, 2.0),
                ];
                for (axis, (inside, (u, v, w), area, length)) in others.into_iter().enumerate() {
                    if !inside {
                        continue;
                    }
                    let k = |at| if axis == 2 { 0.1 * rock(at + 5) } else { rock(at) };
                    let resistance = 0.5 * length / k(data(x, y, z)) + 0.5 * length / k(data(u, v, w));
                    let (t, j) = (area / resistance, number(u, v, w));
                    a[i][i] += t;
                    a[j][j] += t;
                    a[i][j] -= t;
                    a[j][i] -= t;
                }
                let r_o = 0.14 * (400.0f64 + 100.0).sqrt();
                let w = 2.0 * std::f64::consts::PI * mobility * rock(data(x, y, z)) * 2.0 / (r_o / 0.5).ln();
                if (x, y) == (n[0] / 2, n[1] / 2) {
                    a[i][i] += w;
                    b[i] += w * injector;
                }
                if [(0, 0), (n[0] - 1, 0), (0, n[1] - 1), (n[0] - 1, n[1] - 1)].contains(&(x, y)) {
                    a[i][i] += w;
                    b[i] += w * producer;
                }
            }
        }
    }
    (a, b)
}

#[test]
fn the_reservoir_is_what_the_formulas_say() {
    let folder = made_up("reservoir");
    let at = folder.0.display();
    for (n, layer) in [([5, 4, 3], 0), ([3, 6, 2], 40), ([2, 2, 2], 83)] {
        let [nx, ny, nz] = n;
        let spec = format!("spe10:{nx}x{ny}x{nz},permeability={at},layer={layer},injector=900,producer=100");
        let generated = generate(&spec).unwrap();
        let a = matrix(&generated);
        let (expected, rhs) = reservoir(n, layer, [900.0, 100.0]);
        for (i, row) in expected.iter().enumerate() {
            for (j, &v) in row.iter().enumerate() {
                assert!((a.get(i, j) - v).abs() <= 1e-13 * v.abs(), "{spec}: ({i}, {j}) is not {v}");
            }
            assert!((generated.rhs[i] - rhs[i]).abs() <= 1e-13 * rhs[i], "{spec}: row {i}");
        }
        assert_eq!(a, a.transpose(), "{spec}");
        assert_eq!(generated.grid, Some(n));
        assert_eq!(generated.coordinates.unwrap()[1], [30.0, 5.0, 1.0]);
    }
}

#[test]
fn pressures_lie_between_those_of_the_wells() {
    let generated = generate("spe10:7x9x8,seed=3").unwrap();
    let a = matrix(&generated);
    check_signs(&a, "reservoir");
    assert_eq!(a, a.transpose());
    // Away from wells, inflow balances outflow, so rows sum to 0.
    let sums = product(&a, &vec![1.0; a.rows()]);
    for i in (0..a.rows()).filter(|&i| generated.rhs[i] == 0.0) {
        assert!(sums[i].abs() <= 1e-13 * a.get(i, i), "row {i}: {}", sums[i]);
    }
    assert_eq!(generated.rhs.iter().filter(|&&q| q > 0.0).count(), 5 * 8);
    let p = solve(&a, &generated.rhs);
    assert!(p.iter().all(|p| (4000.0 - 1e-6..10000.0 + 1e-6).contains(p)), "{p:?}");
    // If all wells have the same pressure, it is the pressure everywhere.
    let even = generate("spe10:7x9x8,injector=5000,producer=5000").unwrap();
    assert!(solve(&matrix(&even), &even.rhs).iter().all(|p| (p - 5000.0).abs() < 1e-3));
}

/// Returns the ratio of the largest to the smallest magnitude off the diagonal.
fn contrast(a: &Csr) -> f64 {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for i in 0..a.rows() {
        let (col, values) = a.row(i);
        for (_, v) in col.iter().zip(values).filter(|(j, _)| **j as usize != i) {
            (low, high) = (low.min(v.abs()), high.max(v.abs()));
        }
    }
    high / low
}

#[test]
fn generated_rock_is_as_uneven_as_the_real_one() {
    let generated = generate("spe10:60x220x85").unwrap();
    let SystemKind::Csr(a) = &generated.system else { panic!("one unknown a cell") };
    assert_eq!((a.rows(), a.nonzeros()), (1_122_000, 7_780_000));
    let contrast = contrast(a);
    assert!((1e10..3e11).contains(&contrast), "{contrast:e}");
    assert_ne!(generated.rhs, generate("spe10:60x220x85,seed=2").unwrap().rhs);
}

/// The contrast and sizes known for the real data.
#[test]
#[ignore = "needs the SPE10 data, in the folder that KRYLITH_SPE10 names"]
fn the_real_rock_gives_the_known_matrix() {
    let folder = std::env::var("KRYLITH_SPE10").expect("KRYLITH_SPE10 names a folder");
    let generated = generate(&format!("spe10:60x220x85,permeability={folder}")).unwrap();
    let SystemKind::Csr(a) = &generated.system else { panic!("one unknown a cell") };
    assert_eq!((a.rows(), a.nonzeros()), (1_122_000, 7_780_000));
    let contrast = contrast(a);
    assert!((contrast - 5.826e10).abs() < 0.001e10, "{contrast:e}");
}

#[test]
fn bad_rock_is_named() {
    let folder = made_up("bad-rock");
    let fails = |spec: &str, folder: &Path, named: &str| {
        let message = generate(&format!("{spec},permeability={}", folder.display())).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    };
    fails("spe10:61x4x4", &folder.0, "61x4x4 cells from layer 0 are not in the data");
    fails("spe10:4x4x4,layer=82", &folder.0, "from layer 82");
    fails("spe10:4x4x4", Path::new("/nowhere/at/all"), "spe10_kx_mD.f64le");
    let bad = |i: usize| if i == (3 * 220 + 2) * 60 + 1 { f64::NAN } else { rock(i) };
    folder.write("spe10_kz_mD.f64le", (0..60 * 220 * 85).map(bad));
    fails("spe10:4x4x4,layer=1", &folder.0, "cell (1, 2, 3) is NaN");
    assert!(generate(&format!("spe10:4x4x3,permeability={}", folder.0.display())).is_ok());
    folder.write("spe10_kz_mD.f64le", (0..60).map(rock));
    fails("spe10:4x4x4", &folder.0, "has 480 bytes; 60x220x85 little-endian f64 are 8976000 bytes");
}

#[test]
fn one_temperature_stays_within_its_bounds() {
    for spec in ["radiation:9x7x8", "radiation:6x6x6,dt=100,contrast=1,seed=4"] {
        let generated = generate(spec).unwrap();
        let a = matrix(&generated);
        check_signs(&a, spec);
        assert_eq!(a, a.transpose(), "{spec}");
        let t = solve(&a, &generated.rhs);
        assert!(t.iter().all(|t| (0.05 - 1e-9..1.0 + 1e-9).contains(t)), "{spec}: {t:?}");
    }
}

#[test]
fn three_temperatures_stay_positive_and_the_secant_keeps_their_bounds() {
    for spec in ["radiation:6x5x6,components=3", "radiation:6x5x6,components=3,seed=2,dt=0.1"] {
        let newton = generate(spec).unwrap();
        let a = matrix(&newton);
        check_signs(&a, spec);
        assert_ne!(a, a.transpose());
        assert!(solve(&a, &newton.rhs).iter().all(|&t| t > 0.0), "{spec}");

        let secant = generate(&format!("{spec},linearization=secant")).unwrap();
        let a = matrix(&secant);
        check_signs(&a, spec);
        assert_eq!(a, a.transpose());
        assert!(solve(&a, &secant.rhs).iter().all(|t| (0.05 - 1e-9..1.0 + 1e-9).contains(t)), "{spec}");
    }
}

/// Neither conduction nor exchange creates energy: columns sum to heat capacities over dt, plus the flux
/// through the driven face.
#[test]
fn radiation_keeps_energy() {
    for (spec, b) in [
        ("radiation:5x4x6", 1),
        ("radiation:5x4x6,components=3", 3),
        ("radiation:5x4x6,components=3,linearization=secant", 3),
    ] {
        let sums = |dt: f64| {
            let generated = generate(&format!("{spec},dt={dt}")).unwrap();
            let a = matrix(&generated);
            (product(&a.transpose(), &vec![1.0; a.rows()]), a)
        };
        let ((short, a), (long, _)) = (sums(0.01), sums(0.04));
        for i in 0..a.rows() {
            assert!(short[i] > 0.0, "{spec}: column {i}");
            // Away from x = 0 only the capacity remains, which is proportional to 1/dt.
            if i / b % 5 > 0 {
                let error = (short[i] - 4.0 * long[i]).abs();
                assert!(error <= 1e-11 * a.get(i, i), "{spec}: column {i}: {error:e}");
            }
        }
    }
}

/// The single equation is the sum of the three if their temperatures are equal, which they are without a
/// wave.
#[test]
fn one_component_is_the_sum_of_three() {
    let [one, three] = [1, 3].map(|b| {
        let spec = format!("radiation:6x4x5,cold=1,drive=1,components={b},linearization=secant");
        matrix(&generate(&spec).unwrap())
    });
    for i in 0..one.rows() {
        let (col, values) = one.row(i);
        for (&j, &v) in col.iter().zip(values) {
            let parts = (0..9).map(|e| three.get(3 * i + e / 3, 3 * j as usize + e % 3));
            let sum: f64 = parts.sum();
            assert!((sum - v).abs() <= 1e-12 * three.get(3 * i, 3 * i), "({i}, {j}): {sum} is not {v}");
        }
    }
}

/// Recomputes coefficients from the formulas, in physical units, for cells in equilibrium.
#[test]
fn radiation_is_what_the_formulas_say() {
    let (nx, h, dt, t) = (4, 0.1f64, 0.02, 0.7f64);
    let spec = "radiation:4x3x3,components=3,length=0.4,dt=0.02,cold=0.7,drive=0.7,contrast=50";
    let generated = generate(spec).unwrap();
    let a = matrix(&generated);
    let (light, radiation) = (299.79, 0.01372);
    // The collision rate identifies the material: it is 10,000 times as large in dense matter.
    let dense = |i: usize| a.get(3 * i + 2, 3 * i + 1).abs() / h.powi(3) > 100.0;
    let (mut light_pairs, mut dense_cells) = (0, 0);
    for i in 0..36 {
        let rho: f64 = if dense(i) { 10.0 } else { 0.1 };
        dense_cells += usize::from(dense(i));
        let sigma = if dense(i) { 5.0 } else { 0.1 } / t.powi(3);
        let volume = h * h * h;
        // Exchange: −∂X/∂T_e and −∂X/∂T_r by differences, and ω by its definition.
        let x = |e: f64, r: f64| light * sigma * radiation * (e.powi(4) - r.powi(4));
        let d = 1e-5;
        let by_e = (x(t + d, t) - x(t - d, t)) / (2.0 * d);
        let omega = 40.0 * rho * rho / t.powf(1.5);
        for (row, column, v) in
            [(0, 1, by_e), (1, 0, by_e), (1, 2, omega), (2, 1, omega), (0, 2, 0.0), (2, 0, 0.0)]
        {
            let got = -a.get(3 * i + row, 3 * i + column) / volume;
            assert!((got - v).abs() <= 1e-8 * v, "cell {i}, ({row}, {column}): {got} is not {v}");
        }
        // Conduction to the right, which is not limited because the temperature has no slope.
        if i % nx + 1 < nx && !dense(i) && !dense(i + 1) {
            light_pairs += 1;
            let diffusion = 4.0 * radiation * t.powi(3) * light / (3.0 * sigma);
            let electrons = 1e-5 * t.powf(2.5) / 3.5;
            for (c, v) in [diffusion, electrons, electrons / 25.0].into_iter().enumerate() {
                let got = -a.get(3 * i + c, 3 * (i + 1) + c) / h;
                assert!((got - v).abs() <= 1e-12 * v, "cell {i}, component {c}: {got} is not {v}");
            }
        }
        // Heat: the right-hand side away from the driven face, in equilibrium.
        if i % nx > 0 {
            let (e, ion) = if dense(i) { (0.0367, 7.35e-4) } else { (0.078, 0.0223) };
            let heat = [4.0 * radiation * t.powi(3), rho * e, rho * ion];
            for (c, v) in heat.into_iter().enumerate() {
                let v = v * volume / dt * t;
                assert!((generated.rhs[3 * i + c] - v).abs() <= 1e-12 * v, "cell {i}, component {c}");
            }
        }
    }
    assert!(light_pairs > 0 && dense_cells > 0, "{light_pairs} pairs, {dense_cells} dense cells");
}

/// Checks that the 3×3 blocks have as many nonzeros as in the ILDU(0) paper's matrices at 128³, counted at a
/// smaller size.
#[test]
fn blocks_hold_as_many_numbers_as_they_should() {
    let n: usize = 11;
    let blocks = 7 * n.pow(3) - 6 * n.pow(2);
    for (spec, expected) in
        [("radiation:11x11x11", blocks), ("radiation:11x11x11,components=3", 3 * blocks + 4 * n.pow(3))]
    {
        let a = matrix(&generate(spec).unwrap());
        let stored = (0..a.rows()).map(|i| a.row(i).1.iter().filter(|v| **v != 0.0).count()).sum::<usize>();
        assert_eq!(stored, expected, "{spec}");
    }
}

/// Without diffusion u tends to the time that the wind needs from the faces where it enters. With diffusion
/// it stays below, and a recirculating wind leaves row sums of zero away from walls.
#[test]
fn advection_carries_downwind() {
    let of = |n: usize, keys: &str| {
        let generated = generate(&format!("advection:{n}x{n}x{n}{keys}")).unwrap();
        let a = matrix(&generated);
        check_signs(&a, &generated.spec);
        (solve(&a, &generated.rhs), generated.coordinates.unwrap(), a)
    };
    let error = |n: usize| {
        let (u, coordinates, _) = of(n, ",peclet=inf");
        let wind = [6.0 / 7.0, 3.0 / 7.0, 2.0 / 7.0];
        let time = |x: &[f64; 3]| (0..3).map(|d| x[d] / wind[d]).fold(f64::INFINITY, f64::min);
        u.iter().zip(&coordinates).map(|(u, x)| (u - time(x)).abs()).sum::<f64>() / u.len() as f64
    };
    let errors = [error(4), error(8)];
    assert!(errors[1] < 0.85 * errors[0] && errors[1] < 0.1, "{errors:?}");
    let [(all, ..), (some, ..)] = [of(6, ",peclet=inf"), of(6, ",peclet=10")];
    assert!(all.iter().zip(&some).all(|(all, some)| 0.0 < *some && some < all));
    let (u, _, a) = of(6, ",wind=recirculating");
    assert!(u.iter().all(|&u| u > 0.0));
    for i in 0..a.rows() {
        let inside = [i % 6, i / 6 % 6, i / 36].iter().all(|k| (1..5).contains(k));
        let sum: f64 = a.row(i).1.iter().sum();
        assert!(if inside { sum.abs() < 1e-14 } else { sum > 0.0 }, "row {i}: {sum}");
    }
}

/// Finite elements with streamline diffusion tend to the same function as finite volumes.
#[test]
fn supg_carries_downwind() {
    let of = |n: usize, keys: &str| {
        let generated = generate(&format!("advection:{n}x{n}x{n},scheme=supg{keys}")).unwrap();
        (solve(&matrix(&generated), &generated.rhs), generated.coordinates.unwrap())
    };
    let error = |n: usize| {
        let (u, coordinates) = of(n, ",peclet=inf");
        let wind = [6.0 / 7.0, 3.0 / 7.0, 2.0 / 7.0];
        let time = |x: &[f64; 3]| (0..3).map(|d| x[d] / wind[d]).fold(f64::INFINITY, f64::min);
        u.iter().zip(&coordinates).map(|(u, x)| (u - time(x)).abs()).sum::<f64>() / u.len() as f64
    };
    let errors = [error(4), error(8)];
    assert!(errors[1] < 0.7 * errors[0] && errors[1] < 0.05, "{errors:?}");
    // At the centre of a diffusive flow both schemes are near each other.
    let value = |u: &[f64], points: &[[f64; 3]]| {
        let near = |p: &[f64; 3]| p.iter().map(|x| (x - 0.5) * (x - 0.5)).sum::<f64>();
        let nearest = points.iter().map(near).fold(f64::INFINITY, f64::min);
        let all: Vec<f64> =
            u.iter().zip(points).filter(|(_, p)| near(p) < nearest + 1e-9).map(|e| *e.0).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    for wind in ["oblique", "recirculating"] {
        let (u, points) = of(11, &format!(",peclet=10,wind={wind}"));
        let other = generate(&format!("advection:12x12x12,peclet=10,wind={wind}")).unwrap();
        let volumes = value(&solve(&matrix(&other), &other.rhs), &other.coordinates.unwrap());
        let elements = value(&u, &points);
        assert!((elements / volumes - 1.0).abs() < 0.1, "{wind}: {elements}, {volumes}");
    }
}
