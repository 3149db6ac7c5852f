//! The file `system.toml`: a matrix or the parts of a Kronecker system, with right-hand side, coordinates and
//! solver defaults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::defaults::Defaults;
use super::source::{mark, name_file, text};
use super::{Array, Matrix, read_matrix, read_vector_of};
use crate::fields::{Field, fields_of_text};
use crate::matrix::{Butcher, Csr, Dense, KroneckerSum};
use crate::{Error, Options, Result};

/// The operator of a system: a matrix or a Kronecker sum.
///
/// # Examples
/// ```
/// use krylith::io::{Matrix, SystemMatrix};
/// use krylith::matrix::{Bsr, Csr, Dense, KroneckerSum};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
/// let plain = SystemMatrix::Matrix(Matrix::Csr(a.clone()));
/// assert_eq!((plain.rows(), plain.stages()), (2, 1));
/// let (m, l) = (Bsr::from_csr(&a, 1)?, Bsr::from_csr(&a, 1)?);
/// let sum = KroneckerSum::new(Dense::identity(3), Dense::identity(3), 0.1, m, l)?;
/// let stages = SystemMatrix::Kronecker(sum);
/// assert_eq!((stages.rows(), stages.stages()), (6, 3));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum SystemMatrix {
    /// One matrix.
    Matrix(Matrix),
    /// A⊗M + τB⊗L.
    Kronecker(KroneckerSum),
}

impl SystemMatrix {
    /// Returns the number of unknowns of the whole system.
    pub fn rows(&self) -> usize {
        match self {
            SystemMatrix::Matrix(a) => a.rows(),
            SystemMatrix::Kronecker(a) => a.rows(),
        }
    }

    /// Returns the number of stages s; 1 for a plain matrix.
    pub fn stages(&self) -> usize {
        match self {
            SystemMatrix::Matrix(_) => 1,
            SystemMatrix::Kronecker(a) => a.stages(),
        }
    }
}

/// A system read from files.
///
/// # Examples
/// ```
/// use krylith::io::{SystemMatrix, read_system};
/// use krylith_core::io::matrix_market;
/// use krylith::{Solver, matrix::Csr};
/// # let folder = std::env::temp_dir().join(format!("krylith-doc-system-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
/// matrix_market::write(folder.join("A.mtx"), &a)?;
/// std::fs::write(folder.join("b.txt"), "2\n8\n").unwrap();
/// let text = "matrix = \"A.mtx\"\nrhs = \"b.txt\"\n[solver]\nrtol = 1e-8\n";
/// std::fs::write(folder.join("system.toml"), text).unwrap();
///
/// let mut system = read_system(folder.join("system.toml"))?;
/// let b = system.rhs.take().unwrap();
/// let b = system.unknowns("rhs", b)?;
/// let SystemMatrix::Matrix(a) = system.operator else { unreachable!("it has no [kronecker]") };
/// let mut x = [0.0; 2];
/// Solver::new(&a.into_csr(), &system.solver)?.solve(&b, &mut x)?;
/// assert!((x[1] - 2.0).abs() < 1e-6);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// The operator of the system, or the real form of a complex matrix ([`ReadMatrix`](super::ReadMatrix)).
    pub operator: SystemMatrix,
    /// True if the matrix is complex; `rhs` is then complex too.
    pub complex: bool,
    /// The right-hand side in the shape of the file, or several of them in columns ([`Array::into_columns`]).
    /// [`unknowns`](Self::unknowns) converts one to the order of the solver.
    pub rhs: Option<Array>,
    /// Coordinates, one point per node.
    pub coordinates: Option<Vec<[f64; 3]>>,
    /// Fields, with unknowns as the files number them.
    pub fields: Vec<Field>,
    /// Matrices that preconditioners name.
    pub matrices: Vec<(String, Csr)>,
    /// Solver options of the file, used as defaults.
    pub solver: Options,
    /// The block size stated in the files; that of the real form if the matrix is complex.
    pub block_hint: Option<usize>,
}

impl System {
    /// Converts an array of a file, such as the right-hand side, to the order of the solver `row · s + k`;
    /// `what` names it in errors.
    ///
    /// # Errors
    /// A shape that is neither (N, s) nor flat with N·s numbers.
    pub fn unknowns(&self, what: &str, array: Array) -> Result<Vec<f64>> {
        let stages = self.operator.stages();
        array.into_unknowns(what, self.operator.rows() / stages, stages)
    }
}

