//! A Newton step of three-phase flow, oil, water and gas, through channelled rock: `blackoil`.
//!
//! The black-oil model (Aziz and Settari 1979) has three components. Oil and water are in their own phases.
//! Gas is in the gas phase, and dissolved in oil. Finite volumes with two-point fluxes on the cells of the
//! unit cube, fully implicit, one point upstream:
//!
//! ```text
//! oil:    φ ∂(b_o S_o)/∂t             + ∇·(b_o v_o)             = q_o
//! water:  φ ∂(b_w S_w)/∂t             + ∇·(b_w v_w)             = q_w
//! gas:    φ ∂(b_g S_g + R b_o S_o)/∂t + ∇·(b_g v_g + R b_o v_o) = q_g
//! v_a = −k λ_a ∇(p + γ_a z),   λ_a = S_a²/μ_a,   S_o = 1 − s − g,   S_w = s,   S_g = g
//! b_o = 1 + c_o p,   b_w = 1 + c_w p,   b_g = p,   R = r p
//! ```
//!
//! b_a is the amount of a phase per volume, and R the amount of dissolved gas per amount of oil. φ = 0.2,
//! c_o = 10⁻², c_w = 10⁻³ and r = 0.2. μ is 3, 1 and 0.1 for oil, water and gas. γ is `gravity` times 0.8, 1
//! and 0.1. Free gas is in every cell, so no cell changes its phases. The rock has eight layers, each with
//! channels. k is 1/`contrast` outside channels, and a tenth along z.
//!
//! The wells are two vertical edges of the cube. The injector takes water, the producer gives all phases. The
//! bottom-hole pressure w of a well is an unknown. Its equation sets w, or the rate over all of its cells:
//!
//! ```text
//! injector:  q_w = W λ_t b_w (w − p),       Σ q_w = rate   or  w = 1.5
//! producer:  q_a = W λ_a b_a (w − p),       −Σ q_o = rate  or  w = 0.5
//! ```
//!
//! W is the well index of a cell, λ_t the sum of all λ_a. Unknowns are p, s and g of a cell, interleaved, and
//! then w of both wells. Rows are the balances of oil, water and gas, and the controls of the wells. The
//! matrix is the Jacobian of a step of length `dt` at a state with smooth random saturations, and the
//! right-hand side is the negative residual there. The state before the step is the same. The matrix `acc`
//! has the derivatives of the first terms, the accumulation, for `decouple=impes(acc)`.

use krylith_base::threads::collect;
use krylith_core::fields::Field;
use krylith_core::matrix::Csr;
use krylith_core::partition::contiguous;
use krylith_core::{Error, Result};
use std::ops::{Add, Mul, Range};

use crate::grid::Grid;
use crate::noise::smooth;
use crate::spec::Spec;
use crate::{Generated, SystemKind, check_rhs};

const POROSITY: f64 = 0.2;
/// Compressibilities of oil and water, and the slope of dissolved gas.
const OIL: f64 = 1e-2;
const WATER: f64 = 1e-3;
const DISSOLVED: f64 = 0.2;
/// Viscosities and weights of oil, water and gas.
const VISCOSITY: [f64; 3] = [3.0, 1.0, 0.1];
const WEIGHT: [f64; 3] = [0.8, 1.0, 0.1];
/// Vertical permeability over horizontal.
const VERTICAL: f64 = 0.1;
const LAYERS: f64 = 8.0;
/// Half the width of the interval of a random field that is a channel.
const CHANNEL: f64 = 0.4;
/// Bottom-hole pressures of injector and producer.
const WELLS: [f64; 2] = [1.5, 0.5];
/// Cells per task.
const CHUNK: usize = 1024;

/// A function of the unknowns p, s and g of one cell: value and derivatives.
#[derive(Clone, Copy)]
struct Function {
    value: f64,
    by: [f64; 3],
}

