//! Algebraic multigrid: time from arrays to x with the hierarchies of `amg`, compared with `ildu` and with
//! the choice of `auto`.
//!
//! This suite measures and checks as the suite `answer` ([`crate::answer()`]) does: times are split into the
//! parts of set-up and solve, and start from arrays in GPU memory or in host memory. Every x is checked by
//! b − A x on the host. The right-hand side is ones. The suite compares many ways of setting up a hierarchy,
//! on single systems and on series of growing ones.

mod measure;
mod report;
mod systems;
mod targets;
mod updates;
pub(crate) mod ways;

use crate::answer::{RTOL, Repeats};
use crate::options::{self, Asked};
use crate::platform::Platform;
use crate::publish::{Report, meta};
use krylith_core::Result;
use measure::{Found, How};
use report::{Made, OneCore, Scaled};
use serde_json::json;

options::parts! {
    /// A part of the suite.
    Part {
        /// Single systems, with every variant.
        Table = "table",
        /// Iterations and seconds against size.
        Growth = "growth",
        /// Repeated updates of values, each with a solve.
        Updates = "updates",
        /// One core of the host.
        Cpu = "cpu",
        /// Scaling over GPUs; the part for processes of a launcher.
        Scaling = "scaling",
    }
}

/// Seconds after which no further run of a variant begins.
const BUDGET: f64 = 60.0;

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device is missing, a word names no system, or an output file cannot be written. A
/// variant that is refused or does not converge is no error: it is a row with the reason. For `auto` and the
/// default hierarchy it is also listed under `failures`.
pub fn multilevel(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    let parts = Part::named("--parts", &options.parts)?;
    let parts = options.launch.parts(parts, &options.parts, &[("scaling", Part::Scaling)])?;
    options::on_device!(options, |p| run(p, options, &parts, progress))
}

fn run<P: Platform>(
    platform: &P,
    options: &Asked,
    parts: &[Part],
    progress: &mut dyn FnMut(&str),
) -> Result<Report> {
    let scale = options.scale(1.0 / 64.0);
    let (rounds, limit) = (options.rounds.unwrap_or(5), options.limit.unwrap_or(60.0));
    let suite = Suite { options, platform, scale, rounds, limit };
    let more = json!({ "scale": scale, "rounds": rounds, "rtol": RTOL, "limit_seconds": limit });
    let meta = meta("multilevel", &options.command, options.launch.describe(platform.describe()), more);
    let mut made = Made { gpu: options.device.is_gpu(), meta, ..Made::default() };
    let folder = options.out.as_deref();
    let wanted = |part| parts.contains(&part);
    // Systems may be large: keep the results so far in case a later one is interrupted.
    if wanted(Part::Table) {
        for system in systems::table(&options.systems)? {
            if let Some(found) = suite.table(&system, progress)? {
                made.table.push(found);
                report::write(&made, folder)?;
            }
        }
    }
    if wanted(Part::Growth) {
        for family in systems::FAMILIES {
            made.growth.push(suite.growth(family, progress)?);
            report::write(&made, folder)?;
        }
    }
    if wanted(Part::Updates) {
        made.updates = suite.updates(progress)?;
        report::write(&made, folder)?;
    }
    if wanted(Part::Cpu) {
        for system in systems::ONE_CORE {
            made.cpu.extend(suite.one_core(system, progress)?);
            report::write(&made, folder)?;
        }
    }
    let gpus = options.device.gpus().len();
    if wanted(Part::Scaling) && (gpus > 1 || options.launch.comm().is_some()) {
        for count in options.launch.counts(gpus) {
            made.scaling.extend(suite.scaling(count, progress)?);
            report::write(&made, folder)?;
        }
    }
    report::write(&made, folder)
}

/// The options with the suite's defaults.
struct Suite<'a, P> {
    options: &'a Asked,
    platform: &'a P,
    scale: f64,
    rounds: usize,
    limit: f64,
}

