//! Sums of sparse scalar rows, in which each column occurs once.

/// Reusable memory of a thread: the columns of one row in the order of their arrival, and their sums.
///
/// The code does not branch on whether a column is present already. A branch could not be predicted and would
/// cost up to a third more time.
pub(super) struct Sums {
    /// For each column, `base` plus its position in `nodes`. A column that is absent has a number below
    /// `base`.
    at: Vec<u32>,
    base: u32,
    /// The columns; entries after the first `len` are spare capacity.
    pub nodes: Vec<u32>,
    /// The sums of the columns, with spare capacity.
    pub weights: Vec<f64>,
    /// The number of columns.
    pub len: usize,
}

impl Sums {
    /// Starts empty, for `n` possible columns.
    pub fn new(n: usize) -> Self {
        Self { at: vec![0; n], base: 1, nodes: Vec::new(), weights: Vec::new(), len: 0 }
    }

    /// Clears the last row.
    #[inline]
    pub fn begin(&mut self) {
        self.base += self.len as u32;
        self.len = 0;
        if self.base > u32::MAX / 2 {
            self.at.fill(0);
            self.base = 1;
        }
    }

    /// Reserves capacity for `more` columns.
    #[inline]
    pub fn reserve(&mut self, more: usize) {
        if self.nodes.len() < self.len + more + 1 {
            self.nodes.resize(2 * (self.len + more + 1), 0);
            self.weights.resize(self.nodes.len(), 0.0);
        }
    }

    /// Adds `scale` times these weights in these columns. The sum of a new column starts from 0.
    #[inline]
    pub fn add(&mut self, scale: f64, nodes: &[u32], weights: &[f64]) {
        self.reserve(nodes.len());
        let Self { at, base, nodes: own, weights: sums, len } = self;
        let (base, mut count) = (*base, *len);
        for (&node, &weight) in nodes.iter().zip(weights) {
            let at = &mut at[node as usize];
            let new = *at < base;
            let place = if new { count } else { (*at - base) as usize };
            *at = base + place as u32;
            own[place] = node;
            let before = sums[place];
            sums[place] = if new { 0.0 } else { before } + scale * weight;
            count += usize::from(new);
        }
        *len = count;
    }

    /// Adds the columns whose flags include all of `wanted`. The caller writes their sums later.
    #[inline]
    pub fn name(&mut self, nodes: &[u32], flags: &[u8], wanted: u8) {
        self.reserve(nodes.len());
        let Self { at, base, nodes: own, len, .. } = self;
        let (base, mut count) = (*base, *len);
        for (&node, flags) in nodes.iter().zip(flags) {
            let at = &mut at[node as usize];
            let new = (flags & wanted == wanted) & (*at < base);
            own[count] = node;
            *at = if new { base + count as u32 } else { *at };
            count += usize::from(new);
        }
        *len = count;
    }

    /// Returns the position of a column, or the number of columns if it is absent.
    #[inline]
    pub fn place(&self, node: u32) -> usize {
        (self.at[node as usize].wrapping_sub(self.base) as usize).min(self.len)
    }
}