impl Function {
    const fn unknown(value: f64, c: usize) -> Self {
        let mut by = [0.0; 3];
        by[c] = 1.0;
        Self { value, by }
    }
}

impl Add for Function {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let by = std::array::from_fn(|c| self.by[c] + other.by[c]);
        Self { value: self.value + other.value, by }
    }
}

impl Mul for Function {
    type Output = Self;
    #[expect(clippy::suspicious_arithmetic_impl, reason = "the product rule adds")]
    fn mul(self, other: Self) -> Self {
        let by = std::array::from_fn(|c| self.by[c] * other.value + self.value * other.by[c]);
        Self { value: self.value * other.value, by }
    }
}

impl Add<f64> for Function {
    type Output = Self;
    fn add(self, constant: f64) -> Self {
        Self { value: self.value + constant, ..self }
    }
}

impl Mul<f64> for Function {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self { value: factor * self.value, by: self.by.map(|by| factor * by) }
    }
}

/// Permeability and state of a cell.
#[derive(Clone, Copy)]
struct Cell {
    k: f64,
    state: [f64; 3],
}

/// Amounts in a cell, and what moves through its faces per potential difference.
struct Fluid {
    /// b_o S_o, b_w S_w and b_g S_g + R b_o S_o.
    amounts: [Function; 3],
    /// b_a λ_a of oil, water and gas.
    mobile: [Function; 3],
    /// R b_o λ_o: the dissolved gas that oil takes along.
    along: Function,
    /// b_w λ_t: water that a well injects.
    injected: Function,
}

impl Cell {
    fn fluid(&self) -> Fluid {
        let [p, s, g] = [0, 1, 2].map(|c| Function::unknown(self.state[c], c));
        let saturations = [(s + g) * -1.0 + 1.0, s, g];
        let [b_o, b_w, b_g, dissolved] = [p * OIL + 1.0, p * WATER + 1.0, p, p * DISSOLVED];
        let b = [b_o, b_w, b_g];
        let [lambda_o, lambda_w, lambda_g] =
            [0, 1, 2].map(|a| saturations[a] * saturations[a] * (1.0 / VISCOSITY[a]));
        let [o, w, g] = [0, 1, 2].map(|a| b[a] * saturations[a]);
        let mobile = [b_o * lambda_o, b_w * lambda_w, b_g * lambda_g];
        Fluid {
            amounts: [o, w, g + dissolved * o],
            mobile,
            along: dissolved * mobile[0],
            injected: b_w * (lambda_o + lambda_w + lambda_g),
        }
    }
}

/// The way a well is controlled, with the wanted rate or pressure.
#[derive(Clone, Copy)]
enum Control {
    Rate(f64),
    Pressure(f64),
}

/// One equation: its residual, and its derivatives by column, ascending.
#[derive(Clone)]
struct Equation {
    residual: f64,
    entries: Vec<(u32, f64)>,
}

/// A state of the reservoir, and the step that begins from amounts `before`.
struct BlackOil {
    grid: Grid,
    cells: Vec<Cell>,
    before: Vec<[f64; 3]>,
    pressures: [f64; 2],
    controls: [Control; 2],
    gravity: f64,
    dt: f64,
}