/// The parsed text of a `system.toml`: either `matrix` or `kronecker`, with paths relative to the file.
///
/// # Examples
/// ```
/// use krylith_core::io::system::SystemFile;
/// let text = "matrix = \"A.mtx\"\nblock = 4\n[solver]\nprecond = \"ildu:fill=1\"\n";
/// let file = SystemFile::parse("system.toml", text)?;
/// assert_eq!((file.matrix, file.block), (Some("A.mtx".into()), Some(4)));
/// assert_eq!(file.solver, "precond=ildu:fill=1".parse()?);
/// let slip = SystemFile::parse("system.toml", "matrx = \"A.mtx\"\n").unwrap_err();
/// assert!(slip.to_string().starts_with("system.toml:1:"));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemFile {
    /// Matrix file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<PathBuf>,
    /// Block size of `matrix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    /// Right-hand side file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rhs: Option<PathBuf>,
    /// File of node coordinates, one point per row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinates: Option<PathBuf>,
    /// Fields, `u=0:90000,p=90000:`, as [`fields_of_text`] reads them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<String>,
    /// Files of matrices that preconditioners name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matrices: BTreeMap<String, PathBuf>,
    /// Parts of A⊗M + τB⊗L.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kronecker: Option<KroneckerFile>,
    /// Solver defaults.
    #[serde(default)]
    pub solver: Options,
    /// Other settings of the section: defaults of `krylith solve`.
    #[serde(skip)]
    pub defaults: Defaults,
}

/// The `[kronecker]` section: `scheme`, or both `A` and `B`.
///
/// # Examples
/// ```
/// use krylith_core::io::system::SystemFile;
/// let text = "[kronecker]\nM = 'M.mtx'\nL = 'L.mtx'\nblock = 4\ntau = 0.125\nscheme = 'radau-iia-2'\n";
/// let step = SystemFile::parse("system.toml", text)?.kronecker.unwrap();
/// assert_eq!((step.tau, step.scheme.as_deref()), (0.125, Some("radau-iia-2")));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KroneckerFile {
    /// File of M.
    #[serde(rename = "M")]
    pub m: PathBuf,
    /// File of L.
    #[serde(rename = "L")]
    pub l: PathBuf,
    /// Block size of both; if it is left out, a file must state one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    /// Step size τ, which multiplies B⊗L.
    pub tau: f64,
    /// Time-stepping scheme: A = I, and B is its Butcher matrix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// s×s by rows.
    #[serde(rename = "A", skip_serializing_if = "Option::is_none")]
    pub a: Option<Vec<Vec<f64>>>,
    /// s×s by rows.
    #[serde(rename = "B", skip_serializing_if = "Option::is_none")]
    pub b: Option<Vec<Vec<f64>>>,
}

/// Reads a system: a `.toml` file, or a matrix file of any format [`read_matrix`] knows.
///
/// A vector stored with the matrix in its file ([`ReadMatrix::vector`](super::ReadMatrix::vector)) is used as
/// the right-hand side.
///
/// # Errors
/// Errors of the files, unknown or missing keys (by name), and parts whose sizes do not fit together.
pub fn read_system(path: impl AsRef<Path>) -> Result<System> {
    let path = path.as_ref();
    if is_toml(path) {
        return read_toml(path);
    }
    let read = read_matrix(path)?;
    Ok(System {
        operator: SystemMatrix::Matrix(read.matrix),
        complex: read.complex,
        rhs: read.vector.map(Array::vector),
        coordinates: None,
        fields: Vec::new(),
        matrices: Vec::new(),
        solver: Options::default(),
        block_hint: read.block_hint,
    })
}

/// Writes a `system.toml` atomically: it appears complete or not at all.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn write(path: impl AsRef<Path>, file: &SystemFile) -> Result<()> {
    let path = path.as_ref();
    let text = || {
        if file.defaults == Defaults::default() {
            return toml::to_string(file);
        }
        let mut table = toml::Table::try_from(file)?;
        file.defaults.add_to(&mut table)?;
        toml::to_string(&table)
    };
    let text = text().map_err(|e| Error::format(path, e.to_string()))?;
    super::atomic::write(path, |out| out.write_all(text.as_bytes()))
}

