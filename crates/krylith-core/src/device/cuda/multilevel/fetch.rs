//! Rows of matrices that GPUs send to each other (`kernels/amg_fetch.cu`), with the results of
//! `precond/multilevel/ranks/fetch.rs`. Only the numbers of new nodes pass through the host.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, kernels};
use super::super::resident::Resident;
use super::super::scan;
use super::boundary::boundary_lengths;
use super::split::grid;
use super::stored;
use crate::comm::agree;
use crate::halo::Halo;
use crate::matrix::Bsr;
use crate::precond::multilevel::Places;
use crate::space::Space;
use crate::{Error, Result};
use std::sync::Arc;

kernels! {
    FETCH in "amg_fetch.cu", |_| vec![fetch_pack.plain().into()];
    fn fetch_pack(
        count: i64, nodes: At<u32>, size: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, place: At<i64>,
        first: i64, own: u32, start: u64, others: At<u64>, to_values: At<f64>, to_numbers: At<u64>,
        to_lengths: At<u32>,
    );
    fn fetch_places(
        count: i64, numbers: At<u64>, first: u32, mask: u64, keys: At<u64>, places: At<u32>,
    );
    fn fetch_new(
        entries: i64, numbers: At<u64>, begin: u64, end: u64, mask: u64, keys: At<u64>, most: u32,
        fresh: At<u64>, found: At<u32>,
    );
    fn fetch_unpack(
        rows: i64, size: i64, ptr: At<i64>, numbers: At<u64>, values: At<f64>, begin: u64, end: u64,
        mask: u64, keys: At<u64>, places: At<u32>, unsorted: At<u32>, to_col: At<u32>, to_values: At<f64>,
    );
    fn fetch_pointers(count: i64, from: At<i64>, by: i64, to: At<i64>);
}

const WHAT: &str = "rows of other ranks";

/// Rows to be sent: their nodes, and the place of their first entries among all entries sent.
struct Sent {
    nodes: Buffer<u32>,
    places: Buffer<i64>,
    /// The first entry of each neighbour's rows, and the end of the last.
    firsts: Vec<usize>,
    others: Buffer<u64>,
}

/// Rows that have arrived, with the numbers of their columns.
struct Received {
    row_ptr: Buffer<i64>,
    numbers: Buffer<u64>,
    values: Buffer<f64>,
}

/// Places of nodes of other ranks.
struct Table {
    mask: u64,
    keys: Buffer<u64>,
    places: Buffer<u32>,
}

/// Words of 64 bits that hold the lengths of rows.
fn words(rows: usize) -> usize {
    rows.div_ceil(2)
}

