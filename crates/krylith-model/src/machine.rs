//! The machine file: parameters of the GPUs and of the links between them.
//!
//! It is TOML, in seconds and bytes throughout. A curve is a list of `[bytes, seconds]`, linear between its
//! points. All numbers come from `krylith bench links`, which runs kernels and never a solve on several GPUs,
//! or from data sheets. The list `estimated` names the parts that were not measured, and `sources` gives the
//! origin of each number.
//!
//! The model uses curves instead of a single bandwidth. The share of the bandwidth that a kernel reaches
//! depends on the size, because of the start and the end of a grid and because of the cache. Measured points
//! contain these effects without a theory. The curve of a product is the time of a GMRES iteration minus the
//! orthogonalization and the passes of the cycle. So the prediction for one GPU equals the measurement.

use krylith_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A piecewise linear curve of seconds over bytes: points `[bytes, seconds]` with ascending bytes.
///
/// # Examples
/// ```
/// use krylith_model::Curve;
/// let link = Curve::line(5e-6, 100e9); // 5 µs, then 100 GB/s
/// assert!((link.at(1e6) - 15e-6).abs() < 1e-12);
/// let measured = Curve(vec![[1e3, 4e-6], [1e6, 14e-6], [1e7, 104e-6]]);
/// assert!((measured.at(2e7) - 204e-6).abs() < 1e-12); // 10 µs a megabyte goes on behind the last point
/// let steep = Curve(vec![[1e3, 4e-6], [2e3, 40e-6]]);
/// assert_eq!(steep.at(0.0), 2e-6); // half of the first point's seconds are the least
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(pub Vec<[f64; 2]>);

impl Curve {
    /// Returns the line `fixed` + bytes/`rate`, in seconds, with `rate` in bytes a second.
    pub fn line(fixed: f64, rate: f64) -> Self {
        Self(vec![[0.0, fixed], [1e9, fixed + 1e9 / rate]])
    }

    /// Returns the seconds at a number of bytes. The last segment is extended beyond the last point. The
    /// first segment is extended below the first point, but not below half of its seconds. A curve without
    /// points gives 0.
    pub fn at(&self, bytes: f64) -> f64 {
        let points = &self.0;
        let (first, last) = match points.as_slice() {
            [] => return 0.0,
            [only] => return only[1],
            [first, .., last] => (first, last),
        };
        let k = points.partition_point(|p| p[0] <= bytes).clamp(1, points.len() - 1);
        let [[x0, t0], [x1, t1]] = [points[k - 1], points[k]];
        let t = t0 + (t1 - t0) * (bytes - x0) / (x1 - x0);
        match bytes {
            b if b < first[0] => t.clamp(0.5 * first[1], first[1].max(0.0)),
            b if b > last[0] => t.max(last[1]),
            _ => t,
        }
    }

    fn check(&self, what: &str) -> Result<()> {
        let finite = self.0.iter().flatten().all(|v| v.is_finite() && *v >= 0.0);
        if finite && self.0.windows(2).all(|w| w[0][0] < w[1][0]) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{what}: expected a list of [bytes, seconds] with ascending bytes, all finite and not negative"
        )))
    }
}

/// Kernels of one GPU: seconds over the bytes that they must move.
///
/// # Examples
/// ```
/// use krylith_model::Machine;
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// // Bytes a second of a product that moves `bytes`.
/// let rate = |bytes: f64| bytes / machine.kernels.dense.at(bytes);
/// assert!(rate(1e9) > 0.8 * machine.read && rate(1e9) < machine.read);
/// // In a small product the start and the tail of a grid count for more.
/// assert!(rate(4e7) < 0.6 * machine.read);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels {
    /// One product of GMRES with dense blocks, over the bytes of
    /// [`Shape::product_bytes`](crate::Shape::product_bytes).
    #[serde(default)]
    pub dense: Curve,
    /// The same for blocks whose structure is used (zero and equal entries skipped).
    #[serde(default)]
    pub structured: Curve,
    /// Projection and update, the mean of a cycle of GMRES(30), over
    /// [`orthogonalization_bytes`](crate::orthogonalization_bytes).
    #[serde(default)]
    pub orthogonalization: Curve,
}