/// Lists the files that [`read_system`] reads: `path`, all files that a `.toml` names, and PETSc's `.info`
/// files next to matrices.
///
/// For a file that cannot be read, only `path` is listed; [`read_system`] reports the error.
pub fn files(path: impl AsRef<Path>) -> Vec<PathBuf> {
    let path = path.as_ref();
    let mut files = vec![path.to_path_buf()];
    if is_toml(path)
        && let Ok(file) = SystemFile::open(path)
    {
        let folder = path.parent().unwrap_or(Path::new(""));
        let SystemFile { matrix, rhs, coordinates, kronecker, matrices, .. } = file;
        let (m, l) = kronecker.map(|k| (k.m, k.l)).unzip();
        files.extend([matrix, m, l, rhs, coordinates].into_iter().flatten().map(|name| folder.join(name)));
        files.extend(matrices.into_values().map(|name| folder.join(name)));
    }
    let infos: Vec<PathBuf> =
        files.iter().map(super::petsc::info_name).filter(|info| info.exists()).collect();
    files.extend(infos);
    files
}

/// Returns true if the extension of a file is `.toml`.
pub(super) fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
}

pub(super) fn parse(path: &Path, text: &str) -> Result<SystemFile> {
    super::defaults::parse(path, &text[mark(text.as_bytes())..])
}

/// The operator given in the file: `matrix` or `[kronecker]`.
pub(super) enum Parts<'a> {
    Matrix(&'a Path),
    Kronecker(&'a KroneckerFile),
}

impl SystemFile {
    /// Parses the text of a `system.toml` without reading the files that it names; errors call it `name`.
    ///
    /// # Errors
    /// Text that is not TOML, unknown or missing keys, invalid solver options; with the line.
    pub fn parse(name: impl AsRef<Path>, text: &str) -> Result<Self> {
        let path = name.as_ref();
        let file = parse(path, text)?;
        check_solver(&file.solver).map_err(|message| Error::format(path, message))?;
        Ok(file)
    }

    /// Reads and parses the text, without the files that it names.
    pub(super) fn open(path: &Path) -> Result<Self> {
        Self::parse(path, &text(path)?)
    }

    /// Returns the operator; an error for both or neither of `matrix` and `[kronecker]`, and for a `block`
    /// that is misplaced or 0.
    pub(super) fn parts(&self, path: &Path) -> Result<Parts<'_>> {
        let bad = |message: &str| Err(Error::format(path, message));
        match (&self.matrix, &self.kronecker) {
            (Some(_), None) if self.block == Some(0) => bad("`block` is 0; it must be at least 1"),
            (Some(matrix), None) => Ok(Parts::Matrix(matrix)),
            (None, Some(_)) if self.block.is_some() => bad("`block` belongs in the section [kronecker]"),
            (None, Some(parts)) => Ok(Parts::Kronecker(parts)),
            (Some(_), Some(_)) => bad("both `matrix` and [kronecker] are given; give only one of them"),
            (None, None) => bad("neither `matrix` nor [kronecker] is given; give one of them"),
        }
    }
}