impl BlackOil {
    fn new(spec: &Spec) -> Result<Self> {
        let (contrast, dt, rate) = (spec.positive("contrast")?, spec.positive("dt")?, spec.positive("rate")?);
        let (gravity, seed) = (spec.nonnegative("gravity")?, spec.whole("seed", 0..=u64::MAX)?);
        let control = |name, pressure| {
            let by_rate = spec.choice(name, &["rate", "pressure"])? == 0;
            Ok::<_, Error>(if by_rate { Control::Rate(rate) } else { Control::Pressure(pressure) })
        };
        let controls = [control("injector", WELLS[0])?, control("producer", WELLS[1])?];
        let grid = Grid::new(spec.grid())?;
        let cells = collect(0..grid.len(), CHUNK, &|i| {
            let [x, y, z] = centre(&grid, i);
            let field = |stream, scale: f64| smooth(seed, stream, [scale * x, scale * y, scale * z]);
            // Channels of different layers have nothing in common.
            let channel = smooth(seed, 65, [4.0 * x, 4.0 * y, (LAYERS * z).floor()]).abs() < CHANNEL;
            Cell {
                k: if channel { 1.0 } else { 1.0 / contrast },
                state: [
                    1.3 - 0.3 * (x + y) + 0.02 * field(66, 4.0),
                    (0.3 + 0.1 * field(67, 4.0)).clamp(0.1, 0.6),
                    (0.15 + 0.05 * field(68, 4.0)).clamp(0.05, 0.3),
                ],
            }
        });
        let before = collect(0..grid.len(), CHUNK, &|i| cells[i].fluid().amounts.map(|m| m.value));
        Ok(Self { grid, cells, before, pressures: WELLS, controls, gravity, dt })
    }

    /// Returns permeability times area over length of the face to cell `j` across `axis`.
    fn face(&self, i: usize, j: usize, axis: usize) -> f64 {
        let sizes = self.grid.sizes().map(|n| n as f64);
        let shape = sizes[axis] * sizes[axis] / sizes.iter().product::<f64>();
        let across = if axis == 2 { VERTICAL } else { 1.0 };
        across * shape * 2.0 / (1.0 / self.cells[i].k + 1.0 / self.cells[j].k)
    }

    /// Returns the neighbours of a cell, with the axis of the face.
    fn neighbours(&self, i: usize) -> impl Iterator<Item = (usize, usize)> {
        let (at, sizes) = (self.grid.position(i), self.grid.sizes());
        (0..3).flat_map(move |axis| {
            let stride = sizes[..axis].iter().product::<usize>();
            let below = (at[axis] > 0).then(|| (i - stride, axis));
            let above = (at[axis] + 1 < sizes[axis]).then(|| (i + stride, axis));
            below.into_iter().chain(above)
        })
    }

    /// Returns the well in a cell, 0 for the injector and 1 for the producer, and its index.
    fn well(&self, i: usize) -> Option<(usize, f64)> {
        let ([x, y, _], [nx, ny, nz]) = (self.grid.position(i), self.grid.sizes());
        let index = self.cells[i].k / nz as f64;
        match (x, y) {
            (0, 0) => Some((0, index)),
            _ if x + 1 == nx && y + 1 == ny => Some((1, index)),
            _ => None,
        }
    }

    /// Returns pore volume over step length.
    fn pores(&self) -> f64 {
        POROSITY / (self.grid.len() as f64 * self.dt)
    }

    /// Returns the column of a well's pressure.
    fn column(&self, well: usize) -> u32 {
        (3 * self.grid.len() + well) as u32
    }

