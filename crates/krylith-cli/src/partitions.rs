//! `krylith info SYSTEM --ranks P`: partitions of the system's block rows among ranks, and their quality.

use crate::failure::{Failure, Result};
use crate::system::System;
use comfy_table::{CellAlignment, Table, presets};
use krylith_core::Error;
use krylith_core::partition::{Partition, Partitioner, Quality, enough_rows};
use krylith_core::text::{bytes, count, plural};

/// Rejects more ranks than block rows.
///
/// # Errors
/// More ranks than block rows.
pub fn check(system: &System, ranks: usize) -> Result<()> {
    enough_rows(system.order.nodes, ranks).map_err(|e| Failure::from(e).within(&system.label))
}

/// Returns a table with a line for each partitioner.
///
/// # Errors
/// Never for a system that [`check`] accepts.
pub fn table(system: &System, ranks: usize) -> Result<Vec<String>> {
    let terms = system.operator.terms();
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    // A narrow terminal shows only the most important columns.
    let narrow = crate::term::columns().is_some_and(|columns| columns < 90);
    let shown = |cells: [String; 8]| {
        let left_out = |c: usize| narrow && (c == 5 || c == 6);
        cells.into_iter().enumerate().filter(move |(c, _)| !left_out(*c)).map(|(_, cell)| cell)
    };
    let heads = ["by", "rows", "blocks", "cut", "sent, most", "sent, all", "neighbours", "boundary"];
    table.set_header(shown(
        heads.map(|head| if narrow { head.replace("sent, most", "sent") } else { head.into() }),
    ));
    let mut missing = Vec::new();
    let points = system.coordinates.as_deref();
    let nodes = system.order.nodes;
    let grid = system.grid.filter(|grid| grid.iter().product::<usize>() == nodes);
    let boxes = grid.map(|grid| ("boxes", Partition::boxes(grid, ranks, None)));
    let ways = Partitioner::ALL.into_iter().map(|way| {
        let partition = match (way, points) {
            (Partitioner::Geometric, None) => {
                Err(Error::invalid("the coordinates of the nodes are not known; name them in a system.toml"))
            }
            _ => way.partition(&terms, points, ranks),
        };
        (way.name(), partition)
    });
    for (name, partition) in ways.chain(boxes) {
        let partition = match partition {
            Ok(partition) => partition,
            // A partitioner that does not suit the system does not prevent the others.
            Err(e) => {
                missing.push(format!("{name}: {e}"));
                continue;
            }
        };
        let quality = Quality::of(&terms, &partition)?;
        table.add_row(shown([
            name.to_string(),
            format!("{:.3}", quality.rows_over_mean()),
            format!("{:.3}", quality.blocks_over_mean()),
            count(quality.cut()),
            bytes(quality.busiest_bytes()),
            bytes(quality.bytes()),
            count(quality.most_neighbours()),
            format!("{:.1} %", 100.0 * quality.boundary_share()),
        ]));
    }
    for (c, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if narrow { 1 } else { 2 }));
        column.set_cell_alignment(if c == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    let mut lines = vec![format!("over {}", plural(ranks, "rank"))];
    lines.extend(table.lines());
    lines.extend(missing);
    lines.push(
        "rows, blocks: the largest number on a rank over the mean; cut: blocks whose column belongs to \
         another rank"
            .into(),
    );
    lines.push(
        "sent: bytes for one product, by the busiest rank and by all; boundary: rows with a cut block".into(),
    );
    Ok(lines)
}
