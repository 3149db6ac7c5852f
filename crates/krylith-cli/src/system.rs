//! Reads or generates the system that the text SYSTEM names, and converts it to blocks in the solver's order.

pub use crate::order::Order;

use crate::failure::{Failure, Result};
use crate::options::{Ordering, Rhs};
use krylith_core::comm::{Communicator, Solo};
use krylith_core::fields::{Field, fields_of_text};
use krylith_core::io::parts::suited_block;
use krylith_core::io::{self, Array, Defaults, Matrix, SystemMatrix};
use krylith_core::matrix::{Bsr, Csr, KroneckerSum, MAX_BLOCK};
use krylith_core::names::{did_you_mean, same};
use krylith_core::operator::Terms;
use krylith_core::partition::LocalSubdomains;
use krylith_core::text::count;
use krylith_core::{Options, Problem};
use krylith_problems::{Generated, SystemKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The operator of a system, on the host, in the solver's order.
pub enum Operator {
    /// A matrix of blocks.
    Matrix(Bsr),
    /// A⊗M + τB⊗L.
    Kronecker(KroneckerSum),
    /// This rank's rows of either kind.
    Share(Terms<'static>),
}

impl Operator {
    /// Returns the operator as a sum of terms, the form that every device accepts.
    pub fn terms(&self) -> Terms<'_> {
        match self {
            Operator::Matrix(a) => Terms::bsr(a),
            Operator::Kronecker(k) => Terms::kronecker(k),
            Operator::Share(terms) => terms.clone(),
        }
    }
}

/// A system, ready to be solved.
pub struct System {
    /// The text on the command line.
    pub label: String,
    /// The same text, or the text of a problem with all keys.
    pub name: String,
    /// The format of the files: `csr`, `bsr`, `dia` or `kronecker`.
    pub format: &'static str,
    /// Number of entries that the files store, without zeros added by blocks.
    pub nonzeros: usize,
    /// True for the real form of a complex matrix: a + ib is the block [[a, −b], [b, a]]. The numbers of
    /// unknowns, rows and stored entries are those of the real form.
    pub complex: bool,
    /// The operator.
    pub operator: Operator,
    /// The order of unknowns.
    pub order: Order,
    /// The right-hand sides of the system itself, in the solver's order.
    pub own_rhs: Option<Vec<Vec<f64>>>,
    /// The coordinates of the nodes, if they are known.
    pub coordinates: Option<Vec<[f64; 3]>>,
    /// The numbers of nodes in x, y and z if they form a grid, numbered with x fastest.
    pub grid: Option<[usize; 3]>,
    /// The tetrahedra of a mesh that is not a grid, by their nodes.
    pub tetrahedra: Vec<[u32; 4]>,
    /// The fields, in the user's order.
    pub fields: Vec<Field>,
    /// The matrices that preconditioners name.
    pub matrices: Vec<(String, Csr)>,
    /// The `[solver]` section of the file.
    pub solver: Options,
    /// The reason for the block size.
    pub block_reason: String,
    /// True if the block size was found from the pattern.
    pub block_detected: bool,
    /// The part of the system that this process holds.
    pub share: Share,
}

/// The part of a system that this process holds.
pub struct Share {
    /// The communicator of all processes.
    pub comm: Arc<dyn Communicator>,
    /// The numbers of the local block rows, in the solver's order; `None` if this process holds all rows.
    pub numbers: Option<Vec<u64>>,
    /// The reason for the choice of these rows.
    pub reason: String,
    /// The local subdomains, if the whole system was partitioned into subdomains.
    pub subdomains: Option<LocalSubdomains>,
}

impl Share {
    /// Creates the share of a process that holds the whole system.
    pub fn whole() -> Self {
        Self { comm: Arc::new(Solo), numbers: None, reason: String::new(), subdomains: None }
    }

    /// Returns the range of the local block rows if they are consecutive and not empty.
    fn run(&self) -> Option<Range<usize>> {
        let numbers = self.numbers.as_ref()?;
        let (first, last) = (*numbers.first()? as usize, *numbers.last()? as usize);
        numbers.windows(2).all(|w| w[0] + 1 == w[1]).then_some(first..last + 1)
    }
}

impl System {
    /// Converts the system to a problem of the library. Collective.
    ///
    /// # Errors
    /// Another rank failed or ended.
    pub fn problem(&self) -> Result<Problem<'_>> {
        let problem = match (&self.operator, &self.share.numbers) {
            (Operator::Kronecker(k), _) => Problem::kronecker(k)?,
            (Operator::Matrix(a), _) => Problem::bsr(a)?,
            (Operator::Share(terms), numbers) => {
                let numbers = numbers.as_deref().unwrap_or_default();
                Problem::local(self.share.comm.clone(), numbers, terms.clone())?
            }
        };
        let problem = problem.with_subdomains(self.share.subdomains.clone());
        let problem = match &self.coordinates {
            Some(points) if points.len() == self.order.nodes || points.len() == self.own_nodes() => {
                problem.with_coordinates(points.as_slice())?
            }
            _ => problem,
        };
        let problem = match self.grid {
            Some(grid) => problem.with_grid(grid)?,
            None => problem,
        };
        let problem = match self.fields.is_empty() {
            true => problem,
            false => {
                let own = self.fields.iter().map(|field| field.clone().renumbered(|i| self.order.place(i)));
                problem.with_fields(own.collect())?
            }
        };
        let mut problem = problem;
        for (name, matrix) in &self.matrices {
            problem = problem.with_matrix(name, matrix.clone())?;
        }
        Ok(problem)
    }

    /// Takes fields as text, and files of matrices by name, from the command line. They replace those of the
    /// system.
    ///
    /// # Errors
    /// Text of another form; a file that cannot be read.
    pub fn take_fields(&mut self, fields: Option<&str>, matrices: &[(String, PathBuf)]) -> Result<()> {
        if self.complex && fields.is_some() {
            let message = "--fields: fields of a complex matrix are not supported; omit the option";
            return Err(Failure::usage(message));
        }
        if let Some(text) = fields {
            let within = |e| Failure::from(e).within("--fields");
            self.fields = fields_of_text(text, self.order.rows()).map_err(within)?;
        }
        for (name, path) in matrices {
            let matrix = io::read_matrix(path)?.matrix.into_csr();
            self.matrices.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            self.matrices.push((name.clone(), matrix));
        }
        Ok(())
    }

    /// Returns the number of nodes that this process holds.
    pub fn own_nodes(&self) -> usize {
        self.share.numbers.as_ref().map_or(self.order.nodes, Vec::len)
    }

    /// Returns the number of unknowns of the whole system, N·s.
    pub fn len(&self) -> usize {
        self.order.rows() * self.order.stages
    }

    /// Returns the number of unknowns that this process holds.
    pub fn own_len(&self) -> usize {
        self.share.numbers.as_ref().map_or(self.len(), |n| n.len() * self.order.block * self.order.stages)
    }

    /// Returns the communicator of the ranks that hold the system.
    pub fn comm(&self) -> &dyn Communicator {
        &*self.share.comm
    }

    /// Returns this process's part of a vector of the whole system.
    pub fn own(&self, whole: Vec<f64>) -> Vec<f64> {
        let Some(numbers) = &self.share.numbers else { return whole };
        let run = self.order.block * self.order.stages;
        numbers.iter().flat_map(|&i| &whole[i as usize * run..][..run]).copied().collect()
    }

    /// Returns true for A⊗M + τB⊗L, whose vectors are written with one column per stage.
    pub fn is_kronecker(&self) -> bool {
        self.format == "kronecker"
    }

    /// Returns the right-hand sides, usually one, and their description.
    ///
    /// # Errors
    /// The file cannot be read, or does not match the system.
    pub fn right_hand_side(&mut self, wanted: Option<&Rhs>) -> Result<(Vec<Vec<f64>>, String)> {
        let order = self.order;
        let all = |value: f64| vec![vec![value; self.own_len()]];
        Ok(match (wanted, &self.own_rhs) {
            (None, Some(_)) => (self.own_rhs.take().unwrap_or_default(), "the system's own".into()),
            (None, None) => (all(1.0), "ones (the system has none of its own)".into()),
            (Some(Rhs::Ones), _) => (all(1.0), "ones".into()),
            (Some(Rhs::Zeros), _) => (all(0.0), "zeros".into()),
            (Some(Rhs::Random(seed)), _) => {
                let whole = order.into_solver(crate::options::random(*seed, self.len()));
                (vec![self.own(whole)], format!("random, seed {seed}"))
            }
            (Some(Rhs::File(path)), _) => {
                let columns = self.columns("the right-hand side", path).map_err(|e| no_word(path, e))?;
                (columns, path.display().to_string())
            }
        })
    }

    /// Returns this process's part of each vector in a file, in the solver's order. With one stage, shape (N,
    /// k) means k vectors.
    ///
    /// # Errors
    /// The file cannot be read, or does not match the system.
    pub fn columns(&self, what: &str, path: &Path) -> Result<Vec<Vec<f64>>> {
        let alone = self.share.numbers.is_none();
        if !alone && let Ok(one) = self.vector(what, path) {
            return Ok(vec![one]);
        }
        let columns = self
            .array(what, path)?
            .into_columns(what, self.order.rows(), self.order.stages)
            .map_err(|e| Failure::from(e).within(&krylith_core::text::name(path)))?;
        Ok(columns.into_iter().map(|values| self.own(self.order.into_solver(values))).collect())
    }

    /// Returns the array of a file. It is complex if the matrix is.
    fn array(&self, what: &str, path: &Path) -> Result<Array> {
        let array = io::read_vector_of(path, self.len())?;
        match (self.complex, array.is_complex()) {
            (true, _) => Ok(array.into_complex()),
            (false, false) => Ok(array),
            (false, true) => Err(Failure::usage(format!(
                "{}: {what} is complex, and the matrix is real; solve for its real and its imaginary part, \
                 saved as two columns: numpy.stack([b.real, b.imag], 1)",
                krylith_core::text::name(path)
            ))),
        }
    }

    /// Returns this process's part of the vector in a file, in the solver's order.
    ///
    /// # Errors
    /// The file cannot be read, or does not match the system.
    pub fn vector(&self, what: &str, path: &Path) -> Result<Vec<f64>> {
        if let Some(own) =
            self.share.run().filter(|_| self.order.user == Ordering::Interleaved && !self.complex)
        {
            let (b, rows, stages) = (self.order.block, self.order.rows(), self.order.stages);
            return Ok(io::parts::own_unknowns(path, what, rows, stages, own.start * b..own.end * b)?);
        }
        let values = self
            .array(what, path)?
            .into_unknowns(what, self.order.rows(), self.order.stages)
            .map_err(|e| Failure::from(e).within(&krylith_core::text::name(path)))?;
        Ok(self.own(self.order.into_solver(values)))
    }

    /// Returns the null vectors in a file. A vector of N unknowns gives one null vector for each stage; a
    /// file may instead hold one vector of the whole system. A complex vector v gives the real vectors of v
    /// and iv.
    ///
    /// # Errors
    /// The file cannot be read, or does not match the system.
    pub fn null_file(&self, path: &Path) -> Result<Vec<Vec<f64>>> {
        if self.complex {
            let turned = |v: &[f64]| -> Vec<f64> {
                v.as_chunks().0.iter().flat_map(|&[re, im]: &[f64; 2]| [-im, re]).collect()
            };
            let given = self.columns("the null vector", path)?;
            return Ok(given.into_iter().flat_map(|v| [turned(&v), v]).collect());
        }
        let array = self.array("the null vector", path)?;
        let (rows, columns) = array.rows_columns();
        let (n, s) = (self.order.rows(), self.order.stages);
        if rows != n {
            return Ok(vec![self.vector("the null vector", path)?]);
        }
        let column = |c: usize| array.values().iter().skip(c).step_by(columns).copied().collect::<Vec<f64>>();
        let mut vectors = Vec::new();
        for c in 0..columns {
            let values = column(c);
            for k in 0..s {
                let mut v = vec![0.0; n * s];
                values.iter().enumerate().for_each(|(row, x)| v[self.order.place(row) * s + k] = *x);
                vectors.push(self.own(v));
            }
        }
        Ok(vectors)
    }

    /// Converts whole solutions to the array of a file, in the user's numbering. The shape is (N,), (N, s)
    /// with stages, or (N, k) for k solutions.
    ///
    /// # Errors
    /// Never for vectors of this system.
    pub fn user_array(&self, x: Vec<Vec<f64>>) -> Result<Array> {
        let mut x: Vec<Vec<f64>> = x.into_iter().map(|x| self.order.into_user(x)).collect();
        let (n, k) = (self.order.rows(), x.len());
        if self.complex {
            let of = |row: usize| x.iter().flat_map(move |x| [x[2 * row], x[2 * row + 1]]);
            let shape = if k > 1 { vec![n / 2, k] } else { vec![n / 2] };
            return Ok(Array::complex(shape, (0..n / 2).flat_map(of).collect())?);
        }
        if k > 1 {
            let values = (0..n).flat_map(|row| x.iter().map(move |x| x[row])).collect();
            return Ok(Array::new(vec![n, k], values)?);
        }
        let x = x.pop().unwrap_or_default();
        let shape = if self.is_kronecker() { vec![n, self.order.stages] } else { vec![x.len()] };
        Ok(Array::new(shape, x)?)
    }
}

