//! Meshes from Gmsh: `.msh` files of versions 2.x and 4.1, as text or binary.
//!
//! A text file has a record per line, and numbers after those that are needed are ignored. A binary file has
//! the same numbers without lines: 32-bit integers, 64-bit counts and tags (version 4.1) and doubles, in the
//! byte order that the number 1 after the version shows. [`Reader`] reads both.

use krylith_core::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::str::SplitAsciiWhitespace;

use super::{Content, Directions, unnamed, wanted};
use crate::tets::{MOST, Surface};

pub(super) fn parse(path: &Path, bytes: &[u8], names: &[&str]) -> Result<Content> {
    let words = "".split_ascii_whitespace();
    let mut reader = Reader { path, bytes, at: 0, line: 0, order: None, words, names };
    let mut mesh = Mesh::default();
    reader.sections(&mut mesh)?;
    Ok(mesh.finish())
}

/// Byte order of a binary file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Little,
    Big,
}

/// A file and the position in it.
struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    /// The next byte.
    at: usize,
    /// Number of lines read so far.
    line: usize,
    /// The byte order, if the file is binary.
    order: Option<Order>,
    /// Rest of the current record of a text file.
    words: SplitAsciiWhitespace<'a>,
    /// Names of the fields to read.
    names: &'a [&'a str],
}

/// The content read so far.
#[derive(Default)]
struct Mesh {
    version: usize,
    /// Names of physical groups of surfaces.
    names: HashMap<i64, String>,
    /// Physical groups of the geometry's surfaces (version 4).
    groups: HashMap<i64, Vec<i64>>,
    points: Vec<[f64; 3]>,
    /// Index in `points` of the node with a tag.
    place: HashMap<u64, u32>,
    tetrahedra: Vec<[u32; 4]>,
    /// The number of the element that is read, and those of the tetrahedra if fields are read.
    number: u64,
    numbers: Vec<u64>,
    /// Faces by physical group.
    faces: BTreeMap<i64, Vec<[u32; 3]>>,
    fields: Vec<Data>,
}

/// A field with a vector for each of these nodes or elements.
struct Data {
    name: String,
    of_nodes: bool,
    vectors: Vec<(u64, [f64; 3])>,
}

/// Gmsh's numbers of element types.
const LINE: u64 = 1;
const TRIANGLE: u64 = 2;
const TETRAHEDRON: u64 = 4;
const POINT: u64 = 15;

/// Largest number of physical groups of a surface. A triangle is stored once for each.
const MOST_GROUPS: usize = 16;

/// Longest name of a section, and longest text in an error.
const LONGEST: usize = 60;

impl<'a> Reader<'a> {
    fn wrong(&self, message: impl Into<String>) -> Error {
        match self.order {
            None => Error::parse(self.path, self.line, message),
            Some(_) => Error::format(self.path, format!("byte {}: {}", self.at, message.into())),
        }
    }

