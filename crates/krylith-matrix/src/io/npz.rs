//! SciPy's sparse `.npz` (`scipy.sparse.save_npz`): csr, csc, coo, bsr and dia, compressed or not.

use std::io::{Cursor, Read};
use std::path::Path;

use super::Matrix;
use super::columns::into_rows;
use super::matrix_market::Symmetry;
use super::numpy::Npy;
use super::source::{Rows, believable, load, name_file, tidy_rows};
use crate::matrix::{Bsr, Csr, Dia};
use crate::{Error, Result};

/// Reads a sparse matrix in its saved format; csc, coo and non-square blocks become csr.
///
/// Unsorted rows are sorted and duplicates summed.
///
/// # Errors
/// A damaged archive, an archive without a sparse matrix, missing or malformed arrays, indices out of range,
/// complex values, NaN and infinities.
pub fn read(path: impl AsRef<Path>) -> Result<Matrix> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Matrix> {
    let archive = zip::ZipArchive::new(Cursor::new(bytes))
        .map_err(|e| Error::format(path, format!("the archive is damaged or cut short ({e})")))?;
    let mut file = Npz { path, archive, unpacked: 0 };
    if !file.has("format") {
        let message =
            "no sparse matrix in this archive (it has no `format`); save it with scipy.sparse.save_npz";
        return Err(Error::format(path, message));
    }
    let bytes = file.member("format", at_most(1))?;
    let format = Npy::parse(path, "`format`", &bytes)?.text().unwrap_or_default();
    let (rows, columns) = file.shape()?;
    match &format[..] {
        "csr" => csr(&mut file, rows, columns),
        "csc" => {
            let stored = stored(&mut file, columns, rows)?;
            into_rows(path, [rows, columns], stored, Symmetry::General, file.unpacked).map(Matrix::Csr)
        }
        "coo" => coo(&mut file, rows, columns),
        "bsr" => bsr(&mut file, rows, columns),
        "dia" => dia(&mut file, rows, columns),
        other => {
            let message = format!("the sparse format `{other}` is not supported: save A.tocsr()");
            Err(Error::format(path, message))
        }
    }
}

/// The header of a member ends within this many bytes.
const HEADER: u64 = 1 << 16;
/// Largest average number of times that an archive may list a position.
const DUPLICATES: usize = 64;

fn product(shape: &[usize]) -> usize {
    shape.iter().fold(1, |n, &m| n.saturating_mul(m))
}

fn exactly(count: usize) -> impl FnOnce(&[usize]) -> Result<(), String> {
    move |shape| match product(shape) {
        n if n == count => Ok(()),
        n => Err(format!("it has {n} entries; expected {count}")),
    }
}

fn at_most(count: usize) -> impl FnOnce(&[usize]) -> Result<(), String> {
    move |shape| match product(shape) {
        n if n <= count => Ok(()),
        n => Err(format!("it has {n} entries; expected at most {count}")),
    }
}

struct Npz<'a> {
    path: &'a Path,
    archive: zip::ZipArchive<Cursor<&'a [u8]>>,
    /// Total bytes of the members read so far; the sizes that the archive itself states may be wrong.
    unpacked: usize,
}

