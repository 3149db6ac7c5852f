//! The memory of the P-CBCG paper's large grid, 1280×1280×4608 cells, and the number of GPUs that hold it.
//! The bytes follow from formulas; nothing is allocated.
//!
//! Not counted: ghosts, and buffers whose size does not depend on the cells.

use crate::publish::{Pages, number, rows_of, sizes};
use krylith_core::Result;
use krylith_core::method::MethodSpec;
use krylith_model::Machine;
use serde_json::{Value, json};

/// The paper's large grid.
const GRID: [usize; 3] = [1280, 1280, 4608];
/// Machines whose GPUs have 16, 96 and 150 GB.
const MACHINES: [&str; 3] = ["summit", "jupiter", "h200-nvlink"];
/// Share of a GPU's memory that these arrays may take.
const USABLE: f64 = 0.95;

/// An array, or several of one kind.
#[derive(Debug, Clone, PartialEq)]
struct Array {
    name: String,
    bytes: u64,
}

/// A solver with its arrays.
struct Need {
    name: &'static str,
    arrays: Vec<Array>,
}

impl Need {
    fn total(&self) -> u64 {
        self.arrays.iter().map(|array| array.bytes).sum()
    }

    /// Returns the least number of GPUs with this memory.
    fn gpus(&self, memory: f64) -> usize {
        (self.total() as f64 / (USABLE * memory)).ceil() as usize
    }
}

/// Returns the number of entries of a 7-point matrix.
fn entries([nx, ny, nz]: [usize; 3]) -> u64 {
    (7 * nx * ny * nz - 2 * (nx * ny + ny * nz + nz * nx)) as u64
}

/// Returns the solvers on a grid.
///
/// # Errors
/// Returns an error if a method's name is unknown.
fn needs(grid: [usize; 3]) -> Result<Vec<Need>> {
    let (n, entries) = (grid.iter().map(|&side| side as u64).product::<u64>(), entries(grid));
    let array = |name: &str, bytes: u64| Array { name: name.into(), bytes };
    let ours = |name: &'static str, method: &str| -> Result<Need> {
        let (basis, vectors) = method.parse::<MethodSpec>()?.memory(n);
        let mut arrays = vec![
            array("matrix by rows: pointers and columns", 8 * (n + 1) + 4 * entries),
            array("matrix by rows: values, for the set-up", 8 * entries),
            array("half of the diagonals, and their masks", (4 * 8 + 4) * n),
            array("factors of the tiles", 4 * 8 * n),
            array("vectors, with b, x and scratch", vectors),
        ];
        if basis > 0 {
            arrays.push(array("blocks of vectors", basis));
        }
        Ok(Need { name, arrays })
    };
    let paper = vec![
        array("seven diagonals", 7 * 8 * n),
        array("pivots of the tiles", 8 * n),
        array("vectors b, x, r, z, p, w", 6 * 8 * n),
    ];
    Ok(vec![
        ours("P-CG", "cg")?,
        ours("P-CBCG, s = 12", "cbcg:s=12")?,
        Need { name: "P-CG by the paper's kernels", arrays: paper },
    ])
}

/// Builds the tables and the JSON.
///
/// # Errors
/// Returns an error if a machine file of Krylith cannot be read.
pub(super) fn report(pages: &mut Pages) -> Result<Value> {
    let needs = needs(GRID)?;
    let cells = GRID.iter().product::<usize>() as f64;
    let machines =
        MACHINES.map(|name| Machine::open(name.as_ref())).into_iter().collect::<Result<Vec<_>>>()?;
    let lines: Vec<(&Need, &Array)> =
        needs.iter().flat_map(|need| need.arrays.iter().map(move |array| (need, array))).collect();
    let tera = |bytes: u64| number(1e-12 * bytes as f64, 3);
    pages.tables.push(
        rows_of(format!("{}: bytes in the memory of all GPUs", sizes(GRID)), &lines)
            .column("", |(need, array)| format!("{}: {}", need.name, array.name))
            .column("bytes a cell", |(_, array)| number(array.bytes as f64 / cells, 1))
            .column("TB", |(_, array)| tera(array.bytes))
            .table(),
    );
    let title = format!("{}: least number of GPUs, without ghosts", sizes(GRID));
    let mut table = rows_of(title, &needs)
        .column("", |need| need.name.into())
        .column("bytes a cell", |need| number(need.total() as f64 / cells, 1))
        .column("TB", |need| tera(need.total()));
    for machine in &machines {
        let heading = format!("{} GB ({})", number(1e-9 * machine.memory, 0), machine.name);
        table = table.column(heading, |need: &Need| need.gpus(machine.memory).to_string());
    }
    pages.tables.push(table.table());
    let one = |need: &Need| {
        let arrays: Vec<Value> =
            need.arrays.iter().map(|a| json!({ "name": a.name, "bytes": a.bytes })).collect();
        let gpus: Vec<Value> = machines
            .iter()
            .map(|m| json!({ "machine": m.name, "memory": m.memory, "gpus": need.gpus(m.memory) }))
            .collect();
        json!({ "name": need.name, "bytes": need.total(), "arrays": arrays, "least_gpus": gpus })
    };
    Ok(json!({ "grid": GRID, "usable": USABLE, "solvers": needs.iter().map(one).collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::super::Case;
    use super::*;

    #[test]
    fn bytes_of_the_matrix_are_those_of_its_arrays() {
        for grid in [[5, 4, 3], [2, 2, 2], [9, 2, 7]] {
            let [x, y, z] = grid;
            let case = Case::new(&format!("poisson-multiphase:{x}x{y}x{z}")).unwrap();
            let (rows, columns, values) = (case.rows() + 1, case.a.col().len(), case.a.values().len());
            let needs = needs(grid).unwrap();
            let matrix: u64 = needs[0].arrays[..2].iter().map(|array| array.bytes).sum();
            assert_eq!(matrix, (8 * rows + 4 * columns + 8 * values) as u64, "{grid:?}");
        }
    }

    #[test]
    fn gpus_hold_the_paper_s_grid_by_hand() {
        let needs = needs(GRID).unwrap();
        // 14 numbers a cell of 7,549,747,200: 0.8456 TB.
        assert_eq!(needs[2].total(), 112 * 7_549_747_200);
        assert_eq!((needs[2].gpus(1e12), needs[2].gpus(16e9)), (1, 56));
        assert!(needs[1].total() > 2 * needs[0].total());
        let mut pages = Pages::default();
        let json = report(&mut pages).unwrap();
        assert_eq!(json["solvers"][2]["bytes"], 845_571_686_400u64);
        assert!(pages.tables[1].text().contains("112.0") && pages.tables.len() == 2);
    }
}