    /// Returns the next line of text that is not empty.
    fn next(&mut self) -> Result<Option<&'a str>> {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            self.line += 1;
            let line = std::str::from_utf8(&rest[..length])
                .map_err(|_| self.wrong("this line is not text; is this a mesh of Gmsh?"))?
                .trim();
            self.at += (length + 1).min(rest.len());
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.line += 1;
        Ok(None)
    }

    fn need(&mut self, what: &str) -> Result<&'a str> {
        self.next()?.ok_or_else(|| self.wrong(format!("the file ends; expected {what}")))
    }

    /// Begins a record: the next line of a text file.
    fn record(&mut self, what: &str) -> Result<()> {
        if self.order.is_none() {
            self.words = self.need(what)?.split_ascii_whitespace();
        }
        Ok(())
    }

    /// Reads a number of the current line.
    fn word<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let word = self.words.next().ok_or_else(|| self.wrong(format!("the line ends; expected {what}")))?;
        word.parse().map_err(|_| self.wrong(format!("`{}`: expected {what}", shown(word))))
    }

    /// Reads a number of a line of its own, which is text in a binary file too.
    fn line_word<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        self.words = self.need(what)?.split_ascii_whitespace();
        self.word(what)
    }

    /// Reads the next bytes of a binary file, in the order of the least significant byte first.
    fn take<const N: usize>(&mut self, order: Order, what: &str) -> Result<[u8; N]> {
        let Some(&found) = self.bytes[self.at..].first_chunk::<N>() else {
            return Err(self.wrong(format!("the file ends; expected {what}")));
        };
        self.at += N;
        let mut found = found;
        if order == Order::Big {
            found.reverse();
        }
        Ok(found)
    }

    /// Reads an integer of 32 bits.
    fn int(&mut self, what: &str) -> Result<i64> {
        match self.order {
            None => self.word(what),
            Some(order) => Ok(i32::from_le_bytes(self.take(order, what)?).into()),
        }
    }

    /// Reads a count or tag of 64 bits.
    fn size(&mut self, what: &str) -> Result<u64> {
        match self.order {
            None => self.word(what),
            Some(order) => Ok(u64::from_le_bytes(self.take(order, what)?)),
        }
    }

    fn real(&mut self, what: &str) -> Result<f64> {
        match self.order {
            None => self.word(what),
            Some(order) => Ok(f64::from_le_bytes(self.take(order, what)?)),
        }
    }

    /// Reads the number of a node or an element.
    fn tag(&mut self, version: usize, what: &str) -> Result<u64> {
        match (version, self.order) {
            (2, Some(_)) => {
                let tag = self.int(what)?;
                u64::try_from(tag).map_err(|_| self.wrong(format!("`{tag}`: expected {what}")))
            }
            _ => self.size(what),
        }
    }

    /// Checks a count of items, so that a wrong count fails before memory is allocated. An item has at least
    /// two bytes in a text file, and four in a binary one.
    fn count(&self, count: u64, what: &str) -> Result<usize> {
        let most = self.bytes.len() / if self.order.is_none() { 2 } else { 4 };
        usize::try_from(count).ok().filter(|&n| n <= most).ok_or_else(|| {
            self.wrong(format!("{count} {what} do not fit in a file of {} bytes", self.bytes.len()))
        })
    }

    fn sections(&mut self, mesh: &mut Mesh) -> Result<()> {
        while let Some(line) = self.next()? {
            let Some(name) = line.strip_prefix('$') else {
                return Err(self.wrong(format!("`{}`: expected a section, such as $Nodes", shown(line))));
            };
            if name.len() > LONGEST {
                return Err(self.wrong(format!("`${}`: expected a section, such as $Nodes", shown(name))));
            }
            if name != "MeshFormat" && mesh.version == 0 {
                return Err(self.wrong(format!("${name} before $MeshFormat; is this a mesh of Gmsh?")));
            }
            match (name, mesh.version) {
                ("MeshFormat", _) => self.format(mesh)?,
                ("PhysicalNames", _) => self.names(mesh)?,
                ("Entities", 4) => self.entities(mesh)?,
                ("Nodes", 2) => self.nodes_2(mesh)?,
                ("Nodes", _) => self.nodes_4(mesh)?,
                ("Elements", 2) => self.elements_2(mesh)?,
                ("Elements", _) => self.elements_4(mesh)?,
                ("NodeData" | "ElementData", _) if !self.names.is_empty() => {
                    match self.data(name == "NodeData")? {
                        Some(data) => mesh.fields.push(data),
                        None => {
                            self.skip(name)?;
                            continue;
                        }
                    }
                }
                _ => {
                    self.skip(name)?;
                    continue;
                }
            }
            let end = format!("$End{name}");
            let found = self.need(&end)?;
            if found != end {
                return Err(self.wrong(format!("`{}`: expected {end}", shown(found))));
            }
        }
        Ok(())
    }

    /// Goes to the end of a section, whose content may be binary.
    fn skip(&mut self, name: &str) -> Result<()> {
        let end = format!("$End{name}");
        let rest = &self.bytes[self.at..];
        match rest.windows(end.len()).position(|bytes| bytes == end.as_bytes()) {
            Some(found) => {
                self.line += rest[..found].iter().filter(|&&b| b == b'\n').count();
                self.at += found;
                self.need(&end).map(drop)
            }
            None => Err(self.wrong(format!("the file ends; expected {end}"))),
        }
    }

    fn format(&mut self, mesh: &mut Mesh) -> Result<()> {
        let version: f64 = self.line_word("a version")?;
        mesh.version = match version {
            2.0..3.0 => 2,
            4.1 => 4,
            _ => return Err(self.wrong(format!("version {version}; versions 2.x and 4.1 are read"))),
        };
        match self.word::<u64>("0 for text or 1 for binary")? {
            0 => return Ok(()),
            1 => {}
            kind => return Err(self.wrong(format!("`{kind}`: expected 0 for text or 1 for binary"))),
        }
        let bytes: u64 = self.word("the size of a real number")?;
        if bytes != 8 {
            return Err(self.wrong(format!("reals of {bytes} bytes; save the mesh with 8")));
        }
        self.order = Some(match self.take(Order::Little, "the number 1, which shows the byte order")? {
            [1, 0, 0, 0] => Order::Little,
            [0, 0, 0, 1] => Order::Big,
            _ => return Err(self.wrong("expected the number 1, which shows the byte order")),
        });
        Ok(())
    }

    fn names(&mut self, mesh: &mut Mesh) -> Result<()> {
        let count = self.line_word("a number of names")?;
        for _ in 0..self.count(count, "names")? {
            let line = self.need("a physical name")?;
            self.words = line.split_ascii_whitespace();
            let dimension: u64 = self.word("a dimension")?;
            let tag: i64 = self.word("a tag")?;
            let name = line.splitn(3, char::is_whitespace).nth(2).unwrap_or_default();
            if dimension == 2 {
                mesh.names.insert(tag, name.trim().trim_matches('"').to_string());
            }
        }
        Ok(())
    }

    fn entities(&mut self, mesh: &mut Mesh) -> Result<()> {
        let mut counts = [0u64; 4];
        self.record("numbers of points, curves, surfaces and volumes")?;
        for count in &mut counts {
            *count = self.size("numbers of points, curves, surfaces and volumes")?;
        }
        for (dimension, count) in counts.into_iter().enumerate() {
            for _ in 0..self.count(count, "entities")? {
                self.record("an entity")?;
                let tag = self.int("an entity's tag")?;
                for _ in 0..if dimension == 0 { 3 } else { 6 } {
                    self.real("a coordinate of an entity")?;
                }
                let groups = self.size("a number of physical groups")?;
                let groups = self.count(groups, "physical groups")?;
                if groups > MOST_GROUPS {
                    return Err(self.wrong(format!(
                        "entity {tag} is in {groups} physical groups; at most {MOST_GROUPS} are read"
                    )));
                }
                let mut list = Vec::new();
                for _ in 0..groups {
                    list.push(self.int("a physical group")?.saturating_abs());
                }
                if dimension > 0 {
                    let around = self.size("a number of entities around it")?;
                    for _ in 0..self.count(around, "entities around it")? {
                        self.int("an entity around it")?;
                    }
                }
                if dimension == 2 {
                    mesh.groups.insert(tag, list);
                }
            }
        }
        Ok(())
    }

    fn node(&self, mesh: &mut Mesh, tag: u64, point: [f64; 3]) -> Result<()> {
        if point.iter().any(|x| !x.is_finite()) {
            return Err(self.wrong(format!("node {tag} lies at {point:?}; coordinates must be finite")));
        }
        if mesh.points.len() >= MOST {
            return Err(self.wrong("more than 2^30 nodes"));
        }
        if mesh.place.insert(tag, mesh.points.len() as u32).is_some() {
            return Err(self.wrong(format!("node {tag} is listed twice")));
        }
        mesh.points.push(point);
        Ok(())
    }

    fn point(&mut self) -> Result<[f64; 3]> {
        let mut point = [0.0; 3];
        for x in &mut point {
            *x = self.real("a coordinate")?;
        }
        Ok(point)
    }

    fn nodes_2(&mut self, mesh: &mut Mesh) -> Result<()> {
        let count = self.line_word("a number of nodes")?;
        for _ in 0..self.count(count, "nodes")? {
            self.record("a node")?;
            let tag = self.tag(2, "a node's number")?;
            let point = self.point()?;
            self.node(mesh, tag, point)?;
        }
        Ok(())
    }

    /// Reads the four counts at the head of a section of version 4 and returns the first.
    fn blocks(&mut self, what: &str) -> Result<usize> {
        let expected = format!("numbers of blocks and {what}, least and largest tag");
        self.record(&expected)?;
        let blocks = self.size(&expected)?;
        for _ in 0..3 {
            self.size(&expected)?;
        }
        self.count(blocks, &format!("blocks of {what}"))
    }

    fn nodes_4(&mut self, mesh: &mut Mesh) -> Result<()> {
        for _ in 0..self.blocks("nodes")? {
            self.record("a block of nodes")?;
            let dimension = self.int("the dimension of a block of nodes")?;
            self.int("the entity of a block of nodes")?;
            let parametric = self.int("0 or 1, for parametric coordinates")?;
            let count = self.size("a number of nodes")?;
            let count = self.count(count, "nodes")?;
            let mut tags = Vec::with_capacity(count);
            for _ in 0..count {
                self.record("a node's number")?;
                tags.push(self.tag(4, "a node's number")?);
            }
            // Parametric coordinates follow on the line of a text file, where they are ignored.
            let more = if parametric == 0 || self.order.is_none() { 0 } else { dimension.clamp(0, 3) };
            for tag in tags {
                self.record("coordinates")?;
                let point = self.point()?;
                for _ in 0..more {
                    self.real("a parametric coordinate")?;
                }
                self.node(mesh, tag, point)?;
            }
        }
        Ok(())
    }

    /// Returns the number of corners of an element.
    fn corners(&self, kind: u64) -> Result<usize> {
        match kind {
            POINT => Ok(1),
            LINE => Ok(2),
            TRIANGLE => Ok(3),
            TETRAHEDRON => Ok(4),
            _ => Err(self.wrong(format!(
                "an element of type {kind}; linear tetrahedra (4) and triangles (2) are read (Mesh.ElementOrder = 1)"
            ))),
        }
    }

    /// Reads the corners of an element and stores them if its type is used.
    fn element(&mut self, mesh: &mut Mesh, kind: u64, groups: &[i64]) -> Result<()> {
        let (mut corners, count) = ([0u32; 4], self.corners(kind)?);
        let used = kind == TETRAHEDRON || (kind == TRIANGLE && !groups.is_empty());
        if !used && self.order.is_none() {
            return Ok(()); // the rest of the line
        }
        for corner in &mut corners[..count] {
            let tag = self.tag(mesh.version, "a corner's node")?;
            if used {
                *corner = *mesh.place.get(&tag).ok_or_else(|| {
                    self.wrong(format!("a corner refers to node {tag}, which the file does not have"))
                })?;
            }
        }
        if kind == TETRAHEDRON {
            mesh.tetrahedra.push(corners);
            if !self.names.is_empty() {
                mesh.numbers.push(mesh.number);
            }
        } else if used {
            let face = [corners[0], corners[1], corners[2]];
            groups.iter().for_each(|group| mesh.faces.entry(*group).or_default().push(face));
        }
        Ok(())
    }

    /// Reads the number and the tags of an element of version 2, then its corners. The first tag is its
    /// physical group.
    fn element_2(&mut self, mesh: &mut Mesh, kind: u64, tags: Option<u64>) -> Result<()> {
        let tags = match tags {
            Some(tags) => tags,
            None => self.word("a number of tags")?,
        };
        let mut group = 0;
        for k in 0..self.count(tags, "tags")? {
            let tag = self.int("a tag")?;
            group = if k == 0 { tag.saturating_abs() } else { group };
        }
        let groups = if group == 0 { &[][..] } else { &[group][..] };
        self.element(mesh, kind, groups)
    }

    fn elements_2(&mut self, mesh: &mut Mesh) -> Result<()> {
        let count = self.line_word("a number of elements")?;
        let count = self.count(count, "elements")?;
        let mut done = 0;
        while done < count {
            if self.order.is_none() {
                self.record("an element")?;
                mesh.number = self.tag(2, "an element's number")?;
                let kind = self.word("an element's type")?;
                self.element_2(mesh, kind, None)?;
                done += 1;
                continue;
            }
            // A binary file has runs of elements of one type with one number of tags.
            let [kind, run, tags] = [
                self.tag(2, "an element's type")?,
                self.tag(2, "a number of elements")?,
                self.tag(2, "a number of tags")?,
            ];
            if run == 0 || run > (count - done) as u64 {
                let left = count - done;
                return Err(self.wrong(format!("{run} elements of type {kind}; expected 1 to {left}")));
            }
            for _ in 0..run {
                mesh.number = self.tag(2, "an element's number")?;
                self.element_2(mesh, kind, Some(tags))?;
            }
            done += run as usize;
        }
        Ok(())
    }

    fn elements_4(&mut self, mesh: &mut Mesh) -> Result<()> {
        let groups = std::mem::take(&mut mesh.groups);
        for _ in 0..self.blocks("elements")? {
            self.record("a block of elements")?;
            let dimension = self.int("the dimension of a block of elements")?;
            let entity = self.int("the entity of a block of elements")?;
            let kind = self.int("the type of a block of elements")?;
            let kind = u64::try_from(kind).unwrap_or(0);
            let count = self.size("a number of elements")?;
            let own = groups.get(&entity).filter(|_| dimension == 2).map_or(&[][..], |own| own);
            for _ in 0..self.count(count, "elements")? {
                self.record("an element")?;
                mesh.number = self.tag(4, "an element's number")?;
                self.element(mesh, kind, own)?;
            }
        }
        mesh.groups = groups;
        Ok(())
    }

    /// Reads a field up to the end of its numbers, if it is to be read. Its head is text in a binary file
    /// too.
    fn data(&mut self, of_nodes: bool) -> Result<Option<Data>> {
        let texts = self.line_word("a number of texts")?;
        let mut title = "";
        for k in 0..self.count(texts, "texts")? {
            let line = self.need("the name of a field")?;
            title = if k == 0 { line.trim_matches('"') } else { title };
        }
        let reals = self.line_word("a number of reals")?;
        for _ in 0..self.count(reals, "reals")? {
            self.need("a real number")?;
        }
        let integers = self.line_word("a number of integers")?;
        // The time step, the number of components, and that of vectors.
        let mut head = [0u64; 3];
        for k in 0..self.count(integers, "integers")? {
            let number = self.line_word("an integer")?;
            head.get_mut(k).into_iter().for_each(|x| *x = number);
        }
        let Some(name) = wanted(title, self.names) else { return Ok(None) };
        if head[1] != 3 {
            return Err(self.wrong(format!("the field `{name}` has {} components; expected 3", head[1])));
        }
        let mut vectors = Vec::new();
        for _ in 0..self.count(head[2], "vectors")? {
            self.record("a vector")?;
            let number = self.tag(2, "a node or an element")?;
            let mut vector = [0.0; 3];
            for x in &mut vector {
                *x = self.real("a component")?;
            }
            vectors.push((number, vector));
        }
        Ok(Some(Data { name, of_nodes, vectors }))
    }
}

