//! Products of point-block terms on a GPU: the choice of a kernel, and the data of each.
//!
//! Terms of one pattern go through one launch of `kernels/kron_product.cu`. Terms of different patterns go
//! through two launches, of which the second adds (`product/group.rs`). A single matrix of scalar rows needs
//! no tiles of blocks. It is multiplied by diagonals where it lies on few (`dia.rs`), otherwise by rows
//! (`csr.rs`, or `csr_halo.rs` with several ranks). Block sizes over 8 and more than 4 stages are refused
//! with an error.
//!
//! Coefficients are in the constant memory of a module. Operators with the same coefficients share it. If
//! an operator holds its module alone, a new τ copies s² numbers there, and recorded graphs stay valid. If
//! others share it, the operator loads another module, and its key changes.

mod group;
mod shape;

pub(super) use group::Group;
pub(super) use shape::KRON_PRODUCT;

use super::Cuda;
use super::csr::{CsrPattern, CsrProduct};
use super::csr_halo::CsrHalo;
use super::dia::DiaProduct;
use super::driver::Buffer;
use super::exchange::Exchange;
use super::interleaved::InterleavedProduct;
use super::scalars::CudaScalars;
use super::smooth::Smooth;
use crate::comm::agree;
use crate::matrix::{Bsr, Dense};
use crate::memory::Numbers;
use crate::operator::{Dots, Format, PointBlockSum, Structure, Terms, TransposedTerms, check_lengths};
use crate::space::{MOST_COLUMNS, Precision, Space};
use crate::{Error, Result};
use arrayvec::ArrayVec;
use group::{Ghosts, breaks_structure};

/// Terms in device memory.
#[doc(hidden)]
pub struct CudaProduct {
    pub(super) block: usize,
    pub(super) stages: usize,
    pub(super) block_rows: usize,
    pub(super) block_columns: usize,
    /// A single matrix of scalar rows; then there are no groups.
    pub(super) csr: Option<CsrProduct>,
    /// A single matrix of scalar rows on several ranks; then there is an exchange.
    pub(super) csr_halo: Option<CsrHalo>,
    /// A single matrix of scalar rows, stored by diagonals.
    pub(super) dia: Option<DiaProduct>,
    /// I ⊗ A for as many columns as there are stages; then there is nothing else.
    pub(super) interleaved: Option<InterleavedProduct>,
    pub(super) groups: Vec<Group>,
    version: u64,
    /// The exchange of ghosts, where the product is one rank's part and has neighbours.
    pub(super) exchange: Option<Exchange>,
    /// Rounding error of a residual, carried between terms of different patterns.
    pub(super) low: Option<Buffer<f64>>,
}

impl PointBlockSum for Cuda {
    type Product = CudaProduct;