    /// Returns the balances of oil, water and gas in a cell.
    fn balances(&self, i: usize) -> [Equation; 3] {
        let (own, height) = (self.cells[i].fluid(), |i| centre(&self.grid, i)[2]);
        let mut residual: [f64; 3] =
            std::array::from_fn(|c| self.pores() * (own.amounts[c].value - self.before[i][c]));
        let mut diagonal = own.amounts.map(|amount| amount.by.map(|by| self.pores() * by));
        let mut blocks: Vec<(usize, [[f64; 3]; 3])> = Vec::with_capacity(7);
        for (j, axis) in self.neighbours(i) {
            let (other, face, mut block) = (self.cells[j].fluid(), self.face(i, j, axis), [[0.0; 3]; 3]);
            let drop = self.cells[i].state[0] - self.cells[j].state[0];
            for phase in 0..3 {
                let drop = drop + self.gravity * WEIGHT[phase] * (height(i) - height(j));
                let outward = drop > 0.0;
                let upstream = if outward { &own } else { &other };
                let mut flow = |component: usize, mobile: Function| {
                    residual[component] += face * mobile.value * drop;
                    diagonal[component][0] += face * mobile.value;
                    block[component][0] -= face * mobile.value;
                    let to = if outward { &mut diagonal } else { &mut block };
                    (0..3).for_each(|c| to[component][c] += face * mobile.by[c] * drop);
                };
                flow(phase, upstream.mobile[phase]);
                if phase == 0 {
                    flow(2, upstream.along);
                }
            }
            blocks.push((j, block));
        }
        let mut by_well = [0.0; 3];
        if let Some((well, index)) = self.well(i) {
            let drop = self.cells[i].state[0] - self.pressures[well];
            let mut flow = |component: usize, mobile: Function| {
                residual[component] += index * mobile.value * drop;
                diagonal[component][0] += index * mobile.value;
                by_well[component] -= index * mobile.value;
                (0..3).for_each(|c| diagonal[component][c] += index * mobile.by[c] * drop);
            };
            match well {
                0 => flow(1, own.injected),
                _ => {
                    (0..3).for_each(|phase| flow(phase, own.mobile[phase]));
                    flow(2, own.along);
                }
            }
        }
        blocks.push((i, diagonal));
        blocks.sort_unstable_by_key(|block| block.0);
        std::array::from_fn(|component| {
            let of_cell = |(j, block): &(usize, [[f64; 3]; 3])| {
                let (j, row) = (*j, block[component]);
                (0..3).map(move |c| ((3 * j + c) as u32, row[c]))
            };
            let mut entries: Vec<(u32, f64)> = blocks.iter().flat_map(of_cell).collect();
            entries.extend(self.well(i).map(|(well, _)| (self.column(well), by_well[component])));
            Equation { residual: residual[component], entries }
        })
    }

    /// Returns the control of a well.
    fn control(&self, well: usize) -> Equation {
        let [nx, ny, nz] = self.grid.sizes();
        let column = (0..nz).map(|z| z * nx * ny + well * (nx * ny - 1));
        let (mut equation, mut own) = (Equation { residual: 0.0, entries: Vec::new() }, 0.0);
        for i in column {
            let Some((_, index)) = self.well(i) else { continue };
            let fluid = self.cells[i].fluid();
            let drop = self.pressures[well] - self.cells[i].state[0];
            match self.controls[well] {
                Control::Rate(_) => {
                    let mobile = if well == 0 { fluid.injected } else { fluid.mobile[0] };
                    equation.residual += index * mobile.value * drop;
                    own += index * mobile.value;
                    let by = |c| index * (mobile.by[c] * drop - if c == 0 { mobile.value } else { 0.0 });
                    equation.entries.extend((0..3).map(|c| ((3 * i + c) as u32, by(c))));
                }
                // The sum of the indices gives the row the scale of the others.
                Control::Pressure(wanted) => {
                    equation.residual += index * (self.pressures[well] - wanted);
                    own += index;
                }
            }
        }
        if let Control::Rate(rate) = self.controls[well] {
            equation.residual -= if well == 0 { rate } else { -rate };
        }
        equation.entries.push((self.column(well), own));
        equation
    }

    /// Returns all equations.
    fn equations(&self) -> Vec<Equation> {
        let cells = collect(0..self.grid.len(), CHUNK, &|i| self.balances(i));
        cells.into_iter().flatten().chain([0, 1].map(|well| self.control(well))).collect()
    }

    /// Returns the derivatives of the accumulation terms.
    fn accumulation(&self) -> Result<Csr> {
        let (n, pores) = (self.grid.len(), self.pores());
        let rows =
            collect(0..n, CHUNK, &|i| self.cells[i].fluid().amounts.map(|m| m.by.map(|by| pores * by)));
        let values = rows.into_iter().flatten().flatten().collect();
        let col = (0..9 * n).map(|k| (3 * (k / 9) + k % 3) as u32).collect();
        let row_ptr = (0..3 * n + 3).map(|i| 3 * i.min(3 * n)).collect();
        Csr::new(3 * n + 2, 3 * n + 2, row_ptr, col, values)
    }
}

