//! Meshes in VTK's XML format for unstructured grids, `.vtu`: text, base64 or raw appended data, without
//! compression.
//!
//! Cells are tetrahedra (type 10) and triangles (type 5); vertices and lines are ignored. The surface of a
//! triangle is its number in an array of integers of the cells, by the names in [`TAGS`], or else the only
//! such array.

use krylith_core::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use super::{Content, Directions, unnamed, wanted};
use crate::tets::{MOST, Surface};

/// Names that programs give to the array of tags: meshio, Gmsh, VMTK, MEDIT.
const TAGS: [&str; 7] =
    ["gmsh:physical", "physical", "CellEntityIds", "boundary", "medit:ref", "cell_tags", "tag"];

/// VTK's numbers of cell types.
const VERTEX: i64 = 1;
const LINE: i64 = 3;
const TRIANGLE: i64 = 5;
const TETRAHEDRON: i64 = 10;

pub(super) fn parse(path: &Path, bytes: &[u8], names: &[&str]) -> Result<Content> {
    let mut file = File { path, bytes, big: false, wide: false, base64: false, appended: None };
    let (sizes, arrays) = file.arrays()?;
    let [points, cells] = sizes.ok_or_else(|| file.wrong(0, "no <Piece> with NumberOfPoints"))?;
    let find = |section: &str, name: &str| {
        let found = arrays.iter().find(|a| a.section == section && (name.is_empty() || a.name == name));
        found.ok_or_else(|| file.wrong(0, format!("no array {name} in <{section}>")))
    };
    let coordinates = file.reals(find("Points", "")?, 3 * points)?;
    let [kinds, ends] = [file.integers(find("Cells", "types")?)?, file.integers(find("Cells", "offsets")?)?];
    let corners = file.integers(find("Cells", "connectivity")?)?;
    for (what, found) in [("types", &kinds), ("offsets", &ends)] {
        if found.len() != cells {
            return Err(file.wrong(0, format!("{} {what} for {cells} cells; expected one each", found.len())));
        }
    }
    let tags = match tags_of(&arrays) {
        Some(array) => file.integers(array)?,
        None => Vec::new(),
    };
    if !tags.is_empty() && tags.len() != cells {
        return Err(file.wrong(0, format!("{} tags for {cells} cells; expected one each", tags.len())));
    }
    let mut content = Content { points: coordinates.as_chunks::<3>().0.to_vec(), ..Content::default() };
    if let Some(i) = content.points.iter().position(|x| x.iter().any(|x| !x.is_finite())) {
        let at = content.points[i];
        return Err(file.wrong(0, format!("point {i} lies at {at:?}; coordinates must be finite")));
    }
    let mut faces: BTreeMap<i64, Vec<[u32; 3]>> = BTreeMap::new();
    let mut begin = 0;
    for (t, (&kind, &end)) in kinds.iter().zip(&ends).enumerate() {
        let own = usize::try_from(end).ok().filter(|&end| begin <= end && end <= corners.len());
        let Some(end) = own else {
            let most = corners.len();
            return Err(file.wrong(0, format!("cell {t} ends at {end}; expected {begin} to {most}")));
        };
        let own = &corners[begin..end];
        begin = end;
        let corner = |k: usize| match own.get(k).map(|&p| (p, usize::try_from(p))) {
            Some((_, Ok(p))) if p < points => Ok(p as u32),
            Some((p, _)) => {
                Err(file.wrong(0, format!("cell {t} has the point {p}; there are {points} points")))
            }
            None => Err(file.wrong(0, format!("cell {t} of type {kind} has only {} points", own.len()))),
        };
        match kind {
            TETRAHEDRON => content.tetrahedra.push([corner(0)?, corner(1)?, corner(2)?, corner(3)?]),
            TRIANGLE => {
                if let Some(&tag) = tags.get(t) {
                    faces.entry(tag).or_default().push([corner(0)?, corner(1)?, corner(2)?]);
                }
            }
            VERTEX | LINE => {}
            _ => {
                return Err(file.wrong(
                    0,
                    format!(
                        "cell {t} has the type {kind}; linear tetrahedra (10) and triangles (5) are read"
                    ),
                ));
            }
        }
    }
    let surfaces = faces.into_iter().map(|(tag, faces)| Surface { name: unnamed(tag), faces });
    content.surfaces = surfaces.collect();
    // Fields of cells first, which replace those of nodes.
    for (section, count) in [("CellData", cells), ("PointData", points)] {
        for array in arrays.iter().filter(|a| a.section == section) {
            let Some(name) = wanted(array.name, names) else { continue };
            if array.components != 3 {
                let message = format!("array `{name}` has {} components; expected 3", array.components);
                return Err(file.wrong(array.at, message));
            }
            let numbers = file.reals(array, 3 * count)?;
            let vectors = numbers.as_chunks::<3>().0;
            if section == "PointData" {
                content.add_nodes(name, vectors);
                continue;
            }
            let own = kinds.iter().zip(vectors).filter(|(kind, _)| **kind == TETRAHEDRON);
            let vectors = own.map(|(_, vector)| *vector).collect();
            content.directions.push(Directions { name, vectors });
        }
    }
    Ok(content)
}

