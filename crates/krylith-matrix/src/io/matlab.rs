//! MATLAB's MAT-files of level 5 (`save -v6` and `-v7`): the sparse matrix of a file, and a right-hand side.
//!
//! Follows *MAT-File Format*, The MathWorks, and the files that SciPy and Octave write, in either byte order,
//! with elements compressed or not. The matrix is a sparse variable or a sparse field of a struct. Files of
//! the SuiteSparse Matrix Collection hold one struct `Problem` with the matrix `A` and perhaps right-hand
//! sides `b`. All other content is skipped.

mod element;

use std::borrow::Cow;
use std::path::Path;

use super::array::{Array, transpose};
use super::columns::into_rows;
use super::matrix_market::Symmetry;
use super::source::{COMPLEX, load};
use crate::matrix::Csr;
use crate::{Error, Result};
use element::{Element, Elements, MATRIX, Place};

/// Number of bytes before the first element.
const HEADER: usize = 128;
/// The first bytes of an HDF5 file. In files that MATLAB writes they are at byte 512.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Classes of arrays.
const STRUCT: u8 = 2;
const SPARSE: u8 = 5;
const DENSE: std::ops::RangeInclusive<u8> = 6..=15;

/// Reads the only sparse matrix of a file, and the first column of `b` beside it, if there is one.
///
/// # Errors
/// Content that is cut short or malformed, with its byte; a file of MATLAB 7.3 (HDF5) or 4; no sparse matrix,
/// or several, with their names; complex numbers; a `b` that does not fit; indices out of range; NaN and
/// infinities.
pub fn read(path: impl AsRef<Path>) -> Result<(Csr, Option<Vec<f64>>)> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

/// True if these bytes begin a MAT-file of level 5, or the HDF5 file that MATLAB 7.3 writes.
pub(super) fn is_matlab(bytes: &[u8]) -> bool {
    let level_5 =
        bytes.get(124..HEADER).is_some_and(|end| matches!(end, [_, 1, b'I', b'M'] | [1, _, b'M', b'I']));
    level_5 || is_hdf5(bytes)
}

