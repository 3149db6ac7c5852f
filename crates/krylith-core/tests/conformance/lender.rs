//! An application that keeps its numbers on a GPU and works in a stream of its own.

use super::memory::Lender;
use crate::common::*;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, sys};
use krylith_core::device::cuda::FromDevice;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::memory::{Array, Numbers, NumbersMut};
use krylith_core::{Options, Problem, Solver};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers that keep the stream busy for some milliseconds before it comes to what counts.
const BALLAST: usize = 1 << 26;

/// Device memory and the stream that fills it, behind work that takes a while.
pub struct GpuLender {
    ordinal: usize,
    stream: Arc<CudaStream>,
    /// False: the stream is not named, so it is waited for before anything is lent.
    named: bool,
    numbers: RefCell<CudaSlice<f64>>,
    ballast: Rc<RefCell<CudaSlice<f64>>>,
}

/// What lenders of one GPU share.
pub struct Application {
    ordinal: usize,
    stream: Arc<CudaStream>,
    ballast: Rc<RefCell<CudaSlice<f64>>>,
}

impl Application {
    /// On a GPU, with a stream of its own or the legacy default stream.
    pub fn new(ordinal: usize, default_stream: bool) -> Self {
        let context = CudaContext::new(ordinal).unwrap();
        let stream = if default_stream { context.default_stream() } else { context.new_stream().unwrap() };
        let ballast = Rc::new(RefCell::new(stream.alloc_zeros(BALLAST).unwrap()));
        Self { ordinal, stream, ballast }
    }

    /// `n` numbers, NaN; lent with the stream, or after it was waited for.
    pub fn lender(&self, n: usize, named: bool) -> GpuLender {
        let numbers = RefCell::new(self.stream.clone_htod(&vec![f64::NAN; n]).unwrap());
        let (stream, ballast) = (self.stream.clone(), self.ballast.clone());
        GpuLender { ordinal: self.ordinal, stream, named, numbers, ballast }
    }
}

impl GpuLender {
    fn busy(&self) {
        for _ in 0..4 {
            self.stream.memset_zeros(&mut *self.ballast.borrow_mut()).unwrap();
        }
    }
    fn settle(&self) -> Option<*mut std::ffi::c_void> {
        if self.named {
            return Some(self.stream.cu_stream().cast());
        }
        self.stream.synchronize().unwrap();
        None
    }
}

impl Lender for GpuLender {
    fn fill(&mut self, numbers: &[f64]) {
        let source = self.stream.clone_htod(numbers).unwrap();
        self.busy();
        self.stream.memcpy_dtod(&source, &mut *self.numbers.borrow_mut()).unwrap();
    }
    fn lend(&self) -> Numbers<'_> {
        let stream = self.settle();
        let numbers = self.numbers.borrow();
        let pointer = numbers.device_ptr(&self.stream).0;
        // SAFETY: memory of self, which the array borrows; `stream` alone works on it.
        unsafe { Numbers::from_device(pointer, numbers.len(), self.ordinal, stream) }
    }
    fn lend_mut(&mut self) -> NumbersMut<'_> {
        self.busy();
        let stream = self.settle();
        let mut numbers = self.numbers.borrow_mut();
        let len = numbers.len();
        let pointer = numbers.device_ptr_mut(&self.stream).0;
        // SAFETY: memory of self, which the array borrows mutably; `stream` alone works on it.
        unsafe { NumbersMut::from_device(pointer, len, self.ordinal, stream) }
    }
    fn poison(&mut self) {
        let nan = vec![f64::NAN; self.numbers.borrow().len()];
        self.stream.memcpy_htod(&nan, &mut *self.numbers.borrow_mut()).unwrap();
    }
    fn take(&self) -> Vec<f64> {
        self.stream.clone_dtoh(&*self.numbers.borrow()).unwrap()
    }
}