/// An array of a file, not decoded yet.
#[derive(Debug)]
struct Array<'a> {
    /// The element around it, such as `Points`.
    section: &'a str,
    name: &'a str,
    /// The type of the numbers, such as `Int64`.
    kind: &'a str,
    components: usize,
    format: &'a str,
    /// Position in the appended data.
    offset: usize,
    /// Bytes of the content between the tags, and its position in the file.
    content: &'a [u8],
    at: usize,
}

/// Returns the array with the tags of the cells.
fn tags_of<'a, 'b>(arrays: &'b [Array<'a>]) -> Option<&'b Array<'a>> {
    let suits = |a: &&Array| a.section == "CellData" && a.components == 1 && a.kind.contains("Int");
    let own = || arrays.iter().filter(suits);
    let known = TAGS.iter().find_map(|name| own().find(|a| a.name.eq_ignore_ascii_case(name)));
    known.or_else(|| own().next().filter(|_| own().count() == 1))
}

struct File<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    /// True for big-endian numbers, and for lengths of 64 bits.
    big: bool,
    wide: bool,
    /// True if the appended data are base64 and not raw.
    base64: bool,
    appended: Option<&'a [u8]>,
}

/// A tag: its name (with a slash before that of an end), its attributes, and the end of its text.
struct Tag<'a> {
    name: &'a str,
    attributes: &'a str,
    end: usize,
}

impl<'a> Tag<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.attributes;
        while let Some((key, after)) = rest.split_once('=') {
            let after = after.trim_start();
            let quote = after.chars().next().filter(|q| matches!(q, '"' | '\''))?;
            let (value, next) = after[1..].split_once(quote)?;
            if key.trim() == name {
                return Some(value);
            }
            rest = next;
        }
        None
    }
}

impl<'a> File<'a> {
    /// Returns an error at a line, for the byte `at`, or about the whole file.
    fn wrong(&self, at: usize, message: impl Into<String>) -> Error {
        match at {
            0 => Error::format(self.path, message),
            _ => {
                let line = 1 + self.bytes[..at.min(self.bytes.len())].iter().filter(|&&b| b == b'\n').count();
                Error::parse(self.path, line, message)
            }
        }
    }