    fn place<'a>(&self, terms: &Terms<'a>) -> Result<Terms<'a>> {
        self.placed(terms)
    }

    fn transpose(&self, terms: &Terms) -> Result<TransposedTerms> {
        match terms.halo {
            None => self.transposed_terms(terms),
            Some(_) => TransposedTerms::on_host(self.comm(), terms),
        }
    }

    fn transpose_again(&self, terms: &Terms, to: &mut TransposedTerms) -> Result<()> {
        match terms.halo {
            None => self.turn_again(terms, to),
            Some(_) => to.update_on_host(self.comm(), terms),
        }
    }

    fn prepare_as(
        &self,
        terms: &Terms,
        precision: Precision,
        dense: bool,
        format: Format,
    ) -> Result<CudaProduct> {
        let scalar = terms.block() == 1 && terms.stages() == 1 && terms.terms.len() == 1;
        if !scalar && format != Format::Auto {
            let (count, b, s) = (terms.terms.len(), terms.block(), terms.stages());
            return Err(Error::Unsupported(format!(
                "format={format} does not support {count} terms of {b}×{b} blocks with {s} stages; it needs one matrix of \
                 scalar rows. Use format=auto, which supports every operator"
            )));
        }
        if scalar && let Some(product) = CudaProduct::by_diagonals(self, terms, precision, format)? {
            return Ok(product);
        }
        if scalar {
            return CudaProduct::rows(self, terms, precision);
        }
        CudaProduct::tiled(self, terms, precision, dense)
    }

    fn format(p: &CudaProduct) -> Format {
        match &p.dia {
            Some(dia) => dia.format(),
            None if p.by_rows() => Format::Csr,
            None => Format::Auto,
        }
    }

    fn multiply(&self, p: &CudaProduct, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let bs = p.block * p.stages;
        check_lengths(p.block_rows * bs, p.block_columns * bs, x.len(), y.len())?;
        let (x, y, own) = (x.pointer(), y.pointer(), p.block_columns as i32);
        if let Some(interleaved) = &p.interleaved {
            return interleaved.multiply(self, Smooth { x, ..Smooth::default() }, y);
        }
        if let Some(dia) = &p.dia {
            return dia.multiply(self, x, y, p.exchange.as_ref(), None);
        }
        if let Some(csr) = &p.csr {
            return csr.multiply(self, x, y);
        }
        if let (Some(csr), Some(exchange)) = (&p.csr_halo, &p.exchange) {
            return csr.multiply(self, x, y, exchange);
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
            // Only the first group writes every row; the others add to rows and come after it.
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

    fn gains_by_columns(&self, p: &CudaProduct) -> bool {
        p.dia.is_some() && p.exchange.is_none()
    }

    fn interleaves(&self) -> bool {
        true
    }

    fn interleaved(
        &self,
        terms: Option<&Terms>,
        product: Option<&CudaProduct>,
        width: usize,
    ) -> Result<Option<CudaProduct>> {
        self.interleaved_product(terms, product, width)
    }

    fn interleave(&self, from: &[&Buffer<f64>], width: usize, to: &mut Buffer<f64>) -> Result<()> {
        self.interleave_vectors(from, width, to)
    }

    fn separate(&self, from: &Buffer<f64>, width: usize, to: &mut [&mut Buffer<f64>]) -> Result<()> {
        self.separate_vectors(from, width, to)
    }

    fn multiply_columns(
        &self,
        p: &CudaProduct,
        x: &[&Buffer<f64>],
        y: &mut [&mut Buffer<f64>],
    ) -> Result<()> {
        let Some(dia) = p.dia.as_ref().filter(|_| p.exchange.is_none()) else {
            return x.iter().zip(y).try_for_each(|(x, y)| self.multiply(p, x, y));
        };
        let lengths = |(x, y): (&&Buffer<f64>, &&mut Buffer<f64>)| {
            check_lengths(p.block_rows, p.block_columns, x.len(), y.len())
        };
        x.iter().zip(y.iter()).try_for_each(lengths)?;
        for (x, y) in x.chunks(MOST_COLUMNS).zip(y.chunks(MOST_COLUMNS)) {
            let of = |x: &&Buffer<f64>| Smooth { x: x.pointer(), ..Smooth::default() };
            let of: ArrayVec<Smooth, MOST_COLUMNS> = x.iter().map(of).collect();
            let y: ArrayVec<u64, MOST_COLUMNS> = y.iter().map(|y| y.pointer()).collect();
            dia.multiply_columns(self, false, &of, &y)?;
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
        if let Some(csr) = &mut p.csr_halo {
            return csr.update_values(device, values);
        }
        let Some(g) = p.groups.iter_mut().find(|g| g.has(t)) else {
            return Err(Error::Internal(format!("the product has no values of its own for term {t}")));
        };
        let expected = g.blocks * b * b;
        if values.len() != expected {
            return Err(Error::invalid(format!(
                "{} values were given for {} blocks of {b}×{b}; {expected} were expected",
                values.len(),
                g.blocks
            )));
        }
        // Values on the host are checked before anything changes; the packing kernel checks those on a
        // device.
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
            return Err(Error::Unsupported(format!(
                "an operator with {s} stages is not supported on a GPU; use 1 to 4 stages"
            )));
        }
        if (p.by_rows() || p.dia.is_some()) && s != 1 {
            let what = format!(
                "this operator was built for one matrix of scalar rows; build a new operator for {s} stages"
            );
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
        if let Some(csr) = &mut p.csr_halo {
            csr.update_coefficient(self.device(), coefficients[0][(0, 0)])?;
            return self.wait();
        }
        let mut others = false;
        for g in &mut p.groups {
            others |= g.set_coefficients(self.device(), coefficients, p.block, p.stages)?;
        }
        if let Some(low) = p.low.as_mut().filter(|low| low.len() < p.block_rows * p.block * s) {
            *low = self.device().zeros(p.block_rows * p.block * s, "a residual")?;
        }
        p.version += others as u64;
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
        if let Some(interleaved) = &p.interleaved {
            return interleaved.bytes() + (8 * p.block * p.stages * (p.block_rows + p.block_columns)) as u64;
        }
        if let Some(csr) = &p.csr_halo {
            return csr.bytes();
        }
        let groups = p.groups.iter().map(|g| {
            let value = g.precision.bytes() * g.structure.slots;
            g.blocks * (value + 4) + 4 * p.block_rows
        });
        (groups.sum::<usize>() + 8 * p.block * p.stages * (p.block_rows + p.block_columns)) as u64
    }

    fn product_key(p: &CudaProduct) -> u64 {
        p.version
            + p.csr.as_ref().map_or(0, |csr| csr.version())
            + p.csr_halo.as_ref().map_or(0, |csr| csr.version())
            + p.dia.as_ref().map_or(0, |dia| dia.version())
    }
}

impl CudaProduct {
    /// Makes the product by diagonals of a single matrix of scalar rows, where it lies on few diagonals on
    /// every rank. Collective.
    fn by_diagonals(
        space: &Cuda,
        terms: &Terms,
        precision: Precision,
        format: Format,
    ) -> Result<Option<Self>> {
        if format == Format::Csr {
            return Ok(None);
        }
        let ((c, a), comm) = (&terms.terms[0], space.comm());
        let halo = terms.halo.as_ref().filter(|_| comm.size() > 1);
        let own = a.block_columns() - terms.halo.as_ref().map_or(0, |h| h.ghosts);
        let found = agree(comm, DiaProduct::new(space, a, own, precision, c[(0, 0)], format))?;
        // All ranks must agree: products by different formats would exchange the same ghosts but reduce in
        // different ways.
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
            csr_halo: None,
            dia: Some(dia),
            interleaved: None,
            groups: Vec::new(),
            version: 0,
            exchange,
            low: None,
        }))
    }

    /// Makes a product of scalar rows from one of these.
    fn by_rows_of(a: &Bsr, columns: usize, csr: Option<CsrProduct>, csr_halo: Option<CsrHalo>) -> Self {
        Self {
            block: 1,
            stages: 1,
            block_rows: a.block_rows(),
            block_columns: columns,
            csr,
            csr_halo,
            dia: None,
            interleaved: None,
            groups: Vec::new(),
            version: 0,
            exchange: None,
            low: None,
        }
    }

    /// Makes a product with `width` columns.
    pub(super) fn with_interleaved(
        block: usize,
        width: usize,
        columns: usize,
        product: InterleavedProduct,
    ) -> Self {
        Self {
            block,
            stages: width,
            block_rows: product.rows(),
            block_columns: columns,
            csr: None,
            csr_halo: None,
            dia: None,
            interleaved: Some(product),
            groups: Vec::new(),
            version: 0,
            exchange: None,
            low: None,
        }
    }

    /// Makes the product of a matrix of scalar rows on a level of a hierarchy, on this rank alone.
    pub(super) fn of_level(space: &Cuda, terms: &Terms, precision: Precision) -> Result<Self> {
        let ((c, a), device) = (&terms.terms[0], space.device());
        let resident = space.resident(a)?;
        let pattern = CsrPattern { row_ptr: resident.row_ptr.clone(), col: resident.col.clone() };
        let (columns, values) = (a.block_columns(), resident.values.clone());
        let csr = CsrProduct::new(device, columns, pattern, values, precision, c[(0, 0)], true)?;
        Ok(Self::by_rows_of(a, columns, Some(csr), None))
    }

    /// Makes the product of one matrix of scalar rows, from the arrays of the format. Collective.
    fn rows(space: &Cuda, terms: &Terms, precision: Precision) -> Result<Self> {
        let ((c, a), comm) = (&terms.terms[0], space.comm());
        let c = c[(0, 0)];
        if let Some(halo) = terms.halo.as_ref().filter(|_| comm.size() > 1) {
            let own = a.block_columns() - halo.ghosts;
            let csr = agree(comm, CsrHalo::new(space, a, own, precision, c))?;
            let exchange = Some(Exchange::new(space, halo, 1)?);
            return Ok(Self { exchange, ..Self::by_rows_of(a, own, None, Some(csr)) });
        }
        let csr = (|| {
            let resident = space.resident(a)?;
            let pattern = CsrPattern { row_ptr: resident.row_ptr.clone(), col: resident.col.clone() };
            CsrProduct::new(
                space.device(),
                a.block_columns(),
                pattern,
                resident.values.clone(),
                precision,
                c,
                false,
            )
        })();
        Ok(Self::by_rows_of(a, a.block_columns(), Some(agree(comm, csr)?), None))
    }

    /// True if the product is stored as scalar rows.
    fn by_rows(&self) -> bool {
        self.csr.is_some() || self.csr_halo.is_some()
    }

    /// Makes a product of terms of any shape in tiles of blocks. [`PointBlockSum::prepare`] does so for
    /// everything except a single matrix of scalar rows, for which this function allows comparisons.
    /// Collective.
    ///
    /// # Errors
    /// As [`PointBlockSum::prepare`].
    pub fn tiled(space: &Cuda, terms: &Terms, precision: Precision, dense: bool) -> Result<Self> {
        let (b, s) = (terms.block(), terms.stages());
        if !(1..=8).contains(&b) || !(1..=4).contains(&s) || terms.terms.len() > 2 {
            return Err(Error::Unsupported(format!(
                "blocks of {b}×{b} with {s} stages are not supported on a GPU; use blocks of order 1 to 8 and 1 to 4 \
                 stages, or device=cpu"
            )));
        }
        let shared = match (terms.terms.len(), terms.shared_pattern()) {
            (2, false) => vec![(0, 1), (1, 1)],
            (n, _) => vec![(0, n)],
        };
        // A single rank has no ghosts and no exchange.
        let halo = terms.halo.as_ref().filter(|_| space.comm().size() > 1);
        let low = (|| {
            let terms = &space.placed(terms)?;
            let all = if dense { Structure::dense(b, terms.terms.len()) } else { space.structure(terms)? };
            let groups = shared.into_iter();
            let groups = groups
                .map(|(t, n)| Group::new(space, terms, (t, n), all.of(t..t + n), precision, halo.is_some()))
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
            csr_halo: None,
            dia: None,
            interleaved: None,
            groups,
            version: 0,
            exchange,
            low,
        })
    }

    /// Numbers stored for each block, of all terms that share its pattern: b² per term where blocks are
    /// dense.
    pub fn slots(&self) -> usize {
        if self.by_rows() || self.dia.is_some() {
            1
        } else {
            self.groups.iter().map(|g| g.structure.slots).sum()
        }
    }
}
