//! Problems: systems without their right-hand sides.

use crate::arrays::{Memory, array, length, pointers, slice};
use crate::distributed;
use crate::status::{Result, Status, given, guard, needed};
use krylith_core::comm::agree;
use krylith_core::fields::fields_of_text;
use krylith_core::matrix::{Bsr, Csr, Dense};
use krylith_core::memory::{Array, Number};
use krylith_core::{Error, Field, Problem as System};
use krylith_report::words;
use std::ffi::c_char;
use std::fmt::Display;
use std::mem::MaybeUninit;

/// A system without its right-hand side: a matrix or a sum of two, and what else is known, such as
/// coordinates.
pub struct Problem {
    pub system: System<'static>,
    /// A description of the system for summaries.
    pub lines: Vec<String>,
}

impl Problem {
    pub fn of(system: System<'static>, entries: usize, format: &str) -> Self {
        Self { lines: words::system(&system, entries, format), system }
    }
}

/// Writes a new handle to the place that the caller gives.
pub fn hand_over<T>(to: Option<&mut MaybeUninit<*mut T>>, what: T) -> Result<()> {
    given(to, "the place for the handle")?.write(Box::into_raw(Box::new(what)));
    Ok(())
}

/// Frees a handle; a null pointer is ignored.
pub fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller promises that `hand_over` wrote this handle and that it is not used again.
        drop(unsafe { Box::from_raw(handle) });
    }
}

fn csr<I, J>(
    rows: i64,
    entries: i64,
    row_ptr: *const I,
    col: *const J,
    values: *const f64,
    block: i32,
    memory: Option<&Memory>,
) -> Result<Problem>
where
    I: Number + TryInto<usize> + Display,
    J: Number + TryInto<u32> + Display,
{
    let (n, entries) = (length(rows, "rows")?, length(entries, "entries")?);
    let (row_ptr, col, values): (Array<I>, Array<J>, _) = (
        array(row_ptr, n + 1, memory, "row_ptr")?,
        array(col, entries, memory, "col")?,
        array(values, entries, memory, "values")?,
    );
    let a = Csr::from_arrays(n, n, row_ptr, col, values)?;
    let block = if block == 0 { None } else { Some(length(block.into(), "block")?) };
    Ok(Problem::of(System::csr_in_blocks(&a, block)?, entries, "CSR"))
}

fn bsr<I, J>(
    block: i32,
    block_rows: i64,
    blocks: i64,
    row_ptr: *const I,
    col: *const J,
    values: *const f64,
    memory: Option<&Memory>,
) -> Result<Problem>
where
    I: Number + TryInto<usize> + Display,
    J: Number + TryInto<u32> + Display,
{
    let (n, blocks, b) =
        (length(block_rows, "block_rows")?, length(blocks, "blocks")?, length(block.into(), "block")?);
    let numbers = blocks.checked_mul(b * b).ok_or_else(|| {
        Error::invalid(format!(
            "the number of entries in {blocks} blocks of order {b} does not fit into 64 bits"
        ))
    })?;
    let (row_ptr, col): (Array<I>, Array<J>) =
        (array(row_ptr, n + 1, memory, "row_ptr")?, array(col, blocks, memory, "col")?);
    let a = Bsr::from_arrays(b, n, n, row_ptr, col, array(values, numbers, memory, "values")?)?;
    Ok(Problem::of(System::bsr(&a)?.into_owned(), numbers, "BSR"))
}

/// Creates a problem from a scalar matrix in CSR format. `row_ptr` has rows + 1 offsets into `col` and
/// `values`, which have `entries` numbers each; columns ascend in each row. If row_ptr[0] is 1, offsets and
/// columns count from 1, as in Fortran. The arrays are copied.
///
/// `block` is the number of unknowns of a node, which must be consecutive; blocks make products and
/// preconditioners faster. 1 keeps the matrix scalar, and 0 chooses the block size that suits the pattern. In
/// each case, updates expect new values in the order of `values`.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_csr(
    rows: i64,
    entries: i64,
    row_ptr: *const i32,
    col: *const i32,
    values: *const f64,
    block: i32,
    memory: Option<&Memory>,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| hand_over(problem, csr(rows, entries, row_ptr, col, values, block, memory)?))
}

/// Does the same as krylith_problem_csr with 64-bit indices.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_csr64(
    rows: i64,
    entries: i64,
    row_ptr: *const i64,
    col: *const i64,
    values: *const f64,
    block: i32,
    memory: Option<&Memory>,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| hand_over(problem, csr(rows, entries, row_ptr, col, values, block, memory)?))
}