/// Matrices in device memory, as they are and in blocks.
pub fn matrices_come_from_a_gpu(ordinal: usize) {
    matrices_come_from_device_memory(ordinal);
    scalar_rows_form_blocks_on_the_device(ordinal);
    super::arrays::arrays_solve_as_matrices_do(&format!("cuda:{ordinal}"));
    super::arrays::arrays_are_judged_as_on_the_host(&format!("cuda:{ordinal}"));
    super::arrays::rows_of_unlike_scale_are_judged(&format!("cuda:{ordinal}"));
    super::arrays::strong_convection_is_left_to_ildu(&format!("cuda:{ordinal}"));
}

/// A matrix whose three arrays lie on a GPU, pointers and columns in widths of their own.
fn matrices_come_from_device_memory(ordinal: usize) {
    let application = Application::new(ordinal, false);
    let stream = &application.stream;
    let want = Csr::from_triplets(3, 3, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0), (2, 2, 3.0)]).unwrap();
    let mut values = application.lender(4, true);
    values.fill(want.values());
    let handle = Some(stream.cu_stream().cast());
    // From 0, and as in Fortran from 1.
    for base in [0, 1] {
        let row_ptr = stream.clone_htod(&[0, 2, 3, 4].map(|p| p + i64::from(base))).unwrap();
        let col = stream.clone_htod(&[0, 1, 1, 2].map(|j| j + base)).unwrap();
        let (p, c) = (row_ptr.device_ptr(stream).0, col.device_ptr(stream).0);
        stream.synchronize().unwrap(); // of the columns no stream is named
        // SAFETY: both live until the end, and nothing writes to them.
        let (p, c) = unsafe {
            (Array::<i64>::from_device(p, 4, ordinal, handle), Array::<i32>::from_device(c, 4, ordinal, None))
        };
        let a = Csr::from_arrays(3, 3, p, c, values.lend()).unwrap();
        let placed = format!("{a:?}").contains("on a device"); // or the host would have mended it
        assert!(placed && a == want, "{a:?}");
        assert_eq!(Bsr::from_arrays(1, 3, 3, p, c, values.lend()).unwrap().to_csr(), want);
    }
}

/// Scalar rows on a GPU form blocks there, for every block size, and so do new values; the host gets no copy
/// of either. The blocks are those of the host, and so are the solutions.
fn scalar_rows_form_blocks_on_the_device(ordinal: usize) {
    let application = Application::new(ordinal, false);
    let stream = &application.stream;
    let mut rng = Random(17);
    for (b, full) in (2..=8).flat_map(|b| [(b, true), (b, false)]) {
        let want = random_bsr(&mut rng, b, 40, 40, 3, true).to_csr();
        // Unless the blocks are full, some entries are not stored.
        let entries = |a: &Csr| -> Vec<(u32, u32, f64)> {
            let row = |i: usize| {
                let (col, values) = a.row(i);
                col.iter().zip(values).map(move |(&j, &v)| (i as u32, j, v)).collect::<Vec<_>>()
            };
            (0..a.rows()).flat_map(row).filter(|&(i, j, _)| full || i == j || (i + j) % 3 > 0).collect()
        };
        let n = want.rows();
        let mut want = Csr::from_triplets(n, n, &entries(&want)).unwrap();
        let mut values = application.lender(want.nonzeros(), true);
        values.fill(want.values());
        let pointers: Vec<i64> = want.row_ptr().iter().map(|&p| p as i64).collect();
        let columns: Vec<i32> = want.col().iter().map(|&j| j as i32).collect();
        let (row_ptr, col) = (stream.clone_htod(&pointers).unwrap(), stream.clone_htod(&columns).unwrap());
        let (p, c) = (row_ptr.device_ptr(stream).0, col.device_ptr(stream).0);
        stream.synchronize().unwrap();
        // SAFETY: both live until the end, and nothing writes to them.
        let (p, c) = unsafe {
            let p = Array::<i64>::from_device(p, pointers.len(), ordinal, None);
            (p, Array::<i32>::from_device(c, columns.len(), ordinal, None))
        };
        let given = Csr::from_arrays(n, n, p, c, values.lend()).unwrap();
        let blocks = Bsr::from_csr(&given, b).unwrap();
        let alone = |text: String| text.contains("on a device");
        assert!(alone(format!("{given:?}")) && alone(format!("{blocks:?}")), "b={b}: {given:?}, {blocks:?}");
        assert_eq!(blocks, Bsr::from_csr(&want, b).unwrap(), "b={b}");
        let given = Csr::from_arrays(n, n, p, c, values.lend()).unwrap();
        let found = Problem::csr_in_blocks(&given, None).unwrap().block();
        let on_host = Problem::csr_in_blocks(&want, None).unwrap().block();
        assert!(alone(format!("{given:?}")) && (found == on_host || !full && found == 1), "{b}, {found}");
        let problem = Problem::csr_in_blocks(&given, Some(b)).unwrap();
        let options: Options = format!("device=cuda:{ordinal} precond=jacobi rtol=1e-10").parse().unwrap();
        let mut solver = Solver::new(problem, &options).unwrap();
        let right = rng.numbers(n);
        for round in 0..3 {
            let mut x = vec![0.0; n];
            assert!(solver.solve(&right, &mut x).unwrap().converged(), "b={b}, round {round}");
            let d = distance(&times(&want, &x), &right);
            assert!(d < 1e-9, "b={b}, round {round}: {d:e}");
            assert!(alone(format!("{given:?}")), "b={b}, round {round}: {given:?}");
            want.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.05 * rng.number());
            values.fill(want.values());
            solver.update_values(values.lend()).unwrap();
        }
        let mut damaged = want.values().to_vec();
        damaged[3] = f64::NAN;
        values.fill(&damaged);
        assert!(solver.update_values(values.lend()).is_err(), "b={b}");
    }
}

