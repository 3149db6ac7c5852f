//! Products of point-block terms on a GPU: the fused kernel and what it needs.
//!
//! Terms of one pattern go through one launch of `kernels/kron_product.cu`; terms of different patterns through
//! two, the second adding. One matrix of scalar rows without ghosts needs no tiles of blocks (`csr.rs`). Block sizes over 8 and more than 4 stages are refused by name.

use super::csr::{CsrPattern, CsrProduct};
use super::dia::DiaProduct;
use super::driver::{Buffer, Constant, Device, launch};
use super::exchange::Exchange;
use super::scalars::CudaScalars;
use super::specialisations::{self as special, Shape};
use super::tiling::{DevicePattern, DeviceTiling};
use super::{Cuda, compiler::Kernel};
use crate::comm::agree;
use crate::matrix::{Bsr, Dense};
use crate::memory::Numbers;
use crate::operator::{Dots, Format, PointBlockSum, Structure, Terms, check_lengths};
use crate::space::{Space, Store};
use crate::{Error, Result};
use cudarc::driver::CudaFunction;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// Terms in device memory.
pub struct CudaProduct {
    pub(super) block: usize,
    pub(super) stages: usize,
    pub(super) block_rows: usize,
    pub(super) block_columns: usize,
    /// One matrix of scalar rows; then there are no groups.
    pub(super) csr: Option<CsrProduct>,
    /// The same by diagonals.
    pub(super) dia: Option<DiaProduct>,
    pub(super) groups: Vec<Group>,
    version: u64,
    /// How ghosts arrive, where the product is one rank's share and has neighbours.
    pub(super) exchange: Option<Exchange>,
    /// What a residual lacks between terms of different patterns.
    pub(super) low: Option<Buffer<f64>>,
}

/// Where a launch finds its ghosts; the last arguments of `kernels/kron_product.cu` with HALO.
#[derive(Clone, Copy, Default)]
struct Ghosts {
    /// Own nodes.
    own: i32,
    /// Ghosts that are there already.
    at: u64,
    /// The exchange that the launch makes itself, or null.
    exchange: u64,
    /// The launch begins an exchange.
    send: i32,
}

/// Terms that share a pattern.
pub(super) struct Group {
    /// The first term, and how many.
    terms: (usize, usize),
    structure: Structure,
    store: Store,
    blocks: usize,
    pub tiles: Tiles,
    values: Values,
    pub kernels: Kernels,
    /// Three numbers for each of a part of a row longer than a tile.
    pub parts: Buffer<f64>,
    /// Values in natural order on their way to the packed one, kept after the first update.
    staging: Option<Buffer<f64>>,
    /// Set by `kernels/kron_pack.cuh`: the structure is broken; a value is not finite.
    broken: Buffer<i32>,
    add: bool,
    halo: bool,
}

enum Values {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

/// Which rows go together.
pub(super) struct Tiles {
    made: DeviceTiling,
    row_starts: Arc<Buffer<i64>>,
    sources: Buffer<i32>,
    shape: Shape,
}

impl std::ops::Deref for Tiles {
    type Target = DeviceTiling;

    fn deref(&self) -> &DeviceTiling {
        &self.made
    }
}

/// The kernels of one group, and what they are launched with.
pub(super) struct Kernels {
    pub residual: CudaFunction,
    pub residual_long: CudaFunction,
    product: CudaFunction,
    long_rows: CudaFunction,
    pack: CudaFunction,
    coefficients: Constant,
    grid: usize,
    shared: usize,
}

impl PointBlockSum for Cuda {
    type Product = CudaProduct;