/// Sums and exchanges of several GPUs of one host; times are in seconds.
///
/// # Examples
/// ```
/// use krylith_model::Machine;
/// let machine = Machine::open("h200-nvlink".as_ref())?;
/// let (stores, nccl) = (&machine.peers[1], &machine.nccl[1]); // stores into each other's memory, and NCCL
/// assert_eq!((stores.gpus, nccl.gpus), (4, 4));
/// assert!(stores.all_reduce < 2e-6 && nccl.all_reduce > 4.0 * stores.all_reduce);
/// assert!(stores.exchange.at(1e6) < nccl.exchange.at(1e6)); // 1 MB sent by each GPU
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Number of GPUs.
    pub gpus: usize,
    /// Seconds of an all-reduce of 33 numbers in a graph, without the kernel that computes them.
    pub all_reduce: f64,
    /// Seconds of a sum over the ranks' host threads or processes, once per cycle.
    pub meeting: f64,
    /// Seconds of an exchange that nothing hides, over the bytes that one GPU sends.
    pub exchange: Curve,
    /// Remaining seconds of a hidden exchange, over the bytes that one GPU sends.
    pub hidden: Curve,
}

/// Links between hosts.
///
/// # Examples
/// ```
/// use krylith_model::Machine;
/// let network = Machine::open("jupiter".as_ref())?.network.expect("its hosts have links");
/// let message = |bytes: f64| network.latency + bytes / network.bandwidth;
/// assert!((message(1e6) - 45e-6).abs() < 1e-12); // 1 MB: 5 µs, and 40 at the 25 GB/s of NDR200
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Seconds until the first byte of a message arrives.
    pub latency: f64,
    /// Bytes a second per GPU, each way, while all GPUs of a host send.
    pub bandwidth: f64,
    /// Seconds of one level of a tree over hosts, one way; an all-reduce goes up and down.
    pub hop: f64,
}

/// A machine, as described by its file: TOML, in seconds, bytes and bytes a second.
///
/// # Examples
/// ```
/// use krylith_model::Machine;
/// let file = r#"
///     schema = 1
///     name = "one GPU"
///     gpus_per_host = 1
///     read = 2.0e12   # bytes a second
///     launch = 2.0e-6 # seconds
///
///     [kernels]
///     dense = [[0, 1.0e-5], [1000000000, 5.1e-4]]
/// "#;
/// let machine = Machine::parse(file)?;
/// assert!((machine.kernels.dense.at(1e8) - 60e-6).abs() < 1e-12); // 10 µs and 100 MB at 2 TB/s
/// assert_eq!(Machine::parse(&machine.text())?, machine);
/// let slip = Machine::parse(&file.replace("launch", "lunch")).unwrap_err();
/// assert!(slip.to_string().contains("lunch"));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The version of the format: 1.
    pub schema: u32,
    /// The machine's name in tables and pictures.
    pub name: String,
    /// Number of GPUs of one host that reach each other without the network.
    pub gpus_per_host: usize,
    /// Bytes a second that a GPU reads from its memory.
    pub read: f64,
    /// Bytes of memory of a GPU; 0 if unknown.
    #[serde(default)]
    pub memory: f64,
    /// Seconds of a small kernel in a graph.
    pub launch: f64,
    /// Parts that were estimated rather than measured, by section.
    #[serde(default)]
    pub estimated: Vec<String>,
    /// Parts that could not be measured, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Origin of the numbers, by section.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    /// Kernels of one GPU.
    pub kernels: Kernels,
    /// Links between hosts; without them only one host can be predicted.
    #[serde(default)]
    pub network: Option<Network>,
    /// GPUs of a host that write to each other's memory, by ascending number of GPUs.
    #[serde(default)]
    pub peers: Vec<Host>,
    /// GPUs that communicate by NCCL, by ascending number of GPUs.
    #[serde(default)]
    pub nccl: Vec<Host>,
    /// P-CG and P-CBCG of a 7-point Poisson equation.
    #[serde(default)]
    pub poisson: Option<super::poisson::Poisson>,
}

