//! The stream, read as the kernels read it, applies the factors of its plan.

use super::*;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::partition::Subdomains;

struct Numbers(u64);
impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
    fn number(&mut self) -> f64 {
        self.below(2001) as f64 / 1000.0 - 1.0
    }
}

fn matrix(rng: &mut Numbers, b: usize, n: usize, per_row: usize, hub: bool) -> Bsr {
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n {
        let mut columns: Vec<u32> = (0..rng.below(2 * per_row + 1)).map(|_| rng.below(n) as u32).collect();
        columns.push(i as u32);
        if hub {
            columns.push(0);
        }
        if hub && (i == 0 || i == n / 2) {
            columns.extend(0..n as u32);
        }
        columns.sort_unstable();
        columns.dedup();
        col.extend(columns);
        row_ptr.push(col.len());
    }
    let values = vec![1.0; col.len() * b * b];
    Bsr::new(b, n, n, row_ptr, col, values).expect("a valid pattern")
}

/// v ← the factors of subdomain p applied to v, through the stream.
fn apply(
    plan: &Plan,
    stream: &Stream,
    p: usize,
    width: usize,
    stage: usize,
    warps: usize,
    entry: &[f64],
    v: &mut [f64],
) {
    let order = plan.order;
    let at = |place: &[u8], i: usize| u16::from_le_bytes([place[2 * i], place[2 * i + 1]]) as usize;
    for c in stream.runs[p] as usize..stream.runs[p + 1] as usize {
        let [place, values] = stream.chunks[c].map(|u| 16 * u as usize);
        let [place_end, values_end] = stream.chunks[c + 1].map(|u| 16 * u as usize);
        assert!(place_end - place + values_end - values <= stage, "chunk {c} is too large");
        let place = &stream.places[place..place_end];
        let steps = at(place, 0);
        assert_eq!(16 * at(place, 1), place.len());
        let sync = (0..4).map(|part| (at(place, 4 + part) as u64) << (16 * part)).sum::<u64>();
        let mut before = v.to_vec();
        for step in 0..steps {
            // What is made between two waits is nobody else's column.
            for i in step * warps..(step + 1) * warps {
                let s = 8 + 8 * i;
                let (columns, positions, blocks, skipped) =
                    (at(place, s + 1), at(place, s + 2), at(place, s + 3), at(place, s + 5));
                let (rows, flags) = (at(place, s + 4) & 255, at(place, s + 4) >> 8);
                let size = (blocks + (flags & 1)) * rows * order * order * width;
                assert!(
                    16 * at(place, s) + size <= values_end - values,
                    "values of a slice end in its chunk"
                );
                assert!(rows * order <= 32);
                for row in 0..rows {
                    let position = if flags & 2 != 0 { at(place, positions + row) } else { positions + row };
                    let i = plan.ptr[p] + position;
                    let (first, end) = match flags & 4 {
                        0 => (plan.row_ptr[i] + skipped, plan.diagonal[i]),
                        _ => (plan.diagonal[i] + 1 + skipped, plan.row_ptr[i + 1]),
                    };
                    let mut sum = before[position * order..][..order].to_vec();
                    for k in 0..blocks {
                        let column = at(place, columns + k * rows + row);
                        if first + k < end {
                            assert_eq!(column, plan.columns[first + k] as usize);
                            let a = &entry[(first + k) * order * order..][..order * order];
                            for r in 0..order {
                                sum[r] -= (0..order)
                                    .map(|c| a[r * order + c] * before[column * order + c])
                                    .sum::<f64>();
                            }
                        }
                    }
                    if flags & 1 != 0 {
                        let d = &entry[plan.diagonal[i] * order * order..][..order * order];
                        sum =
                            (0..order).map(|r| (0..order).map(|c| d[r * order + c] * sum[c]).sum()).collect();
                    }
                    v[position * order..][..order].copy_from_slice(&sum);
                }
            }
            if sync >> step & 1 == 1 {
                before.copy_from_slice(v);
            }
        }
    }
}

#[test]
fn a_stream_applies_its_plan() {
    let mut rng = Numbers(7);
    for (b, n, per_row, hub, width, stage, warps) in [
        (1, 300, 4, false, 8, 4096, 2),
        (1, 700, 3, true, 4, 4096, 4),
        (3, 200, 5, false, 8, 8192, 3),
        (4, 90, 6, true, 4, 8192, 8),
        (8, 64, 5, true, 8, 16384, 4),
        (2, 1, 1, false, 8, 1024, 1),
    ] {
        let a = matrix(&mut rng, b, n, per_row, hub);
        let labels: Vec<u32> = (0..n).map(|i| (3 * i / n) as u32).collect();
        let plan = Plan::new(&Terms::bsr(&a), &Subdomains::from_labels(&labels, 3).expect("labels"), 1)
            .expect("a plan");
        let stream = lay_out(&plan, width, stage, warps).expect("a stream");
        let entry: Vec<f64> = (0..plan.columns.len() * b * b).map(|_| 0.1 * rng.number()).collect();
        for p in 0..plan.ptr.len() - 1 {
            let count = plan.ptr[p + 1] - plan.ptr[p];
            let x: Vec<f64> = (0..count * b).map(|_| rng.number()).collect();
            let mut v = x.clone();
            apply(&plan, &stream, p, width, stage, warps, &entry, &mut v);
            // (L D) with D⁻¹, then U, position by position.
            let mut y = x;
            for (upper, i) in (0..count).map(|i| (false, i)).chain((0..count).rev().map(|i| (true, i))) {
                let at = plan.ptr[p] + i;
                let d = plan.diagonal[at];
                let entries = if upper { d + 1..plan.row_ptr[at + 1] } else { plan.row_ptr[at]..d };
                let mut sum = y[i * b..][..b].to_vec();
                for e in entries {
                    let j = plan.columns[e] as usize;
                    for r in 0..b {
                        sum[r] -= (0..b).map(|c| entry[(e * b + r) * b + c] * y[j * b + c]).sum::<f64>();
                    }
                }
                if !upper {
                    sum = (0..b).map(|r| (0..b).map(|c| entry[(d * b + r) * b + c] * sum[c]).sum()).collect();
                }
                y[i * b..][..b].copy_from_slice(&sum);
            }
            let difference = v.iter().zip(&y).fold(0.0f64, |m, (v, y)| m.max((v - y).abs()));
            let largest = y.iter().fold(0.0f64, |m, y| m.max(y.abs()));
            assert!(
                difference <= 1e-12 * largest,
                "b={b} n={n} subdomain {p}: {difference:e} of {largest:e}"
            );
        }
    }
}