impl Npz<'_> {
    fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Reads a member whose shape passes `fits`. The header is read before the rest is unpacked, and no more
    /// bytes than the header announces are unpacked.
    fn member(&mut self, name: &str, fits: impl FnOnce(&[usize]) -> Result<(), String>) -> Result<Vec<u8>> {
        let bad = |e: &dyn std::fmt::Display| Error::format(self.path, format!("`{name}`: {e}"));
        let mut member = self.archive.by_name(&format!("{name}.npy")).map_err(|e| bad(&e))?;
        let mut bytes = Vec::new(); // grows as content arrives
        member.by_ref().take(HEADER).read_to_end(&mut bytes).map_err(|e| bad(&e))?;
        let npy = Npy::header(self.path, &format!("`{name}`"), &bytes)?;
        fits(&npy.shape).map_err(|e| bad(&e))?;
        let whole = npy.needed().and_then(|n| n.checked_add(npy.begin()));
        let rest = whole.map_or(0, |whole| whole.saturating_sub(bytes.len()));
        // One more byte makes the reader verify the checksum at the end.
        member.take(rest as u64 + 1).read_to_end(&mut bytes).map_err(|e| bad(&e))?;
        self.unpacked += bytes.len();
        Ok(bytes)
    }

    /// Refuses an implausible number of entries. Overlapping parts of a matrix list positions several times,
    /// but not without bound.
    fn check_count(&self, count: usize, [rows, columns]: [usize; 2]) -> Result<()> {
        if count <= rows.saturating_mul(columns).saturating_mul(DUPLICATES) {
            return Ok(());
        }
        let message =
            format!("the archive announces {count} entries, more than a {rows}×{columns} matrix can need");
        Err(Error::format(self.path, message))
    }

    /// The shape that the header of a member gives.
    fn shape_of(&mut self, name: &str) -> Result<Vec<usize>> {
        let bad = |e: &dyn std::fmt::Display| Error::format(self.path, format!("`{name}`: {e}"));
        let member = self.archive.by_name(&format!("{name}.npy")).map_err(|e| bad(&e))?;
        let mut bytes = Vec::new();
        member.take(HEADER).read_to_end(&mut bytes).map_err(|e| bad(&e))?;
        Ok(Npy::header(self.path, &format!("`{name}`"), &bytes)?.shape)
    }

    fn integers(
        &mut self,
        name: &str,
        fits: impl FnOnce(&[usize]) -> Result<(), String>,
    ) -> Result<Vec<i64>> {
        let bytes = self.member(name, fits)?;
        Npy::parse(self.path, &format!("`{name}`"), &bytes)?.integers(self.path)
    }

    /// Numbers and their shape.
    fn reals(
        &mut self,
        name: &str,
        fits: impl FnOnce(&[usize]) -> Result<(), String>,
    ) -> Result<(Vec<usize>, Vec<f64>)> {
        let bytes = self.member(name, fits)?;
        let npy = Npy::parse(self.path, &format!("`{name}`"), &bytes)?;
        let values = npy.reals(self.path)?;
        Ok((npy.shape, values))
    }

    fn shape(&mut self) -> Result<(usize, usize)> {
        let shape = self.integers("shape", at_most(2))?;
        match shape[..] {
            [rows, columns] if u32::try_from(rows).is_ok() && u32::try_from(columns).is_ok() => {
                Ok((rows as usize, columns as usize))
            }
            _ => {
                let message =
                    format!("the shape is {shape:?}; expected two dimensions that fit 32-bit indices");
                Err(Error::format(self.path, message))
            }
        }
    }

    /// Reads `count` indices, which must be below `limit`.
    fn indices(&mut self, name: &str, count: usize, limit: usize) -> Result<Vec<u32>> {
        let list = self.integers(name, exactly(count))?;
        match list.iter().position(|&n| n < 0 || n as u64 >= limit as u64) {
            Some(p) => {
                let message =
                    format!("`{name}`: entry {p} is {}; expected 0 or more, and less than {limit}", list[p]);
                Err(Error::format(self.path, message))
            }
            None => Ok(list.into_iter().map(|n| n as u32).collect()), // shapes fit u32, so indices do
        }
    }

    fn pointers(&mut self, rows: usize) -> Result<Vec<usize>> {
        let list = self.integers("indptr", exactly(rows + 1))?;
        let list: Option<Vec<usize>> = list.into_iter().map(|n| n.try_into().ok()).collect();
        list.ok_or_else(|| Error::format(self.path, "`indptr` has negative entries"))
    }
}

/// Pointers, indices and values as stored: by rows for csr, by columns for csc.
fn stored(file: &mut Npz, pointed: usize, others: usize) -> Result<Rows> {
    let pointers = file.pointers(pointed)?;
    let count = pointers.last().copied().unwrap_or(0);
    file.check_count(count, [pointed, others])?;
    let indices = file.indices("indices", count, others)?;
    let (_, values) = file.reals("data", exactly(count))?;
    Ok((pointers, indices, values))
}

fn csr(file: &mut Npz, rows: usize, columns: usize) -> Result<Matrix> {
    let stored = stored(file, rows, columns)?;
    let (row_ptr, col, values) = tidy_rows(file.path, columns, 1, stored)?;
    Csr::new(rows, columns, row_ptr, col, values).map(Matrix::Csr).map_err(|e| name_file(file.path, e))
}

