//! `.vtu` files for ParaView: tetrahedra, triangles or bare points, with values at the points.
//!
//! Written in VTK's XML format for unstructured grids, with raw appended data, little-endian and with 64-bit
//! lengths. The file is as small as its numbers, without base64 or compression.

use std::io::Write;
use std::path::Path;

use super::vector::WRITTEN;
use crate::{Error, Result};

/// Values at the points.
///
/// # Examples
/// ```
/// use krylith::io::vtu::{Values, write};
/// # let path = std::env::temp_dir().join(format!("krylith-doc-{}.vtu", std::process::id()));
/// // One tetrahedron, its pressure and its velocity.
/// let points = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
/// let (p, u) = ([0.0, 1.0, 2.0, 3.0], [[0.0, 0.0, 1.0]; 4]);
/// let fields = [("pressure", Values::Scalar(&p)), ("velocity", Values::Vector(&u))];
/// write(&path, &points, &[[0, 1, 2, 3]], &fields)?;
/// assert!(std::fs::read(&path).is_ok_and(|file| file.starts_with(b"<?xml")));
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// One number per point.
    Scalar(&'a [f64]),
    /// Three numbers per point.
    Vector(&'a [[f64; 3]]),
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Values::Scalar(v) => v.len(),
            Values::Vector(v) => v.len(),
        }
    }

    fn components(&self) -> usize {
        match self {
            Values::Scalar(_) => 1,
            Values::Vector(_) => 3,
        }
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Values::Scalar(v) => v.iter().try_for_each(|x| out.write_all(&x.to_le_bytes())),
            Values::Vector(v) => v.as_flattened().iter().try_for_each(|x| out.write_all(&x.to_le_bytes())),
        }
    }
}

/// VTK's number for linear cells with this many points, and their name.
const fn kind(points: usize) -> (u8, &'static str) {
    match points {
        1 => (1, "point"),
        3 => (5, "triangle"),
        4 => (10, "tetrahedron"),
        _ => panic!("cells are points, triangles or tetrahedra"),
    }
}

/// Writes points, cells and named point data; the file appears whole or not at all.
///
/// Cells have N zero-based points: tetrahedra for N = 4, triangles for N = 3, and for N = 1 points that
/// ParaView shows as such.
///
/// # Errors
/// [`Error::Io`] with the path; a field whose length is not the number of points, a cell with a point that
/// does not exist.
pub fn write<const N: usize>(
    path: impl AsRef<Path>,
    points: &[[f64; 3]],
    cells: &[[u32; N]],
    fields: &[(&str, Values)],
) -> Result<()> {
    let path = path.as_ref();
    check(points, cells, fields).map_err(|message| Error::format(path, message))?;
    super::atomic::write(path, |out| write_to(out, points, cells, fields))
}

/// Writes to a stream as [`write()`] does.
///
/// # Errors
/// An error of the stream; fields and cells that do not match the points.
pub fn write_to<const N: usize>(
    out: &mut dyn Write,
    points: &[[f64; 3]],
    cells: &[[u32; N]],
    fields: &[(&str, Values)],
) -> std::io::Result<()> {
    check(points, cells, fields).map_err(std::io::Error::other)?;
    write_grid(out, points, cells, fields)
}

fn check<const N: usize>(
    points: &[[f64; 3]],
    cells: &[[u32; N]],
    fields: &[(&str, Values)],
) -> Result<(), String> {
    let n = points.len();
    for (name, values) in fields {
        if values.len() != n {
            return Err(format!("the field `{name}` has {} values for {n} points", values.len()));
        }
    }
    let (_, name) = const { kind(N) };
    match cells.iter().position(|t| t.iter().any(|&p| p as usize >= n)) {
        Some(t) => Err(format!("{name} {t} has the points {:?}, but there are only {n} points", cells[t])),
        None => Ok(()),
    }
}

