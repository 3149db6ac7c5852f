//! Time of one orthogonalisation against a basis of fixed size.

use super::{Plan, RESTART};
use crate::platform::{Orthogonalizer, Platform, STEPS};
use crate::publish::Check;
use crate::samples::{Samples, in_turn_of};
use crate::systems::Random;
use krylith_core::method::gmres::{Arrays, Scalars, delayed_step, open};
use krylith_core::space::{BATCH, COLUMNS, FLAGS, LIMIT, Space};
use krylith_core::{Precision, Result};

pub(super) struct Row {
    pub columns: usize,
    pub len: usize,
    pub name: String,
    pub ours: bool,
    /// Seconds per step.
    pub samples: Samples,
    /// Bytes that must move: the basis once, the new vector read and written.
    pub bytes: u64,
    /// Bytes that the passes read and write if no cache holds anything.
    pub traffic: u64,
    /// ‖I − QᵀQ‖_F, or the reason of a failure.
    pub check: Check,
}

/// Krylith's delayed Gram–Schmidt: the columns are final, w is tentative, and each step adds another z.
struct Delayed<'a, S: Space> {
    space: &'a S,
    precision: Precision,
    columns: usize,
    layout: Arrays,
    scalars: S::Scalars,
    v: S::Basis,
    w: S::Vector,
    z: Vec<S::Vector>,
    recording: S::Recording,
    record: bool,
    records: bool,
}

impl<'a, S: Space> Delayed<'a, S> {
    fn new(space: &'a S, columns: usize, precision: Precision, record: bool, records: bool) -> Result<Self> {
        let m = columns + 2;
        let layout = Arrays::at(m);
        let mut random = Random(31);
        let mut fresh = || -> Result<S::Vector> {
            let mut v = space.vector()?;
            space.write(&random.numbers(space.len()), &mut v)?;
            Ok(v)
        };
        let w = fresh()?;
        let z = (0..STEPS).map(|_| fresh()).collect::<Result<Vec<_>>>()?;
        let (scalars, v) = (space.scalars(layout.len)?, space.basis(m, precision)?);
        let recording = S::Recording::default();
        let mut made =
            Self { space, precision, columns, layout, scalars, v, w, z, recording, record, records };
        let mut header = vec![0.0; Scalars::LEN];
        header[Scalars::AT.norm] = f64::sqrt(space.len() as f64 / 12.0);
        space.guard(None);
        let flags = made.flags();
        space.write_scalars(&mut made.scalars, 0, &header, &flags)?;
        space.step(open, &mut made.scalars, 0)?;
        for j in 0..columns {
            let z = fresh()?;
            space.project_pair(&made.v, j, &made.w, &z, &mut made.scalars, layout.dots)?;
            let (v, w, dots) = (&mut made.v, &mut made.w, layout.dots);
            space.update_pair(v, j, w, &z, &mut made.scalars, dots, delayed_step)?;
        }
        space.wait()?;
        Ok(made)
    }

    /// Returns flags with which nothing halts.
    fn flags(&self) -> [i32; FLAGS] {
        let mut flags = [0; FLAGS];
        (flags[LIMIT], flags[BATCH]) = (i32::MAX, self.columns as i32 + 2);
        flags
    }
}