    fn place<'a>(&self, terms: &Terms<'a>) -> Result<Terms<'a>> {
        self.placed(terms)
    }

    fn prepare_as(&self, terms: &Terms, store: Store, dense: bool, format: Format) -> Result<CudaProduct> {
        let scalar = terms.block() == 1 && terms.stages() == 1 && terms.terms.len() == 1;
        if !scalar && format != Format::Auto {
            let (count, b, s) = (terms.terms.len(), terms.block(), terms.stages());
            return Err(Error::Unsupported(format!(
                "format={format} for {count} terms of blocks of {b}×{b} with {s} stages; formats are chosen for one matrix of scalar rows"
            )));
        }
        if scalar && let Some(product) = CudaProduct::by_diagonals(self, terms, store, format)? {
            return Ok(product);
        }
        if scalar && (terms.halo.is_none() || self.comm().size() == 1) {
            return agree(self.comm(), CudaProduct::rows(self, terms, store));
        }
        CudaProduct::tiled(self, terms, store, dense)
    }

    fn format(p: &CudaProduct) -> Format {
        match (&p.dia, &p.csr) {
            (Some(dia), _) => dia.format(),
            (None, Some(_)) => Format::Csr,
            _ => Format::Auto,
        }
    }

    fn multiply(&self, p: &CudaProduct, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let bs = p.block * p.stages;
        check_lengths(p.block_rows * bs, p.block_columns * bs, x.len(), y.len())?;
        let (x, y, own) = (x.pointer(), y.pointer(), p.block_columns as i32);
        if let Some(dia) = &p.dia {
            return dia.multiply(self, x, y, p.exchange.as_ref(), None);
        }
        if let Some(csr) = &p.csr {
            return csr.multiply(self, x, y);
        }
        let Some(e) = &p.exchange else {
            return p.groups.iter().try_for_each(|g| g.multiply(self, bs, x, y, 0..g.tiles.count, None));
        };
        if let Some(exchange) = e.inside() {
            for (i, g) in p.groups.iter().enumerate() {
                let ghosts = Ghosts { own, at: 0, exchange, send: (i == 0) as i32 };
                g.multiply(self, bs, x, y, 0..g.tiles.count, Some(ghosts))?;
            }
            return Ok(());
        }
        let ghosts = Some(Ghosts { own, at: e.ghosts(), exchange: 0, send: 0 });
        e.start(self, x)?;
        for (i, g) in p.groups.iter().enumerate() {
            // Only the first group writes every row; what adds to rows comes after them all.
            if i == 0 {
                g.multiply(self, bs, x, y, 0..g.tiles.first_boundary, ghosts)?;
                e.finish(self.device())?;
                g.multiply(self, bs, x, y, g.tiles.first_boundary..g.tiles.count, ghosts)?;
            } else {
                g.multiply(self, bs, x, y, 0..g.tiles.count, ghosts)?;
            }
        }
        Ok(())
    }

    fn multiply_with_dots(
        &self,
        p: &CudaProduct,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
        scalars: &mut CudaScalars,
        dots: Dots,
    ) -> Result<bool> {
        let Some(dia) = &p.dia else {
            self.multiply(p, x, y)?;
            return Ok(false);
        };
        check_lengths(p.block_rows, p.block_columns, x.len(), y.len())?;
        dia.multiply(self, x.pointer(), y.pointer(), p.exchange.as_ref(), Some((dots, scalars)))?;
        Ok(true)
    }

    fn residual(
        &self,
        p: &CudaProduct,
        b: &Buffer<f64>,
        x: &Buffer<f64>,
        r: &mut Buffer<f64>,
        m: &mut Buffer<f64>,
    ) -> Result<()> {
        p.residual(self, b, x, r, m)
    }

    fn update_values(&self, p: &mut CudaProduct, t: usize, values: Numbers) -> Result<()> {
        let (b, device) = (p.block, self.device());
        if let Some(dia) = &mut p.dia {
            return dia.update_values(self, values);
        }
        if let Some(csr) = &mut p.csr {
            return csr.update_values(device, values);
        }
        let g = p.groups.iter_mut().find(|g| g.has(t)).expect("the term was checked");
        let expected = g.blocks * b * b;
        if values.len() != expected {
            return Err(Error::invalid(format!(
                "{} values for {} blocks of {b}×{b}; {expected} were expected",
                values.len(),
                g.blocks
            )));
        }
        // What is on the host is looked at before anything is changed, what is not by the kernel that packs it.
        if let Some(host) = values.as_host() {
            if let Some(e) = crate::matrix::first_not_finite(host) {
                return Err(Error::invalid(format!(
                    "new values of term {t}: number {} of block {} is {}; every value must be finite",
                    e % (b * b),
                    e / (b * b),
                    host[e]
                )));
            }
            if !g.structure.is_dense() && !g.structure.fits(t - g.terms.0, host) {
                return Err(breaks_structure(t));
            }
        }
        let mut staging = match g.staging.take() {
            Some(buffer) => buffer,
            None => device.zeros(0, "new values")?,
        };
        let done = device.reading(values, &mut staging, |natural| g.update(self, t, natural));
        g.staging = Some(staging);
        done
    }

    fn update_coefficients(&self, p: &mut CudaProduct, coefficients: &[Dense]) -> Result<()> {
        let s = coefficients[0].rows();
        if !(1..=4).contains(&s) {
            return Err(Error::Unsupported(format!("{s} stages on a GPU; 1 to 4 are supported")));
        }
        if (p.csr.is_some() || p.dia.is_some()) && s != 1 {
            let what = format!("{s} stages of a product of scalar rows; build the operator with them");
            return Err(Error::Unsupported(what));
        }
        if let Some(dia) = &mut p.dia {
            dia.update_coefficient(self.device(), coefficients[0][(0, 0)])?;
            return self.wait();
        }
        if let Some(csr) = &mut p.csr {
            csr.update_coefficient(self.device(), coefficients[0][(0, 0)])?;
            return self.wait();
        }
        for g in &mut p.groups {
            if s != p.stages {
                // Another number of stages needs another kernel; tiles and values stay.
                let device = self.device();
                g.kernels = Kernels::new(device, &g.tiles, &g.structure, p.block, s, g.store, g.add, g.halo)?;
                let parts = 3 * g.tiles.part_starts.len() * p.block * s;
                if g.parts.len() < parts {
                    g.parts = self.device().zeros(parts, "partial sums")?;
                }
            }
            g.write_coefficients(self.device(), coefficients)?;
        }
        if let Some(low) = p.low.as_mut().filter(|low| low.len() < p.block_rows * p.block * s) {
            *low = self.device().zeros(p.block_rows * p.block * s, "a residual")?;
        }
        p.version += (s != p.stages) as u64;
        p.stages = s;
        if let Some(e) = p.exchange.take_if(|e| e.run() != p.block * s) {
            p.exchange = Some(Exchange::new(self, e.halo(), p.block * s)?);
        }
        self.wait()
    }

    fn product_bytes(p: &CudaProduct) -> u64 {
        if let Some(dia) = &p.dia {
            return dia.bytes();
        }
        if let Some(csr) = &p.csr {
            return csr.bytes();
        }
        let groups = p.groups.iter().map(|g| {
            let value = g.store.bytes() * g.structure.slots;
            g.blocks * (value + 4) + 4 * p.block_rows
        });
        (groups.sum::<usize>() + 8 * p.block * p.stages * (p.block_rows + p.block_columns)) as u64
    }

    fn product_key(p: &CudaProduct) -> u64 {
        p.version
            + p.csr.as_ref().map_or(0, |csr| csr.version())
            + p.dia.as_ref().map_or(0, |dia| dia.version())
    }
}

