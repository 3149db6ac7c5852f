//! `krylith spy`: draws the pattern of a matrix in dots on the terminal, or as an image, with its partition
//! among ranks in colours.

mod picture;

use crate::args::SpyArgs;
use crate::blocks;
use crate::failure::{DONE, Result};
use crate::system::{self, System};
use crate::{files, output, partitions, summary, term};
use anstyle::{AnsiColor, Style};
use krylith_core::operator::{Structure, Terms};
use krylith_core::partition::{Partition, Quality, choose};
use krylith_core::text::{bytes, count, name, plural};

/// Width of a terminal whose width is not known.
const USUAL: usize = 80;
/// Largest number of lines of a drawing, so that it fits a screen.
const TALL: usize = 32;
/// Number of cells of an image in each direction.
const CELLS: usize = 160;

/// Colours of the ranks, which repeat; entries that couple ranks have a separate colour.
const COLOURS: [AnsiColor; 6] = [
    AnsiColor::Blue,
    AnsiColor::Green,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Cyan,
    AnsiColor::White,
];
const CUT: Style = AnsiColor::Red.on_default().bold();

/// Runs the command.
///
/// # Errors
/// The system cannot be read, it has fewer block rows than ranks, or the image cannot be written.
pub fn spy(args: SpyArgs) -> Result<u8> {
    crate::interrupt::watch()?;
    if let Some(path) = &args.out {
        output::check_target("--out", path)?;
        files::check_apart(&files::of_system(&args.system), &[("--out", path.clone())])?;
        output::check_picture("--out", path)?;
    }
    let ordering = system::ordering(&args.system, args.ordering)?.unwrap_or_default();
    let system = system::load(&args.system, args.block, ordering)?;
    let terms = system.operator.terms();
    let shared = match args.ranks {
        None => None,
        Some(ranks) => {
            partitions::check(&system, ranks)?;
            let points = system.coordinates.as_deref().filter(|points| points.len() == system.order.nodes);
            Some(choose(&terms, points, system.grid, ranks, args.partition.unwrap_or_default())?)
        }
    };
    let order = shared.as_ref().map(|(partition, _)| Order::of(partition));
    let columns = term::columns();
    let most = match &args.out {
        Some(_) => CELLS,
        None => (2 * (columns.unwrap_or(USUAL) - 2)).min(4 * (TALL - 2)),
    };
    let raster = Raster::of(&terms, most, order.as_ref());
    let mut rows = vec![("system", summary::describe(&system))];
    if let Some((partition, reason)) = &shared {
        rows.push(("ranks", vec![reason.clone(), quality(&terms, partition)?]));
    }
    let inside = inside(&system, &terms);
    if !inside.is_empty() {
        rows.push(("a block", inside));
    }
    let (one, many) = if system.order.block == 1 { ("an entry", "entries") } else { ("a block", "blocks") };
    let scale = match system.order.nodes.div_ceil(raster.cells) {
        1 => format!("is {one}"),
        n => format!("stands for up to {0}×{0} {many}", count(n)),
    };
    if let Some(path) = &args.out {
        let ranks = shared.as_ref().map_or(1, |(partition, _)| partition.ranks);
        let subtitle = format!("{}; a cell {scale}", summary::describe(&system)[1]);
        let picture = picture::Picture { raster: &raster, ranks, title: &system.label, subtitle: &subtitle };
        picture::write(&picture, path)?;
        rows.push(("wrote", vec![name(path)]));
    } else {
        rows.push(("pattern", vec![format!("a dot {scale}")]));
    }
    output::print(&term::table(&rows, columns, |_| term::PLAIN));
    if args.out.is_none() {
        output::print(&drawn(&raster));
        if let Some((partition, _)) = &shared {
            output::print(&legend(partition.ranks));
        }
    }
    Ok(DONE)
}

/// Describes the communication between ranks in a line.
fn quality(terms: &Terms, partition: &Partition) -> Result<String> {
    let quality = Quality::of(terms, partition)?;
    Ok(format!(
        "{} cut, {} sent for a product, the largest rank has {:.3} times the mean number of rows",
        plural(quality.cut(), "block"),
        bytes(quality.bytes()),
        quality.rows_over_mean()
    ))
}

/// Draws the structure inside blocks: a letter for each distinct stored number, a dot for zero.
fn inside(system: &System, terms: &Terms) -> Vec<String> {
    if system.order.block == 1 {
        return Vec::new();
    }
    let found = Structure::find(terms);
    let places = found.block * found.block;
    if found.is_dense() {
        return vec![format!("all {} positions differ", count(places))];
    }
    blocks::picture(&found)
}

/// The owner of each row, and its position when rows are sorted by rank.
pub struct Order {
    owner: Vec<u32>,
    place: Vec<usize>,
}

impl Order {
    fn of(partition: &Partition) -> Self {
        let owner = partition.owner.clone();
        let mut rows: Vec<usize> = (0..owner.len()).collect();
        rows.sort_by_key(|&row| owner[row]); // stable: within a rank rows keep their order
        let mut place = vec![0; rows.len()];
        rows.iter().enumerate().for_each(|(at, &row)| place[row] = at);
        Self { owner, place }
    }
}

/// A pattern on a raster.
pub struct Raster {
    /// Cells in each direction.
    pub cells: usize,
    /// Number of entries in each cell, row by row.
    pub count: Vec<u32>,
    /// Number of entries in each cell whose column and row belong to different ranks.
    pub cut: Vec<u32>,
    /// The rank that owns the last row of each row of cells.
    pub owner: Vec<usize>,
}