fn write_grid<const N: usize>(
    out: &mut dyn Write,
    points: &[[f64; 3]],
    cells: &[[u32; N]],
    fields: &[(&str, Values)],
) -> std::io::Result<()> {
    let (n, m) = (points.len() as u64, cells.len() as u64);
    let (corners, (kind, _)) = (N as u64, const { kind(N) });
    let mut offset = 0u64; // of the next array in the appended data, each after its length
    let mut array = |out: &mut dyn Write, kind: &str, name: &str, components: usize, bytes: u64| {
        let (name, at) = (escape(name), offset);
        offset += 8 + bytes;
        writeln!(
            out,
            "<DataArray type=\"{kind}\" Name=\"{name}\" NumberOfComponents=\"{components}\" \
             format=\"appended\" offset=\"{at}\"/>"
        )
    };
    writeln!(out, "<?xml version=\"1.0\"?>\n<!-- {WRITTEN} -->")?;
    writeln!(
        out,
        "<VTKFile type=\"UnstructuredGrid\" version=\"1.0\" byte_order=\"LittleEndian\" header_type=\"UInt64\">"
    )?;
    writeln!(out, "<UnstructuredGrid>\n<Piece NumberOfPoints=\"{n}\" NumberOfCells=\"{m}\">\n<PointData>")?;
    for (name, values) in fields {
        array(out, "Float64", name, values.components(), n * 8 * values.components() as u64)?;
    }
    writeln!(out, "</PointData>\n<Points>")?;
    array(out, "Float64", "Points", 3, n * 24)?;
    writeln!(out, "</Points>\n<Cells>")?;
    array(out, "Int64", "connectivity", 1, m * corners * 8)?;
    array(out, "Int64", "offsets", 1, m * 8)?;
    array(out, "UInt8", "types", 1, m)?;
    write!(out, "</Cells>\n</Piece>\n</UnstructuredGrid>\n<AppendedData encoding=\"raw\">\n_")?;
    for (_, values) in fields {
        out.write_all(&(n * 8 * values.components() as u64).to_le_bytes())?;
        values.write(out)?;
    }
    out.write_all(&(n * 24).to_le_bytes())?;
    Values::Vector(points).write(out)?;
    out.write_all(&(m * corners * 8).to_le_bytes())?;
    for &p in cells.as_flattened() {
        out.write_all(&i64::from(p).to_le_bytes())?;
    }
    out.write_all(&(m * 8).to_le_bytes())?;
    for t in 1..=m {
        out.write_all(&(N as i64 * t as i64).to_le_bytes())?;
    }
    out.write_all(&m.to_le_bytes())?;
    for _ in 0..m {
        out.write_all(&[kind])?;
    }
    writeln!(out, "\n</AppendedData>\n</VTKFile>")
}

/// A name as an XML attribute; control characters, which XML cannot represent, become spaces.
fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [[f64; 3]; 5] =
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]];
    const CELLS: [[u32; 4]; 2] = [[0, 1, 2, 3], [1, 2, 3, 4]];

    /// Follows the offsets in the XML and checks the array at each.
    #[test]
    fn arrays_lie_where_the_header_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mesh.vtu");
        let pressure = [1.0, 2.0, 3.0, 4.0, 5.0];
        let fields = [("p <\"&>\n", Values::Scalar(&pressure)), ("velocity", Values::Vector(&POINTS))];
        write(&path, &POINTS, &CELLS, &fields).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mark = b"encoding=\"raw\">\n_";
        let data = bytes.windows(mark.len()).position(|w| w == mark).unwrap() + mark.len();
        let xml = std::str::from_utf8(&bytes[..data]).unwrap();
        assert!(xml.contains("NumberOfPoints=\"5\" NumberOfCells=\"2\""));
        assert!(xml.contains("Name=\"p &lt;&quot;&amp;&gt; \""));
        let array = |name: &str| {
            let line = xml.lines().find(|l| l.contains(&format!("Name=\"{name}"))).unwrap();
            let at: usize =
                line.split("offset=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
            let word = |p: usize| u64::from_le_bytes(bytes[p..p + 8].try_into().unwrap());
            let length = word(data + at) as usize;
            bytes[data + at + 8..data + at + 8 + length].to_vec()
        };
        let reals =
            |b: Vec<u8>| -> Vec<f64> { b.as_chunks().0.iter().map(|&c| f64::from_le_bytes(c)).collect() };
        let integers =
            |b: Vec<u8>| -> Vec<i64> { b.as_chunks().0.iter().map(|&c| i64::from_le_bytes(c)).collect() };
        assert_eq!(reals(array("p ")), pressure);
        assert_eq!(reals(array("velocity")), POINTS.as_flattened());
        assert_eq!(reals(array("Points")), POINTS.as_flattened());
        assert_eq!(integers(array("connectivity")), [0, 1, 2, 3, 1, 2, 3, 4]);
        assert_eq!(integers(array("offsets")), [4, 8]);
        assert_eq!(array("types"), [10, 10]);
        assert!(bytes.ends_with(b"\x0a\x0a\n</AppendedData>\n</VTKFile>\n"));
    }

    #[test]
    fn wrong_sizes_are_refused_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mesh.vtu");
        assert!(write(&path, &POINTS, &CELLS, &[("p", Values::Scalar(&[1.0]))]).is_err());
        assert!(write(&path, &POINTS[..4], &CELLS, &[]).unwrap_err().to_string().contains("tetrahedron 1"));
        assert!(!path.exists());
        write::<4>(&path, &[], &[], &[]).unwrap();
    }

    #[test]
    fn triangles_are_cells_of_three_points() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plane.vtu");
        write(&path, &POINTS, &[[0, 1, 2], [1, 2, 3]], &[]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        // Offsets 3 and 6, and type 5, each after its length.
        let mut tail = 16u64.to_le_bytes().to_vec();
        [3u64, 6, 2].iter().for_each(|v| tail.extend(v.to_le_bytes()));
        tail.extend(*b"\x05\x05\n</AppendedData>\n</VTKFile>\n");
        assert!(bytes.ends_with(&tail));
        assert!(write(&path, &POINTS, &[[0, 1, 5]], &[]).unwrap_err().to_string().contains("triangle 0"));
    }
}