impl CudaProduct {
    /// One matrix of scalar rows by diagonals, where it lies on few of them on every rank. Collective.
    fn by_diagonals(space: &Cuda, terms: &Terms, store: Store, format: Format) -> Result<Option<Self>> {
        if format == Format::Csr {
            return Ok(None);
        }
        let ((c, a), comm) = (&terms.terms[0], space.comm());
        let halo = terms.halo.as_ref().filter(|_| comm.size() > 1);
        let own = a.block_columns() - terms.halo.as_ref().map_or(0, |h| h.ghosts);
        let found = agree(comm, DiaProduct::new(space, a, own, store, c[(0, 0)], format))?;
        // Halves of a product that differ would send the same, and sum in different ways.
        let mut ranks = [found.is_some() as u32 as f64];
        if comm.size() > 1 {
            comm.sum(&mut ranks)?;
        }
        let Some(dia) = found.filter(|_| ranks[0] == comm.size() as f64) else { return Ok(None) };
        let exchange = halo.map(|halo| Exchange::new(space, halo, 1)).transpose()?;
        Ok(Some(Self {
            block: 1,
            stages: 1,
            block_rows: a.block_rows(),
            block_columns: own,
            csr: None,
            dia: Some(dia),
            groups: Vec::new(),
            version: 0,
            exchange,
            low: None,
        }))
    }

