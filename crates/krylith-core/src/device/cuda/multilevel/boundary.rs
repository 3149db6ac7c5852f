//! Data that ranks exchange about nodes on their boundaries while a level is coarsened. It is packed on a
//! GPU, copied by other GPUs, and unpacked there (`kernels/amg_boundary.cu`). An exchange takes one
//! collective call on the host.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, kernels};
use super::super::mail::Mail;
use super::super::scan;
use super::split::grid;
use crate::comm::agree;
use crate::halo::RowNumbers;
use crate::precond::multilevel::Neighbourhood;
use crate::{Error, Result};
use rayon::prelude::*;
use std::sync::Arc;

kernels! {
    BOUNDARY in "amg_boundary.cu", |_| vec![boundary_states.plain().into()];
    fn boundary_numbers(count: i64, nodes: At<u32>, number: At<i64>, from: At<u32>, out: At<u64>);
    fn boundary_take_numbers(
        ghosts: i64, own: i64, number: At<i64>, in_: At<u64>, order: At<u32>, to: At<u32>,
    );
    fn boundary_take_words(ghosts: i64, in_: At<u64>, order: At<u32>, to: At<u64>);
    fn boundary_states(
        count: i64, nodes: At<u32>, number: At<i64>, state: At<u8>, lost: At<u8>, round: u32, left: At<u32>,
        undecided: At<u32>, out: At<u64>,
    );
    fn boundary_take_states(
        ghosts: i64, own: i64, number: At<i64>, in_: At<u64>, order: At<u32>, round: u32, state: At<u8>,
        weight: At<u64>, lost: At<u8>,
    );
    fn boundary_run(count: i64, first: u64, out: At<u64>);
    fn boundary_names(count: i64, nodes: At<u32>, numbers: At<u64>, out: At<u64>);
    fn boundary_lengths(count: i64, nodes: At<u32>, ptr: At<i64>, lengths: At<u32>);
    fn boundary_rows(
        count: i64, nodes: At<u32>, square: i64, ptr: At<i64>, col: At<u32>, values: At<f64>,
        place: At<i64>, to_col: At<u32>, to_values: At<f64>,
    );
    fn boundary_own_lengths(own: i64, ptr: At<i64>, col: At<u32>, lengths: At<u32>);
    fn boundary_own_rows(
        own: i64, ptr: At<i64>, col: At<u32>, values: At<f64>, place: At<i64>, to_col: At<u32>,
        to_values: At<f64>,
    );
    fn boundary_renumber(
        rows: i64, sort: i32, ptr: At<i64>, col: At<u32>, values: At<f64>, numbers: At<u32>,
        to_col: At<u32>, to_values: At<f64>,
    );
}

const WHAT: &str = "the boundary of a level";

/// The neighbourhood of a rank, on a GPU.
pub(super) struct Boundary<'a> {
    device: &'a Arc<Device>,
    near: &'a Neighbourhood<'a>,
    /// Number of own nodes; ghosts follow them.
    pub own: usize,
    ghosts: usize,
    /// Own nodes that are ghosts elsewhere, by neighbour.
    nodes: Buffer<u32>,
    /// Global number of each node.
    pub numbers: Buffer<u64>,
    mail: Mail,
    /// Words that arrive, and the position of each ghost's word.
    arrived: Buffer<u64>,
    order: Buffer<u32>,
    /// Number of undecided nodes.
    undecided: Buffer<u32>,
}

/// States of nodes in a round, and the arrays that hold them.
pub(super) struct States<'a> {
    /// Numbers in a graph of some of the nodes; `None` for a graph of all.
    pub number: Option<&'a Buffer<i64>>,
    pub state: &'a Buffer<u8>,
    pub weight: &'a Buffer<u64>,
    /// The last round in which each node lost; undecided nodes that did not lose the present round become
    /// coarse points.
    pub lost: Option<&'a Buffer<u8>>,
    pub round: u32,
    /// Address of the number of undecided nodes.
    pub left: u64,
}

