//! Every kernel that the library can launch, enumerable: CI compiles each without a GPU.
//!
//! Structures inside the blocks are the one thing that a user's matrix adds; those of the problems that ship with
//! Krylith stand for them here.

use super::compiler::Kernel;
use super::driver::TextKey;
use super::factors::IlduShape;
use crate::method::{KERNELS, gmres};
use crate::operator::Structure;
use crate::precond::{ALL_SWEEPS, CYCLE_STEPS};
use crate::space::step::HEADER;
use crate::space::{self, REASONS, SmallStep, StepSource, Store, SweepSource};

pub(crate) fn define(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

pub(crate) fn value(store: Store) -> (String, String) {
    define("VALUE", if store == Store::F64 { "double" } else { "float" })
}

/// Threads of a step that runs in parallel.
pub(crate) const STEP_THREADS: usize = 128;

/// The macros of `step.cuh` for one step: its scalars, arrays, constants, functions and text.
fn step_text(source: &StepSource) -> Vec<(String, String)> {
    let join = |parts: Vec<String>| parts.join(" ");
    let fields = HEADER.iter().chain(source.fields).copied().collect::<Vec<_>>().join(", ");
    let mut before = "(double*)(scalars + 1)".to_string();
    let mut arrays = Vec::new();
    for (name, length) in source.arrays {
        arrays.push(format!("double* const {name} = {before};"));
        before = format!("{name} + ({length})");
    }
    let functions = source.functions.iter().map(|f| {
        let indices: String = f.indices.iter().map(|i| format!(", usize {i}")).collect();
        let arrays: String = f.arrays.iter().map(|a| format!(", double* {a}")).collect();
        let body = text(f.body);
        format!("__device__ void {}(MethodScalars& {}{indices}{arrays}) {{ {body} }}", f.name, f.scalars)
    });
    let [scalars, iteration] = source.arguments;
    let mut defines: Vec<_> = REASONS.iter().map(|(name, code)| define(name, code)).collect();
    defines.push(define("HUGE", format!("{:e}", space::HUGE)));
    defines.extend(source.constants.iter().map(|(name, value)| define(name, format!("{value:e}"))));
    defines.extend([
        define("FIELDS", fields),
        define("ARRAYS", format!("const usize {} = scalars->batch; {}", source.batch, join(arrays))),
        define("END", before),
        define("FUNCTIONS", join(functions.collect())),
        define("SCALARS", scalars),
        define("ITERATION", if iteration == "_" { "iteration" } else { iteration }),
        define("BODY", text(source.body)),
    ]);
    defines
}

/// Statements in C++: on one line, and without the marks of Rust's macros.
fn text(body: &str) -> String {
    body.replace('\n', " ").replace("one!", "one").replace("each!", "each")
}

/// Dot products with one or two vectors.
pub(crate) fn project(store: Store, vectors: usize) -> Kernel {
    Kernel { file: "project.cu", entry: "project", defines: vec![value(store), define("RHS", vectors)] }
}

/// Combination of columns with one vector.
pub(crate) fn combine(store: Store) -> Kernel {
    Kernel { file: "combine.cu", entry: "combine", defines: vec![value(store), define("RHS", 1)] }
}

/// The delayed update of two vectors, with a small step beside it.
pub(crate) fn update_pair(store: Store, beside: &StepSource) -> Kernel {
    let mut defines = vec![value(store), define("RHS", 2), define("SMALL_STEP", 1)];
    defines.extend(step_text(beside));
    Kernel { file: "combine.cu", entry: "combine", defines }
}

/// Normalisation into the basis.
pub(crate) fn append(store: Store) -> Kernel {
    Kernel { file: "append.cu", entry: "append", defines: vec![value(store)] }
}

/// Where the texts of a step stand; `variant` tells kernels that are made from the same step.
pub(crate) fn step_key(source: &StepSource, variant: usize) -> TextKey {
    let (functions, constants) = (source.functions.as_ptr() as usize, source.constants.as_ptr() as usize);
    let (body, fields) = (source.body.as_ptr() as usize, source.fields.as_ptr() as usize);
    [body, fields, source.arrays.as_ptr() as usize, functions, constants, variant]
}

/// Where the texts of a sweep stand.
pub(crate) fn sweep_key(source: &SweepSource) -> TextKey {
    let names =
        [source.scalars, source.inputs, source.updates, source.sums].map(|names| names.as_ptr() as usize);
    [source.body.as_ptr() as usize, names[0], names[1], names[2], names[3], 0]
}

/// A small step on its own.
pub(crate) fn step(source: &StepSource) -> Kernel {
    Kernel { file: "step.cu", entry: "step", defines: step_text(source) }
}

/// The small steps and the sweeps of every method.
fn steps_and_sweeps() -> Vec<Kernel> {
    let steps = KERNELS.iter().flat_map(|(steps, _)| *steps).chain(CYCLE_STEPS).map(step);
    let sweeps = KERNELS.iter().map(|(_, sweeps)| *sweeps).chain(ALL_SWEEPS).flatten().map(sweep);
    steps.chain(sweeps).collect()
}

/// The kernels of a basis, with what runs beside them.
pub(crate) fn bases(store: Store) -> Vec<Kernel> {
    let beside = <gmres::delayed_step as SmallStep>::SOURCE;
    let projections = [1, 2].map(|vectors| project(store, vectors));
    [append(store), combine(store), update_pair(store, &beside)].into_iter().chain(projections).collect()
}

/// A sweep, its macros made from its declaration.
pub(crate) fn sweep(source: &SweepSource) -> Kernel {
    let each = |names: &[&str], f: &dyn Fn(&str) -> String| names.iter().map(|n| f(n)).collect::<String>();
    let parameters = each(source.scalars, &|n| format!(", const double* {n}_"))
        + &each(source.inputs, &|n| format!(", const double* {n}_"))
        + &each(source.updates, &|n| format!(", double* {n}_"))
        + &each(source.sums, &|n| format!(", double* {n}_"));
    let defines = vec![
        define("PARAMETERS", parameters),
        define("SCALARS", each(source.scalars, &|n| format!("const double {n} = *{n}_; "))),
        define("BEGIN", each(source.sums, &|n| format!("double {n} = 0; "))),
        define(
            "INPUTS",
            each(source.inputs, &|n| format!("const double {n} = {n}_[i]; "))
                + &each(source.updates, &|n| format!("double {n} = {n}_[i]; ")),
        ),
        define("BODY", source.body.replace('\n', " ")),
        define("STORES", each(source.updates, &|n| format!("{n}_[i] = {n}; "))),
        define("SUMS", source.sums.len()),
        define("SUM_VALUES", source.sums.join(", ")),
        define("SUM_PLACES", source.sums.iter().map(|n| format!("{n}_")).collect::<Vec<_>>().join(", ")),
    ];
    Kernel { file: "sweep.cu", entry: "sweep", defines }
}

/// Block-diagonal product.
pub(crate) fn block_diagonal(order: usize, store: Store) -> Kernel {
    let defines = vec![define("ORDER", order), value(store)];
    Kernel { file: "block_diagonal.cu", entry: "block_diagonal", defines }
}

/// A kernel of `ildu_factor.cu`; only packing knows how factors are stored and who reads them.
fn ildu_set_up(entry: &'static str, order: usize, store: Store, warps: usize) -> Kernel {
    let threads = define("THREADS", IlduShape::FACTOR_THREADS);
    let defines = vec![define("ORDER", order), value(store), threads, define("WARPS", warps)];
    Kernel { file: "ildu_factor.cu", entry, defines }
}

/// Values of a matrix to the entries of a plan.
pub(crate) fn ildu_form(order: usize) -> Kernel {
    ildu_set_up("ildu_form", order, Store::F64, 1)
}

/// Incomplete factorisation of subdomains.
pub(crate) fn ildu_factor(order: usize) -> Kernel {
    ildu_set_up("ildu_factor", order, Store::F64, 1)
}

/// Factors to the order in which they are used.
pub(crate) fn ildu_pack(order: usize, store: Store, shape: &IlduShape) -> Kernel {
    ildu_set_up("ildu_pack", order, store, shape.warps)
}

/// Solves with the factors of subdomains; `gathered` where their rows are not consecutive.
pub(crate) fn ildu_solve(order: usize, store: Store, shape: &IlduShape, gathered: bool) -> Kernel {
    let defines = vec![
        define("ORDER", order),
        value(store),
        define("WARPS", shape.warps),
        define("STAGE", shape.stage),
        define("DEPTH", shape.depth),
        define("GATHERED", gathered as u32),
    ];
    Kernel { file: "ildu_solve.cu", entry: "ildu_solve", defines }
}

/// Where each block of the factors stands in the stream; with `write` it is written, else counted.
pub(crate) fn ildu_stream(order: usize, store: Store, shape: &IlduShape, write: bool) -> Kernel {
    let defines = vec![
        define("ORDER", order),
        value(store),
        define("WARPS", shape.warps),
        define("STAGE", shape.stage),
        define("THREADS", IlduShape::LAYOUT_THREADS),
        define("WRITE", write as u32),
    ];
    Kernel { file: "ildu_stream.cu", entry: "ildu_stream", defines }
}

/// The analysis of subdomains, of one pattern or the union of two.
pub(crate) fn ildu_plan(entry: &'static str, patterns: usize) -> Kernel {
    let defines = vec![define("PATTERNS", patterns), define("THREADS", super::factors::PLAN_THREADS)];
    Kernel { file: "ildu_plan.cu", entry, defines }
}

/// Another order of elimination for subdomains whose natural one is suspect.
pub(crate) fn ildu_order() -> Kernel {
    let defines = vec![define("THREADS", super::factors::PLAN_THREADS)];
    Kernel { file: "ildu_order.cu", entry: "ildu_order", defines }
}

fn ildu_plans() -> Vec<Kernel> {
    let first = ["ildu_boxes", "ildu_home"].map(|entry| ildu_plan(entry, 1));
    let rest = [1, 2]
        .into_iter()
        .flat_map(|n| ["ildu_count", "ildu_inspect", "ildu_finish"].map(|entry| ildu_plan(entry, n)));
    first.into_iter().chain(rest).chain([ildu_order(), scan_columns(3)]).collect()
}

/// Exclusive sums down interleaved columns.
pub(crate) fn scan_columns(columns: usize) -> Kernel {
    Kernel { file: "scan.cu", entry: "scan_columns", defines: vec![define("COLUMNS", columns)] }
}

/// Orders of blocks whose factors CI compiles: all of one stage, and b·s of Kronecker systems.
const ILDU_ORDERS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32];