/// Returns the numbering of SYSTEM's unknowns, from the command line or a `system.toml`.
///
/// # Errors
/// The `system.toml` cannot be read, or its ordering is unknown.
pub fn ordering(system: &Path, given: Option<Ordering>) -> Result<Option<Ordering>> {
    let file = Defaults::read(system).map_err(|e| missing(system, e))?.ordering;
    let file = file.filter(|_| given.is_none()).map(|name| {
        name.parse().map_err(|e: krylith_core::Error| {
            Failure::from(e).within(&format!("{}: `solver.ordering`", krylith_core::text::name(system)))
        })
    });
    Ok(given.or(file.transpose()?))
}

/// Adds a suggestion to the error of a missing file for a right-hand side, which may be a misspelt word.
fn no_word(path: &Path, mut failure: Failure) -> Failure {
    if let Some(text) = path.to_str().filter(|text| !text.contains(['/', '.']) && !path.exists()) {
        failure.message += &did_you_mean("right-hand side", text, &["ones", "zeros", "random"]);
    }
    failure
}

/// A system as read or generated, before blocks are chosen.
struct Source {
    name: String,
    matrix: SystemMatrix,
    complex: bool,
    rhs: Option<Vec<Vec<f64>>>,
    coordinates: Option<Vec<[f64; 3]>>,
    grid: Option<[usize; 3]>,
    tetrahedra: Vec<[u32; 4]>,
    fields: Vec<Field>,
    matrices: Vec<(String, Csr)>,
    hint: Option<(usize, &'static str)>,
    solver: Options,
}

/// Returns true if SYSTEM names a generated problem and not a file.
pub fn is_problem(system: impl AsRef<Path>) -> bool {
    spec(system.as_ref()).is_some()
}

/// Returns the text of a generated problem if SYSTEM names one.
pub fn spec(system: &Path) -> Option<&str> {
    system.to_str().filter(|text| names_problem(text))
}

fn names_problem(text: &str) -> bool {
    let name = text.split([':', ',']).next().unwrap_or_default();
    !Path::new(text).exists()
        && (krylith_problems::catalogue().iter().any(|p| same(p.name, name))
            || (text.contains(':') && !text.contains(['/', '\\']) && !name.contains('.')))
}

fn source(system: &Path) -> Result<Source> {
    if let Some(text) = spec(system) {
        let Generated { system, rhs, coordinates, grid, tetrahedra, fields, matrices, spec } =
            krylith_problems::generate(text)?;
        let complex = false;
        let hint = Some((system.block(), "the problem's own"));
        let matrix = match system {
            SystemKind::Csr(a) => SystemMatrix::Matrix(Matrix::Csr(a)),
            SystemKind::Bsr(a) => SystemMatrix::Matrix(Matrix::Bsr(a)),
            SystemKind::Kronecker(k) => SystemMatrix::Kronecker(k),
        };
        return Ok(Source {
            name: spec,
            matrix,
            complex,
            rhs: Some(vec![rhs]),
            coordinates,
            grid,
            tetrahedra: if grid.is_none() { tetrahedra } else { Vec::new() },
            fields,
            matrices,
            hint,
            solver: Options::default(),
        });
    }
    let (path, name) = (system, system.display().to_string());
    let mut system = io::read_system(path).map_err(|e| missing(path, e))?;
    let rhs = system.rhs.take();
    let rhs = rhs
        .map(|array| {
            let stages = system.operator.stages();
            array.into_columns("the right-hand side", system.operator.rows() / stages, stages)
        })
        .transpose()
        .map_err(|e| Failure::from(e).within(&name))?;
    let why = if system.complex { "complex numbers" } else { "the file says so" };
    let hint = system.block_hint.map(|b| (b, why));
    Ok(Source {
        name,
        matrix: system.operator,
        complex: system.complex,
        rhs,
        coordinates: system.coordinates,
        grid: None,
        tetrahedra: Vec::new(),
        fields: system.fields,
        matrices: system.matrices,
        hint,
        solver: system.solver,
    })
}

/// Adds a suggestion to the error of a missing file, which may be a misspelt problem.
pub fn missing(system: &Path, error: krylith_core::Error) -> Failure {
    let not_there = matches!(&error, krylith_core::Error::Io { path, source }
        if path == system && source.kind() == std::io::ErrorKind::NotFound);
    let mut failure = Failure::from(error);
    let word = system.to_str().filter(|text| not_there && !text.contains(['/', '\\', '.']));
    if let Some(text) = word {
        let names: Vec<_> = krylith_problems::catalogue().iter().map(|p| p.name).collect();
        let hint = did_you_mean("problem", text, &names);
        failure.message +=
            &format!("; generated problems are {}, written NAME:SIZE[,key=value…]{hint}", names.join(", "));
    }
    failure
}

/// Reads or generates a system, and converts it to blocks.
///
/// # Errors
/// The file or problem is wrong, the matrix is empty or not square, or the blocks do not divide it.
pub fn load(system: &Path, block: Option<usize>, user: Ordering) -> Result<System> {
    let Source { name, matrix, complex, rhs, coordinates, grid, tetrahedra, fields, matrices, hint, solver } =
        source(system)?;
    let text = &*system.to_string_lossy();
    let refuse = |message: String| Err(Failure::usage(format!("{text}: {message}")));
    let (rows, columns) = match &matrix {
        SystemMatrix::Matrix(a) => (a.rows(), a.columns()),
        SystemMatrix::Kronecker(k) => (k.m.rows(), k.m.columns()),
    };
    if rows != columns {
        let (rows, columns) = if complex { (rows / 2, columns / 2) } else { (rows, columns) };
        return refuse(format!("the matrix is {rows}×{columns}; a solve needs a square one"));
    }
    let stored = match &matrix {
        SystemMatrix::Matrix(a) => a.stored(),
        SystemMatrix::Kronecker(k) => k.m.values().len() + k.l.values().len(),
    };
    if rows == 0 || stored == 0 {
        return refuse(format!(
            "the matrix is empty ({rows} rows, {stored} entries); a solve needs at least one entry"
        ));
    }
    if complex && user == Ordering::Segregated {
        return refuse("complex unknowns are numbered by node; renumber them, and omit --ordering".into());
    }
    if let Some(b) = block.filter(|b| complex && *b > MAX_BLOCK / 2) {
        return refuse(format!("--block {b} is too large; complex blocks have 1 to {} rows", MAX_BLOCK / 2));
    }
    // Each complex unknown is two real ones.
    let block = if complex { block.map(|b| 2 * b) } else { block };
    // A block size above the kernels' limit is replaced by another one.
    let hint =
        hint.filter(|(b, _)| (1..=MAX_BLOCK).contains(b) || matches!(matrix, SystemMatrix::Kronecker(_)));
    if user == Ordering::Segregated && block.is_none() && hint.is_none() {
        return refuse("--ordering segregated needs --block, the number of unknowns per node".into());
    }
    let stages = matrix.stages();
    let within = |e: krylith_core::Error| Failure::from(e).within(text);

    match matrix {
        SystemMatrix::Kronecker(k) => {
            let b = k.block();
            if block.is_some_and(|block| block != b) {
                let asked = block.unwrap_or_default();
                return refuse(format!(
                    "M and L have {b}×{b} blocks; --block {asked} does not match them, so omit it"
                ));
            }
            let order = Order { block: b, nodes: rows / b, stages, user };
            let KroneckerSum { a, b: coefficients, tau, m, l } = k;
            let m = order.blocks(Matrix::Bsr(m)).map_err(within)?;
            let l = order.blocks(Matrix::Bsr(l)).map_err(within)?;
            let operator =
                Operator::Kronecker(KroneckerSum::new(a, coefficients, tau, m, l).map_err(within)?);
            let own_rhs = rhs.map(|all| all.into_iter().map(|b| order.into_solver(b)).collect());
            let block_detected = false;
            let block_reason = hint.map_or("that of M and L", |h| h.1).to_string();
            Ok(System {
                label: krylith_core::text::shown(text),
                name,
                format: "kronecker",
                nonzeros: stored,
                complex,
                operator,
                order,
                own_rhs,
                coordinates,
                grid,
                tetrahedra,
                fields,
                matrices,
                solver,
                block_reason,
                block_detected,
                share: Share::whole(),
            })
        }
        SystemMatrix::Matrix(matrix) => {
            let format = matrix.format();
            let block_detected = block.is_none() && hint.is_none();
            let (matrix, b, block_reason) = match (block, hint) {
                (Some(b), _) => (matrix, b, "--block".into()),
                (None, Some((b, why))) => (matrix, b, why.to_string()),
                (None, None) => {
                    let a = matrix.into_csr();
                    let found = suited_block(&a);
                    (Matrix::Csr(a), found.block, crate::blocks::detected(found))
                }
            };
            let nodes = rows / b;
            if rows % b != 0 {
                return refuse(format!(
                    "{} rows cannot be cut into blocks of {}: --block must divide them",
                    count(if complex { rows / 2 } else { rows }),
                    if complex { b / 2 } else { b }
                ));
            }
            let order = Order { block: b, nodes, stages, user };
            let operator = Operator::Matrix(order.blocks(matrix).map_err(within)?);
            let own_rhs = rhs.map(|all| all.into_iter().map(|b| order.into_solver(b)).collect());
            Ok(System {
                label: krylith_core::text::shown(text),
                name,
                format,
                nonzeros: stored,
                complex,
                operator,
                order,
                own_rhs,
                coordinates,
                grid,
                tetrahedra,
                fields,
                matrices,
                solver,
                block_reason,
                block_detected,
                share: Share::whole(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segregated_there_and_back() {
        let order = Order { block: 2, nodes: 3, stages: 2, user: Ordering::Segregated };
        // u1 u2 u3 v1 v2 v3, two stages each
        let user: Vec<f64> = (0..12).map(f64::from).collect();
        let solver = order.into_solver(user.clone());
        assert_eq!(solver, [0.0, 1.0, 6.0, 7.0, 2.0, 3.0, 8.0, 9.0, 4.0, 5.0, 10.0, 11.0]);
        assert_eq!(order.into_user(solver), user);
    }

    #[test]
    fn files_and_problems_are_told_apart() {
        for text in ["stokes:4x4x4", "stokes", "nonsense:3"] {
            assert!(is_problem(text), "{text}");
        }
        for text in ["A.mtx", "dir:1/A.mtx", "nonsense", "./stokes"] {
            assert!(!is_problem(text), "{text}");
        }
    }
}
