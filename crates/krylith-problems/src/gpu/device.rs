//! What the assemblies share: kernels, vectors, and a mesh on the GPU.

use krylith_core::device::cuda::{Argument, Buffer, Device, Kernel, Program};
use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::{Error, Result};
use std::sync::Arc;

use crate::share::{self, Share};
use crate::tets::{Rows, TetMesh};

/// Largest share of the GPU's free memory for the values of J. A solver needs a multiple of them.
const SHARE: u64 = 6;
/// Shared memory that every GPU has without being asked for more.
const SHARED: usize = 48 << 10;
/// Rows of a thread block, at most.
const WARPS: usize = 4;

/// A `.cu` file: its name and its text.
pub(super) type Source = (&'static str, &'static str);

pub(super) const CAVITY: Source = ("problems/cavity.cu", include_str!("kernels/cavity.cu"));
pub(super) const FLOW: Source =
    ("problems/flow.cu", concat!(include_str!("kernels/elements.cuh"), include_str!("kernels/flow.cu")));
pub(super) const SOLID: Source =
    ("problems/solid.cu", concat!(include_str!("kernels/elements.cuh"), include_str!("kernels/solid.cu")));

const GHOSTS: Source = ("problems/ghosts.cu", include_str!("kernels/ghosts.cu"));

fn kernel((file, text): Source, entry: &'static str) -> Kernel {
    Kernel { file, text: Some(text), entry, defines: Vec::new() }
}

/// Returns all kernels, file by file.
pub fn kernels() -> Vec<Vec<Kernel>> {
    let both = |source| ["residual", "jacobian"].map(|entry| kernel(source, entry)).to_vec();
    let mut all = [CAVITY, FLOW, SOLID].map(both).to_vec();
    all.push(vec![kernel(GHOSTS, "pack")]);
    all
}

/// The kernels of a problem, with x, F and the values of J.
pub(super) struct Kernels {
    pub device: Arc<Device>,
    residual: Program,
    jacobian: Program,
    /// x of own nodes, and of own nodes and ghosts.
    own: Buffer<f64>,
    x: Buffer<f64>,
    f: Buffer<f64>,
    values: Buffer<f64>,
    ghosts: Option<Ghosts>,
}

/// The exchange of ghosts with other ranks.
struct Ghosts {
    share: Share,
    pack: Program,
    nodes: Buffer<u32>,
    packed: Buffer<f64>,
    run: usize,
}

impl Ghosts {
    fn new(device: &Arc<Device>, share: &Share, run: usize) -> Result<Self> {
        let (send, what) = (&share.halo().send, "a rank's border");
        Ok(Self {
            share: share.clone(),
            pack: Program::load(device, &kernel(GHOSTS, "pack"))?,
            nodes: device.upload(send, what)?,
            packed: device.zeros(send.len() * run, what)?,
            run,
        })
    }

    /// Writes the numbers of ghosts behind those of own nodes. Collective.
    fn exchange(&self, device: &Device, own: &Buffer<f64>, x: &mut Buffer<f64>) -> Result<()> {
        let Self { share, pack, nodes, packed, run } = self;
        let pack = || {
            let with = [count(nodes.len()), count(*run), address(nodes), address(own), address(packed)];
            pack.launch((nodes.len() * run).div_ceil(256), 256, 0, &with)?;
            let mut host = vec![0.0; packed.len()];
            device.read(packed, 0, &mut host)?;
            Ok(host)
        };
        let ghosts = share.exchange(*run, share::agreed(Some(share), pack())?)?;
        device.write(&ghosts, x, own.len())
    }
}

impl Kernels {
    /// Loads the kernels of a file and allocates the vectors of this pattern; `None` if J takes too much of
    /// the memory.
    pub fn open(gpu: usize, source: Source, pattern: &Bsr, share: Option<&Share>) -> Result<Option<Self>> {
        let device = Device::open(gpu)?;
        if 8 * pattern.stored() as u64 > device.free_memory()? / SHARE {
            return Ok(None);
        }
        let load = |entry| Program::load(&device, &kernel(source, entry));
        let (residual, jacobian) = (load("residual")?, load("jacobian")?);
        let what = "x of a nonlinear problem";
        let own = device.zeros(pattern.rows(), what)?;
        let x = device.zeros(pattern.block_columns() * pattern.block(), what)?;
        let f = device.zeros(pattern.rows(), "F of a nonlinear problem")?;
        let values = device.zeros(pattern.stored(), "the Jacobian of a nonlinear problem")?;
        let ghosts = share.map(|share| Ghosts::new(&device, share, pattern.block())).transpose()?;
        Ok(Some(Self { device, residual, jacobian, own, x, f, values, ghosts }))
    }

