//! The subdomain matrices that the vendor's library gets: overlap and the pattern of ILU(k), by the textbook.
//!
//! Written on its own, so that it also checks the library's plan: fill is found row by row by elimination, where the library looks
//! for paths. A thread a subdomain.

use krylith::Result;
use krylith::matrix::Bsr;
use krylith::operator::Terms;
use krylith::partition::{SubdomainCut, Subdomains};
use krylith::precond::{FILL, SchwarzPlan};

/// Overlap and fill of the subdomain matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub parts: usize,
    pub overlap: usize,
    pub fill: usize,
}

/// One subdomain: its block rows by ascending number, and the pattern of its factors with the block that each entry comes from.
struct Part {
    rows: Vec<u32>,
    row_ptr: Vec<usize>,
    column: Vec<u32>,
    source: Vec<u32>,
}

/// The rows that belong to each of at most about `parts` parts.
///
/// # Errors
/// What the cut finds wrong with the matrix.
pub(crate) fn cut(a: &Bsr, coordinates: Option<&[[f64; 3]]>, parts: usize) -> Result<Subdomains> {
    let rows = a.block_rows().div_ceil(parts.max(1)).max(1);
    Ok(Subdomains::cut(&Terms::bsr(a), coordinates, SubdomainCut::Auto, rows)?.0)
}

/// All subdomain matrices behind one another.
pub(crate) fn plan(a: &Bsr, parts: &Subdomains, shape: Shape) -> SchwarzPlan {
    let made: Vec<Part> = std::thread::scope(|scope| {
        let one = |p: usize| scope.spawn(move || part(a, parts.rows(p), shape));
        let threads: Vec<_> = (0..parts.count()).map(one).collect();
        threads.into_iter().map(|t| t.join().expect("a subdomain's pattern is found")).collect()
    });
    let mut plan = SchwarzPlan {
        block: a.block(),
        subdomains: vec![0],
        result: vec![0; a.block_rows()],
        row_ptr: vec![0],
        ..SchwarzPlan::default()
    };
    for (p, part) in made.into_iter().enumerate() {
        let (row, entry) = (plan.node.len(), plan.column.len());
        for &own in parts.rows(p) {
            let at = part.rows.binary_search(&own).expect("a part has its own rows");
            plan.result[own as usize] = (row + at) as u32;
        }
        plan.row_ptr.extend(part.row_ptr[1..].iter().map(|&at| (entry + at) as i64));
        for i in 0..part.rows.len() {
            let columns = &part.column[part.row_ptr[i]..part.row_ptr[i + 1]];
            let at = columns.binary_search(&(i as u32)).expect("every row has its diagonal");
            plan.diagonal.push((entry + part.row_ptr[i] + at) as i64);
        }
        plan.column.extend(part.column.iter().map(|&c| row as u32 + c));
        plan.source.extend(part.source);
        plan.node.extend(part.rows);
        plan.subdomains.push(plan.node.len() as u32);
    }
    plan
}