/// Does the same as krylith_problem_csr with 64-bit row pointers and 32-bit columns.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_csr64_32(
    rows: i64,
    entries: i64,
    row_ptr: *const i64,
    col: *const i32,
    values: *const f64,
    block: i32,
    memory: Option<&Memory>,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| hand_over(problem, csr(rows, entries, row_ptr, col, values, block, memory)?))
}

/// Creates a problem from a matrix of square blocks in BSR format. `row_ptr` has block_rows + 1 offsets into
/// `col`, which has `blocks` block columns, ascending in each block row. `values` has block × block numbers
/// for each block, row by row. Offsets and columns may count from 1, as for krylith_problem_csr. The arrays
/// are copied.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_bsr(
    block: i32,
    block_rows: i64,
    blocks: i64,
    row_ptr: *const i32,
    col: *const i32,
    values: *const f64,
    memory: Option<&Memory>,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| hand_over(problem, bsr(block, block_rows, blocks, row_ptr, col, values, memory)?))
}

/// Does the same as krylith_problem_bsr with 64-bit indices.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_bsr64(
    block: i32,
    block_rows: i64,
    blocks: i64,
    row_ptr: *const i64,
    col: *const i64,
    values: *const f64,
    memory: Option<&Memory>,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| hand_over(problem, bsr(block, block_rows, blocks, row_ptr, col, values, memory)?))
}

/// Creates the problem A⊗M + τB⊗L, as in space-time methods. A and B are dense, stages × stages, row by row
/// on the host. M and L are problems of one matrix each, with the same block size; updates of either expect
/// new values in the order in which its own problem was given. Component c at node i of stage k is the entry
/// (i·block + c)·stages + k of a vector.
///
/// M and L may both be distributed, with the same rows in the same order on each rank. The sum is then
/// distributed, all ranks give the same A, B and τ, and this call and updates of its solver are collective.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_kronecker(
    stages: i32,
    a: *const f64,
    b: *const f64,
    tau: f64,
    m: Option<&Problem>,
    l: Option<&Problem>,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| {
        let read = || {
            let s = length(stages.into(), "stages")?;
            Ok((given(m, "m")?, given(l, "l")?, dense(s, a, "a")?, dense(s, b, "b")?))
        };
        // Each distributed problem has a communicator of its own; all ranks use that of M.
        let mut comms = [m, l].into_iter().flatten().map(|of| of.system.comm());
        let (m, l, a, b) = match comms.find(|comm| comm.size() > 1) {
            Some(comm) => agree(&**comm, read())?,
            None => read()?,
        };
        let system = System::kronecker_of(a, b, tau, &m.system, &l.system)?;
        let entries = system.terms().terms().iter().map(|(_, matrix)| matrix.stored()).sum();
        hand_over(problem, Problem::of(system, entries, "A⊗M + τB⊗L"))
    })
}

/// Creates a problem from this rank's rows of a distributed scalar matrix. Each rank holds consecutive rows,
/// in the order of the ranks; columns are numbered in the whole matrix. Collective. Vectors of a solver then
/// have the rows of this rank.
///
/// `comm` is the communicator's Fortran handle: MPI_Comm_c2f returns it in C, or MPI_Comm_toint in MPI 5. MPI
/// must be initialised with MPI_THREAD_SERIALIZED at least. `columns` is the number of columns of the whole
/// matrix. `block` has the same meaning as for krylith_problem_csr, and must divide the number of rows of
/// each rank. Open MPI, MPICH and libraries with the standard ABI are supported.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_distributed_csr(
    comm: i32,
    rows: i64,
    columns: i64,
    entries: i64,
    row_ptr: *const i64,
    col: *const i64,
    values: *const f64,
    block: i32,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| {
        hand_over(problem, distributed::csr(comm, [rows, columns, entries], row_ptr, col, values, block)?)
    })
}

/// Creates a problem from this rank's block rows of a distributed matrix, with square blocks as in
/// krylith_problem_bsr. The ranks may hold block rows in any order: `numbers` has the number of each local
/// block row in the whole matrix. If it is a null pointer, each rank holds consecutive block rows, in the
/// order of the ranks. Columns are block columns of the whole matrix, in any order within a row. Collective;
/// `comm` is the same as for krylith_problem_distributed_csr.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_distributed_bsr(
    comm: i32,
    block: i32,
    block_rows: i64,
    blocks: i64,
    numbers: *const i64,
    row_ptr: *const i64,
    col: *const i64,
    values: *const f64,
    problem: Option<&mut MaybeUninit<*mut Problem>>,
) -> Status {
    guard(|| {
        let sizes = [block.into(), block_rows, blocks];
        hand_over(problem, distributed::bsr(comm, sizes, numbers, row_ptr, col, values)?)
    })
}