/// Returns the centre of a cell.
fn centre(grid: &Grid, i: usize) -> [f64; 3] {
    let (at, sizes) = (grid.position(i), grid.sizes());
    std::array::from_fn(|d| (at[d] as f64 + 0.5) / sizes[d] as f64)
}

/// Generates `blackoil`.
pub(super) fn blackoil(spec: &Spec) -> Result<Generated> {
    let made = BlackOil::new(spec)?;
    let (n, equations) = (made.grid.len(), made.equations());
    let rhs: Vec<f64> = equations.iter().map(|equation| -equation.residual).collect();
    check_rhs(&rhs, 1, 0)?;
    let mut row_ptr = vec![0];
    for equation in &equations {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + equation.entries.len());
    }
    let (col, values) = equations.iter().flat_map(|equation| equation.entries.iter().copied()).unzip();
    let edge = |well: usize| [well as f64, well as f64, 0.5];
    let points = (0..3 * n).map(|i| centre(&made.grid, i / 3)).chain([edge(0), edge(1)]);
    let of_cells = |name, c| Field::strided(name, c..3 * n, 3);
    Ok(Generated {
        system: SystemKind::Csr(Csr::new(3 * n + 2, 3 * n + 2, row_ptr, col, values)?),
        rhs,
        coordinates: Some(points.collect()),
        grid: None,
        tetrahedra: Vec::new(),
        fields: vec![
            of_cells("p", 0),
            of_cells("s", 1),
            of_cells("g", 2),
            Field::range("w", 3 * n..3 * n + 2),
        ],
        matrices: vec![("acc".into(), made.accumulation()?)],
        spec: spec.full(),
    })
}