    /// One matrix of scalar rows, from the arrays of the format.
    fn rows(space: &Cuda, terms: &Terms, store: Store) -> Result<Self> {
        let ((c, a), device) = (&terms.terms[0], space.device());
        let resident = space.resident(a)?;
        let pattern = CsrPattern { row_ptr: resident.row_ptr.clone(), col: resident.col.clone() };
        let values = resident.values.clone();
        let (rows, columns) = (a.block_rows(), a.block_columns());
        Ok(Self {
            block: 1,
            stages: 1,
            block_rows: rows,
            block_columns: columns,
            csr: Some(CsrProduct::new(device, columns, pattern, values, store, c[(0, 0)])?),
            dia: None,
            groups: Vec::new(),
            version: 0,
            exchange: None,
            low: None,
        })
    }

    /// Terms of any shape in tiles of blocks; what [`PointBlockSum::prepare`] makes of all but one matrix of scalar rows without
    /// ghosts, for which this is there to compare with. Collective.
    ///
    /// # Errors
    /// As [`PointBlockSum::prepare`].
    pub fn tiled(space: &Cuda, terms: &Terms, store: Store, dense: bool) -> Result<Self> {
        let (b, s) = (terms.block(), terms.stages());
        if !(1..=8).contains(&b) || !(1..=4).contains(&s) || terms.terms.len() > 2 {
            return Err(Error::Unsupported(format!(
                "blocks of {b}×{b} with {s} stages on a GPU; blocks of 1 to 8 and 1 to 4 stages are supported \
                 (--device cpu takes any)"
            )));
        }
        let shared = match (terms.terms.len(), terms.shared_pattern()) {
            (2, false) => vec![(0, 1), (1, 1)],
            (n, _) => vec![(0, n)],
        };
        // One rank alone has no ghosts, and nobody to exchange with.
        let halo = terms.halo.as_ref().filter(|_| space.comm().size() > 1);
        let low = (|| {
            let terms = &space.placed(terms)?;
            let all = if dense { Structure::dense(b, terms.terms.len()) } else { space.structure(terms)? };
            let groups = shared.into_iter();
            let groups = groups
                .map(|(t, n)| Group::new(space, terms, (t, n), all.of(t..t + n), store, halo.is_some()))
                .collect::<Result<Vec<_>>>()?;
            let several = groups.len() > 1;
            let low = several.then(|| space.device().zeros(terms.rows(), "a residual")).transpose()?;
            Ok((groups, low))
        })();
        let (groups, low) = agree(space.comm(), low)?;
        let exchange = match halo {
            Some(halo) => Exchange::new(space, halo, b * s).map(Some)?,
            None => None,
        };
        let ghosts = terms.halo.as_ref().map_or(0, |h| h.ghosts);
        Ok(CudaProduct {
            block: b,
            stages: s,
            block_rows: terms.block_rows(),
            block_columns: terms.terms[0].1.block_columns() - ghosts,
            csr: None,
            dia: None,
            groups,
            version: 0,
            exchange,
            low,
        })
    }

    /// Numbers stored for each block, of all terms that share its pattern: b² a term where blocks are dense.
    pub fn slots(&self) -> usize {
        if self.csr.is_some() || self.dia.is_some() {
            1
        } else {
            self.groups.iter().map(|g| g.structure.slots).sum()
        }
    }
}

