//! Strong couplings, and the nodes that stay in the next level, on a GPU: `kernels/amg_split.cu`. The host's are
//! `precond/multilevel/host/split.rs`, and the same.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device, launch};
use super::super::scan;
use crate::Result;
use crate::matrix::Bsr;
use crate::precond::multilevel::host::split::SEED;

/// Rounds of PMIS that are launched at first, and between two looks at how many nodes are undecided: most graphs need five to seven.
const FIRST_ROUNDS: u32 = 6;
const MORE_ROUNDS: u32 = 3;
const WHAT: &str = "the nodes of a coarse level";

/// What strength and PMIS say of a matrix.
pub(super) struct Split {
    /// Of each entry, as `kernels/amg.cuh` has them.
    pub flags: Buffer<u8>,
    /// Of each node how many nodes before it stay, and behind them how many stay in all.
    pub number: Buffer<i64>,
    /// How many nodes stay.
    pub coarse: usize,
}

fn kernel(entry: &'static str) -> Kernel {
    Kernel { file: "amg_split.cu", entry, defines: Vec::new() }
}

/// Every kernel of the file.
pub(super) fn kernels() -> [Kernel; 6] {
    ["strong_entries", "pmis_begin", "pmis_lose", "pmis_decide", "pmis_staying", "coarse_columns"].map(kernel)
}

/// Blocks of 256 threads for so many threads, as many as a grid of loops needs.
pub(super) fn grid(device: &Device, threads: usize) -> usize {
    threads.div_ceil(256).clamp(1, 32 * device.multiprocessors())
}

/// The binary logarithm of the lanes that share a row: half of a mean row, for that many are strong, or undecided, at most.
fn shift(rows: usize, entries: usize) -> i32 {
    entries.div_ceil(2 * rows.max(1)).clamp(1, 32).next_power_of_two().ilog2() as i32
}

/// Strength, and PMIS of level `level`.
pub(super) fn split(space: &Cuda, a: &Bsr, theta: f64, level: usize) -> Result<Split> {
    let (device, on) = (space.device(), space.resident(a)?);
    let (rows, entries) = (a.block_rows(), a.blocks());
    let (n, shift) = (rows as i64, shift(rows, entries));
    let by_rows = grid(device, rows << shift);
    let (ptr, col) = (on.row_ptr.pointer(), on.col.pointer());
    let flags = device.room::<u8>(entries, WHAT)?;
    let counts = device.zeros::<u32>(rows, WHAT)?;
    let (weight, state) = (device.room::<u64>(rows, WHAT)?, device.room::<u8>(rows, WHAT)?);
    let lost = device.zeros::<u8>(rows, WHAT)?;
    let lists = [device.room::<u32>(rows, WHAT)?, device.room::<u32>(rows, WHAT)?];
    // Of three rounds how many nodes they left undecided.
    let left = device.zeros::<u32>(3, WHAT)?;
    let function = |entry| device.function(&kernel(entry));
    let (strong, begin) = (function("strong_entries")?, function("pmis_begin")?);
    let (lose, decide) = (function("pmis_lose")?, function("pmis_decide")?);
    let (flags_at, weight, state_at, lost) =
        (flags.pointer(), weight.pointer(), state.pointer(), lost.pointer());
    // SAFETY: the parameter types are the kernels', here and below; arrays have a number for each row or entry, and lists room for
    // every row.
    unsafe {
        let (values, counts) = (on.values.pointer(), counts.pointer());
        launch!(device, &strong, by_rows, 256, 0, n, ptr, col, values, shift, theta, flags_at, counts)?;
        let (seed, blocks) = (SEED + level as u64, grid(device, rows));
        launch!(device, &begin, blocks, 256, 0, n, seed, counts, weight, state_at)?;
    }
    let mut round = 0;
    loop {
        for _ in 0..if round == 0 { FIRST_ROUNDS } else { MORE_ROUNDS } {
            round += 1;
            // The first round looks at all nodes, the others at those that the round before has listed.
            let list = if round == 1 { 0 } else { lists[(round % 2) as usize].pointer() };
            let next = lists[((round + 1) % 2) as usize].pointer();
            let (count, to) = (left.at(((round + 2) % 3) as usize), left.at((round % 3) as usize));
            // SAFETY: as above; no list is read and written in one round.
            unsafe {
                launch!(
                    device, &lose, by_rows, 256, 0, n, ptr, col, shift, flags_at, weight, list, count, round,
                    lost, to
                )?;
                launch!(
                    device, &decide, by_rows, 256, 0, n, ptr, col, shift, flags_at, weight, list, count,
                    round, lost, state_at, next, to
                )?;
            }
        }
        let mut undecided = [0];
        device.read(&left, (round % 3) as usize, &mut undecided)?;
        if undecided == [0] {
            break;
        }
    }
    let stays = counts;
    // SAFETY: as above; columns are rows of this matrix, whose terms have no halo.
    unsafe {
        let (staying, coarse) = (function("pmis_staying")?, function("coarse_columns")?);
        launch!(device, &staying, grid(device, rows), 256, 0, n, state_at, stays.pointer())?;
        launch!(device, &coarse, grid(device, entries), 256, 0, entries as i64, col, state_at, flags_at)?;
    }
    let number = scan::scan(device, &stays)?;
    let coarse = scan::last(device, &number)? as usize;
    Ok(Split { flags, number, coarse })
}

#[cfg(test)]
mod tests {
    #[test]
    fn lanes_share_a_row_by_its_length() {
        let lanes = |rows, entries| 1 << super::shift(rows, entries);
        assert_eq!([lanes(0, 0), lanes(10, 0), lanes(10, 10), lanes(10, 30)], [1, 1, 1, 2]);
        assert_eq!([lanes(10, 70), lanes(10, 270), lanes(10, 9000)], [4, 16, 32]);
    }
}