impl<P: Platform> Suite<'_, P> {
    /// Returns how to measure solves on the suite's device.
    fn how(&self) -> How<'_, P> {
        How {
            platform: Some(self.platform),
            ..self.on(&self.options.device.options(1, self.options.threads))
        }
    }

    /// Returns how to measure solves on another device, from host arrays.
    fn on(&self, device: &str) -> How<'_, P> {
        let Self { rounds, limit, .. } = *self;
        How {
            platform: None,
            comm: None,
            base: format!("{device} rtol={RTOL:e} time_limit={limit}"),
            host: true,
            repeats: Repeats { rounds, budget: BUDGET },
        }
    }

    /// Returns the variants that the user requested, or `otherwise` if there are none.
    fn ways(&self, otherwise: Vec<String>) -> Vec<String> {
        if self.options.ways.is_empty() { otherwise } else { self.options.ways.clone() }
    }

    fn table(
        &self,
        wanted: &crate::answer::system::Wanted,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Option<Found>> {
        let rock = self.options.rock.as_deref();
        let Some(system) = crate::answer::system::make(wanted, self.scale, rock)? else { return Ok(None) };
        let ways = self.ways(ways::table(self.options.full));
        measure::one(&system, &ways, &self.how(), progress).map(Some)
    }

    /// Measures one family at growing sizes. A variant without a solution is not tried at larger sizes.
    fn growth(&self, family: &'static systems::Family, progress: &mut dyn FnMut(&str)) -> Result<Vec<Found>> {
        let (mut all, mut ways) = (Vec::<Found>::new(), self.ways(ways::growth()));
        let how = How { host: !self.options.device.is_gpu(), ..self.how() };
        for side in family.sides(self.scale, self.options.full) {
            let system = family.make(side, progress)?;
            let mut found = measure::one(&system, &ways, &how, progress)?;
            found.side = side;
            ways.retain(|way| found.rows.iter().any(|row| row.text == *way && row.failure().is_none()));
            all.push(found);
            if ways.is_empty() {
                break;
            }
        }
        Ok(all)
    }

    fn updates(&self, progress: &mut dyn FnMut(&str)) -> Result<Vec<updates::Updates>> {
        let [name, ..] = systems::NAMES;
        let (mut all, count) = (Vec::new(), self.options.updates.unwrap_or(100));
        for wanted in systems::table(&[name.into()])? {
            let Some(system) = crate::answer::system::make(&wanted, self.scale, None)? else { continue };
            for way in self.ways(ways::updates()) {
                progress(&format!("{}: {count} new values, {way}", system.name));
                all.push(updates::repeat(&system, &way, &self.how(), count)?);
            }
        }
        Ok(all)
    }

    fn one_core(&self, name: &str, progress: &mut dyn FnMut(&str)) -> Result<Option<OneCore>> {
        let rock = self.options.rock.as_deref();
        // The figures of other libraries are for the full size, so the default scale here is 1, not the
        // suite's.
        let scale = self.options.scale.unwrap_or(1.0);
        let Some(system) = systems::one_core(name, scale, rock)? else { return Ok(None) };
        let repeats = Repeats { rounds: self.rounds.min(3), budget: BUDGET };
        let how = How { repeats, ..self.on("device=cpu threads=1") };
        let product = measure::product_on_one_core(&system.assembled()?)?;
        let found = measure::one(&system, &self.ways(ways::one_core()), &how, progress)?;
        Ok(Some(OneCore { found, product, whole: scale == 1.0 }))
    }

    /// Measures weak scaling (a fixed number of rows per GPU) and strong scaling (a fixed total) on `count`
    /// GPUs.
    fn scaling(&self, count: usize, progress: &mut dyn FnMut(&str)) -> Result<Vec<Scaled>> {
        let how = How { comm: self.options.launch.comm(), ..self.on(&self.options.device_of(count)) };
        let mut all = Vec::new();
        for (series, [x, y, z]) in systems::scaled_sizes(count, self.scale) {
            let spec = format!("laplace:{x}x{y}x{z}");
            let Some(system) = systems::spec(&spec)? else { continue };
            progress(&format!("{series} scaling on {count} GPUs"));
            let found = measure::one(&system, &self.ways(ways::scaling()), &how, progress)?;
            all.push(Scaled { series, gpus: count, found, whole: self.scale == 1.0 });
        }
        Ok(all)
    }
}
