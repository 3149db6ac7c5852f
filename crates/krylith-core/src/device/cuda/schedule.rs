//! Batches of launches on one GPU: recorded as graphs, replayed, and timed.

use super::graph::{Captured, Executable};
use super::interleaved::all_halted;
use super::launch::Entry;
use super::scalars::CudaScalars;
use super::space::Cuda;
use super::waiting::milliseconds;
use crate::Result;
use crate::space::{Clock, FLAGS, HALT, MOST_COLUMNS, Phase, Phases, Schedule, Space};
use cudarc::driver::sys::CUevent_flags;

/// A graph of launches, which is replayed while the key stays the same.
#[derive(Default)]
#[doc(hidden)]
pub struct CudaRecording {
    key: Option<u64>,
    graph: Option<Executable>,
}

impl Clock for Cuda {
    fn mark(&self, phase: Phase) {
        if !self.timing.get() {
            return;
        }
        let stream = self.device.stream();
        if let Ok(event) = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)) {
            self.marks.borrow_mut().push((phase, event));
        }
    }
    fn take_phases(&self) -> Option<Phases> {
        if !self.timing.get() {
            return None;
        }
        self.wait().ok()?;
        let marks = std::mem::take(&mut *self.marks.borrow_mut());
        let mut phases = Phases::default();
        for pair in marks.windows(2) {
            let milliseconds = milliseconds(self.device(), &pair[0].1, &pair[1].1).ok()?;
            phases.add(pair[0].0, milliseconds as f64 * 1e-3);
        }
        Some(phases)
    }
}

impl Schedule for Cuda {
    type Scalars = CudaScalars;
    type Recording = CudaRecording;

    fn scalars(&self, len: usize) -> Result<CudaScalars> {
        CudaScalars::new(&self.device, len)
    }
    fn write_scalars(
        &self,
        to: &mut CudaScalars,
        at: usize,
        host: &[f64],
        flags: &[i32; FLAGS],
    ) -> Result<()> {
        to.write(&self.device, at, host, flags)
    }
    fn read_scalars(
        &self,
        from: &CudaScalars,
        at: usize,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        from.read(&self.device, at, host, flags)?;
        self.check_sums(host)
    }
    fn guard(&self, scalars: Option<&CudaScalars>) {
        self.device.set_guard(scalars.map_or(0, |s| s.flag(HALT)));
    }
    fn watch(&self, scalars: &[CudaScalars], which: u32) {
        let (mut flags, mut count) = ([0; MOST_COLUMNS], 0);
        for (k, scalars) in scalars.iter().enumerate().take(MOST_COLUMNS) {
            if which >> k & 1 == 1 {
                flags[count] = scalars.flag(HALT);
                count += 1;
            }
        }
        self.watched.set((flags, count));
    }
    fn guard_watched(&self) -> Result<()> {
        let (flags, count) = self.watched.get();
        let function = self.device.function(&all_halted.plain())?;
        function.on(&self.device, 1, 32).run(count as i32, flags, self.common_guard())?;
        self.device.set_guard(self.common_guard());
        Ok(())
    }
    fn halted(&self, _: &CudaScalars) -> bool {
        false
    }
    fn record(
        &self,
        recording: &mut CudaRecording,
        key: Option<u64>,
        mut work: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        let Some(key) = key.filter(|_| !self.timing.get()) else {
            let done = work(self);
            self.mark(Phase::Other);
            return done;
        };
        if recording.key != Some(key) || recording.graph.is_none() {
            *recording = CudaRecording { key: Some(key), graph: None };
            let _quiet = self.device.quiet()?;
            recording.graph = Some(self.device.instantiate(&self.capture(work)?)?);
        }
        match &recording.graph {
            Some(graph) => self.device.replay(graph),
            None => Ok(()),
        }
    }
    fn launches(&self, work: impl FnMut(&Self) -> Result<()>) -> Result<Option<usize>> {
        if self.timing.get() {
            return Ok(None);
        }
        let _quiet = self.device.quiet()?;
        self.capture(work)?.nodes(&self.device).map(Some)
    }
    fn peek(&self, _: &CudaScalars, _: usize) -> Option<f64> {
        None
    }
    fn pipeline_depth(&self) -> usize {
        1
    }
    fn enqueue_readback(&self, scalars: &mut CudaScalars, len: usize) -> Result<()> {
        scalars.enqueue_readback(&self.device, len)
    }
    fn take_readback(
        &self,
        scalars: &mut CudaScalars,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        scalars.take_readback(&self.device, host, flags)?;
        self.check_sums(host)
    }
}

impl Cuda {
    /// Records the launches of `work` as a graph, without running them.
    fn capture(&self, mut work: impl FnMut(&Self) -> Result<()>) -> Result<Captured> {
        self.device.begin_capture()?;
        let done = work(self);
        let graph = self.device.end_capture();
        done.and(graph)
    }
}
