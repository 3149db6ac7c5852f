//! Checkpoints of `krylith steps`: a few lines of text, an empty line, and then u and the stage derivatives
//! as little-endian f64. The derivatives are the initial guess of the next solve, so that a restart repeats
//! it.

use crate::failure::{Failure, Result};
use crate::output::Target;
use krylith_core::text::name;
use std::path::Path;

const HEAD: &str = "krylith steps 1";

/// The state after some steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// The system, without scheme and step length.
    pub system: String,
    /// Method and preconditioner of the last step, as options. With `auto` they may change after some steps,
    /// and a resumed run does not begin again with the first.
    pub solver: String,
    /// Number of steps done.
    pub step: usize,
    /// The time after them.
    pub time: f64,
    /// The state.
    pub u: Vec<f64>,
    /// The stage derivatives of the last step.
    pub k: Vec<f64>,
}

impl Checkpoint {
    /// Writes the checkpoint.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn write(&self, target: Target) -> krylith_core::Result<()> {
        let Self { system, solver, step, time, u, k } = self;
        target.write(|out| {
            let (n, m) = (u.len(), k.len());
            writeln!(
                out,
                "{HEAD}\nsystem={system}\nsolver={solver}\nstep={step}\ntime={time:?}\nu={n}\nk={m}\n"
            )?;
            u.iter().chain(k).try_for_each(|v| out.write_all(&v.to_le_bytes()))
        })
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// The file cannot be read, or is not a whole checkpoint.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |what: &str| {
            let remedy = "give the file that --checkpoint wrote";
            Failure::usage(format!("--resume {}: {what}; {remedy}", name(path)))
        };
        let bytes = std::fs::read(path).map_err(|e| wrong(&format!("it cannot be read ({e})")))?;
        Self::parse(&bytes).map_err(|what| wrong(&what))
    }

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let end = bytes.windows(2).position(|w| w == b"\n\n").ok_or("it is no checkpoint")?;
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "it is no checkpoint")?;
        let mut lines = head.lines();
        if lines.next() != Some(HEAD) {
            return Err("it is no checkpoint of this version".into());
        }
        let mut value = |key: &str| -> std::result::Result<&str, String> {
            let line = lines.next().and_then(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.ok_or_else(|| format!("it lacks `{key}`"))
        };
        let number = |key: &str, text: &str| {
            text.parse::<usize>().map_err(|_| format!("`{key}={text}` is not a whole number"))
        };
        let system = value("system")?.to_string();
        let solver = value("solver")?.to_string();
        let step = number("step", value("step")?)?;
        let time = value("time")?.parse::<f64>().ok().filter(|t| t.is_finite());
        let time = time.ok_or("its time is not a number")?;
        let (n, m) = (number("u", value("u")?)?, number("k", value("k")?)?);
        let (data, _) = bytes[end + 2..].as_chunks::<8>();
        if n.checked_add(m) != Some(data.len()) || (bytes.len() - end - 2) % 8 != 0 {
            return Err(format!("it has {} bytes of numbers for {n} and {m}", bytes.len() - end - 2));
        }
        let mut u: Vec<f64> = data.iter().map(|b| f64::from_le_bytes(*b)).collect();
        if let Some(at) = u.iter().position(|v| !v.is_finite()) {
            return Err(format!("its number {at} is {}", u[at]));
        }
        let k = u.split_off(n);
        Ok(Self { system, solver, step, time, u, k })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.steps");
        let (u, k) = (vec![0.1, -2e-300], vec![1.0 / 3.0; 4]);
        let solver = "precond=lu".to_string();
        let own = Checkpoint { system: "stokes:…".into(), solver, step: 7, time: 0.1 + 0.2, u, k };
        own.write(Target::new("--checkpoint", &path).unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(Checkpoint::parse(&bytes).unwrap(), own);
        for end in 0..bytes.len() {
            assert!(Checkpoint::parse(&bytes[..end]).is_err(), "{end}");
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let large = text.replacen("u=2", "u=18446744073709551615", 1);
        assert!(Checkpoint::parse(large.as_bytes()).is_err());
        assert!(Checkpoint::read(&dir.path().join("none")).err().unwrap().message.contains("--resume"));
    }
}