/// How products of scalar rows are mapped: constants of `kernels/csr.cu`, tuned on an H200.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsrShape {
    /// Threads a block of threads.
    pub threads: usize,
    /// Most entries of a tile.
    capacity: usize,
    /// Blocks of threads a multiprocessor, as far as registers go.
    resident: usize,
    store: Store,
}

impl CsrShape {
    /// Rows up to this length stand in one tile.
    const LONG: usize = 64;

    /// The mapping for a precision: of 4 to 16 entries a thread and 64 to 512 threads, the one that was fastest in the mean of ten kinds of
    /// matrix.
    pub fn choose(store: Store) -> Self {
        Self { threads: 128, capacity: 1280, resident: 8, store }
    }

    /// Tiles of a matrix: windows of equal work, a row counting as much as an eighth of an entry.
    pub fn tiles(&self, rows: usize, entries: usize) -> usize {
        match rows {
            0 => 0,
            _ => (entries + (rows - 1) / 8 + 1).div_ceil(self.capacity - Self::LONG - 2),
        }
    }

    /// A kernel of `csr.cu`.
    pub fn kernel(&self, entry: &'static str) -> Kernel {
        let defines = vec![
            value(self.store),
            define("THREADS", self.threads),
            define("CTAS", self.resident),
            define("CAPACITY", self.capacity),
            define("LONG", Self::LONG),
        ];
        Kernel { file: "csr.cu", entry, defines }
    }