fn read_toml(path: &Path) -> Result<System> {
    let file = SystemFile::open(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));

    let (operator, complex, vector, block_hint) = match file.parts(path)? {
        Parts::Matrix(matrix) => {
            let read = read_matrix(folder.join(matrix))?;
            let block = file.block.map(|b| if read.complex { 2 * b } else { b });
            (SystemMatrix::Matrix(read.matrix), read.complex, read.vector, block.or(read.block_hint))
        }
        Parts::Kronecker(parts) => {
            let sum = kronecker(path, folder, parts)?;
            let block = sum.block();
            (SystemMatrix::Kronecker(sum), false, None, Some(block))
        }
    };
    let mut system = System {
        operator,
        complex,
        rhs: vector.map(Array::vector),
        coordinates: None,
        fields: Vec::new(),
        matrices: Vec::new(),
        solver: file.solver,
        block_hint,
    };
    if complex && file.fields.is_some() {
        let message = "`fields` of a complex matrix are not supported; leave the key out";
        return Err(Error::format(path, message));
    }
    if let Some(text) = &file.fields {
        let rows = system.operator.rows();
        system.fields = fields_of_text(text, rows).map_err(|e| Error::format(path, e.to_string()))?;
    }
    for (name, file) in file.matrices {
        system.matrices.push((name, read_matrix(folder.join(file))?.matrix.into_csr()));
    }
    if let Some(rhs) = &file.rhs {
        let array = read_vector_of(folder.join(rhs), system.operator.rows())?;
        let array = if complex { array.into_complex() } else { array };
        let stages = system.operator.stages();
        let fits = array.clone().into_columns("the right-hand side", system.operator.rows() / stages, stages);
        fits.map_err(|e| name_file(&folder.join(rhs), e))?;
        system.rhs = Some(array);
    }
    if let Some(coordinates) = &file.coordinates {
        let name = folder.join(coordinates);
        let points =
            read_vector_of(&name, system.operator.rows())?.into_points().map_err(|e| name_file(&name, e))?;
        check_points(
            &name,
            points.len(),
            system.operator.rows() / system.operator.stages(),
            system.block_hint,
        )?;
        system.coordinates = Some(points);
    }
    Ok(system)
}

/// Returns an error if there is not one point per node.
pub(super) fn check_points(name: &Path, n: usize, rows: usize, block: Option<usize>) -> Result<()> {
    // Without a block size, any number of unknowns per node is possible.
    let fits = match block {
        Some(block) => n.checked_mul(block) == Some(rows),
        None => n > 0 && rows.is_multiple_of(n),
    };
    if fits {
        return Ok(());
    }
    let block = block.map_or("any block size".into(), |b| format!("a block size of {b}"));
    Err(Error::format(
        name,
        format!("{n} points do not fit {rows} rows with {block}; expected one point per node"),
    ))
}

/// Returns an error for invalid numbers. Options of other methods are accepted here: they are ignored once
/// the user names a method.
fn check_solver(solver: &Options) -> Result<(), String> {
    let numbers = Options {
        method: None,
        orthogonalization: None,
        reductions: None,
        form: None,
        basis: None,
        ..solver.clone()
    };
    match numbers.settled() {
        Err(Error::Option { key, message }) => Err(format!("`solver.{key}` {message}")),
        Err(e) => Err(e.to_string()),
        Ok(_) => Ok(()),
    }
}

/// Returns A and B.
pub(super) fn coefficients(path: &Path, parts: &KroneckerFile) -> Result<(Dense, Dense)> {
    match (&parts.scheme, &parts.a, &parts.b) {
        (Some(scheme), None, None) => {
            let b = Butcher::by_name(scheme).map_err(|e| name_file(path, e))?.a;
            Ok((Dense::identity(b.rows()), b))
        }
        (None, Some(a), Some(b)) => Ok((dense(path, "A", a)?, dense(path, "B", b)?)),
        _ => Err(Error::format(path, "[kronecker] needs either `scheme` or both `A` and `B`")),
    }
}

/// Returns the block size of M and L: that of the section, or else one stated in a file.
pub(super) fn kronecker_block(
    path: &Path,
    parts: &KroneckerFile,
    hints: [Option<usize>; 2],
) -> Result<usize> {
    parts.block.or(hints[0]).or(hints[1]).ok_or_else(|| {
        let message = "[kronecker] has no `block`, and neither M nor L states a block size: add `block`, \
                       for example `block = 1`";
        Error::format(path, message)
    })
}

fn kronecker(path: &Path, folder: &Path, parts: &KroneckerFile) -> Result<KroneckerSum> {
    let (a, b) = coefficients(path, parts)?;
    let (m_path, l_path) = (folder.join(&parts.m), folder.join(&parts.l));
    let (m, l) = (read_matrix(&m_path)?, read_matrix(&l_path)?);
    if let Some((path, _)) = [(&m_path, &m), (&l_path, &l)].iter().find(|(_, read)| read.complex) {
        let message =
            "the matrix is complex; a Kronecker sum needs real M and L, so give the whole sum as one matrix";
        return Err(Error::format(path, message));
    }
    let block = kronecker_block(path, parts, [m.block_hint, l.block_hint])?;
    let m = m.matrix.into_bsr(block).map_err(|e| name_file(&m_path, e))?;
    let l = l.matrix.into_bsr(block).map_err(|e| name_file(&l_path, e))?;
    KroneckerSum::new(a, b, parts.tau, m, l).map_err(|e| name_file(path, e))
}