fn coo(file: &mut Npz, rows: usize, columns: usize) -> Result<Matrix> {
    let count = product(&file.shape_of("data")?);
    file.check_count(count, [rows, columns])?;
    let (row, col) = if file.has("row") {
        (file.indices("row", count, rows)?, file.indices("col", count, columns)?)
    } else {
        let mut row = file.indices("coords", count.saturating_mul(2), rows.max(columns))?;
        let col = row.split_off(row.len() / 2);
        (row, col)
    };
    let (_, values) = file.reals("data", exactly(count))?;
    believable(file.path, "rows", Some(rows), file.unpacked)?;
    let entries: Vec<_> = row.into_iter().zip(col).zip(values).map(|((i, j), v)| (i, j, v)).collect();
    let a = Csr::from_triplets(rows, columns, &entries).map_err(|e| name_file(file.path, e))?;
    Ok(Matrix::Csr(a))
}

fn bsr(file: &mut Npz, rows: usize, columns: usize) -> Result<Matrix> {
    let path = file.path;
    let shape = file.shape_of("data")?;
    let blocks = match shape[..] {
        [_, r, c] if r > 0 && c > 0 && rows.is_multiple_of(r) && columns.is_multiple_of(c) => {
            r.checked_mul(c).map(|w| (r, c, w))
        }
        _ => None,
    };
    let Some((r, c, width)) = blocks else {
        let message = format!("blocks of shape {shape:?} do not divide a {rows}×{columns} matrix");
        return Err(Error::format(path, message));
    };
    let (n, m) = (rows / r, columns / c);
    let row_ptr = file.pointers(n)?;
    let count = row_ptr.last().copied().unwrap_or(0);
    file.check_count(count, [n, m])?;
    let col = file.indices("indices", count, m)?;
    let (_, values) = file.reals("data", exactly(count.saturating_mul(width)))?;
    let (row_ptr, col, values) = tidy_rows(path, m, width, (row_ptr, col, values))?;
    if r == c {
        let a = Bsr::new(r, n, m, row_ptr, col, values).map_err(|e| name_file(path, e))?;
        return Ok(Matrix::Bsr(a));
    }
    let mut entries = Vec::with_capacity(values.len());
    for i in 0..n {
        for p in row_ptr[i]..row_ptr[i + 1] {
            let (top, left) = (i * r, col[p] as usize * c);
            let block = &values[p * width..(p + 1) * width];
            entries.extend(
                block.iter().enumerate().map(|(e, &v)| ((top + e / c) as u32, (left + e % c) as u32, v)),
            );
        }
    }
    believable(path, "rows", Some(rows), file.unpacked)?;
    Csr::from_triplets(rows, columns, &entries).map(Matrix::Csr).map_err(|e| name_file(path, e))
}

/// SciPy stores entry (j − o, j) of diagonal o at column j; Krylith at its row.
fn dia(file: &mut Npz, rows: usize, columns: usize) -> Result<Matrix> {
    let path = file.path;
    // Any further diagonals would lie outside the matrix or repeat. SciPy's diagonals may be longer than the
    // matrix is wide.
    let offsets = file.integers("offsets", at_most(2 * (rows + columns)))?;
    let longest = 2 * rows.max(columns).max(1);
    let (shape, data) = file.reals("data", |shape| match *shape {
        [_, length] if length > longest => {
            Err(format!("the diagonals have {length} numbers, too many for a {rows}×{columns} matrix"))
        }
        [diagonals, _] if diagonals != offsets.len() => Err(format!(
            "{diagonals} diagonals for {} offsets; expected one diagonal per offset",
            offsets.len()
        )),
        _ => Ok(()),
    })?;
    let [diagonals, length] = shape[..] else {
        return Err(Error::format(
            path,
            format!("`data` has shape {shape:?}; expected (diagonals, columns)"),
        ));
    };
    if diagonals != offsets.len() {
        let message =
            format!("{} offsets for {diagonals} diagonals; expected one offset per diagonal", offsets.len());
        return Err(Error::format(path, message));
    }
    // Diagonals that lie wholly outside hold nothing and are dropped.
    let inside = |o: i64| o > -(rows as i64) && o < columns as i64;
    let mut order: Vec<usize> = (0..diagonals).filter(|&d| inside(offsets[d])).collect();
    order.sort_by_key(|&d| offsets[d]);
    let size = believable(path, "entries on diagonals", order.len().checked_mul(rows), file.unpacked)?;
    let mut values = vec![0.0; size];
    for (to, &from) in order.iter().enumerate() {
        let o = offsets[from];
        for j in o.max(0)..(columns.min(length) as i64).min(rows as i64 + o) {
            values[to * rows + (j - o) as usize] = data[from * length + j as usize];
        }
    }
    let offsets = order.iter().map(|&d| offsets[d]).collect();
    Dia::new(rows, columns, offsets, values).map(Matrix::Dia).map_err(|e| name_file(path, e))
}