    /// The same that makes a residual, or a step of a smoother, of each number of y.
    pub fn kernel_that_smooths(&self, entry: &'static str) -> Kernel {
        let mut kernel = self.kernel(entry);
        kernel.defines.push(define("SMOOTH", 1));
        kernel
    }

    /// The same that stores each number of y into the vectors of other GPUs as well.
    pub fn kernel_for_others(&self, entry: &'static str) -> Kernel {
        let mut kernel = self.kernel(entry);
        kernel.defines.push(define("PEERS", 1));
        kernel
    }
}

/// Products of small matrices of scalar rows.
pub(crate) fn csr_lanes(store: Store) -> Kernel {
    Kernel { file: "csr_lanes.cu", entry: "csr_lanes", defines: vec![value(store)] }
}

/// Blocks of a matrix that a block of threads of `passes.cu` looks at.
pub(crate) fn passes_window(block: usize) -> usize {
    2048 / block
}

/// A kernel of `passes.cu`: passes over the entries of a matrix, scaled or as they are.
pub(crate) fn passes(entry: &'static str, block: usize, scaled: bool) -> Kernel {
    let defines = vec![define("BLOCK", block), define("SCALED", scaled as u32)];
    Kernel { file: "passes.cu", entry, defines }
}

/// Random numbers.
pub(crate) fn random() -> Kernel {
    Kernel { file: "random.cu", entry: "random_numbers", defines: Vec::new() }
}