fn dense(path: &Path, name: &str, rows: &[Vec<f64>]) -> Result<Dense> {
    let columns = rows.first().map_or(0, Vec::len);
    if let Some(i) = rows.iter().position(|row| row.len() != columns) {
        let message = format!("row {i} of `{name}` has {} numbers, but row 0 has {columns}", rows[i].len());
        return Err(Error::format(path, message));
    }
    Dense::new(rows.len(), columns, rows.concat()).map_err(|e| name_file(path, e))
}

#[cfg(test)]
mod tests {
    use super::super::{matrix_market, petsc};
    use super::*;
    use crate::matrix::Csr;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let m = Csr::from_triplets(4, 4, &[(0, 0, 1.0), (1, 1, 2.0), (2, 2, 3.0), (3, 3, 4.0)]).unwrap();
        matrix_market::write(dir.path().join("M.mtx"), &m).unwrap();
        matrix_market::write(dir.path().join("L.mtx"), &m).unwrap();
        std::fs::write(dir.path().join("b.txt"), "0\n10\n20\n30\n1\n11\n21\n31\n").unwrap();
        std::fs::write(dir.path().join("b4.txt"), "0\n10\n20\n30\n").unwrap();
        std::fs::write(dir.path().join("x.txt"), "0 0\n1 0\n").unwrap();
        dir
    }

    fn read(dir: &tempfile::TempDir, text: &str) -> Result<System> {
        let path = dir.path().join("system.toml");
        std::fs::write(&path, text).unwrap();
        read_system(path)
    }

    #[test]
    fn kronecker_by_scheme_and_by_matrices() {
        let dir = folder();
        let system = read(
            &dir,
            "rhs = 'b.txt'\ncoordinates = 'x.txt'\n[kronecker]\nM = 'M.mtx'\nL = 'L.mtx'\nblock = 2\ntau = 0.5\n\
             scheme = 'radau-iia-2'\n[solver]\nmethod = 'gmres'\nrtol = 1e-8\nmax-iters = 7\n",
        )
        .unwrap();
        let SystemMatrix::Kronecker(sum) = &system.operator else { panic!("a Kronecker system") };
        assert_eq!((sum.stages(), sum.block(), sum.tau, sum.rows()), (2, 2, 0.5, 8));
        assert!(sum.a == Dense::identity(2) && (sum.b[(1, 0)] - 0.75).abs() < 1e-15);
        assert_eq!((system.solver.rtol, system.solver.max_iters), (Some(1e-8), Some(7)));
        assert_eq!(system.coordinates.as_ref().unwrap()[1], [1.0, 0.0, 0.0]);
        let b = system.unknowns("b", system.rhs.clone().unwrap()).unwrap();
        assert_eq!(b, [0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0]);

        let explicit =
            "[kronecker]\nM='M.mtx'\nL='L.mtx'\nblock=1\ntau=1\nA=[[1,0],[0,1]]\nB=[[1,2],[3,4.5]]\n";
        let SystemMatrix::Kronecker(sum) = read(&dir, explicit).unwrap().operator else { panic!("one") };
        assert_eq!(sum.b.values(), [1.0, 2.0, 3.0, 4.5]);
    }

    #[test]
    fn one_matrix() {
        let dir = folder();
        let system =
            read(&dir, "matrix = 'M.mtx'\nblock = 2\nrhs = 'b4.txt'\ncoordinates = 'x.txt'\n").unwrap();
        assert_eq!((system.operator.rows(), system.block_hint), (4, Some(2)));
        // A PETSc file with a right-hand side, and its block size in the `.info` file.
        let (SystemMatrix::Matrix(a), b) = (system.operator.clone(), [1.0, 2.0, 3.0, 4.0]) else {
            panic!("one")
        };
        let items = [petsc::Item::Matrix(&a.into_csr()), petsc::Item::Vector(&b)];
        petsc::write(dir.path().join("M.out"), &items).unwrap();
        std::fs::write(dir.path().join("M.out.info"), "-matload_block_size 2\n").unwrap();
        let read = read_system(dir.path().join("M.out")).unwrap();
        assert_eq!((read.rhs, read.block_hint), (Some(Array::vector(b.to_vec())), Some(2)));
        let plain = read_system(dir.path().join("M.mtx")).unwrap();
        assert_eq!((plain.operator, plain.rhs), (system.operator, None));
    }

    #[test]
    fn errors_name_key_and_file() {
        let dir = folder();
        let k = "[kronecker]\nM='M.mtx'\nL='L.mtx'\n";
        for (text, words) in [
            ("matrix = 'M.mtx'\nfoo = 1\n".to_string(), ["system.toml:2", "foo"]),
            ("matrix = 'M.mtx'\n[solver]\n\ntolerance = 1\n".into(), ["system.toml:4", "tolerance"]),
            ("matrix = 'M.mtx'\n[solver]\nrestart = -3\n".into(), ["system.toml:3", "-3"]),
            ("matrix = 'M.mtx'\n[solver]\nrestart = 0\n".into(), ["system.toml", "restart"]),
            ("matrix = 'M.mtx'\n[solver]\nrtol = nan\n".into(), ["system.toml", "rtol"]),
            ("matrix = \n".into(), ["system.toml:1", ""]),
            ("".into(), ["system.toml", "neither"]),
            (format!("matrix='M.mtx'\n{k}tau=1\nscheme='gauss-1'"), ["system.toml", "both"]),
            (format!("block=2\n{k}tau=1\nscheme='gauss-1'"), ["system.toml", "[kronecker]"]),
            ("matrix = 'M.mtx'\nblock = 0\n".into(), ["system.toml", "block"]),
            ("matrix = 'none.mtx'\n".into(), ["none.mtx", "No such file"]),
            ("matrix = 'M.mtx'\nrhs = 'b.txt'\n".into(), ["b.txt", "expected 4 numbers"]),
            ("matrix = 'M.mtx'\nblock = 1\ncoordinates = 'x.txt'\n".into(), ["x.txt", "2 points"]),
            ("matrix = 'M.mtx'\nblock = 3\ncoordinates = 'x.txt'\n".into(), ["x.txt", "block size of 3"]),
            (format!("{k}scheme='gauss-1'"), ["system.toml:1", "tau"]),
            (format!("{k}tau=1\nblock=2\nscheme='gauss-9'"), ["system.toml", "`gauss-9` has 9 stages"]),
            (format!("{k}tau=1\nblock=2\n"), ["system.toml", "either `scheme`"]),
            (format!("{k}tau=1\nscheme='gauss-1'"), ["system.toml", "block = 1"]),
            (format!("{k}tau=1\nblock=3\nscheme='gauss-1'"), ["M.mtx", "3×3"]),
            (format!("{k}tau=1\nblock=0\nscheme='gauss-1'"), ["M.mtx", "0×0"]),
            (format!("{k}tau=inf\nblock=2\nscheme='gauss-1'"), ["system.toml", "tau"]),
            (format!("{k}tau=1\nblock=2\nA=[[1]]\nB=[[1,2],[3]]"), ["system.toml", "row 1 of `B`"]),
            (format!("{k}tau=1\nblock=2\nA=[[1]]\nB=[[1,2],[3,4]]"), ["system.toml", "same order"]),
            (format!("{k}tau=1\nblock=2\nA=[]\nB=[]"), ["system.toml", "square"]),
            (format!("{k}tau=1\nblock=2\nA=[[nan]]\nB=[[1]]"), ["system.toml", "NaN"]),
        ] {
            let message = read(&dir, &text).unwrap_err().to_string();
            assert!(words.iter().all(|w| message.contains(w)), "{text}\n{message}");
        }
    }

    #[test]
    fn written_and_read_again() {
        let dir = folder();
        let file = SystemFile {
            rhs: Some("b.txt".into()),
            kronecker: Some(KroneckerFile {
                m: "M.mtx".into(),
                l: "L.mtx".into(),
                block: Some(2),
                tau: 0.125,
                scheme: Some("gauss-2".into()),
                ..Default::default()
            }),
            solver: "precond=stage".parse().unwrap(),
            ..Default::default()
        };
        let path = dir.path().join("out.toml");
        write(&path, &file).unwrap();
        assert_eq!(parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap(), file);
        assert_eq!(read_system(&path).unwrap().operator.rows(), 8);
    }
}