/// Returns the beginning of a text, for an error.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() { short + "…" } else { short }
}

impl Mesh {
    /// Names the surfaces.
    fn finish(mut self) -> Content {
        let mut surfaces = Vec::with_capacity(self.faces.len());
        for (tag, faces) in self.faces {
            surfaces.push(Surface { name: self.names.remove(&tag).unwrap_or_else(|| unnamed(tag)), faces });
        }
        let mut content =
            Content { points: self.points, tetrahedra: self.tetrahedra, surfaces, ..Content::default() };
        let mut place: HashMap<u64, u32> = HashMap::new();
        if self.fields.iter().any(|field| !field.of_nodes) {
            place.extend(self.numbers.iter().enumerate().map(|(t, &number)| (number, t as u32)));
        }
        // Fields of elements first, which replace those of nodes.
        self.fields.sort_by_key(|field| field.of_nodes);
        for Data { name, of_nodes, vectors } in self.fields {
            let (place, count) = match of_nodes {
                true => (&self.place, content.points.len()),
                false => (&place, content.tetrahedra.len()),
            };
            let mut all = vec![[f64::NAN; 3]; count];
            for (number, vector) in vectors {
                if let Some(&at) = place.get(&number) {
                    all[at as usize] = vector;
                }
            }
            match of_nodes {
                true => content.add_nodes(name, &all),
                false => content.directions.push(Directions { name, vectors: all }),
            }
        }
        content
    }
}