/// The passes over matrices of some block sizes.
fn all_passes(blocks: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Kernel> {
    blocks.into_iter().flat_map(|b| [false, true].map(|scaled| passes("entry_maxima", b, scaled)))
}

/// Sums over the GPUs of a host.
pub(crate) fn all_reduce() -> Kernel {
    Kernel { file: "all_reduce.cu", entry: "all_reduce_values", defines: Vec::new() }
}

/// The nodes that a neighbour needs, in one message.
pub(crate) fn gather() -> Kernel {
    Kernel { file: "gather.cu", entry: "gather_runs", defines: Vec::new() }
}

/// A caller's matrix, taken over; names of C types of its row pointers and columns.
pub(crate) fn arrays(entry: &'static str, row: &str, column: &str) -> Kernel {
    Kernel { file: "arrays.cu", entry, defines: vec![define("ROW", row), define("COLUMN", column)] }
}

/// All of [`arrays`], for one width of row pointers and columns.
fn all_arrays(row: &str, column: &str) -> Vec<Kernel> {
    ["take_row_pointers", "take_columns", "check_columns", "take_values", "compare_patterns"]
        .map(|entry| arrays(entry, row, column))
        .into()
}

/// The bandwidth measurement.
pub(crate) fn read() -> Kernel {
    Kernel { file: "read.cu", entry: "read", defines: Vec::new() }
}

/// A kernel that makes tiles.
pub(crate) fn tiling(entry: &'static str) -> Kernel {
    Kernel { file: "tiling.cu", entry, defines: Vec::new() }
}

/// Structure inside the blocks.
pub(crate) fn structure() -> Kernel {
    Kernel { file: "structure.cu", entry: "structure", defines: Vec::new() }
}

/// A kernel that makes the blocks of point-block Jacobi.
pub(crate) fn jacobi(entry: &'static str, order: usize, store: Store) -> Kernel {
    Kernel { file: "jacobi.cu", entry, defines: vec![define("ORDER", order), value(store)] }
}

/// Every kernel but the products, which [`products()`] lists.
pub fn vector_kernels() -> Vec<Kernel> {
    let mut all = vec![read(), all_reduce(), gather(), tiling("tiling_cut"), structure()];
    all.push(random());
    all.extend(super::part::kernels());
    all.extend(super::replicated::kernels());
    all.extend(super::dia::kernels());
    all.extend(all_passes(1..=8));
    let widths = ["int", "long long", "unsigned", "unsigned long long"];
    all.extend(widths.iter().flat_map(|width| all_arrays(width, width)));
    all.extend(all_arrays("long long", "int"));
    all.extend(ildu_plans());
    all.extend(ILDU_ORDERS.iter().flat_map(|&order| [ildu_form(order), ildu_factor(order)]));
    for store in [Store::F64, Store::F32] {
        all.extend(bases(store));
        all.push(CsrShape::choose(store).kernel("csr_product"));
        all.extend(super::csr_halo::kernels(store));
        all.push(CsrShape::choose(store).kernel_for_others("csr_product"));
        all.extend([CsrShape::choose(store).kernel_that_smooths("csr_product"), csr_lanes(store)]);
        all.extend(super::block_tiles::kernels(store));
        all.extend(super::schwarz::kernels(1..=8, store));
        all.extend((1..=32).map(|order| block_diagonal(order, store)));
        all.extend((1..=32).map(|order| jacobi("jacobi_invert", order, store)));
        for order in ILDU_ORDERS {
            for shape in IlduShape::all(order) {
                all.push(ildu_pack(order, store, &shape));
                all.extend([false, true].map(|write| ildu_stream(order, store, &shape, write)));
                all.extend([false, true].map(|gathered| ildu_solve(order, store, &shape, gathered)));
            }
        }
    }
    all.extend(super::cut::kernels());
    all.extend(super::scan::kernels());
    all.extend(super::multilevel::kernels(1..=8));
    all.extend(super::block::kernels(1..=space::MOST_COLUMNS));
    all.extend(steps_and_sweeps());
    all
}

/// How the fused product is mapped: constants of `kernels/kron_product.cu`, tuned on an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Threads a block of threads.
    pub(crate) threads: usize,
    /// Groups of a block's rows whose packed values lie together.
    pub(crate) slices: usize,
    /// Threads that share a matrix block, or lanes that share a row where one lane takes a row and component.
    pub(crate) shares: usize,
    /// Most matrix blocks of a tile.
    pub(crate) tile: usize,
    /// Lanes take rows and components instead of blocks.
    pub(crate) by_rows: bool,
    /// Rows that share columns are put together.
    pub(crate) cluster: bool,
    block: usize,
    dense: bool,
}

