//! Solves with the factors of all fronts, one right-hand side at a time.
//!
//! A solve reads each factor once, so it takes as long as that takes.

use super::front::{Wide, subtract, subtract_columns};
use super::multifrontal::{Kind, Multifrontal, Node};

/// Vectors of a solve, by positions of the elimination.
#[derive(Default)]
pub(super) struct Vectors {
    /// Values by the rows of pivots.
    x: Vec<f64>,
    /// Values by the columns of pivots.
    y: Vec<f64>,
    front: Vec<f64>,
}

impl Multifrontal {
    /// Computes x ← A⁻¹ x, or x ← A⁻ᵀ x if `transposed` is true.
    pub fn solve(&self, transposed: bool, x: &mut [f64], work: &mut Vectors) {
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || self.sweep(transposed, x, work),
        ));
    }

    #[inline(always)]
    fn sweep(&self, transposed: bool, b: &mut [f64], work: &mut Vectors) {
        let n = b.len();
        let Vectors { x, y, front } = work;
        x.resize(n, 0.0);
        y.resize(n, 0.0);
        let (rows, columns) = (&self.plan.row_place[..], &self.plan.tree.place[..]);
        let (row_scale, column_scale) = (&self.plan.row_scale[..], &self.plan.column_scale[..]);
        let (from, to) = if transposed { (columns, rows) } else { (rows, columns) };
        let (scale, rescale) = if transposed { (column_scale, row_scale) } else { (row_scale, column_scale) };
        for (i, v) in b.iter().enumerate() {
            let at = from[i] as usize;
            x[at] = scale.get(at).copied().unwrap_or(1.0) * v;
        }
        // Symmetric factors are their own transpose; their scales may differ by signs of columns.
        let transposed = transposed && self.kind == Kind::Lu;
        for (s, node) in self.nodes.iter().enumerate() {
            self.forward(s, node, transposed, x, front);
        }
        for (s, node) in self.nodes.iter().enumerate().rev() {
            self.backward(s, node, transposed, x, y, front);
        }
        for (i, v) in b.iter_mut().enumerate() {
            let at = to[i] as usize;
            *v = rescale.get(at).copied().unwrap_or(1.0) * y[at];
        }
    }

    /// Visits the positions of a front and their local numbers from `first` on.
    #[inline(always)]
    fn positions(
        &self,
        s: usize,
        node: &Node,
        columns: bool,
        first: usize,
        mut visit: impl FnMut(usize, usize),
    ) {
        if let Some(lists) = &node.lists {
            let list = &lists[usize::from(columns && self.kind == Kind::Lu)];
            list.iter().enumerate().skip(first).for_each(|(k, &i)| visit(k, i as usize));
            return;
        }
        let (own, rows) = (self.plan.tree.pivots(s), self.plan.tree.rows(s));
        let p = own.len();
        own.enumerate().skip(first).for_each(|(k, i)| visit(k, i as usize));
        let skipped = first.saturating_sub(p);
        rows.iter().enumerate().skip(skipped).for_each(|(k, &i)| visit(p + k, i as usize));
    }

    /// Solves with the first factor of a front, L or Uᵀ.
    #[inline(always)]
    fn forward(&self, s: usize, node: &Node, transposed: bool, x: &mut [f64], w: &mut Vec<f64>) {
        let (f, q) = (node.order as usize, node.pivots as usize);
        w.clear();
        w.resize(f, 0.0);
        self.positions(s, node, transposed, 0, |k, i| w[k] = if k < q { x[i] } else { 0.0 });
        let parts = Parts::of(node, self.kind);
        let (top, below) = w.split_at_mut(q);
        if transposed {
            for k in 0..q {
                let known: f64 = parts.above(k).iter().zip(&*top).map(|(u, w)| u * w).sum();
                top[k] = (top[k] - known) / parts.column(k)[0];
            }
            subtract_columns(below, parts.right, f - q, 0, 0..q, top);
        } else {
            for k in 0..q {
                let (own, rest) = top.split_at_mut(k + 1);
                let l = parts.column(k);
                own[k] /= if self.kind == Kind::Cholesky { l[0] } else { 1.0 };
                subtract(rest, own[k], &l[1..]);
            }
            subtract_columns(below, parts.below, f - q, 0, 0..q, top);
        }
        self.positions(s, node, transposed, 0, |k, i| x[i] = if k < q { w[k] } else { x[i] + w[k] });
    }

    /// Solves with the second factor of a front: U, Lᵀ, or B and Lᵀ.
    #[inline(always)]
    fn backward(&self, s: usize, node: &Node, transposed: bool, x: &[f64], y: &mut [f64], w: &mut Vec<f64>) {
        let (f, q) = (node.order as usize, node.pivots as usize);
        w.clear();
        w.resize(f, 0.0);
        self.positions(s, node, !transposed, q, |k, i| w[k] = y[i]);
        self.positions(s, node, transposed, 0, |k, i| w[k] = if k < q { x[i] } else { w[k] });
        let parts = Parts::of(node, self.kind);
        let (top, below) = w.split_at_mut(q);
        let beside =
            |part: &[f64], k: usize, below: &[f64]| dot(&part[k * (f - q)..(k + 1) * (f - q)], below);
        if self.kind == Kind::Lu && !transposed {
            top.iter_mut().enumerate().for_each(|(k, top)| *top -= beside(parts.right, k, below));
            for k in (0..q).rev() {
                let (rest, own) = top.split_at_mut(k);
                own[0] /= parts.column(k)[0];
                subtract(rest, own[0], parts.above(k));
            }
        } else {
            if self.kind == Kind::Indefinite {
                divide(top, |k| parts.column(k)[0], &node.off);
            }
            for k in (0..q).rev() {
                let (own, rest) = top.split_at_mut(k + 1);
                let l = parts.column(k);
                own[k] -= beside(parts.below, k, below) + dot(&l[1..], rest);
                own[k] /= if self.kind == Kind::Cholesky { l[0] } else { 1.0 };
            }
        }
        self.positions(s, node, !transposed, 0, |k, i| {
            if k < q {
                y[i] = w[k];
            }
        });
    }
}