/// Sets the coordinates of the nodes, `dimensions` (2 or 3) numbers for each node. With coordinates,
/// subdomains are boxes in space, and the solver can compute rigid modes.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_coordinates(
    problem: Option<&mut Problem>,
    dimensions: i32,
    nodes: i64,
    points: *const f64,
) -> Status {
    guard(|| {
        let (d, n) = (dimensions as usize, length(nodes, "nodes")?);
        if !(2..=3).contains(&dimensions) {
            let message = format!("the points have {dimensions} coordinates each; expected 2 or 3");
            return Err(Error::invalid(message).into());
        }
        let points = slice(points, n * d, "points")?.chunks_exact(d);
        let points: Vec<[f64; 3]> = points.map(|p| [p[0], p[1], if d == 3 { p[2] } else { 0.0 }]).collect();
        change(problem, |system| system.with_coordinates(points))
    })
}

/// Declares that the nodes form a grid of nx × ny × nz, numbered with x fastest.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_grid(
    problem: Option<&mut Problem>,
    nx: i64,
    ny: i64,
    nz: i64,
) -> Status {
    guard(|| {
        let grid = [length(nx, "nx")?, length(ny, "ny")?, length(nz, "nz")?];
        change(problem, |system| system.with_grid(grid))
    })
}

/// Sets `count` null vectors of the matrix, stored one after the other; no solution has a
/// component in them. A null pointer means the constant vectors that the matrix maps to zero.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_null_vectors(
    problem: Option<&mut Problem>,
    count: i32,
    vectors: *const f64,
) -> Status {
    guard(|| {
        change(problem, |system| {
            let vectors = match vectors.is_null() {
                true => system.constant_null_vectors()?,
                false => columns(&system, count, vectors)?,
            };
            vectors.iter().try_for_each(|v| system.check_null_vector(v))?;
            system.with_null_vectors(vectors)
        })
    })
}

/// Sets one to eight near-null vectors of the matrix, stored one after the other. Coarse levels have an
/// unknown for each of them at every node. A null pointer means the rigid modes of an elastic body, which
/// need coordinates.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_near_null_vectors(
    problem: Option<&mut Problem>,
    count: i32,
    vectors: *const f64,
) -> Status {
    guard(|| {
        change(problem, |system| {
            if vectors.is_null() {
                return system.with_rigid_modes();
            }
            let vectors = columns(&system, count, vectors)?;
            system.with_near_null_vectors(vectors)
        })
    })
}

/// Sets the fields of a coupled system, such as velocity and pressure, for preconditioners that treat each on
/// its own. A text such as `u[3]=0:90000,p=90000:` has the name of each field, and its unknowns as a run
/// START:STOP:STEP. The number in brackets is the block size. Runs joined with + form one field:
/// `u[2]=0::3+1::3,p=2::3`. Unknowns count from 0, and each belongs to one field. The new fields replace
/// those that were set before.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_fields(problem: Option<&mut Problem>, text: *const c_char) -> Status {
    guard(|| {
        let text = needed(text, "text")?;
        change(problem, |system| {
            let fields = fields_of_text(text, system.unknowns() / system.stages())?;
            system.with_fields(fields)
        })
    })
}

/// Sets `count` fields by lists of their unknowns. Field k has the name `names[k]` and `lengths[k]` unknowns.
/// Their numbers are in the array `unknowns[k]` and count from 0. `blocks[k]` is the number of unknowns of a
/// node, which are consecutive in the list; a null pointer means 1 for every field. Each unknown belongs to
/// one field. The new fields replace those that were set before; a `count` of 0 removes them.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_field_lists(
    problem: Option<&mut Problem>,
    count: i32,
    names: *const *const c_char,
    lengths: *const i64,
    unknowns: *const *const i64,
    blocks: *const i32,
) -> Status {
    guard(|| {
        let count = length(count.into(), "count")?;
        let (names, lengths) = (pointers(names, count, "names")?, slice(lengths, count, "lengths")?);
        let unknowns = pointers(unknowns, count, "unknowns")?;
        let blocks = if blocks.is_null() { None } else { Some(slice(blocks, count, "blocks")?) };
        let field = |k: usize| -> krylith_core::Result<Field> {
            let name = needed(names[k], &format!("names[{k}]"))?;
            let len = length(lengths[k], &format!("lengths[{k}]"))?;
            let numbers = slice(unknowns[k], len, &format!("unknowns[{k}]"))?.iter().enumerate();
            let numbers = numbers.map(|(i, &number)| {
                u32::try_from(number).map_err(|_| {
                    Error::invalid(format!(
                        "unknowns[{k}][{i}] is {number}, in the field `{name}`; unknowns are 0 to {}",
                        u32::MAX
                    ))
                })
            });
            let field = Field::new(name, numbers.collect::<krylith_core::Result<Vec<_>>>()?);
            match blocks {
                Some(blocks) => Ok(field.in_blocks(length(blocks[k].into(), &format!("blocks[{k}]"))?)),
                None => Ok(field),
            }
        };
        let fields = (0..count).map(field).collect::<krylith_core::Result<Vec<_>>>()?;
        change(problem, |system| system.with_fields(fields))
    })
}