/// Returns the rows of one rank: whole cells, and the wells with the last ones.
pub(super) fn own(rows: usize, rank: usize, ranks: usize) -> Range<usize> {
    let (cells, last) = (contiguous(rows / 3, rank, ranks), rank + 1 == ranks);
    3 * cells.start..if last { rows } else { 3 * cells.end }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = [
        "contrast=100,dt=0.3,gravity=0.2",
        "contrast=10,dt=1e-3,gravity=0,injector=pressure",
        "contrast=1,dt=2,producer=rate",
        "contrast=50,injector=pressure,producer=rate",
    ];

    fn matrix(made: &Generated) -> &Csr {
        let SystemKind::Csr(a) = &made.system else { panic!("scalar rows expected") };
        a
    }

    /// Central differences of the residual are the matrix, and those of a step without flow are `acc`.
    #[test]
    fn the_matrix_is_the_derivative_of_the_residual() {
        for keys in KEYS {
            let spec = Spec::parse(&format!("blackoil:3x4x3,{keys}")).unwrap();
            let made = blackoil(&spec).unwrap();
            let (a, acc, n) = (matrix(&made), &made.matrices[0].1, 36);
            let largest = a.values().iter().fold(0.0f64, |most, v| most.max(v.abs()));
            let residual = |moved: usize, by: f64, flows: bool| {
                let mut state = BlackOil::new(&spec).unwrap();
                match moved.checked_sub(3 * n) {
                    Some(well) => state.pressures[well] += by,
                    None => state.cells[moved / 3].state[moved % 3] += by,
                }
                if !flows {
                    state.cells.iter_mut().for_each(|cell| cell.k = 0.0);
                }
                state.equations().into_iter().map(|equation| equation.residual).collect::<Vec<f64>>()
            };
            let step = 1e-5;
            for j in 0..3 * n + 2 {
                for (of, flows) in [(a, true), (acc, false)] {
                    let (more, less) = (residual(j, step, flows), residual(j, -step, flows));
                    for i in 0..3 * n + 2 {
                        let slope = (more[i] - less[i]) / (2.0 * step);
                        let found = of.get(i, j);
                        assert!(
                            (slope - found).abs() < 1e-6 * largest.min(1.0),
                            "{keys}, flows: {flows}, ({i}, {j}): {slope} for {found}"
                        );
                    }
                }
            }
        }
    }

    /// Between cells, what leaves one enters the other: the rows of a component sum to the wells and pores.
    #[test]
    fn flows_between_cells_cancel() {
        let made = blackoil(&Spec::parse("blackoil:3x4x3,contrast=30").unwrap()).unwrap();
        let (a, acc, n) = (matrix(&made), &made.matrices[0].1, 36);
        let wells = |i: usize| [(0, 0), (2, 3)].contains(&(i % 3, i / 3 % 4));
        for c in 0..3 {
            for j in (0..3 * n).filter(|j| !wells(j / 3)) {
                let sum: f64 = (0..n).map(|i| a.get(3 * i + c, j) - acc.get(3 * i + c, j)).sum();
                assert!(sum.abs() < 1e-13, "component {c}, column {j}: {sum}");
            }
        }
        // The state before the step is the same, so only flows are on the right-hand side.
        let inside: f64 = (0..3 * n).filter(|i| !wells(i / 3)).map(|i| made.rhs[i].abs()).sum();
        assert!(inside > 1e-3 && inside.is_finite());
    }

    /// Two cells in a row that are all wells, by hand.
    #[test]
    fn two_cells_by_hand() {
        let cell = |p, s, g| Cell { k: 2.0, state: [p, s, g] };
        let cells = vec![cell(1.0, 0.5, 0.25), cell(0.5, 0.25, 0.5)];
        let before = vec![[0.0; 3]; 2];
        let controls = [Control::Rate(0.25), Control::Pressure(0.25)];
        let grid = Grid::new([2, 1, 1]).unwrap();
        let made = BlackOil { grid, cells, before, pressures: [2.0, 0.5], controls, gravity: 9.0, dt: 0.4 };
        let equations = made.equations();
        // Pore volume over step: 0.2/2/0.4 = 1/4. Face: 2·(2²/2) = 4. Drop 1/2, from cell 0. Well index 2.
        let water = |p: f64| 1.0 + 1e-3 * p;
        let oil = |p: f64| 1.0 + 1e-2 * p;
        let flow = 4.0 * 0.5;
        // Water of cell 0: amount, flow out, and injection with λ_t = (1/4)²/3 + (1/2)² + 10·(1/4)².
        let total = 1.0 / 48.0 + 0.25 + 0.625;
        let first = 0.25 * 0.5 * water(1.0) + flow * 0.25 * water(1.0) - 2.0 * total * water(1.0);
        assert!((equations[1].residual - first).abs() < 1e-15, "{} for {first}", equations[1].residual);
        // Gas of cell 1: free and dissolved, flow in; the producer has the pressure of the cell.
        let inflow = 10.0 * 0.0625 * 1.0 + 0.2 * oil(1.0) / 48.0;
        let second = 0.25 * (0.5 * 0.5 + 0.1 * oil(0.5) * 0.25) - flow * inflow;
        assert!((equations[5].residual - second).abs() < 1e-15, "{} for {second}", equations[5].residual);
        // Its derivative by the saturation of water in cell 0: less oil takes dissolved gas along.
        let slope = equations[5].entries.iter().find(|entry| entry.0 == 1).unwrap().1;
        assert!((slope - flow * 0.2 * oil(1.0) * 2.0 * 0.25 / 3.0).abs() < 1e-15, "{slope}");
        // Controls: the injector's rate, and the producer's pressure times the well index.
        assert!((equations[6].residual - (2.0 * total * water(1.0) - 0.25)).abs() < 1e-15);
        assert_eq!((equations[7].residual, &equations[7].entries[..]), (2.0 * 0.25, &[(7, 2.0)][..]));
    }
}
