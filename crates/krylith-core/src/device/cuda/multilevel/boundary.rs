//! Data that ranks exchange about nodes on their boundaries while a level is coarsened. It is packed on the
//! GPU, sent by the host, and unpacked on the GPU (`kernels/amg_boundary.cu`). A message takes one copy each
//! way.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, kernels};
use super::split::grid;
use crate::comm::agree;
use crate::halo::RowNumbers;
use crate::precond::multilevel::Neighbourhood;
use crate::{Error, Result};
use std::sync::Arc;

kernels! {
    BOUNDARY in "amg_boundary.cu", |_| vec![boundary_states.plain().into()];
    fn boundary_numbers(count: i64, nodes: At<u32>, number: At<i64>, from: At<u32>, out: At<u32>);
    fn boundary_take_numbers(ghosts: i64, own: i64, number: At<i64>, in_: At<u32>, to: At<u32>);
    fn boundary_states(
        count: i64, nodes: At<u32>, number: At<i64>, state: At<u8>, lost: At<u8>, round: u32, left: At<u32>,
        out: At<u32>,
    );
    fn boundary_take_states(
        ghosts: i64, own: i64, number: At<i64>, in_: At<u8>, round: u32, state: At<u8>, weight: At<u64>,
        lost: At<u8>,
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
    pub fn new(space: &'a Cuda, near: &'a Neighbourhood<'a>) -> Result<Self> {
        let device = space.device();
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
        Ok(Self { device, near, own: near.own, ghosts: near.far.len(), nodes, numbers })
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
        let out = self.numbers_of(number, of)?;
        self.put_numbers(number, &self.near.exchange(&out)?, of)
    }

    /// Returns the numbers of the own nodes that are ghosts elsewhere.
    pub fn numbers_of(&self, number: Option<&Buffer<i64>>, of: &Buffer<u32>) -> Result<Vec<u32>> {
        let (device, count) = (self.device, self.nodes.len());
        let out = device.allocate::<u32>(count, WHAT)?;
        let pack = device.function(&boundary_numbers.plain())?;
        pack.on(device, grid(device, count), 256).run(count as i64, &self.nodes, number, of, &out)?;
        let mut found = vec![0; count];
        device.read(&out, 0, &mut found)?;
        Ok(found)
    }

    /// Gives each ghost its number among these.
    pub fn put_numbers(&self, number: Option<&Buffer<i64>>, numbers: &[u32], to: &Buffer<u32>) -> Result<()> {
        let (device, count) = (self.device, self.ghosts);
        let (put, from) = (device.function(&boundary_take_numbers.plain())?, device.upload(numbers, WHAT)?);
        let own = self.own as i64;
        put.on(device, grid(device, count), 256).run(count as i64, own, number, &from, to)
    }

    /// Gives ghosts the states of their owners, and sums the number of undecided nodes over the ranks.
    /// `begun` is the result of the work before, which may have failed. Collective.
    pub fn take_states(&self, begun: Result<()>, of: States) -> Result<u64> {
        let (sum, states) = self.sum(begun.and_then(|()| self.states(&of)))?;
        let states = self.near.exchange(&states)?;
        let (device, count) = (self.device, self.ghosts);
        let (take, from) = (device.function(&boundary_take_states.plain())?, device.upload(&states, WHAT)?);
        let (n, own) = (count as i64, self.own as i64);
        let round = of.round;
        take.on(device, grid(device, count), 256)
            .run(n, own, of.number, &from, round, of.state, of.weight, of.lost)?;
        Ok(sum)
    }

    /// Returns the number of undecided nodes, and the states of the own nodes that are ghosts elsewhere.
    fn states(&self, of: &States) -> Result<(u32, Vec<u8>)> {
        const HEADER: usize = size_of::<u32>();
        let (device, count) = (self.device, self.nodes.len());
        let out = device.allocate::<u8>(HEADER + count, WHAT)?;
        let pack = device.function(&boundary_states.plain())?;
        let n = count as i64;
        let (round, left) = (of.round, of.left);
        pack.on(device, grid(device, count), 256).run(
            n,
            &self.nodes,
            of.number,
            of.state,
            of.lost,
            round,
            left,
            out.pointer(),
        )?;
        let mut found = vec![0; HEADER + count];
        device.read(&out, 0, &mut found)?;
        let states = found.split_off(HEADER);
        let left = found.as_slice().try_into().map_or(0, u32::from_ne_bytes);
        Ok((left, states))
    }

    /// Gives each ghost the size that its owner has. Collective.
    pub fn take_sizes(&self, of: &mut Buffer<f64>) -> Result<()> {
        let out = self.gathered(&self.nodes, of.pointer())?;
        let mut bits = vec![0u64; out.len()];
        self.device.read(&out, 0, &mut bits)?;
        let sizes: Vec<f64> = self.near.exchange(&bits)?.into_iter().map(f64::from_bits).collect();
        self.device.write(&sizes, of, self.own)
    }

    /// Gives each ghost the node that its owner names, or none where that node is unknown here. Collective.
    pub fn take_members(&self, of: &Buffer<u32>) -> Result<()> {
        let near = self.near;
        let named = |node: u32| if (node as usize) < near.nodes() { near.name(node) } else { u64::MAX };
        let out: Vec<u64> = self.numbers_of(None, of)?.into_iter().map(named).collect();
        let node = |name: u64| near.place(name).unwrap_or(u32::MAX);
        let ghosts: Vec<u32> = near.exchange(&out)?.into_iter().map(node).collect();
        self.put_numbers(None, &ghosts, of)
    }

    /// Returns the number of own coarse points, and for each coarse point of another rank its owner and its
    /// number there. `number` is the number of each node among the coarse points. Collective.
    pub fn coarse(&self, number: &Buffer<i64>) -> Result<(usize, Vec<(u32, u32)>)> {
        let mut begins = vec![0i64; self.ghosts + 1];
        self.device.read(number, self.own, &mut begins)?;
        let out = self.gathered(&self.nodes, number.pointer())?;
        let mut own = vec![0u64; out.len()];
        self.device.read(&out, 0, &mut own)?;
        let there = self.near.exchange(&own)?;
        let far = self.near.far.iter().zip(there).zip(begins.windows(2));
        let stay = far.filter(|(_, w)| w[1] > w[0]).map(|((&(owner, _), number), _)| (owner, number as u32));
        Ok((begins[0] as usize, stay.collect()))
    }

    /// Returns the global numbers of these nodes.
    pub fn names(&self, nodes: &Buffer<u32>) -> Result<Buffer<u64>> {
        self.gathered(nodes, self.numbers.pointer())
    }

    /// Returns the elements of these nodes in an array of 64-bit numbers.
    fn gathered(&self, nodes: &Buffer<u32>, from: u64) -> Result<Buffer<u64>> {
        let (device, count) = (self.device, nodes.len());
        let to = device.allocate::<u64>(count, WHAT)?;
        let gather = device.function(&boundary_names.plain())?;
        let n = count as i64;
        gather.on(device, grid(device, count), 256).run(n, nodes, from, &to)?;
        Ok(to)
    }
}
