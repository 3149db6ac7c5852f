//! Finds the nodes of a field of vectors: components that alternate, or one component after the other.

use super::ScalarRows;

/// Number of nodes whose rows are looked at.
const SAMPLE: usize = 500;

/// Unknowns in the order of nodes.
pub(super) struct Nodes {
    /// Unknowns, node by node.
    pub unknowns: Vec<u32>,
    /// Number of unknowns of a node.
    pub block: usize,
    /// Unknowns without couplings that are in no node.
    pub apart: Vec<u32>,
    /// True if the components alternate in the numbering of the matrix.
    pub alternate: bool,
}

/// Orders the unknowns that `of` selects in nodes of one of these numbers of components, whichever fills the
/// blocks of nodes best. At least the share `full` of their entries has to be there. `alone` marks rows that
/// have only a diagonal entry.
pub(super) fn find(a: &ScalarRows, of: &[bool], alone: &[bool], components: &[usize], full: f64) -> Nodes {
    let own: Vec<u32> = (0..of.len()).filter(|&i| of[i]).map(|i| i as u32).collect();
    let mut best = (full, None);
    let mut offer = |unknowns: Vec<u32>, block: usize, apart: Vec<u32>, alternate: bool| {
        let share = fullness(a, of, alone, &unknowns, block);
        if share >= best.0 {
            best = (share, Some(Nodes { unknowns, block, apart, alternate }));
        }
    };
    for &block in components {
        if let Some((unknowns, apart)) = runs(&own, alone, block) {
            offer(unknowns, block, apart, true);
        }
        if own.len().is_multiple_of(block) {
            let nodes = own.len() / block;
            let pairs = (0..nodes).flat_map(|k| (0..block).map(move |c| (k, c)));
            offer(pairs.map(|(k, c)| own[c * nodes + k]).collect(), block, Vec::new(), false);
        }
    }
    best.1.unwrap_or(Nodes { unknowns: own, block: 1, apart: Vec::new(), alternate: false })
}

/// Cuts runs of consecutive numbers into nodes. Rows without couplings may be of another field, so they are
/// left out where a run has no whole number of nodes.
fn runs(own: &[u32], alone: &[bool], block: usize) -> Option<(Vec<u32>, Vec<u32>)> {
    let (mut unknowns, mut apart) = (Vec::with_capacity(own.len()), Vec::new());
    for run in own.chunk_by(|i, j| i + 1 == *j) {
        if run.len().is_multiple_of(block) {
            unknowns.extend(run);
            continue;
        }
        let before = unknowns.len();
        for &i in run {
            if alone[i as usize] { apart.push(i) } else { unknowns.push(i) }
        }
        if !(unknowns.len() - before).is_multiple_of(block) {
            return None;
        }
    }
    Some((unknowns, apart))
}

/// Returns the share of entries in the blocks of nodes that are not zero, in a sample of nodes.
fn fullness(a: &ScalarRows, of: &[bool], alone: &[bool], unknowns: &[u32], block: usize) -> f64 {
    let mut node = vec![u32::MAX; of.len()];
    unknowns.iter().zip(0u32..).for_each(|(&i, k)| node[i as usize] = k / block as u32);
    let nodes = unknowns.len() / block;
    let (mut entries, mut blocks, mut met) = (0usize, 0usize, Vec::new());
    for k in super::sample(nodes, SAMPLE) {
        let rows = &unknowns[k * block..(k + 1) * block];
        if rows.iter().any(|&i| alone[i as usize]) {
            continue;
        }
        met.clear();
        for &i in rows {
            met.extend(a.row(i as usize).map(|(j, _)| node[j]).filter(|node| *node != u32::MAX));
        }
        entries += met.len();
        met.sort_unstable();
        met.dedup();
        blocks += met.len();
    }
    entries as f64 / (blocks * block * block).max(1) as f64
}
