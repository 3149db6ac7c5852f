//! Reader of meshes from Gmsh: `.msh` text files, versions 2.x and 4.1.
//!
//! Linear tetrahedra are read, and linear triangles of physical groups, which become surfaces with their
//! groups' names (a group without a name becomes `surface TAG`). Points, lines, and nodes without a
//! tetrahedron are ignored. Any other element is an error.

use krylith_core::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::{Surface, TetMesh};

/// Reads a mesh from a file.
///
/// # Errors
/// Returns an error if the file cannot be read, if it is malformed (with the line), if it is binary or of
/// another version, and for what [`TetMesh::new`] refuses.
pub fn read(path: impl AsRef<Path>) -> Result<TetMesh> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    parse(path, &bytes)
}

/// Parses a mesh from the bytes of a file; errors name `path`.
///
/// # Errors
/// Returns the errors of [`read`], except for a file that cannot be read.
pub fn parse(path: impl AsRef<Path>, bytes: &[u8]) -> Result<TetMesh> {
    let path = path.as_ref();
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Error::format(path, "not text; save the mesh as ASCII, of version 2 or 4 (gmsh -format msh41 -save)")
    })?;
    let mut reader = Reader { path, lines: text.lines(), line: 0, bytes: bytes.len() };
    let mut mesh = Mesh::default();
    reader.sections(&mut mesh)?;
    mesh.finish(path)
}

/// The lines of a file and the current line number.
struct Reader<'a> {
    path: &'a Path,
    lines: std::str::Lines<'a>,
    line: usize,
    bytes: usize,
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
    /// Faces by physical group.
    faces: BTreeMap<i64, Vec<[u32; 3]>>,
}

/// Gmsh's numbers of element types.
const LINE: u64 = 1;
const TRIANGLE: u64 = 2;
const TETRAHEDRON: u64 = 4;
const POINT: u64 = 15;

impl<'a> Reader<'a> {
    fn wrong(&self, message: impl Into<String>) -> Error {
        Error::parse(self.path, self.line, message)
    }