/// Waiting for a stream that does not end stops at the time limit, with an error that names it. It runs in
/// its own process, with a limit of a second.
pub fn a_wait_for_a_gpu_ends(name: &str) {
    const ALONE: &str = "KRYLITH_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args([name, "--exact", "--nocapture"]).env(ALONE, "1").env("KRYLITH_TIMEOUT", "1");
        let done = own.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    unsafe extern "C" fn sleep(_: *mut std::ffi::c_void) {
        std::thread::sleep(Duration::from_secs(4));
    }
    let application = Application::new(0, false);
    let lender = application.lender(8, true);
    // SAFETY: a live stream; the function is given nothing.
    let code =
        unsafe { sys::cuLaunchHostFunc(application.stream.cu_stream(), Some(sleep), std::ptr::null_mut()) };
    code.result().unwrap();
    let begin = Instant::now();
    let late = lender.lend().to_vec().unwrap_err();
    assert!((1.0..3.0).contains(&begin.elapsed().as_secs_f64()), "after {:?}: {late}", begin.elapsed());
    assert_eq!(late.exit_code(), 3);
    let expected =
        "waited 1 s for the stream of the caller's array; KRYLITH_TIMEOUT sets the limit in seconds";
    assert_eq!(late.to_string(), expected);
}

/// What is not as it was said to be is refused before anything touches it.
pub fn wrong_addresses_are_refused(ordinal: usize) {
    let application = Application::new(ordinal, false);
    let lender = application.lender(8, true);
    let (pointer, stream) = (lender.numbers.borrow().device_ptr(&lender.stream).0, lender.settle());
    let host = [1.0f64; 8];
    let refused = |pointer: u64, ordinal: usize, stream, text: &str| {
        // SAFETY: refused before anything reads it, which is what is tested.
        let array = unsafe { Numbers::from_device(pointer, 8, ordinal, stream) };
        let message = array.to_vec().expect_err(text).to_string();
        assert!(message.contains(text), "{message}");
    };
    refused(host.as_ptr() as u64, ordinal, stream, "does not know the address");
    refused(0, ordinal, stream, "device address 0");
    refused(pointer + 4, ordinal, stream, "not a multiple of 8");
    refused(pointer, 1000, stream, "GPU 1000");
    refused(pointer, ordinal, Some(std::ptr::without_provenance_mut(2)), "per-thread default stream");
}