impl<S: Space> Orthogonalizer for Delayed<'_, S> {
    fn name(&self) -> String {
        let stored = if self.precision == Precision::F32 { ", f32 basis" } else { "" };
        let how = match (self.records, self.record) {
            (true, true) => ", in a graph",
            (true, false) => ", as launches",
            _ => "",
        };
        format!("Krylith, delayed CGS2{stored}{how}")
    }
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
    fn run(&mut self) -> Result<()> {
        let Self { space, columns, layout, scalars, v, w, z, recording, record, .. } = self;
        let mut steps = |s: &S| -> Result<()> {
            for z in z.iter() {
                s.project_pair(v, *columns, w, z, scalars, layout.dots)?;
                s.update_pair(v, *columns, w, z, scalars, layout.dots, delayed_step)?;
            }
            Ok(())
        };
        if *record { space.record(recording, Some(1), steps) } else { steps(space) }
    }
    fn defect(&mut self) -> Result<f64> {
        let (s, l, n) = (self.space, self.layout, self.columns + 1);
        let mut column = s.vector()?;
        let (mut sum, mut dots, mut flags) = (0.0, vec![0.0; n], [0; FLAGS]);
        for i in 0..n {
            // V eᵢ is column i, converted to f64.
            let mut unit = vec![0.0; n];
            unit[i] = 1.0;
            let mut all = self.flags();
            all[COLUMNS] = n as i32;
            s.write_scalars(&mut self.scalars, l.y, &unit, &all)?;
            s.expand(&self.v, &mut column, &mut self.scalars, l.y)?;
            s.project(&self.v, 0..n, &column, &mut self.scalars, l.dots)?;
            s.read_scalars(&self.scalars, l.dots, &mut dots, &mut flags)?;
            for (j, dot) in dots.iter().enumerate() {
                sum += (dot - if i == j { 1.0 } else { 0.0 }).powi(2);
            }
        }
        let flags = self.flags();
        s.write_scalars(&mut self.scalars, l.y, &[0.0], &flags)?;
        Ok(f64::sqrt(sum))
    }
    fn tolerance(&self) -> f64 {
        if self.precision == Precision::F32 { 1e-5 } else { 1e-12 }
    }
}

/// Returns the bytes of a step of Krylith's delayed Gram–Schmidt: the basis once; w and z read; a column and
/// w written.
pub(super) fn delayed_bytes(precision: Precision, len: usize, columns: usize) -> u64 {
    (precision.bytes() * len * (columns + 1) + 24 * len) as u64
}

/// Returns the mean bytes of a step over a cycle, whose steps have 1, 2, … columns.
pub(super) fn mean_traffic(of: impl Fn(usize) -> u64) -> f64 {
    (1..=RESTART).map(|columns| of(columns) as f64).sum::<f64>() / RESTART as f64
}

/// Checks and times every implementation at one size of basis.
pub(super) fn measure<P: Platform>(p: &P, len: usize, columns: usize, plan: &Plan) -> Result<Vec<Row>> {
    let space = p.space(len)?;
    let mut all = p.orthogonalizers(len, columns)?;
    let baselines = all.len();
    let mut bytes = vec![8 * (len * (columns + 2)) as u64; baselines];
    for precision in [Precision::F64, Precision::F32] {
        for record in if p.records() { vec![true, false] } else { vec![true] } {
            all.push(Box::new(Delayed::new(&space, columns, precision, record, p.records())?));
            bytes.push(delayed_bytes(precision, len, columns));
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for (i, one) in all.iter_mut().enumerate() {
        let defect = one.refresh().and_then(|()| one.run()).and_then(|()| one.defect());
        let check = match defect {
            Ok(defect) if defect <= one.tolerance() => Ok(defect),
            Ok(defect) => Err(format!("{} against {columns} columns: ‖I − QᵀQ‖ is {defect:e}", one.name())),
            Err(e) => Err(e.to_string()),
        };
        let (name, ours, samples) = (one.name(), i >= baselines, Samples::default());
        let traffic = one.traffic().unwrap_or(bytes[i]);
        rows.push(Row { columns, len, name, ours, samples, bytes: bytes[i], traffic, check });
    }
    let right: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].check.is_ok()).collect();
    let samples = in_turn_of(&right, 3, plan.repetitions, |i| {
        let one = &mut all[i];
        one.refresh()?;
        Ok(p.time(&mut || one.run())? / STEPS as f64)
    })?;
    for (i, samples) in samples {
        rows[i].samples = samples;
        // Check the result once more after timing.
        match all[i].defect() {
            Ok(defect) if defect <= all[i].tolerance() => rows[i].check = Ok(defect),
            Ok(defect) => rows[i].check = Err(format!("{}: ‖I − QᵀQ‖ ends at {defect:e}", rows[i].name)),
            Err(e) => rows[i].check = Err(e.to_string()),
        }
    }
    Ok(rows)
}