    /// Returns the next line that is not empty.
    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.line += 1;
            let line = self.lines.next()?.trim();
            if !line.is_empty() {
                return Some(line);
            }
        }
    }

    fn need(&mut self, what: &str) -> Result<&'a str> {
        self.next().ok_or_else(|| self.wrong(format!("the file ends; expected {what}")))
    }

    fn number<T: std::str::FromStr>(&self, word: Option<&str>, what: &str) -> Result<T> {
        let word = word.ok_or_else(|| self.wrong(format!("the line ends; expected {what}")))?;
        word.parse().map_err(|_| self.wrong(format!("`{word}`: expected {what}")))
    }

    /// Reads the first `N` numbers of the next line.
    fn numbers<T: std::str::FromStr + Copy + Default, const N: usize>(
        &mut self,
        what: &str,
    ) -> Result<[T; N]> {
        let mut words = self.need(what)?.split_whitespace();
        let mut all = [T::default(); N];
        for value in &mut all {
            *value = self.number(words.next(), what)?;
        }
        Ok(all)
    }

    /// Checks a count of items of at least two bytes each, so that a wrong count fails before memory is
    /// allocated.
    fn count(&self, count: usize, what: &str) -> Result<usize> {
        if count > self.bytes / 2 {
            return Err(self.wrong(format!("{count} {what} do not fit in a file of {} bytes", self.bytes)));
        }
        Ok(count)
    }

    fn sections(&mut self, mesh: &mut Mesh) -> Result<()> {
        while let Some(line) = self.next() {
            let Some(name) = line.strip_prefix('$') else {
                return Err(self.wrong(format!("`{line}`: expected a section, such as $Nodes")));
            };
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
                _ => {
                    let end = format!("$End{name}");
                    while self.need(&end)? != end {}
                    continue;
                }
            }
            let end = format!("$End{name}");
            let found = self.need(&end)?;
            if found != end {
                return Err(self.wrong(format!("`{found}`: expected {end}")));
            }
        }
        Ok(())
    }

    fn format(&mut self, mesh: &mut Mesh) -> Result<()> {
        let mut words = self.need("a version")?.split_whitespace();
        let version: f64 = self.number(words.next(), "a version")?;
        mesh.version = match version {
            2.0..3.0 => 2,
            4.1 => 4,
            _ => return Err(self.wrong(format!("version {version}; versions 2.x and 4.1 are read"))),
        };
        if self.number::<u64>(words.next(), "0 for text or 1 for binary")? != 0 {
            return Err(self.wrong("a binary file; save the mesh as ASCII"));
        }
        Ok(())
    }

    fn names(&mut self, mesh: &mut Mesh) -> Result<()> {
        let [count] = self.numbers::<usize, 1>("a number of names")?;
        for _ in 0..self.count(count, "names")? {
            let line = self.need("a physical name")?;
            let mut words = line.splitn(3, char::is_whitespace);
            let dimension: u64 = self.number(words.next(), "a dimension")?;
            let tag: i64 = self.number(words.next(), "a tag")?;
            let name = words.next().unwrap_or_default().trim().trim_matches('"');
            if dimension == 2 {
                mesh.names.insert(tag, name.to_string());
            }
        }
        Ok(())
    }

    fn entities(&mut self, mesh: &mut Mesh) -> Result<()> {
        let counts = self.numbers::<usize, 4>("numbers of points, curves, surfaces and volumes")?;
        for (dimension, count) in counts.into_iter().enumerate() {
            for _ in 0..self.count(count, "entities")? {
                let mut words = self.need("an entity")?.split_whitespace();
                let tag: i64 = self.number(words.next(), "an entity's tag")?;
                if dimension != 2 {
                    continue;
                }
                let mut words = words.skip(6); // its bounding box
                let groups: usize = self.number(words.next(), "a number of physical groups")?;
                let mut list = Vec::new();
                for _ in 0..self.count(groups, "physical groups")? {
                    list.push(self.number(words.next(), "a physical group")?);
                }
                mesh.groups.insert(tag, list);
            }
        }
        Ok(())
    }

    fn node(&self, mesh: &mut Mesh, tag: u64, point: [f64; 3]) -> Result<()> {
        if point.iter().any(|x| !x.is_finite()) {
            return Err(self.wrong(format!("node {tag} lies at {point:?}; coordinates must be finite")));
        }
        if mesh.points.len() >= super::MOST {
            return Err(self.wrong("more than 2^30 nodes"));
        }
        if mesh.place.insert(tag, mesh.points.len() as u32).is_some() {
            return Err(self.wrong(format!("node {tag} is listed twice")));
        }
        mesh.points.push(point);
        Ok(())
    }

    fn nodes_2(&mut self, mesh: &mut Mesh) -> Result<()> {
        let [count] = self.numbers::<usize, 1>("a number of nodes")?;
        for _ in 0..self.count(count, "nodes")? {
            let mut words = self.need("a node")?.split_whitespace();
            let tag = self.number(words.next(), "a node's number")?;
            let point = self.point(&mut words)?;
            self.node(mesh, tag, point)?;
        }
        Ok(())
    }

    fn point(&self, words: &mut std::str::SplitWhitespace) -> Result<[f64; 3]> {
        let mut point = [0.0; 3];
        for x in &mut point {
            *x = self.number(words.next(), "a coordinate")?;
        }
        Ok(point)
    }

    fn nodes_4(&mut self, mesh: &mut Mesh) -> Result<()> {
        let [blocks, ..] = self.numbers::<usize, 4>("numbers of blocks and nodes, least and largest tag")?;
        for _ in 0..self.count(blocks, "blocks of nodes")? {
            let [_, _, _, count] = self.numbers::<i64, 4>("a block of nodes")?;
            let count = self.count(usize::try_from(count).unwrap_or(usize::MAX), "nodes")?;
            let mut tags = Vec::with_capacity(count);
            for _ in 0..count {
                tags.push(self.numbers::<u64, 1>("a node's number")?[0]);
            }
            for tag in tags {
                let mut words = self.need("coordinates")?.split_whitespace();
                let point = self.point(&mut words)?;
                self.node(mesh, tag, point)?;
            }
        }
        Ok(())
    }

    /// Stores the corners of an element if its type is used.
    fn element(
        &self,
        mesh: &mut Mesh,
        kind: u64,
        groups: &[i64],
        words: &mut std::str::SplitWhitespace,
    ) -> Result<()> {
        let mut corners = [0u32; 4];
        let used = match kind {
            TETRAHEDRON => 4,
            TRIANGLE if !groups.is_empty() => 3,
            TRIANGLE | LINE | POINT => return Ok(()),
            _ => {
                return Err(self.wrong(format!(
                    "an element of type {kind}; linear tetrahedra (4) and triangles (2) are read (Mesh.ElementOrder = 1)"
                )));
            }
        };
        for corner in &mut corners[..used] {
            let tag: u64 = self.number(words.next(), "a corner's node")?;
            *corner = *mesh.place.get(&tag).ok_or_else(|| {
                self.wrong(format!("a corner refers to node {tag}, which the file does not have"))
            })?;
        }
        if kind == TETRAHEDRON {
            mesh.tetrahedra.push(corners);
            return Ok(());
        }
        for group in groups {
            mesh.faces.entry(*group).or_default().push([corners[0], corners[1], corners[2]]);
        }
        Ok(())
    }

    fn elements_2(&mut self, mesh: &mut Mesh) -> Result<()> {
        let [count] = self.numbers::<usize, 1>("a number of elements")?;
        for _ in 0..self.count(count, "elements")? {
            let mut words = self.need("an element")?.split_whitespace();
            let _: u64 = self.number(words.next(), "an element's number")?;
            let kind = self.number(words.next(), "an element's type")?;
            let tags: usize = self.number(words.next(), "a number of tags")?;
            let mut group = 0;
            for k in 0..self.count(tags, "tags")? {
                let tag = self.number(words.next(), "a tag")?;
                group = if k == 0 { tag } else { group };
            }
            let groups = if group == 0 { &[][..] } else { &[group][..] };
            self.element(mesh, kind, groups, &mut words)?;
        }
        Ok(())
    }

    fn elements_4(&mut self, mesh: &mut Mesh) -> Result<()> {
        let [blocks, ..] =
            self.numbers::<usize, 4>("numbers of blocks and elements, least and largest tag")?;
        for _ in 0..self.count(blocks, "blocks of elements")? {
            let [dimension, entity, kind, count] = self.numbers::<i64, 4>("a block of elements")?;
            let groups = match dimension {
                2 => mesh.groups.get(&entity).cloned().unwrap_or_default(),
                _ => Vec::new(),
            };
            for _ in 0..self.count(usize::try_from(count).unwrap_or(usize::MAX), "elements")? {
                let mut words = self.need("an element")?.split_whitespace();
                let _: u64 = self.number(words.next(), "an element's number")?;
                self.element(mesh, u64::try_from(kind).unwrap_or(0), &groups, &mut words)?;
            }
        }
        Ok(())
    }
}