/// Tiles copied ahead, this one included.
const DEPTH: usize = 2;

impl Shape {
    /// The mapping for a block size, stages, structure and precision.
    pub(crate) fn choose(block: usize, s: usize, structure: &Structure, store: Store) -> Self {
        let dense = structure.is_dense();
        let many = s >= 3; // more stages make x the larger part of the traffic
        let (threads, slices, shares, tile, by_rows, cluster) = match (block, s) {
            _ if !dense => {
                // One thread a block; as many blocks as fit 40 KB with what they add to their rows.
                let bytes = structure.slots * store.bytes() + 8 * stride(block, s);
                let tile = [240, 120, 60].into_iter().find(|t| t * bytes <= 40_000).unwrap_or(30);
                // Where little is saved, x is as small a part of the traffic as with dense blocks, and clustering costs set-up.
                (128, 1, 1, tile, false, many || 3 * structure.slots < 2 * structure.table.len())
            }
            (4, _) if store == Store::F32 => (128, 1, 1, 120, false, s >= 2),
            (1, 1 | 2) => (256, 1, 1, 1020, false, true),
            (1, 3) => (128, 1, 1, 1020, true, true),
            (1, _) => (128, 1, 2, 960, true, true),
            (2, 1) => (128, 1, 1, 240, false, false),
            (2, 2 | 3) => (128, 1, 4, 240, true, true),
            (2, _) => (128, 1, 2, 360, true, true),
            (3, 3) => (256, 1, 1, 240, false, true),
            (3, 4) => (128, 1, 1, 120, false, true),
            (3, _) => (256, 1, 1, 240, false, false),
            (4, _) if many => (128, 2, 2, 60, false, true),
            (4, _) => (256, 2, 2, 120, false, false),
            (5, 1 | 2) => (128, 1, 4, 60, true, s == 2),
            (5, _) => (128, 1, 2, 60, false, many),
            (6, _) if many => (128, 2, 2, 60, false, true),
            (6, _) => (192, 3, 3, 60, false, false),
            (7, _) if many => (128, 1, 4, 30, false, true),
            (7, _) => (128, 1, 2, 60, false, false),
            _ => (128, 4, 4, 30, false, true),
        };
        Self { threads, slices, shares, tile, by_rows, cluster, block, dense }
    }

    /// Dynamic shared memory in bytes.
    pub(crate) fn shared(
        &self,
        b: usize,
        s: usize,
        slots: usize,
        store: Store,
        nodes: usize,
        record: usize,
    ) -> usize {
        let value = store.bytes();
        let round = match slots * value % 16 {
            0 => 1,
            8 => 2,
            _ => 4,
        };
        let stage = self.tile.next_multiple_of(round) * slots * value;
        let runs = (DEPTH * nodes * stride(b, s) * 8).next_multiple_of(16);
        let sums = if self.by_rows { 0 } else { self.tile * stride(b, s) * 8 };
        DEPTH * stage + runs + (2 * DEPTH - 1) * record + sums
    }

    /// For each slot of the packed order, the entry (term, row, column) that its number is taken from.
    pub(crate) fn sources(&self, structure: &Structure) -> Vec<i32> {
        let (b, terms) = (self.block, structure.terms());
        let mut sources = vec![-1; structure.slots];
        let rows = b / self.slices;
        for e in (0..terms * b * b).rev() {
            let (t, r, c) = (e / (b * b), e / b % b, e % b);
            let slot = match self.dense {
                true => (((r / rows * b + c) * rows + r % rows) * terms + t) as i32,
                false => structure.table[e],
            };
            if slot >= 0 {
                sources[slot as usize] = e as i32;
            }
        }
        sources
    }
}

/// Numbers from one node's run of x to the next in shared memory: odd in units of 16 bytes, against bank conflicts.
fn stride(b: usize, s: usize) -> usize {
    let run = b * s;
    if run % 2 == 1 { run } else { 2 * ((run / 2) | 1) }
}

