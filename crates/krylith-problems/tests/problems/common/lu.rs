//! A direct solver for references: Gaussian elimination with partial pivoting, on the envelope of the rows.

use krylith_core::matrix::Csr;

/// Numbers of a row from column `first` on; those before `begin` are eliminated.
struct Row {
    first: usize,
    begin: usize,
    values: Vec<f64>,
}

impl Row {
    /// From the first column that is not eliminated.
    fn rest(&self) -> &[f64] {
        &self.values[self.begin - self.first..]
    }
}

/// P A = L U, as the steps that made it.
pub struct Lu {
    a: Csr,
    /// Row k of U, from the diagonal.
    u: Vec<Row>,
    /// For each step k the row exchanged with row k, and the multiples of row k subtracted from other rows.
    steps: Vec<(usize, Vec<(usize, f64)>)>,
}

impl Lu {
    pub fn new(a: &Csr) -> Self {
        let n = a.rows();
        let mut bandwidth = 0; // how far below the diagonal a column reaches: exchanges keep it
        let mut u: Vec<Row> = (0..n)
            .map(|i| {
                let (col, values) = a.row(i);
                let begin = col.first().map_or(i, |&j| j as usize).min(i);
                let mut row = vec![0.0; col.last().map_or(i, |&j| j as usize).max(i) + 1 - begin];
                col.iter().zip(values).for_each(|(&j, v)| row[j as usize - begin] = *v);
                bandwidth = bandwidth.max(i - begin);
                Row { first: begin, begin, values: row }
            })
            .collect();
        let mut steps = Vec::with_capacity(n);
        for k in 0..n {
            let below = k + 1..n.min(k + bandwidth + 1);
            let entry = |row: &Row| if row.begin == k { row.rest()[0].abs() } else { 0.0 };
            let pivot = (k..below.end).max_by(|&i, &j| entry(&u[i]).total_cmp(&entry(&u[j]))).unwrap();
            assert!(entry(&u[pivot]) > 0.0, "singular at row {k} of {n}");
            u.swap(k, pivot);
            let (done, rest) = u.split_at_mut(k + 1);
            let mut multiples = Vec::new();
            for (i, row) in below.zip(rest).filter(|(_, row)| row.begin == k) {
                let top = done[k].rest();
                let l = row.rest()[0] / top[0];
                if l != 0.0 {
                    let at = k - row.first;
                    row.values.resize(row.values.len().max(at + top.len()), 0.0);
                    row.values[at..].iter_mut().zip(top).for_each(|(v, t)| *v -= l * t);
                    multiples.push((i, l));
                }
                row.begin += 1;
            }
            steps.push((pivot, multiples));
        }
        Self { a: a.clone(), u, steps }
    }

    /// Overwrites b by the solution x of A x = b, and checks x with A, so that the reference does not rely on
    /// its factors.
    pub fn solve(&self, b: &mut [f64]) {
        let rhs = b.to_vec();
        for (k, (pivot, multiples)) in self.steps.iter().enumerate() {
            b.swap(k, *pivot);
            multiples.iter().for_each(|&(i, l)| b[i] -= l * b[k]);
        }
        for (k, row) in self.u.iter().enumerate().rev() {
            let row = row.rest();
            let known: f64 = row[1..].iter().zip(&b[k + 1..]).map(|(u, x)| u * x).sum();
            b[k] = (b[k] - known) / row[0];
        }
        for (i, right) in rhs.iter().enumerate() {
            let (col, values) = self.a.row(i);
            let terms = || col.iter().zip(values).map(|(&j, v)| v * b[j as usize]);
            let size = terms().fold(right.abs(), |sum, term| sum + term.abs());
            let residual = right - terms().sum::<f64>();
            assert!(
                residual.abs() <= 1e-11 * size + f64::MIN_POSITIVE,
                "row {i}: residual {residual:e} of {size:e}"
            );
        }
    }
}