impl Mesh {
    /// Drops nodes without a tetrahedron and names the surfaces.
    fn finish(self, path: &Path) -> Result<TetMesh> {
        if self.tetrahedra.is_empty() {
            return Err(Error::format(
                path,
                "no linear tetrahedra; mesh the volume (gmsh -3) and save all elements",
            ));
        }
        let mut new = vec![u32::MAX; self.points.len()];
        self.tetrahedra.as_flattened().iter().for_each(|&p| new[p as usize] = 0);
        let mut points = Vec::with_capacity(self.points.len());
        for (new, point) in new.iter_mut().zip(&self.points).filter(|(new, _)| **new == 0) {
            *new = points.len() as u32;
            points.push(*point);
        }
        let tetrahedra = self.tetrahedra.iter().map(|t| t.map(|p| new[p as usize])).collect();
        let named = |tag: &i64| self.names.get(tag).cloned().unwrap_or_else(|| format!("surface {tag}"));
        let surfaces = self.faces.iter().map(|(tag, faces)| Surface {
            name: named(tag),
            faces: faces.iter().map(|f| f.map(|p| new[p as usize])).collect(),
        });
        let surfaces = surfaces.collect();
        TetMesh::new(points, tetrahedra, surfaces)
            .map_err(|why| Error::format(path, format!("{why} (counted from 0 in the order of the file)")))
    }
}