    /// Returns the first tag from `at` on. Comments and declarations are skipped.
    fn tag(&self, mut at: usize) -> Result<Option<Tag<'a>>> {
        let bytes = self.bytes;
        loop {
            let Some(open) = bytes[at..].iter().position(|&b| b == b'<') else { return Ok(None) };
            let begin = at + open + 1;
            let unended = || self.wrong(begin, "a tag has no end `>`");
            if bytes[begin..].starts_with(b"!--") {
                let end = bytes[begin..].windows(3).position(|w| w == b"-->").ok_or_else(unended)?;
                at = begin + end + 3;
                continue;
            }
            let mut quote = None;
            let length = bytes[begin..].iter().position(|&b| match quote {
                Some(q) => {
                    quote = Some(q).filter(|&q| q != b);
                    false
                }
                None if b == b'"' || b == b'\'' => {
                    quote = Some(b);
                    false
                }
                None => b == b'>',
            });
            let end = begin + length.ok_or_else(unended)?;
            let text = std::str::from_utf8(&bytes[begin..end])
                .map_err(|_| self.wrong(begin, "a tag is not text; is this a file of VTK?"))?
                .trim();
            if text.starts_with(['?', '!']) {
                at = end + 1;
                continue;
            }
            let (name, attributes) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
            return Ok(Some(Tag { name: name.trim_end_matches('/'), attributes, end: end + 1 }));
        }
    }

    /// Finds the numbers of points and cells, and all arrays.
    #[allow(clippy::type_complexity)]
    fn arrays(&mut self) -> Result<(Option<[usize; 2]>, Vec<Array<'a>>)> {
        let (mut sizes, mut arrays, mut section, mut at) = (None, Vec::new(), "", 0);
        let mut whole = false;
        while let Some(tag) = self.tag(at)? {
            let number = |name: &str| {
                let text = tag
                    .get(name)
                    .ok_or_else(|| self.wrong(tag.end, format!("<{}> without {name}", tag.name)))?;
                text.trim()
                    .parse::<usize>()
                    .map_err(|_| self.wrong(tag.end, format!("{name} is `{text}`; expected a whole number")))
            };
            at = tag.end;
            match tag.name {
                "VTKFile" => self.format(&tag)?,
                "Piece" => {
                    if sizes.is_some() {
                        return Err(self.wrong(at, "several pieces; merge them before you save the mesh"));
                    }
                    let found = [number("NumberOfPoints")?, number("NumberOfCells")?];
                    // A point has three numbers and a cell a type, of at least a byte each.
                    if found.iter().any(|&n| n > self.bytes.len().min(MOST)) {
                        let [points, cells] = found;
                        let bytes = self.bytes.len();
                        return Err(self.wrong(
                            at,
                            format!(
                                "{points} points and {cells} cells do not fit in a file of {bytes} bytes"
                            ),
                        ));
                    }
                    sizes = Some(found);
                }
                "Points" | "Cells" | "CellData" | "PointData" => section = tag.name,
                "/Points" | "/Cells" | "/CellData" | "/PointData" => section = "",
                "DataArray" => {
                    let format = tag.get("format").unwrap_or("ascii");
                    let rest = &self.bytes[at..];
                    let length = rest.iter().position(|&b| b == b'<').unwrap_or(rest.len());
                    let components = match tag.get("NumberOfComponents") {
                        Some(_) => number("NumberOfComponents")?,
                        None => 1,
                    };
                    arrays.push(Array {
                        section,
                        name: tag.get("Name").unwrap_or_default(),
                        kind: tag.get("type").unwrap_or_default(),
                        components,
                        format,
                        offset: if format == "appended" { number("offset")? } else { 0 },
                        content: if format == "appended" { &[] } else { &rest[..length] },
                        at,
                    });
                }
                "AppendedData" => {
                    self.base64 = tag.get("encoding") == Some("base64");
                    let rest = &self.bytes[at..];
                    let mark = rest
                        .iter()
                        .position(|&b| b == b'_')
                        .ok_or_else(|| self.wrong(at, "the appended data do not begin with `_`"))?;
                    self.appended = Some(&rest[mark + 1..]);
                    whole = true;
                    break;
                }
                "/VTKFile" => whole = true,
                _ => {}
            }
        }
        if !whole {
            return Err(self.wrong(self.bytes.len(), "the file ends before </VTKFile>; save it again"));
        }
        Ok((sizes, arrays))
    }

    fn format(&mut self, tag: &Tag) -> Result<()> {
        let of =
            |name: &str, default: &'static str| tag.get(name).map_or(default.to_string(), str::to_string);
        let kind = of("type", "");
        if kind != "UnstructuredGrid" {
            let message = format!("a file of type `{kind}`; save the mesh as an UnstructuredGrid (.vtu)");
            return Err(self.wrong(tag.end, message));
        }
        if let Some(how) = tag.get("compressor").filter(|how| !how.is_empty()) {
            let message = format!("compressed data ({how}); save the mesh without compression");
            return Err(self.wrong(tag.end, message));
        }
        self.big = match &*of("byte_order", "LittleEndian") {
            "LittleEndian" => false,
            "BigEndian" => true,
            other => return Err(self.wrong(tag.end, format!("unknown byte order `{other}`"))),
        };
        self.wide = match &*of("header_type", "UInt32") {
            "UInt32" => false,
            "UInt64" => true,
            other => return Err(self.wrong(tag.end, format!("unknown type of lengths `{other}`"))),
        };
        Ok(())
    }

    /// Returns the bytes of an array that is not text.
    fn data(&self, array: &Array<'a>) -> Result<Cow<'a, [u8]>> {
        let (base64, from) = match array.format {
            "binary" => (true, array.content.trim_ascii()),
            "appended" => {
                let all = self.appended.ok_or_else(|| self.wrong(array.at, "no <AppendedData>"))?;
                let from = all.get(array.offset..).ok_or_else(|| {
                    let (name, offset) = (array.name, array.offset);
                    self.wrong(
                        array.at,
                        format!("array `{name}` begins at {offset}, after the end of the file"),
                    )
                })?;
                (self.base64, from)
            }
            other => return Err(self.wrong(array.at, format!("unknown format `{other}` of an array"))),
        };
        let short = || self.wrong(array.at, format!("the file ends within the array `{}`", array.name));
        let width = if self.wide { 8 } else { 4 };
        let length = |head: &[u8]| -> Option<usize> {
            let mut wide = [0; 8];
            let head = head.get(..width)?;
            wide[..width].copy_from_slice(head);
            if self.big {
                wide[..width].reverse();
            }
            usize::try_from(u64::from_le_bytes(wide)).ok()
        };
        if !base64 {
            let bytes = length(from).and_then(|n| from.get(width..)?.get(..n)).ok_or_else(short)?;
            return Ok(Cow::Borrowed(bytes));
        }
        let bad = |at: usize| {
            self.wrong(array.at, format!("byte {at} of the array `{}` is not base64", array.name))
        };
        let head = decoded(from.get(..if self.wide { 12 } else { 8 }).ok_or_else(short)?).map_err(bad)?;
        let all = length(&head).and_then(|n| n.checked_add(width)).ok_or_else(short)?;
        let letters = all.div_ceil(3).checked_mul(4).ok_or_else(short)?;
        let mut bytes = decoded(from.get(..letters).ok_or_else(short)?).map_err(bad)?;
        if bytes.len() < all {
            return Err(short());
        }
        bytes.truncate(all);
        bytes.drain(..width);
        Ok(Cow::Owned(bytes))
    }

    /// Returns the words of an array that is text.
    fn words(&self, array: &Array<'a>) -> Result<std::str::SplitAsciiWhitespace<'a>> {
        let text = std::str::from_utf8(array.content)
            .map_err(|_| self.wrong(array.at, format!("the array `{}` is not text", array.name)))?;
        Ok(text.split_ascii_whitespace())
    }

    /// Parses the numbers of an array that is text.
    fn parsed<T: std::str::FromStr>(&self, array: &Array<'a>, what: &str) -> Result<Vec<T>> {
        let number = |word: &str| {
            word.parse().map_err(|_| {
                let word: String = word.chars().take(60).collect();
                self.wrong(array.at, format!("array `{}`: `{word}`: expected {what}", array.name))
            })
        };
        self.words(array)?.map(number).collect()
    }

    /// Converts items of N bytes each.
    fn items<const N: usize, T>(&self, array: &Array<'a>, of: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
        let data = self.data(array)?;
        let (items, []) = data.as_chunks::<N>() else {
            let message = format!("array `{}` has {} bytes; its numbers have {N}", array.name, data.len());
            return Err(self.wrong(array.at, message));
        };
        let item = |item: &[u8; N]| {
            let mut item = *item;
            if self.big {
                item.reverse();
            }
            of(item)
        };
        Ok(items.iter().map(item).collect())
    }

    fn reals(&self, array: &Array<'a>, expected: usize) -> Result<Vec<f64>> {
        let found = match (array.format, array.kind) {
            ("ascii", _) => self.parsed(array, "a number")?,
            (_, "Float64") => self.items(array, f64::from_le_bytes)?,
            (_, "Float32") => self.items(array, |b| f64::from(f32::from_le_bytes(b)))?,
            (_, other) => {
                let message =
                    format!("array `{}` of type `{other}`; expected Float64 or Float32", array.name);
                return Err(self.wrong(array.at, message));
            }
        };
        if found.len() != expected {
            let what =
                if array.section == "Points" { "coordinates of points" } else { "numbers of an array" };
            let message = format!("{} {what}; expected {expected}", found.len());
            return Err(self.wrong(array.at, message));
        }
        Ok(found)
    }

    fn integers(&self, array: &Array<'a>) -> Result<Vec<i64>> {
        match (array.format, array.kind) {
            ("ascii", _) => self.parsed(array, "a whole number"),
            (_, "Int8") => self.items(array, |b| i64::from(i8::from_le_bytes(b))),
            (_, "UInt8") => self.items(array, |b| i64::from(u8::from_le_bytes(b))),
            (_, "Int16") => self.items(array, |b| i64::from(i16::from_le_bytes(b))),
            (_, "UInt16") => self.items(array, |b| i64::from(u16::from_le_bytes(b))),
            (_, "Int32") => self.items(array, |b| i64::from(i32::from_le_bytes(b))),
            (_, "UInt32") => self.items(array, |b| i64::from(u32::from_le_bytes(b))),
            (_, "Int64") => self.items(array, i64::from_le_bytes),
            (_, "UInt64") => self.items(array, |b| u64::from_le_bytes(b) as i64),
            (_, other) => {
                let message = format!("array `{}` of type `{other}`; expected integers", array.name);
                Err(self.wrong(array.at, message))
            }
        }
    }
}

/// Decodes base64 in groups of four letters; the error is the position of a wrong letter.
fn decoded(letters: &[u8]) -> std::result::Result<Vec<u8>, usize> {
    let value = |(at, &letter): (usize, &u8)| match letter {
        b'A'..=b'Z' => Ok(u32::from(letter - b'A')),
        b'a'..=b'z' => Ok(u32::from(letter - b'a') + 26),
        b'0'..=b'9' => Ok(u32::from(letter - b'0') + 52),
        b'+' => Ok(62),
        b'/' => Ok(63),
        b'=' => Ok(0),
        _ => Err(at),
    };
    let mut out = Vec::with_capacity(letters.len() / 4 * 3);
    for (g, group) in letters.chunks(4).enumerate() {
        let mut word = 0;
        for k in 0..4 {
            word = word << 6 | group.get(k).map_or(Ok(0), |letter| value((4 * g + k, letter)))?;
        }
        out.extend_from_slice(&word.to_be_bytes()[1..]);
    }
    Ok(out)
}