    /// Takes x of own nodes, and the ghosts of other ranks. Collective.
    fn take(&mut self, x: Numbers<'_>) -> Result<()> {
        let taken = self.device.copy_from(x, &mut self.own);
        let len = self.own.len();
        let taken = taken.and_then(|()| self.device.copy(&self.own, &mut self.x, len));
        match &self.ghosts {
            None => taken,
            Some(ghosts) => {
                share::agreed(Some(&ghosts.share), taken)?;
                ghosts.exchange(&self.device, &self.own, &mut self.x)
            }
        }
    }

    /// Computes F with `threads` rows of nodes per thread block; `with` returns the arguments, of the
    /// addresses of x and F.
    pub fn residual(
        &mut self,
        x: Numbers<'_>,
        nodes: usize,
        threads: usize,
        with: impl FnOnce(Argument, Argument) -> Vec<Argument>,
    ) -> Result<Numbers<'_>> {
        self.take(x)?;
        let arguments = with(address(&self.x), address(&self.f));
        self.residual.launch(nodes.div_ceil(threads), threads, 0, &arguments)?;
        Ok(Numbers::from(&self.f))
    }

    /// Computes J in a launch of this shape; `with` returns the arguments, of the addresses of x and the
    /// values.
    pub fn jacobian(
        &mut self,
        x: Numbers<'_>,
        launch: Launch,
        with: impl FnOnce(Argument, Argument) -> Vec<Argument>,
    ) -> Result<Numbers<'_>> {
        self.take(x)?;
        let arguments = with(address(&self.x), address(&self.values));
        self.jacobian.launch(launch.blocks, launch.threads, launch.shared, &arguments)?;
        Ok(Numbers::from(&self.values))
    }
}

/// The shape of a launch: thread blocks, threads of each, and bytes of shared memory of each.
pub(super) struct Launch {
    pub blocks: usize,
    pub threads: usize,
    pub shared: usize,
}

/// A mesh on a GPU, with the places of its elements in the matrix.
pub(super) struct Mesh {
    nodes: usize,
    /// Number of blocks of the longest row.
    width: usize,
    points: Buffer<f64>,
    tetrahedra: Buffer<u32>,
    begin: Buffer<u64>,
    around: Buffer<u32>,
    places: Buffer<u8>,
    row_ptr: Buffer<u64>,
    diagonal: Buffer<u8>,
}

impl Mesh {
    pub fn new(device: &Arc<Device>, mesh: &TetMesh, rows: &Rows) -> Result<Self> {
        let pattern = rows.pattern();
        let nodes = pattern.block_rows();
        let (begin, around, places) = rows.lists(mesh);
        let row_ptr = pattern.row_ptr();
        let width = row_ptr.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let diagonal: Vec<u8> = (0..nodes).map(|i| rows.place(i, i as u32) as u8).collect();
        let what = "a mesh";
        Ok(Self {
            nodes,
            width,
            points: device.upload(mesh.points().as_flattened(), what)?,
            tetrahedra: device.upload(mesh.tetrahedra().as_flattened(), what)?,
            begin: device.upload(&wide(begin), what)?,
            around: device.upload(around, what)?,
            places: device.upload(places.as_flattened(), what)?,
            row_ptr: device.upload(&wide(row_ptr), what)?,
            diagonal: device.upload(&diagonal, what)?,
        })
    }

    /// Returns the first arguments of `residual`: the mesh, and x.
    pub fn for_residual(&self, x: Argument) -> Vec<Argument> {
        vec![
            count(self.nodes),
            address(&self.begin),
            address(&self.around),
            address(&self.tetrahedra),
            address(&self.points),
            x,
        ]
    }

    /// Returns the first arguments of `jacobian`: the mesh with its places in the matrix, and x.
    pub fn for_jacobian(&self, x: Argument) -> Vec<Argument> {
        vec![
            count(self.nodes),
            count(self.width),
            address(&self.begin),
            address(&self.around),
            address(&self.places),
            address(&self.tetrahedra),
            address(&self.points),
            address(&self.row_ptr),
            address(&self.diagonal),
            x,
        ]
    }

    /// Returns the number of own nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the launch of one warp per row, for blocks of `square` numbers; see `sum_row` of
    /// `kernels/elements.cuh`.
    pub fn rows(&self, square: usize) -> Launch {
        let each = 8 * (self.width * square + 32 * (4 * square + 1));
        let warps = (SHARED / each).clamp(1, WARPS);
        Launch { blocks: self.nodes.div_ceil(warps), threads: 32 * warps, shared: warps * each }
    }
}

/// Returns indices as 64-bit numbers.
pub(super) fn wide(indices: &[usize]) -> Vec<u64> {
    indices.iter().map(|&i| i as u64).collect()
}

/// Returns the address of a buffer as an argument.
pub(super) fn address<T: Copy>(buffer: &Buffer<T>) -> Argument {
    Argument::Address(buffer.pointer())
}

/// Returns a number of items as an argument.
pub(super) fn count(n: usize) -> Argument {
    Argument::Int(n as i32)
}

/// Returns `None` if a GPU has too little memory.
pub(super) fn fits<T>(made: Result<T>) -> Result<Option<T>> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(Error::Memory { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