impl Cuda {
    /// Does the work of `Coarsen::fetch_rows`. Collective.
    pub(super) fn fetched(&self, a: &Bsr, halo: &Halo, columns: &Places, places: &mut Places) -> Result<Bsr> {
        let (comm, size) = (self.comm(), a.block() * a.block());
        let on = self.resident(a);
        let begun = on.and_then(|on| Ok((self.measured(&on, halo, columns)?, on)));
        let (sent, on) = agree(comm, begun)?;
        let entries = |k: usize| sent.firsts[k + 1] - sent.firsts[k];
        let mut parcels = vec![0; comm.size()];
        for (k, n) in halo.neighbours.iter().enumerate() {
            parcels[n.rank] = entries(k) * (size + 1) + words(n.send.len());
        }
        let device = self.device();
        let pack = device.function(&fetch_pack.plain());
        let (arrived, begins) = self.fabric().deliver(&parcels, |to| {
            let (pack, mut at) = (pack?, to);
            for (k, n) in halo.neighbours.iter().enumerate() {
                let (count, entries) = (n.send.len(), entries(k));
                let numbers = at + 8 * (entries * size) as u64;
                let lengths = numbers + 8 * entries as u64;
                pack.on(device, grid(device, 32 * count), 256).run(
                    count as i64,
                    sent.nodes.at(n.send.start),
                    size as i64,
                    &on.row_ptr,
                    &on.col,
                    &on.values,
                    sent.places.at(n.send.start),
                    sent.firsts[k] as i64,
                    (columns.own.end - columns.own.start) as u32,
                    columns.own.start,
                    &sent.others,
                    at,
                    numbers,
                    lengths,
                )?;
                at = lengths + 8 * words(count) as u64;
            }
            Ok(())
        })?;
        let made = self.received(halo, &arrived, &begins, size).and_then(|rows| {
            let table = Table::of(device, &rows, places)?;
            let (own, count) = (places.own.clone(), rows.row_ptr.len() - 1);
            let entries = rows.numbers.len();
            let unsorted = device.allocate::<u32>(entries, WHAT)?;
            let (col, values) =
                (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries * size, WHAT)?);
            let unpack = device.function(&fetch_unpack.plain())?;
            unpack.on(device, grid(device, 32 * count), 256).run(
                count as i64,
                size as i64,
                &rows.row_ptr,
                &rows.numbers,
                &rows.values,
                own.start,
                own.end,
                table.mask,
                &table.keys,
                &table.places,
                &unsorted,
                &col,
                &values,
            )?;
            let made = Resident::new(rows.row_ptr, col, values);
            Ok(stored(a.block(), count, places.count(), made))
        });
        agree(comm, made)
    }

    /// Counts the entries of the rows that are sent.
    fn measured(&self, on: &Resident, halo: &Halo, columns: &Places) -> Result<Sent> {
        let (device, count, rows) = (self.device(), halo.send.len(), on.row_ptr.len() - 1);
        if let Some(node) = halo.send.iter().find(|&&node| node as usize >= rows) {
            return Err(Error::Internal(format!(
                "block row {node} was requested of a matrix with {rows} block rows"
            )));
        }
        let nodes = device.upload(&halo.send, WHAT)?;
        let others = device.upload(&columns.others, WHAT)?;
        let lengths = device.allocate::<u32>(count, WHAT)?;
        let measure = device.function(&boundary_lengths.plain())?;
        measure.on(device, grid(device, count), 256).run(count as i64, &nodes, &on.row_ptr, &lengths)?;
        let places = scan::scan(device, &lengths)?;
        let mut firsts = vec![0];
        for n in &halo.neighbours {
            let mut end = [0i64];
            device.read(&places, n.send.end, &mut end)?;
            firsts.push(end[0] as usize);
        }
        Ok(Sent { nodes, places, firsts, others })
    }

    /// Joins the rows of all neighbours. `begins` has the first word of each rank's message.
    fn received(
        &self,
        halo: &Halo,
        arrived: &Buffer<u64>,
        begins: &[usize],
        size: usize,
    ) -> Result<Received> {
        let (device, all) = (self.device(), halo.neighbours.iter());
        let entries_of = |rank: usize, rows: usize| {
            (begins[rank + 1] - begins[rank]).saturating_sub(words(rows)) / (size + 1)
        };
        let entries: usize = all.clone().map(|n| entries_of(n.rank, n.receive.len())).sum();
        let rows: usize = all.clone().map(|n| n.receive.len()).sum();
        let lengths = device.allocate::<u32>(rows, WHAT)?;
        let numbers = device.allocate::<u64>(entries, WHAT)?;
        let values = device.allocate::<f64>(entries * size, WHAT)?;
        let (mut row, mut entry) = (0, 0);
        for n in all {
            let (count, own) = (n.receive.len(), entries_of(n.rank, n.receive.len()));
            let at = begins[n.rank];
            device.copy_part(arrived.at(at), values.at(entry * size), 8 * own * size)?;
            device.copy_part(arrived.at(at + own * size), numbers.at(entry), 8 * own)?;
            device.copy_part(arrived.at(at + own * (size + 1)), lengths.at(row), 4 * count)?;
            (row, entry) = (row + count, entry + own);
        }
        Ok(Received { row_ptr: scan::scan(device, &lengths)?, numbers, values })
    }

    /// Does the work of `Coarsen::stack`.
    pub(super) fn stacked_rows(&self, a: &Bsr, below: &[Bsr], rows: usize, columns: usize) -> Result<Bsr> {
        let (device, size) = (self.device(), a.block() * a.block());
        let parts: Vec<_> =
            std::iter::once(a).chain(below).map(|a| self.resident(a)).collect::<Result<_>>()?;
        let entries = parts.iter().map(|part| part.col.len()).sum();
        let made = Resident::allocate(device, rows, entries, size)?;
        let shift = device.function(&fetch_pointers.plain())?;
        let (mut row, mut entry) = (0, 0);
        for part in &parts {
            let (count, own) = (part.row_ptr.len() - 1, part.col.len());
            let to = made.row_ptr.at(row);
            shift.on(device, grid(device, count), 256).run(count as i64, &part.row_ptr, entry as i64, to)?;
            device.copy_part(part.col.pointer(), made.col.at(entry), 4 * own)?;
            device.copy_part(part.values.pointer(), made.values.at(entry * size), 8 * own * size)?;
            (row, entry) = (row + count, entry + own);
        }
        let rest = rows + 1 - row;
        shift.on(device, grid(device, rest), 256).run(
            rest as i64,
            0u64,
            entry as i64,
            made.row_ptr.at(row),
        )?;
        Ok(stored(a.block(), rows, columns, made))
    }
}

impl Table {
    /// Makes the table of the known nodes and of those in these rows, and adds the new ones to `places`.
    fn of(device: &Arc<Device>, rows: &Received, places: &mut Places) -> Result<Self> {
        let (entries, own) = (rows.numbers.len(), (places.own.end - places.own.start) as usize);
        let known = places.others.len();
        let (put, look) = (device.function(&fetch_places.plain())?, device.function(&fetch_new.plain())?);
        let list = device.upload(&places.others, WHAT)?;
        // Most rows have few new nodes. If there are too many for the table, a larger one is made.
        let enough = 2 * (known + entries);
        let mut slots = (4 * (known + rows.row_ptr.len())).clamp(1 << 10, enough.max(1 << 10));
        loop {
            slots = slots.next_power_of_two();
            let table = Self {
                mask: slots as u64 - 1,
                keys: device.ones(slots, WHAT)?,
                places: device.allocate(slots, WHAT)?,
            };
            let most = slots / 2 - known;
            let (fresh, found) = (device.allocate::<u64>(most, WHAT)?, device.zeros::<u32>(1, WHAT)?);
            let put = |list: &Buffer<u64>, first: usize| {
                let count = list.len();
                put.on(device, grid(device, count), 256).run(
                    count as i64,
                    list,
                    first as u32,
                    table.mask,
                    &table.keys,
                    &table.places,
                )
            };
            put(&list, own)?;
            look.on(device, grid(device, entries), 256).run(
                entries as i64,
                &rows.numbers,
                places.own.start,
                places.own.end,
                table.mask,
                &table.keys,
                most as u32,
                &fresh,
                &found,
            )?;
            let count = scan::last(device, &found)? as usize;
            if count > most {
                slots *= 4;
                continue;
            }
            let mut new = vec![0; count];
            device.read(&fresh, 0, &mut new)?;
            places.add(new);
            if count > 0 {
                let from = places.kept(known);
                put(&device.upload(&places.others[from..], WHAT)?, own + from)?;
            }
            return Ok(table);
        }
    }
}