impl Group {
    fn new(
        space: &Cuda,
        terms: &Terms,
        (first, count): (usize, usize),
        structure: Structure,
        store: Store,
        halo: bool,
    ) -> Result<Self> {
        let (b, s, device) = (terms.block(), terms.stages(), space.device());
        let a: &Bsr = &terms.terms[first].1;
        let own = if halo { terms.block_rows() } else { a.block_columns() };
        let tiles = Tiles::new(space, a, s, &structure, store, own)?;
        let numbers = tiles.positions * structure.slots;
        let values = match store {
            Store::F64 => Values::F64(device.zeros(numbers, "matrix values")?),
            Store::F32 => Values::F32(device.zeros(numbers, "matrix values")?),
        };
        let kernels = Kernels::new(device, &tiles, &structure, b, s, store, first > 0, halo)?;
        let parts = device.zeros(3 * tiles.part_starts.len() * b * s, "partial sums")?;
        let broken = device.zeros(2, "two flags")?;
        let mut group = Self {
            terms: (first, count),
            structure,
            store,
            blocks: a.blocks(),
            tiles,
            values,
            kernels,
            parts,
            staging: None,
            broken,
            add: first > 0,
            halo,
        };
        for t in first..first + count {
            let natural = space.resident(&terms.terms[t].1)?;
            group.pack(device, t, natural.values.pointer())?;
        }
        let coefficients: Vec<Dense> = terms.terms.iter().map(|t| t.0.clone()).collect();
        group.write_coefficients(device, &coefficients)?;
        device.wait()?;
        Ok(group)
    }

    /// Address of the packed values.
    pub fn values(&self) -> u64 {
        match &self.values {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        }
    }

    fn has(&self, t: usize) -> bool {
        (self.terms.0..self.terms.0 + self.terms.1).contains(&t)
    }

    /// Walks some tiles; long rows follow the last one.
    fn multiply(
        &self,
        space: &Cuda,
        run: usize,
        x: u64,
        y: u64,
        tiles: Range<usize>,
        ghosts: Option<Ghosts>,
    ) -> Result<()> {
        let (k, t, device) = (&self.kernels, &self.tiles, space.device());
        // A launch that sends is made even where there is nothing to multiply.
        if tiles.is_empty() && ghosts.is_none_or(|g| g.send == 0) {
            return Ok(());
        }
        let values = self.values();
        // SAFETY: the parameter types are the kernels'; lengths were checked, buffers belong to this tiling.
        unsafe {
            let mut halt = space.halt();
            let (mut end, mut starts, mut records) =
                (tiles.end as i32, t.starts.pointer(), t.records.pointer());
            let (mut values, mut x, mut y, mut parts) = (values, x, y, self.parts.pointer());
            let (mut nodes, mut record) = (t.nodes as i32, t.record as i32);
            let (mut begin, mut first_boundary) = (tiles.start as i32, t.first_boundary as i32);
            let mut g = ghosts.unwrap_or_default();
            let mut arguments = [
                &mut halt as *mut u64 as *mut c_void,
                &mut end as *mut i32 as _,
                &mut starts as *mut u64 as _,
                &mut records as *mut u64 as _,
                &mut values as *mut u64 as _,
                &mut x as *mut u64 as _,
                &mut y as *mut u64 as _,
                &mut parts as *mut u64 as _,
                &mut nodes as *mut i32 as _,
                &mut record as *mut i32 as _,
                &mut begin as *mut i32 as _,
                &mut first_boundary as *mut i32 as _,
                &mut g.own as *mut i32 as _,
                &mut g.at as *mut u64 as _,
                &mut g.exchange as *mut u64 as _,
                &mut g.send as *mut i32 as _,
            ];
            // The kernel without ghosts takes the first ten.
            let count = if ghosts.is_some() { 16 } else { 10 };
            let grid = k.grid.min(tiles.len()).max(1);
            device.launch(&k.product, grid, t.shape.threads, k.shared, &mut arguments[..count])?;
            let rows = t.long_rows.len() / 3;
            if rows > 0 && tiles.end == t.count {
                let (long, parts) = (t.long_rows.pointer(), self.parts.pointer());
                launch!(
                    device,
                    &k.long_rows,
                    (rows * run).div_ceil(128),
                    128,
                    0,
                    space.halt(),
                    rows as i32,
                    long,
                    parts,
                    y
                )?;
            }
        }
        Ok(())
    }