/// The factors of a front.
#[derive(Clone, Copy)]
struct Parts<'n> {
    pivots: usize,
    /// The rows of pivots: a square, or the lower triangle.
    top: &'n [f64],
    is_square: bool,
    below: &'n [f64],
    right: &'n [f64],
}

impl<'n> Parts<'n> {
    #[inline(always)]
    fn of(node: &'n Node, kind: Kind) -> Self {
        let (order, pivots, is_square) = (node.order as usize, node.pivots as usize, kind == Kind::Lu);
        let corner = if is_square { pivots * pivots } else { pivots * (pivots + 1) / 2 };
        let (top, rest) = node.values.split_at(corner);
        let (below, right) = rest.split_at(pivots * (order - pivots));
        Self { pivots, top, is_square, below, right }
    }

    /// Returns a column of the rows of pivots, from the diagonal on.
    #[inline(always)]
    fn column(&self, k: usize) -> &'n [f64] {
        let q = self.pivots;
        let begin = if self.is_square { k * (q + 1) } else { k * (2 * q + 1 - k) / 2 };
        &self.top[begin..begin + q - k]
    }

    /// Returns a column of U above the diagonal.
    #[inline(always)]
    fn above(&self, k: usize) -> &'n [f64] {
        &self.top[k * self.pivots..k * self.pivots + k]
    }
}

/// Divides by B with this diagonal, whose entries below it are `off`; empty if there are none.
#[inline(always)]
fn divide(x: &mut [f64], diagonal: impl Fn(usize) -> f64, off: &[f64]) {
    let mut k = 0;
    while k < x.len() {
        let d = diagonal(k);
        match off.get(k) {
            Some(&o) if o != 0.0 => {
                let e = diagonal(k + 1);
                let det = d * e - o * o;
                (x[k], x[k + 1]) = ((e * x[k] - o * x[k + 1]) / det, (d * x[k + 1] - o * x[k]) / det);
                k += 2;
            }
            _ => {
                x[k] /= d;
                k += 1;
            }
        }
    }
}

/// Returns the inner product, in eight sums.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a8.remainder().iter().zip(b8.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a8.zip(b8) {
        for k in 0..8 {
            sums[k] += a[k] * b[k];
        }
    }
    sums.iter().sum::<f64>() + rest
}