fn part(a: &Bsr, own: &[u32], shape: Shape) -> Part {
    let mut local = vec![u32::MAX; a.block_rows()];
    let mut rows = own.to_vec();
    rows.iter().for_each(|&row| local[row as usize] = 0);
    let mut from = 0;
    for _ in 0..shape.overlap {
        let end = rows.len();
        for at in from..end {
            let row = rows[at] as usize;
            for &column in &a.col()[a.row_ptr()[row]..a.row_ptr()[row + 1]] {
                if local[column as usize] == u32::MAX {
                    local[column as usize] = 0;
                    rows.push(column);
                }
            }
        }
        from = end;
    }
    rows.sort_unstable();
    for (i, &row) in rows.iter().enumerate() {
        local[row as usize] = i as u32;
    }
    let mut made = Part { row_ptr: vec![0], column: Vec::new(), source: Vec::new(), rows };
    // Levels of what is stored right of the diagonal, which later rows eliminate with.
    let mut levels: Vec<u8> = Vec::new();
    let mut diagonal = Vec::with_capacity(made.rows.len());
    let mut entries: Vec<(u32, u8, u32)> = Vec::new();
    for (i, &row) in made.rows.iter().enumerate() {
        let row = row as usize;
        entries.clear();
        for p in a.row_ptr()[row]..a.row_ptr()[row + 1] {
            let column = local[a.col()[p] as usize];
            if column != u32::MAX {
                entries.push((column, 0, p as u32));
            }
        }
        entries.sort_unstable();
        if let Err(at) = entries.binary_search_by_key(&(i as u32), |e| e.0) {
            entries.insert(at, (i as u32, 0, FILL));
        }
        let mut at = 0;
        while entries[at].0 < i as u32 {
            let (k, level, _) = entries[at];
            // What row k has right of its diagonal comes in, one level further away; both lists ascend.
            let mut to = at + 1;
            for p in diagonal[k as usize] + 1..made.row_ptr[k as usize + 1] {
                let (column, new) = (made.column[p], level + levels[p] + 1);
                if usize::from(new) > shape.fill {
                    continue;
                }
                while entries.get(to).is_some_and(|e| e.0 < column) {
                    to += 1;
                }
                match entries.get_mut(to).filter(|e| e.0 == column) {
                    Some(there) => there.1 = there.1.min(new),
                    None => entries.insert(to, (column, new, FILL)),
                }
            }
            at += 1;
        }
        diagonal.push(made.column.len() + at);
        for &(column, level, source) in &entries {
            made.column.push(column);
            levels.push(level);
            made.source.push(source);
        }
        made.row_ptr.push(made.column.len());
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(n: usize) -> Bsr {
        crate::ildu0::laplacian([n, n, 1], 2).unwrap()
    }

    /// Levels of fill by elimination of a dense table.
    fn dense(a: &Bsr, fill: usize) -> Vec<Vec<u32>> {
        let n = a.block_rows();
        let far = usize::MAX / 4;
        let mut level = vec![vec![far; n]; n];
        for (i, row) in level.iter_mut().enumerate() {
            a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].iter().for_each(|&j| row[j as usize] = 0);
        }
        for i in 0..n {
            for k in 0..i {
                if level[i][k] > fill {
                    continue;
                }
                for j in k + 1..n {
                    level[i][j] = level[i][j].min(level[i][k] + level[k][j] + 1);
                }
            }
        }
        let keep = |row: &Vec<usize>| (0..n as u32).filter(|&j| row[j as usize] <= fill).collect();
        level.iter().map(keep).collect()
    }

    #[test]
    fn fill_of_one_part_is_that_of_elimination() {
        let a = grid(6);
        for fill in 0..4 {
            let shape = Shape { parts: 1, overlap: 1, fill };
            let made = plan(&a, &Subdomains::whole(36), shape);
            let rows: Vec<Vec<u32>> = (0..36)
                .map(|i| made.column[made.row_ptr[i] as usize..made.row_ptr[i + 1] as usize].to_vec())
                .collect();
            assert_eq!(rows, dense(&a, fill), "level {fill}");
            let stored = made.source.iter().filter(|&&s| s != FILL).count();
            assert_eq!(stored, a.blocks(), "level {fill}");
        }
    }

    #[test]
    fn every_node_has_one_result_and_overlap_grows_by_layers() {
        let a = grid(8);
        let parts = cut(&a, None, 4).unwrap();
        let mut before = 0;
        for overlap in 0..3 {
            let made = plan(&a, &parts, Shape { parts: 4, overlap, fill: 1 });
            assert_eq!(made.subdomains.len(), parts.count() + 1);
            assert!(made.rows() > before && (overlap > 0 || made.rows() == 64), "{} rows", made.rows());
            before = made.rows();
            for (node, &row) in made.result.iter().enumerate() {
                assert_eq!(made.node[row as usize] as usize, node);
            }
            for (row, &at) in made.diagonal.iter().enumerate() {
                assert_eq!(made.column[at as usize] as usize, row);
            }
            for entry in 0..made.entries() {
                if made.source[entry] != FILL {
                    let column = made.node[made.column[entry] as usize];
                    assert_eq!(a.col()[made.source[entry] as usize], column);
                }
            }
        }
    }
}