    /// Packs new values of term `t` and says whether they still have the structure.
    fn update(&mut self, space: &Cuda, t: usize, natural: u64) -> Result<()> {
        let device = space.device();
        device.clear(&mut self.broken)?;
        self.pack(device, t, natural)?;
        let mut broken = [0; 2];
        device.read(&self.broken, 0, &mut broken)?;
        match broken {
            [0, 0] => Ok(()),
            [_, 0] => Err(breaks_structure(t)),
            _ => Err(Error::invalid(format!(
                "new values of term {t}: at least one is NaN or infinite; every value must be finite"
            ))),
        }
    }

    fn pack(&mut self, device: &Device, t: usize, natural: u64) -> Result<()> {
        let tiles = &self.tiles;
        if tiles.count == 0 {
            return Ok(());
        }
        let values = self.values();
        // SAFETY: the parameter types are the kernel's; `natural` holds the values of one term.
        unsafe {
            launch!(
                device,
                &self.kernels.pack,
                tiles.count,
                256,
                0,
                tiles.starts.pointer(),
                tiles.records.pointer(),
                tiles.row_starts.pointer(),
                tiles.part_starts.pointer(),
                tiles.sources.pointer(),
                natural,
                (t - self.terms.0) as i32,
                values,
                self.broken.pointer()
            )
        }
    }

    fn write_coefficients(&mut self, device: &Device, all: &[Dense]) -> Result<()> {
        let (first, count) = self.terms;
        let mut host = [0.0; 2 * 16];
        let mut n = 0;
        for c in &all[first..first + count] {
            host[n..n + c.values().len()].copy_from_slice(c.values());
            n += c.values().len();
        }
        self.kernels.coefficients.write(device, &host[..n])
    }
}

fn breaks_structure(t: usize) -> Error {
    Error::invalid(format!(
        "the new values of term {t} break the structure found at set-up (entries that were zero, or equal to others, in \
         every block): build the operator with dense blocks (PointBlock::new(…, dense = true))"
    ))
}

impl Tiles {
    /// Tiles as large as the shared memory of the device allows.
    fn new(space: &Cuda, a: &Bsr, s: usize, structure: &Structure, store: Store, own: usize) -> Result<Self> {
        let (device, resident) = (space.device(), space.resident(a)?);
        let pattern = DevicePattern::of(a, &resident);
        let mut shape = Shape::choose(a.block(), s, structure, store);
        let tiling = loop {
            let tiling = DeviceTiling::new(device, pattern, shape.tile, shape.cluster, own)?;
            let needed = shape.shared(a.block(), s, structure.slots, store, tiling.nodes, tiling.record);
            if needed <= device.shared_memory() || shape.tile <= 16 {
                break tiling;
            }
            shape.tile /= 2;
        };
        Ok(Self {
            row_starts: resident.row_ptr.clone(),
            sources: device.upload(&shape.sources(structure), "indices of the tiles")?,
            made: tiling,
            shape,
        })
    }
}

impl Kernels {
    fn new(
        device: &Arc<Device>,
        tiles: &Tiles,
        structure: &Structure,
        b: usize,
        s: usize,
        store: Store,
        add: bool,
        halo: bool,
    ) -> Result<Self> {
        let kernel: Kernel = special::kron_product(&tiles.shape, b, s, structure, store, add, halo);
        let module = device.private_module(&kernel)?;
        let product = device.entry(&module, "kron_product")?;
        let shared = tiles.shape.shared(b, s, structure.slots, store, tiles.nodes, tiles.record);
        let resident = device.allow_shared(&product, tiles.shape.threads, shared)?;
        Ok(Self {
            product,
            residual: device.entry(&module, "kron_residual")?,
            residual_long: device.entry(&module, "kron_residual_long")?,
            long_rows: device.entry(&module, "kron_long_rows")?,
            pack: device.entry(&module, "kron_pack")?,
            coefficients: Constant::find(device, &module, "coefficients")?,
            grid: tiles.count.min(device.multiprocessors() * resident).max(1),
            shared,
        })
    }
}