impl<'a> Boundary<'a> {
    /// Prepares the exchange of data about the nodes of `near`. Collective.
    pub fn new(space: &'a Cuda, near: &'a Neighbourhood<'a>) -> Result<Self> {
        let device = space.device();
        let mail = space.fabric().mail(&near.counts(), 2)?;
        let made = (|| {
            let nodes = device.upload(&near.send, WHAT)?;
            let mut numbers = device.allocate::<u64>(near.nodes(), WHAT)?;
            match near.numbers {
                RowNumbers::List(list) => device.write(list, &mut numbers, 0)?,
                RowNumbers::Run { first, count } => {
                    let (name, n) = (device.function(&boundary_run.plain())?, count as i64);
                    name.on(device, grid(device, count), 256).run(n, first, &numbers)?;
                }
            }
            device.write(&near.far_numbers, &mut numbers, near.own)?;
            let order = device.upload(&near.arrivals(&mail.begins), WHAT)?;
            let arrived = device.allocate(mail.begins[mail.begins.len() - 1], WHAT)?;
            let (own, ghosts, undecided) = (near.own, near.far.len(), device.allocate(1, WHAT)?);
            Ok(Self { device, near, own, ghosts, nodes, numbers, mail, arrived, order, undecided })
        })();
        agree(near.comm(), made)
    }

    /// Exchanges the words that were packed for other ranks. Collective.
    fn exchange(&self, packed: Result<()>) -> Result<()> {
        agree(self.near.comm(), packed.and_then(|()| self.device.wait()))?;
        self.mail.receive(self.device, &self.arrived)
    }

    /// Sums the numbers over all ranks and returns the sum with this rank's own data, or an error where any
    /// rank failed. Collective.
    pub fn sum<T>(&self, own: Result<(u32, T)>) -> Result<(u64, T)> {
        let comm = self.near.comm();
        let mut sum = [own.as_ref().map_or(f64::INFINITY, |(number, _)| f64::from(*number))];
        comm.sum(&mut sum)?;
        if sum[0].is_finite() {
            return own.map(|(_, kept)| (sum[0] as u64, kept));
        }
        agree(comm, own)?;
        Err(Error::Internal("a rank failed while a level was coarsened, and reported no error".into()))
    }

    /// Gives each ghost the number that its owner has. Collective.
    pub fn take_numbers(&self, number: Option<&Buffer<i64>>, of: &Buffer<u32>) -> Result<()> {
        self.exchange(self.pack_numbers(number, of, self.mail.room()))?;
        let (device, ghosts) = (self.device, self.ghosts);
        let put = device.function(&boundary_take_numbers.plain())?;
        let (n, own) = (ghosts as i64, self.own as i64);
        put.on(device, grid(device, ghosts), 256).run(n, own, number, &self.arrived, &self.order, of)
    }

    /// Packs the numbers of the own nodes that are ghosts elsewhere.
    fn pack_numbers(&self, number: Option<&Buffer<i64>>, of: &Buffer<u32>, to: u64) -> Result<()> {
        let (device, count) = (self.device, self.nodes.len());
        let pack = device.function(&boundary_numbers.plain())?;
        pack.on(device, grid(device, count), 256).run(count as i64, &self.nodes, number, of, to)
    }

    /// Gives ghosts the states of their owners, and sums the number of undecided nodes over the ranks.
    /// `begun` is the result of the work before, which may have failed. Collective.
    pub fn take_states(&self, begun: Result<()>, of: States) -> Result<u64> {
        let (sum, ()) = self.sum(begun.and_then(|()| self.pack_states(&of)).map(|left| (left, ())))?;
        self.mail.receive(self.device, &self.arrived)?;
        let (device, count) = (self.device, self.ghosts);
        let take = device.function(&boundary_take_states.plain())?;
        let (n, own, round) = (count as i64, self.own as i64, of.round);
        take.on(device, grid(device, count), 256).run(
            n,
            own,
            of.number,
            &self.arrived,
            &self.order,
            round,
            of.state,
            of.weight,
            of.lost,
        )?;
        Ok(sum)
    }