/// Sets one to eight near-null vectors of the block of one field, stored one after the other, such as the
/// rigid modes of a displacement. They replace those that the field had; a `count` of 0 removes them. A
/// vector has a number for each unknown of the field, in the order in which the field was given. Setting the
/// fields anew removes the vectors. Collective if the problem is distributed.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_field_near_null_vectors(
    problem: Option<&mut Problem>,
    field: *const c_char,
    count: i32,
    vectors: *const f64,
) -> Status {
    guard(|| {
        let name = needed(field, "field")?;
        let count = length(count.into(), "count")?;
        change(problem, |system| {
            let mut fields = system.fields().to_vec();
            let Some(field) = fields.iter_mut().find(|field| field.name().eq_ignore_ascii_case(name)) else {
                return Err(Error::invalid(format!(
                    "the system has no field `{name}`; set the fields first"
                )));
            };
            let n = field.unknowns().len();
            let numbers = slice(vectors, n * count, "vectors")?.chunks_exact(n.max(1));
            *field = field.clone().with_near_null_vectors(numbers.map(<[f64]>::to_vec).collect());
            system.with_fields(fields)
        })
    })
}

/// Sets a matrix in CSR format that preconditioners refer to by name, such as the mass matrix Mp of the
/// pressure in `split(u: amg, p: jacobi; S=Mp)`. Names do not depend on case, and a new matrix replaces one
/// of the same name. `row_ptr` has rows + 1 offsets into `col` and `values`, which have `entries` numbers
/// each; columns ascend in each row. Offsets and columns may count from 1, as for krylith_problem_csr. The
/// arrays are on the host, and are copied.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_set_matrix(
    problem: Option<&mut Problem>,
    name: *const c_char,
    rows: i64,
    columns: i64,
    entries: i64,
    row_ptr: *const i64,
    col: *const i32,
    values: *const f64,
) -> Status {
    guard(|| {
        let name = needed(name, "name")?;
        let (rows, columns) = (length(rows, "rows")?, length(columns, "columns")?);
        let entries = length(entries, "entries")?;
        let (row_ptr, col) = (slice(row_ptr, rows + 1, "row_ptr")?, slice(col, entries, "col")?);
        let values = slice(values, entries, "values")?;
        let matrix = Csr::from_arrays(rows, columns, row_ptr, col, values)
            .map_err(|e| Error::invalid(format!("matrix `{name}`: {e}")))?;
        change(problem, |system| system.with_matrix(name, matrix))
    })
}

/// Returns the number of unknowns that this process holds, which is the length of its vectors; 0 for a null
/// pointer.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_unknowns(problem: Option<&Problem>) -> i64 {
    problem.map_or(0, |problem| problem.system.own_len() as i64)
}

/// Returns the number of unknowns of a node; 0 for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_block(problem: Option<&Problem>) -> i32 {
    problem.map_or(0, |problem| problem.system.block() as i32)
}

/// Frees a problem; solvers created from it remain valid. A null pointer is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_problem_free(problem: *mut Problem) {
    free(problem);
}

/// Reads a dense s × s matrix of the caller.
pub fn dense(s: usize, from: *const f64, what: &str) -> krylith_core::Result<Dense> {
    let count = s.checked_mul(s).ok_or_else(|| {
        Error::invalid(format!("{what} has {s} stages, whose square exceeds 64-bit numbers"))
    })?;
    Dense::new(s, s, slice(from, count, what)?.to_vec())
}

/// Replaces the system by a changed one; an error leaves it as it is.
fn change(
    problem: Option<&mut Problem>,
    how: impl FnOnce(System<'static>) -> krylith_core::Result<System<'static>>,
) -> Result<()> {
    let problem = given(problem, "problem")?;
    problem.system = how(problem.system.clone())?;
    Ok(())
}

/// Reads `count` vectors that are stored one after the other.
fn columns(system: &System, count: i32, vectors: *const f64) -> krylith_core::Result<Vec<Vec<f64>>> {
    let (n, count) = (system.own_len(), length(count.into(), "count")?);
    let numbers = slice(vectors, n * count, "vectors")?;
    Ok(numbers.chunks_exact(n.max(1)).map(<[f64]>::to_vec).collect())
}