impl Raster {
    /// Counts the entries of a matrix in at most `most` cells in each direction; with an `order`, rows are
    /// sorted by rank.
    pub fn of(terms: &Terms, most: usize, order: Option<&Order>) -> Self {
        let n = terms.block_rows();
        let cells = n.clamp(1, most.max(1));
        let cell = |row: usize| order.map_or(row, |order| order.place[row]) * cells / n.max(1);
        let mut raster =
            Self { cells, count: vec![0; cells * cells], cut: vec![0; cells * cells], owner: vec![0; cells] };
        for (_, a) in terms.terms() {
            for (row, ends) in a.row_ptr().windows(2).enumerate() {
                let down = cell(row);
                if let Some(order) = order {
                    raster.owner[down] = order.owner[row] as usize;
                }
                for &column in &a.col()[ends[0]..ends[1]] {
                    let at = down * cells + cell(column as usize);
                    raster.count[at] += 1;
                    if let Some(Order { owner, .. }) = order {
                        raster.cut[at] += u32::from(owner[row] != owner[column as usize]);
                    }
                }
            }
        }
        raster
    }

    /// Returns true if most entries of a cell couple different ranks.
    pub fn is_cut(&self, at: usize) -> bool {
        2 * self.cut[at] > self.count[at]
    }
}

/// Bits of a braille character, by line and column of its dots.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// Draws the raster in braille characters of 2×4 dots, in a frame.
pub fn drawn(raster: &Raster) -> String {
    let cells = raster.cells;
    let (across, down) = (cells.div_ceil(2), cells.div_ceil(4));
    let several = raster.owner.iter().any(|owner| *owner > 0);
    let edge = "─".repeat(across);
    let mut out = format!("┌{edge}┐\n");
    for line in 0..down {
        out.push('│');
        for column in 0..across {
            let mut dots = 0;
            let (mut cut, mut kept, mut owner) = (0, 0, 0);
            for (i, bits) in DOTS.iter().enumerate() {
                for (j, bit) in bits.iter().enumerate() {
                    let (row, column) = (4 * line + i, 2 * column + j);
                    if row >= cells || column >= cells || raster.count[row * cells + column] == 0 {
                        continue;
                    }
                    dots |= bit;
                    owner = raster.owner[row];
                    let at = row * cells + column;
                    cut += raster.cut[at];
                    kept += raster.count[at] - raster.cut[at];
                }
            }
            let character = char::from_u32(0x2800 + dots).unwrap_or(' ').to_string();
            let style = if cut > kept { CUT } else { colour(owner) };
            out += &if several && dots > 0 { term::styled(style, &character) } else { character };
        }
        out += "│\n";
    }
    out + &format!("└{edge}┘\n")
}

fn colour(rank: usize) -> Style {
    COLOURS[rank % COLOURS.len()].on_default()
}

/// Returns the legend of the colours.
fn legend(ranks: usize) -> String {
    let mut out = String::new();
    for rank in 0..ranks.min(COLOURS.len()) {
        out += &format!("{} rank {rank}  ", term::styled(colour(rank), "■"));
    }
    if ranks > COLOURS.len() {
        out += "and so on  ";
    }
    out + &format!("{} cut\n", term::styled(CUT, "■"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith_core::matrix::Csr;

    fn plain(raster: &Raster) -> String {
        anstream::adapter::strip_str(&drawn(raster)).to_string()
    }

    /// A diagonal of eight rows and an entry in its lower left corner.
    fn terms() -> Terms<'static> {
        let mut entries: Vec<(u32, u32, f64)> = (0..8).map(|i| (i, i, 1.0)).collect();
        entries.push((7, 0, 1.0));
        Terms::csr(&Csr::from_triplets(8, 8, &entries).unwrap()).unwrap()
    }

    #[test]
    fn dots_stand_where_entries_are() {
        let raster = Raster::of(&terms(), 100, None);
        assert_eq!(raster.cells, 8);
        // Two dots of a diagonal in each character.
        assert_eq!(plain(&raster), "┌────┐\n│⠑⢄⠀⠀│\n│⡀⠀⠑⢄│\n└────┘\n");
        let small = Raster::of(&terms(), 2, None);
        assert_eq!((small.cells, small.count), (2, vec![4, 0, 1, 4]));
    }

    #[test]
    fn ranks_follow_one_another_and_what_is_cut_is_told() {
        // Even rows belong to rank 0.
        let partition = Partition::new((0..8).map(|i| i % 2).collect(), 2).unwrap();
        let order = Order::of(&partition);
        assert_eq!(order.place, [0, 4, 1, 5, 2, 6, 3, 7]);
        let raster = Raster::of(&terms(), 8, Some(&order));
        assert_eq!(raster.owner, [0, 0, 0, 0, 1, 1, 1, 1]);
        let cut: Vec<usize> = (0..64).filter(|&at| raster.is_cut(at)).collect();
        assert_eq!(cut, [7 * 8]);
        let text = drawn(&raster);
        assert!(
            text.contains("\u{1b}[34m") && text.contains("\u{1b}[32m") && text.contains("\u{1b}[31m"),
            "{text:?}"
        );
        assert_eq!(plain(&raster), "┌────┐\n│⠑⢄⠀⠀│\n│⡀⠀⠑⢄│\n└────┘\n");
    }
}