impl Machine {
    /// Reads and checks a machine file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, and one with the line if it is not a machine file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        Self::parse(&text).map_err(|e| Error::invalid(format!("{}: {e}", path.display())))
    }

    /// Parses the text of a machine file.
    ///
    /// # Errors
    /// Returns an error, with the line, if the text is not a machine file.
    pub fn parse(text: &str) -> Result<Self> {
        let machine: Self = toml::from_str(text).map_err(|e| Error::invalid(e.to_string()))?;
        machine.check()?;
        Ok(machine)
    }

    fn check(&self) -> Result<()> {
        if self.schema != 1 {
            return Err(Error::invalid(format!(
                "schema {} is unknown; this version reads schema 1",
                self.schema
            )));
        }
        let positive = |what: &str, v: f64| match v.is_finite() && v > 0.0 {
            true => Ok(()),
            false => Err(Error::invalid(format!("`{what}` is {v}; it must be a positive number"))),
        };
        let time = |what: &str, v: f64| match v.is_finite() && v >= 0.0 {
            true => Ok(()),
            false => {
                Err(Error::invalid(format!("`{what}` is {v}; it must be a number of seconds, at least 0")))
            }
        };
        positive("gpus_per_host", self.gpus_per_host as f64)?;
        positive("read", self.read)?;
        time("launch", self.launch)?;
        if !(self.memory.is_finite() && self.memory >= 0.0) {
            return Err(Error::invalid(format!(
                "`memory` is {}; it must be a number of bytes, at least 0",
                self.memory
            )));
        }
        self.kernels.dense.check("kernels.dense")?;
        self.kernels.structured.check("kernels.structured")?;
        self.kernels.orthogonalization.check("kernels.orthogonalization")?;
        if let Some(network) = &self.network {
            time("network.latency", network.latency)?;
            time("network.hop", network.hop)?;
            positive("network.bandwidth", network.bandwidth)?;
        }
        if let Some(poisson) = &self.poisson {
            poisson.check()?;
        }
        for (name, hosts) in [("peers", &self.peers), ("nccl", &self.nccl)] {
            if hosts.windows(2).any(|w| w[0].gpus >= w[1].gpus) || hosts.iter().any(|h| h.gpus < 2) {
                return Err(Error::invalid(format!(
                    "[[{name}]]: `gpus` must be at least 2 and ascending from one [[{name}]] to the next"
                )));
            }
            for h in hosts {
                time(&format!("{name}.all_reduce"), h.all_reduce)?;
                time(&format!("{name}.meeting"), h.meeting)?;
                h.exchange.check(&format!("{name}.exchange"))?;
                h.hidden.check(&format!("{name}.hidden"))?;
            }
        }
        Ok(())
    }

    /// Returns the file's text, which [`parse`](Self::parse) reads; numbers have five digits.
    pub fn text(&self) -> String {
        let mut out = String::from(
            "# A machine as `krylith model` reads it: seconds, bytes, bytes a second. A curve is a list of [bytes, seconds].\n",
        );
        let list = |items: &[String]| {
            let quoted: Vec<String> = items.iter().map(|i| format!("{i:?}")).collect();
            format!("[{}]", quoted.join(", "))
        };
        let curve = |c: &Curve| {
            let points: Vec<String> = c.0.iter().map(|[b, t]| format!("[{b:.0}, {t:.4e}]")).collect();
            format!("[{}]", points.join(", "))
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "schema = {}\nname = {:?}", self.schema, self.name);
        let _ = writeln!(
            out,
            "gpus_per_host = {}\nread = {:.4e}\nmemory = {:.4e}\nlaunch = {:.4e}",
            self.gpus_per_host, self.read, self.memory, self.launch
        );
        let _ = writeln!(out, "estimated = {}\nnotes = {}", list(&self.estimated), list(&self.notes));
        if !self.sources.is_empty() {
            let _ = writeln!(out, "\n[sources]");
            for (what, source) in &self.sources {
                let _ = writeln!(out, "{what} = {source:?}");
            }
        }
        let k = &self.kernels;
        let _ = writeln!(
            out,
            "\n[kernels]\ndense = {}\nstructured = {}\northogonalization = {}",
            curve(&k.dense),
            curve(&k.structured),
            curve(&k.orthogonalization)
        );
        if let Some(n) = &self.network {
            let _ = writeln!(
                out,
                "\n[network]\nlatency = {:.4e}\nbandwidth = {:.4e}\nhop = {:.4e}",
                n.latency, n.bandwidth, n.hop
            );
        }
        for (name, hosts) in [("peers", &self.peers), ("nccl", &self.nccl)] {
            for h in hosts {
                let _ = writeln!(
                    out,
                    "\n[[{name}]]\ngpus = {}\nall_reduce = {:.4e}\nmeeting = {:.4e}\nexchange = {}\nhidden = {}",
                    h.gpus,
                    h.all_reduce,
                    h.meeting,
                    curve(&h.exchange),
                    curve(&h.hidden)
                );
            }
        }
        if let Some(poisson) = &self.poisson {
            out += &poisson.text();
        }
        out
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine with round numbers, for checks by hand: 1 TB/s, a constant 10 µs per product, 20 µs per
    /// orthogonalisation.
    pub fn round() -> Machine {
        let host = |gpus: usize, all_reduce: f64, fixed: f64| Host {
            gpus,
            all_reduce,
            meeting: 30e-6,
            exchange: Curve::line(fixed, 1e11),
            hidden: Curve::line(1e-6, 1e12),
        };
        Machine {
            schema: 1,
            name: "round".into(),
            gpus_per_host: 4,
            read: 1e12,
            memory: 1e11,
            launch: 1e-6,
            estimated: vec!["everything".into()],
            notes: vec!["a \"note\"".into()],
            sources: BTreeMap::from([("read".to_string(), "by hand".to_string())]),
            kernels: Kernels {
                dense: Curve::line(10e-6, 1e12),
                structured: Curve::line(10e-6, 0.5e12),
                orthogonalization: Curve::line(20e-6, 1e12),
            },
            network: Some(Network { latency: 5e-6, bandwidth: 1e10, hop: 4e-6 }),
            peers: vec![host(2, 2e-6, 4e-6), host(4, 3e-6, 5e-6)],
            nccl: vec![host(2, 8e-6, 14e-6), host(4, 9e-6, 15e-6)],
            poisson: None,
        }
    }

    #[test]
    fn a_curve_is_straight_between_points_and_goes_on_behind_them() {
        let c = Curve(vec![[10.0, 2.0], [20.0, 3.0], [40.0, 7.0]]);
        for (bytes, seconds) in
            [(10.0, 2.0), (15.0, 2.5), (20.0, 3.0), (30.0, 5.0), (40.0, 7.0), (60.0, 11.0), (0.0, 1.0)]
        {
            assert_eq!(c.at(bytes), seconds, "{bytes}");
        }
        // The extension below the first point keeps a minimum, and noise at the end does not give a falling
        // curve.
        assert_eq!(Curve(vec![[10.0, 1.0], [11.0, 3.0]]).at(0.0), 0.5);
        assert_eq!(Curve(vec![[10.0, 3.0], [20.0, 2.0]]).at(50.0), 2.0);
        assert_eq!(Curve(vec![[10.0, 3.0]]).at(50.0), 3.0);
        assert_eq!(Curve::default().at(50.0), 0.0);
        assert!((Curve::line(1e-6, 1e9).at(5e9) - 5.000001).abs() < 1e-9);
    }

    #[test]
    fn a_file_is_written_and_read_again() {
        let machine = round();
        assert_eq!(Machine::parse(&machine.text()).unwrap(), machine);
        let mut bare = machine;
        (bare.network, bare.peers, bare.nccl, bare.sources) = (None, vec![], vec![], BTreeMap::new());
        assert_eq!(Machine::parse(&bare.text()).unwrap(), bare);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = round().text();
        for (from, to, word) in [
            ("schema = 1", "schema = 2", "schema 2"),
            ("read = 1.0000e12", "read = -1.0", "`read`"),
            ("gpus = 4", "gpus = 2", "ascending"),
            ("gpus_per_host = 4", "gpus_per_host = 0", "gpus_per_host"),
            ("bandwidth = 1.0000e10", "bandwidth = 0.0", "network.bandwidth"),
            ("dense = [[0,", "dense = [[2e9,", "kernels.dense"),
            ("launch", "lunch", "lunch"),
        ] {
            assert!(good.contains(from), "{from}");
            let text = Machine::parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