/// The fused product; with `add` it adds to y, with `halo` some columns are ghosts.
pub(crate) fn kron_product(
    shape: &Shape,
    b: usize,
    s: usize,
    structure: &Structure,
    store: Store,
    add: bool,
    halo: bool,
) -> Kernel {
    let mut defines = vec![
        define("BLOCK", b),
        define("STAGES", s),
        define("TERMS", structure.terms()),
        value(store),
        define("THREADS", shape.threads),
        define("SLICES", shape.slices),
        define("SHARES", shape.shares),
        define("TILE", shape.tile),
        define("BY_ROWS", shape.by_rows as u32),
        define("DEPTH", DEPTH),
        define("ACCUMULATE", add as u32),
        define("SLOTS", structure.slots),
    ];
    if halo {
        defines.push(define("HALO", 1));
    }
    if !structure.is_dense() {
        let table: Vec<String> = structure.table.iter().map(|s| s.to_string()).collect();
        defines.push(define("SLOT_TABLE", table.join(",")));
    }
    Kernel { file: "kron_product.cu", entry: "kron_product", defines }
}

/// The fused products for all block sizes and stages, and the structures of the problems that ship with Krylith.
pub fn products() -> Vec<Kernel> {
    let mut all = Vec::new();
    for store in [Store::F64, Store::F32] {
        for halo in [false, true] {
            let kernel = |b: usize, s: usize, structure: &Structure, add: bool| {
                kron_product(&Shape::choose(b, s, structure, store), b, s, structure, store, add, halo)
            };
            for (b, s) in (1..=8).flat_map(|b| (1..=4).map(move |s| (b, s))) {
                all.push(kernel(b, s, &Structure::dense(b, 2), false));
                all.extend([false, true].map(|add| kernel(b, s, &Structure::dense(b, 1), add)));
            }
            all.extend((1..=4).flat_map(|s| [3, 4].map(|b| kernel(b, s, &Structure::stokes(b), false))));
            // L alone: what couples the stages of a stage preconditioner.
            let stiffness = |b: usize| Structure::stokes(b).of(1..2);
            all.extend((2..=4).flat_map(|s| [3, 4].map(|b| kernel(b, s, &stiffness(b), false))));
        }
    }
    all
}

/// What a release embeds: the vector kernels, and the products and diagonals of common sizes.
pub fn embedded() -> Vec<Kernel> {
    let mut all = vec![read(), all_reduce(), gather(), tiling("tiling_cut"), structure()];
    all.push(random());
    all.extend(super::part::kernels());
    all.extend(super::replicated::kernels());
    all.extend(super::dia::common());
    all.extend(super::scan::kernels());
    all.extend(super::multilevel::kernels([1, 3, 4]));
    all.extend(all_passes([1, 2, 3, 4, 5]));
    all.extend(all_arrays("int", "int"));
    all.extend(all_arrays("long long", "int"));
    all.extend(ildu_plans());
    all.extend(super::block::kernels([8, 12, 16]));
    all.extend(steps_and_sweeps());
    for store in [Store::F64, Store::F32] {
        all.extend(bases(store));
        all.push(CsrShape::choose(store).kernel("csr_product"));
        all.extend([CsrShape::choose(store).kernel_that_smooths("csr_product"), csr_lanes(store)]);
        all.extend(super::csr_halo::kernels(store));
    }
    let store = Store::F64;
    all.push(CsrShape::choose(store).kernel_for_others("csr_product"));
    all.extend(super::block_tiles::kernels(store));
    all.extend(super::schwarz::kernels(1..=5, store));
    for order in [1, 2, 3, 4, 5, 6, 8, 12, 16] {
        all.extend([ildu_form(order), ildu_factor(order)]);
        for shape in IlduShape::all(order) {
            all.extend([ildu_pack(order, store, &shape), ildu_solve(order, store, &shape, true)]);
            all.extend([false, true].map(|write| ildu_stream(order, store, &shape, write)));
        }
    }
    let orders = [1, 2, 3, 4, 5, 6, 8, 9, 12, 16];
    all.extend(orders.map(|order| block_diagonal(order, store)));
    all.extend(orders.map(|order| jacobi("jacobi_invert", order, store)));
    for halo in [false, true] {
        let kernel = |b: usize, s: usize, structure: &Structure| {
            kron_product(&Shape::choose(b, s, structure, store), b, s, structure, store, false, halo)
        };
        for (b, s) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (3, 2), (4, 2), (4, 3)] {
            all.push(kernel(b, s, &Structure::dense(b, if s == 1 { 1 } else { 2 })));
        }
        all.extend((1..=4).map(|s| kernel(4, s, &Structure::stokes(4))));
    }
    all
}