fn is_hdf5(bytes: &[u8]) -> bool {
    bytes.starts_with(HDF5) || bytes.get(512..).is_some_and(|rest| rest.starts_with(HDF5))
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<(Csr, Option<Vec<f64>>)> {
    let mut found = Found::read(path, bytes, is_rhs)?;
    let names = |list: &[Named<Sparse>]| list.iter().map(|n| n.name.clone()).collect::<Vec<_>>().join(", ");
    let (name, sparse) = match found.sparse.len() {
        1 => {
            let Named { name, array } = found.sparse.remove(0);
            (name, array)
        }
        0 => {
            let message = "this MAT-file has no sparse matrix; convert the matrix with A = sparse(A), then \
                           save('A.mat', 'A', '-v7')";
            return Err(Error::format(path, message));
        }
        n => {
            let message =
                format!("this MAT-file has {n} sparse matrices ({}); save only one", names(&found.sparse));
            return Err(Error::format(path, message));
        }
    };
    let a = sparse.into_csr(path, &name, bytes.len())?;
    // The right-hand side of `A` is called `b`, that of `Problem.A` is `Problem.b`.
    let wanted = match name.rsplit_once('.') {
        Some((of, _)) => format!("{of}.b"),
        None => "b".into(),
    };
    let b = found.dense.into_iter().find(|d| d.name == wanted).map(|d| d.array);
    if let Some([n, m]) =
        b.as_ref().map(|b| b.shape).filter(|&[n, m]| n != a.rows() && [n, m] != [1, a.rows()])
    {
        let message = format!(
            "`{wanted}` is {n}×{m}, but a right-hand side of `{name}` has {} numbers; rename it if it has another meaning",
            a.rows()
        );
        return Err(Error::format(path, message));
    }
    let mut b = b.map(|b| b.reals(path, &wanted)).transpose()?;
    // Stored by columns, so the first column comes first.
    b.iter_mut().for_each(|values| values.truncate(a.rows()));
    Ok((a, b))
}

/// True if a variable or a field is called `b`.
fn is_rhs(name: &str) -> bool {
    name.rsplit('.').next() == Some("b")
}

/// The only dense numeric array of a file, or the one named `b` if there are several.
pub(super) fn parse_array(path: &Path, bytes: &[u8]) -> Result<Array> {
    let mut dense = Found::read(path, bytes, |_| true)?.dense;
    if dense.len() > 1 && dense.iter().filter(|d| is_rhs(&d.name)).count() == 1 {
        dense.retain(|d| is_rhs(&d.name));
    }
    match dense.len() {
        1 => {
            let Named { name, array } = dense.remove(0);
            let ([n, m], values) = (array.shape, array.reals(path, &name)?);
            match m {
                1 => Array::new(vec![n], values),
                _ => Array::new(vec![n, m], transpose(&values, m)),
            }
        }
        0 => Err(Error::format(path, "this MAT-file has no dense array of numbers; save one with -v7")),
        n => {
            let names = dense.iter().map(|d| d.name.clone()).collect::<Vec<_>>().join(", ");
            Err(Error::format(
                path,
                format!("this MAT-file has {n} arrays ({names}); save only one, or name the right one `b`"),
            ))
        }
    }
}

/// An array with the name of its variable, and of its field if it is in a struct.
struct Named<T> {
    name: String,
    array: T,
}

/// The arrays of a file that may be needed.
struct Found {
    sparse: Vec<Named<Sparse>>,
    dense: Vec<Named<Dense>>,
    /// True for the names of dense arrays that are needed; others are skipped, since they may be far larger
    /// than the matrix.
    wanted: fn(&str) -> bool,
}

/// A sparse array by columns.
struct Sparse {
    shape: [usize; 2],
    row: Vec<u32>,
    col_ptr: Vec<u32>,
    /// `None` if the values are complex.
    values: Option<Vec<f64>>,
}

/// A dense array by columns.
struct Dense {
    shape: [usize; 2],
    /// `None` if the values are complex.
    values: Option<Vec<f64>>,
}

impl Found {
    fn read(path: &Path, bytes: &[u8], wanted: fn(&str) -> bool) -> Result<Self> {
        if is_hdf5(bytes) {
            let message = "this is an HDF5 file, which MATLAB writes with -v7.3; HDF5 is not supported: save it with -v7";
            return Err(Error::format(path, message));
        }
        if !is_matlab(bytes) {
            let message = "this is not a MAT-file of level 5, or it is cut short: save it with save('A.mat', 'A', '-v7')";
            return Err(Error::format(path, message));
        }
        let big_endian = bytes[126] == b'M';
        let place = Place::File(HEADER);
        let mut elements = Elements { file: path, bytes: &bytes[HEADER..], at: 0, big_endian, place: &place };
        let mut found = Self { sparse: Vec::new(), dense: Vec::new(), wanted };
        while let Some(element) = elements.next()? {
            if let Some((array, place)) = element.array(&elements)? {
                let inside = Elements { file: path, bytes: &array, at: 0, big_endian, place: &place };
                found.take(inside, None)?;
            }
        }
        Ok(found)
    }

    /// Keeps an array if it is needed. `within` is the struct and field that contain it.
    fn take(&mut self, mut of: Elements, within: Option<&str>) -> Result<()> {
        if of.bytes.is_empty() {
            return Ok(()); // an empty field
        }
        let flags = of.expect("the flags of an array")?;
        let word =
            of.indices(&Element { data: flags.data.get(..4).unwrap_or_default(), ..flags }, "flags")?;
        let Some(&word) = word.first() else {
            return Err(of.wrong(flags.at, "the flags of an array are missing"));
        };
        let (class, complex, logical) = (word as u8, word & 0x800 != 0, word & 0x200 != 0);
        if !matches!(class, STRUCT | SPARSE) && !DENSE.contains(&class) {
            return Ok(()); // text, cells, and objects, which look otherwise inside
        }
        let sizes = of.expect("the sizes of an array")?;
        let sizes = of.indices(&sizes, "the sizes of an array")?;
        let name = of.expect("the name of an array")?;
        let name = match within {
            Some(within) => within.into(),
            None => String::from_utf8_lossy(name.data).into_owned(),
        };
        let &[rows, columns] = &sizes[..] else { return Ok(()) }; // more dimensions are no matrix
        let shape = [rows as usize, columns as usize];
        match class {
            STRUCT if within.is_none() && shape == [1, 1] => self.fields(of, &name),
            SPARSE => {
                let array = sparse(&mut of, shape, complex, logical)?;
                // A sparse vector can only be a right-hand side.
                match shape[1] == 1 && shape[0] > 1 {
                    true => self.dense.push(Named { name, array: array.into_vector(&of)? }),
                    false => self.sparse.push(Named { name, array }),
                }
                Ok(())
            }
            class if DENSE.contains(&class) && shape.iter().all(|&n| n > 0) => {
                let element = of.expect("the numbers of an array")?;
                // A scalar is a setting; the last, unnamed array holds MATLAB's own data.
                if (shape != [1, 1] || is_rhs(&name)) && !name.is_empty() && (self.wanted)(&name) {
                    let values = of.reals(&element, "the numbers of an array")?;
                    if Some(values.len()) != shape[0].checked_mul(shape[1]) {
                        let message =
                            format!("`{name}` has {} numbers, but its shape is {shape:?}", values.len());
                        return Err(of.wrong(element.at, message));
                    }
                    self.dense
                        .push(Named { name, array: Dense { shape, values: (!complex).then_some(values) } });
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the fields of a struct; of SuiteSparse's `Problem` only `A` and `b`.
    fn fields(&mut self, mut of: Elements, name: &str) -> Result<()> {
        let length = of.expect("the length of field names")?;
        let length = of.indices(&length, "the length of field names")?.first().copied().unwrap_or(0) as usize;
        let names = of.expect("the names of fields")?;
        if length == 0 {
            return Ok(()); // a struct without fields
        }
        for field in names.data.chunks_exact(length) {
            let field: Cow<str> =
                String::from_utf8_lossy(field.split(|&c| c == 0).next().unwrap_or_default());
            let element = of.expect("a field")?;
            if element.kind != MATRIX {
                return Err(of.wrong(element.at, format!("field `{field}` is not an array")));
            }
            if name == "Problem" && !matches!(&*field, "A" | "b") {
                continue; // `Zeros` and the like are about A
            }
            let begin = match of.place {
                Place::File(begin) => Place::File(begin + element.at + 8),
                Place::Unpacked(begin) => Place::Unpacked(*begin),
            };
            let inside = Elements {
                file: of.file,
                bytes: element.data,
                at: 0,
                big_endian: of.big_endian,
                place: &begin,
            };
            self.take(inside, Some(&format!("{name}.{field}")))?;
        }
        Ok(())
    }
}

/// Reads the parts of a sparse array after its name.
fn sparse(of: &mut Elements, shape: [usize; 2], complex: bool, logical: bool) -> Result<Sparse> {
    let indices = of.expect("the row indices of a sparse matrix")?;
    let mut row = of.indices(&indices, "row indices")?;
    let pointers = of.expect("the column pointers of a sparse matrix")?;
    let col_ptr = of.indices(&pointers, "column pointers")?;
    if col_ptr.len() != shape[1] + 1 {
        let message = format!(
            "{} column pointers for {} columns; expected one more pointer than columns",
            col_ptr.len(),
            shape[1]
        );
        return Err(of.wrong(pointers.at, message));
    }
    // Files often reserve more places than there are entries.
    let entries = col_ptr[shape[1]] as usize;
    let sorted = col_ptr[0] == 0 && col_ptr.is_sorted();
    if !sorted || entries > row.len() {
        let message = format!(
            "the column pointers do not run from 0 to at most {} entries, or they decrease",
            row.len()
        );
        return Err(of.wrong(pointers.at, message));
    }
    row.truncate(entries);
    if let Some(p) = row.iter().position(|&i| i as usize >= shape[0]) {
        let message =
            format!("row index {} of entry {p} is out of range; there are {} rows", row[p], shape[0]);
        return Err(of.wrong(indices.at, message));
    }
    let mut element = of.expect("the values of a sparse matrix")?;
    // MATLAB stores logical values as bytes but labels them doubles.
    if logical && element.data.len() < 8 * entries {
        element.kind = element::BYTES;
    }
    let mut values = of.reals(&element, "values")?;
    if values.len() < entries {
        let message = format!("{} values for {entries} entries; expected one value per entry", values.len());
        return Err(of.wrong(element.at, message));
    }
    values.truncate(entries);
    Ok(Sparse { shape, row, col_ptr, values: (!complex).then_some(values) })
}

fn real(path: &Path, name: &str, values: Option<Vec<f64>>) -> Result<Vec<f64>> {
    values.ok_or_else(|| Error::format(path, format!("`{name}` has complex numbers: {COMPLEX}")))
}

impl Sparse {
    fn into_csr(self, path: &Path, name: &str, len: usize) -> Result<Csr> {
        let values = real(path, name, self.values)?;
        let col_ptr = self.col_ptr.into_iter().map(|p| p as usize).collect();
        // Compressed data may hold a thousand times its size; the entries are already in memory.
        let len = len.max(16 * self.row.len());
        into_rows(path, self.shape, (col_ptr, self.row, values), Symmetry::General, len)
    }

    /// Converts a single column to a dense array.
    fn into_vector(self, of: &Elements) -> Result<Dense> {
        let n = super::source::believable(of.file, "numbers", Some(self.shape[0]), of.bytes.len())?;
        let values = self.values.map(|stored| {
            let mut values = vec![0.0; n];
            self.row.iter().zip(stored).for_each(|(&i, v)| values[i as usize] += v);
            values
        });
        Ok(Dense { shape: self.shape, values })
    }
}

impl Dense {
    /// Its numbers by columns; fails if one is not finite.
    fn reals(self, path: &Path, name: &str) -> Result<Vec<f64>> {
        let [rows, _] = self.shape;
        let values = real(path, name, self.values)?;
        match values.iter().position(|v| !v.is_finite()) {
            None => Ok(values),
            Some(p) => Err(Error::NotFinite {
                what: format!("{}: `{name}`", crate::text::name(path)),
                row: p % rows,
                column: p / rows,
                value: values[p],
            }),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