#[cfg(test)]
mod tests {
    use super::super::samples::npy;
    use super::super::source::torture;
    use super::*;
    use std::io::Write;

    fn archive(members: &[(&str, Vec<u8>)], method: zip::CompressionMethod) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in members {
            let options = zip::write::SimpleFileOptions::default().compression_method(method);
            zip.start_file(format!("{name}.npy"), options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn i4(list: &[i32]) -> Vec<u8> {
        let data: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
        npy("<i4", false, &format!("({},)", list.len()), &data)
    }

    fn i8s(list: &[i64]) -> Vec<u8> {
        let data: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
        npy("<i8", false, &format!("({},)", list.len()), &data)
    }

    fn f8(shape: &str, list: &[f64]) -> Vec<u8> {
        let data: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
        npy("<f8", false, shape, &data)
    }

    fn format(name: &str) -> (&'static str, Vec<u8>) {
        ("format", npy("|S3", false, "()", name.as_bytes()))
    }

    type Members = Vec<(&'static str, Vec<u8>)>;

    fn samples() -> Vec<(Members, Matrix)> {
        let csr =
            |rows, columns, e: &[(u32, u32, f64)]| Matrix::Csr(Csr::from_triplets(rows, columns, e).unwrap());
        let a = csr(2, 3, &[(0, 0, 1.0), (0, 2, 2.0), (1, 1, 3.0)]);
        let shape = ("shape", i8s(&[2, 3]));
        vec![
            (
                vec![
                    format("csr"),
                    shape.clone(),
                    ("indptr", i4(&[0, 3, 4])),
                    ("indices", i4(&[2, 0, 2, 1])), // unsorted, and (0, 2) twice
                    ("data", f8("(4,)", &[1.5, 1.0, 0.5, 3.0])),
                ],
                a.clone(),
            ),
            (
                vec![
                    ("format", npy("<U3", false, "()", b"c\0\0\0s\0\0\0c\0\0\0")),
                    shape.clone(),
                    ("indptr", i8s(&[0, 1, 2, 3])),
                    ("indices", i8s(&[0, 1, 0])),
                    ("data", npy("|i1", false, "(3,)", &[1, 3, 2])),
                ],
                a.clone(),
            ),
            (
                vec![
                    format("coo"),
                    shape.clone(),
                    ("row", i4(&[1, 0, 0])),
                    ("col", i4(&[1, 2, 0])),
                    ("data", f8("(3,)", &[3.0, 2.0, 1.0])),
                ],
                a.clone(),
            ),
            (
                vec![
                    format("coo"),
                    shape.clone(),
                    ("coords", npy("|i1", false, "(2, 3)", &[1, 0, 0, 1, 2, 0])),
                    ("data", f8("(3,)", &[3.0, 2.0, 1.0])),
                ],
                a,
            ),
            (
                vec![
                    format("bsr"),
                    ("shape", i8s(&[2, 4])),
                    ("indptr", i4(&[0, 2])),
                    ("indices", i4(&[1, 0])),
                    ("data", f8("(2, 2, 2)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
                ],
                Matrix::Bsr(
                    Bsr::new(2, 1, 2, vec![0, 2], vec![0, 1], vec![5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0])
                        .unwrap(),
                ),
            ),
            (
                vec![
                    format("bsr"),
                    ("shape", i8s(&[2, 3])),
                    ("indptr", i4(&[0, 1, 2])),
                    ("indices", i4(&[0, 0])),
                    ("data", f8("(2, 1, 3)", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
                ],
                csr(2, 3, &[(0, 0, 1.0), (0, 1, 2.0), (0, 2, 3.0), (1, 0, 4.0), (1, 1, 5.0), (1, 2, 6.0)]),
            ),
            (
                vec![
                    format("dia"),
                    shape,
                    ("offsets", i4(&[1, -1, 7])),
                    ("data", f8("(3, 3)", &[9.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0, 9.0, 9.0])),
                ],
                Matrix::Dia(Dia::new(2, 3, vec![-1, 1], vec![0.0, 3.0, 1.0, 2.0]).unwrap()),
            ),
        ]
    }

    #[test]
    fn every_format() {
        for (members, expected) in samples() {
            for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
                assert_eq!(parse(Path::new("a.npz"), &archive(&members, method)).unwrap(), expected);
            }
        }
    }

    #[test]
    fn wrong_arrays_are_refused() {
        let (good, _) = samples().swap_remove(0);
        for (name, bytes, word) in [
            ("format", npy("|S3", false, "()", b"dok"), "dok"),
            ("shape", i8s(&[2]), "two dimensions"),
            ("shape", i8s(&[2, 1 << 40]), "32-bit"),
            ("shape", i8s(&[-2, 3]), "two dimensions"),
            ("shape", i8s(&[3, 3]), "indptr"),
            ("indptr", i4(&[0, -1, 4]), "negative"),
            ("indptr", i4(&[0, 4, 3]), "`indices`: it has 4 entries; expected 3"),
            ("indptr", i4(&[1, 3, 4]), "0 to the 4"),
            ("indptr", i4(&[0, 5, 4]), "decrease"),
            ("indptr", f8("(3,)", &[0.0, 3.0, 4.0]), "integers"),
            ("indices", i4(&[2, 0, 3, 1]), "entry 2 is 3"),
            ("indices", i4(&[2, 0, -1, 1]), "entry 2 is -1"),
            ("data", f8("(3,)", &[1.0; 3]), "`data`: it has 3 entries; expected 4"),
            // An array that unpacks to gigabytes is refused by its header.
            ("indptr", f8("(1073741824,)", &[]), "`indptr`: it has 1073741824 entries; expected 3"),
            (
                "indptr",
                i4(&[0, 3, 1 << 30]),
                "the archive announces 1073741824 entries, more than a 2×3 matrix can need",
            ),
            ("indices", i4(&[0; 5]), "`indices`: it has 5 entries; expected 4"),
            ("shape", i4(&[0; 3]), "`shape`: it has 3 entries; expected at most 2"),
            ("data", f8("(4,)", &[1.0, f64::NAN, 1.0, 1.0]), "entry (0, 0) is NaN"),
            ("data", npy("<c16", false, "(4,)", &[0; 64]), "complex"),
        ] {
            let mut members = good.clone();
            members.iter_mut().find(|m| m.0 == name).unwrap().1 = bytes;
            let bytes = archive(&members, zip::CompressionMethod::Stored);
            let message = parse(Path::new("a.npz"), &bytes).unwrap_err().to_string();
            assert!(message.starts_with("a.npz") && message.contains(word), "{word}: {message}");
        }
        for missing in 0..good.len() {
            let mut members = good.clone();
            members.remove(missing);
            assert!(parse(Path::new("a.npz"), &archive(&members, zip::CompressionMethod::Stored)).is_err());
        }
        let huge = [
            format("coo"),
            ("shape", i8s(&[u32::MAX as i64, 3])),
            ("row", i4(&[0])),
            ("col", i4(&[0])),
            ("data", f8("(1,)", &[1.0])),
        ];
        let bytes = archive(&huge, zip::CompressionMethod::Stored);
        assert!(parse(Path::new("a.npz"), &bytes).unwrap_err().to_string().contains("4294967295 rows"));
    }

    #[test]
    fn damaged_files_never_panic() {
        for (members, _) in samples() {
            torture(&archive(&members, zip::CompressionMethod::Stored), parse);
        }
        torture(&archive(&samples()[0].0, zip::CompressionMethod::Deflated), parse);
        // The archive's checksums catch the above: here they are right, and an array is wrong.
        for (mut members, _) in samples() {
            for p in 0..members.len() {
                let good = members[p].1.clone();
                for at in (0..good.len()).rev().take(40) {
                    for change in [0, 0x7f, 0x80, 0xff, b'9', good[at] ^ 1] {
                        members[p].1[at] = change;
                        let _ = parse(Path::new("x"), &archive(&members, zip::CompressionMethod::Stored));
                    }
                    members[p].1[at] = good[at];
                }
            }
        }
    }
}