    /// Packs the states of the own nodes that are ghosts elsewhere, and returns the number of undecided
    /// nodes.
    fn pack_states(&self, of: &States) -> Result<u32> {
        let (device, count) = (self.device, self.nodes.len());
        let pack = device.function(&boundary_states.plain())?;
        pack.on(device, grid(device, count), 256).run(
            count as i64,
            &self.nodes,
            of.number,
            of.state,
            of.lost,
            of.round,
            of.left,
            &self.undecided,
            self.mail.room(),
        )?;
        scan::last(device, &self.undecided)
    }

    /// Gives each ghost the size that its owner has. Collective.
    pub fn take_sizes(&self, of: &mut Buffer<f64>) -> Result<()> {
        self.exchange(self.gather(&self.nodes, of.pointer(), self.mail.room()))?;
        self.take_words(of.at(self.own))
    }

    /// Writes the words that have arrived in the order of ghosts.
    fn take_words(&self, to: u64) -> Result<()> {
        let (device, count) = (self.device, self.ghosts);
        let take = device.function(&boundary_take_words.plain())?;
        take.on(device, grid(device, count), 256).run(count as i64, &self.arrived, &self.order, to)
    }

    /// Gives each ghost the node that its owner names, or none where that node is unknown here. Collective.
    pub fn take_members(&self, of: &Buffer<u32>) -> Result<()> {
        let (device, near) = (self.device, self.near);
        let named =
            |node: u64| if (node as usize) < near.nodes() { near.name(node as u32) } else { u64::MAX };
        let packed = device.allocate::<u64>(self.nodes.len(), WHAT)?;
        self.pack_numbers(None, of, packed.pointer())?;
        let mut out = vec![0; packed.len()];
        device.read(&packed, 0, &mut out)?;
        out.iter_mut().for_each(|node| *node = named(*node));
        let node = |name: u64| u64::from(near.place(name).unwrap_or(u32::MAX));
        let ghosts: Vec<u64> = near.exchange(&out)?.into_iter().map(node).collect();
        let order: Vec<u32> = (0..self.ghosts as u32).collect();
        let (ghosts, order) = (device.upload(&ghosts, WHAT)?, device.upload(&order, WHAT)?);
        let put = device.function(&boundary_take_numbers.plain())?;
        let (n, own) = (self.ghosts as i64, self.own as i64);
        put.on(device, grid(device, self.ghosts), 256).run(n, own, None::<&Buffer<i64>>, &ghosts, &order, of)
    }

    /// Returns the number of own coarse points, and for each coarse point of another rank its owner and its
    /// number there. `number` is the number of each node among the coarse points. Collective.
    pub fn coarse(&self, number: &Buffer<i64>) -> Result<(usize, Vec<(u32, u32)>)> {
        self.exchange(self.gather(&self.nodes, number.pointer(), self.mail.room()))?;
        let taken = self.device.allocate::<u64>(self.ghosts, WHAT)?;
        self.take_words(taken.pointer())?;
        let (mut begins, mut there) = (vec![0i64; self.ghosts + 1], vec![0u64; self.ghosts]);
        self.device.read(number, self.own, &mut begins)?;
        self.device.read(&taken, 0, &mut there)?;
        let far = self.near.far.par_iter().zip(&there).zip(begins.par_windows(2));
        let stay = far.filter(|(_, w)| w[1] > w[0]).map(|((&(owner, _), &number), _)| (owner, number as u32));
        Ok((begins[0] as usize, stay.collect()))
    }

    /// Returns the global numbers of these nodes.
    pub fn names(&self, nodes: &Buffer<u32>) -> Result<Buffer<u64>> {
        let to = self.device.allocate::<u64>(nodes.len(), WHAT)?;
        self.gather(nodes, self.numbers.pointer(), to.pointer())?;
        Ok(to)
    }

    /// Copies the elements of these nodes in an array of 64-bit numbers.
    fn gather(&self, nodes: &Buffer<u32>, from: u64, to: u64) -> Result<()> {
        let (device, count) = (self.device, nodes.len());
        let gather = device.function(&boundary_names.plain())?;
        gather.on(device, grid(device, count), 256).run(count as i64, nodes, from, to)
    }
}
