//! Plots of a solve, written as SVG or PNG by the extension of the file name.

use crate::words;
use krylith_core::solver::Solution;
use krylith_core::text::name;
use krylith_core::{Error, Result};
use krylith_plot::residuals::{self, Residuals};
use krylith_plot::scene::Scene;
use std::path::Path;

/// The numbers and words of a plot of residuals, apart from the solution.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Method, preconditioner and outcome.
    pub subtitle: String,
    /// ‖r‖/‖b‖ or another quantity from iteration 0.
    pub residuals: Vec<f64>,
    /// The quantity of b − A x at the end.
    pub true_residual: f64,
    /// The value that ends the solve.
    pub target: f64,
    /// Iterations at which the method restarted.
    pub restarts: Vec<usize>,
    /// First iteration and name of each attempt; empty for a single attempt.
    pub attempts: Vec<(usize, String)>,
    /// True if the solve converged.
    pub converged: bool,
    /// The quantity of the criterion, as the axis names it.
    pub quantity: String,
}

impl Curve {
    /// Returns the curve of a solve.
    pub fn of(solution: &Solution) -> Self {
        let attempts = solution.attempts().into_iter().map(|(from, name)| (from, name.to_string()));
        Self {
            subtitle: format!("{} — {}", words::method(solution), words::outcome(solution)),
            residuals: solution.history.residuals.clone(),
            true_residual: solution.history.criterion_value,
            target: solution.target,
            restarts: solution.restarts().collect(),
            attempts: attempts.collect(),
            converged: solution.converged(),
            quantity: solution.history.criterion.formula(solution.history.relative_to).into(),
        }
    }

    /// Draws the residuals over the iterations.
    pub fn draw(&self, title: &str) -> Scene {
        residuals::draw(&Residuals {
            title,
            quantity: &self.quantity,
            subtitle: &self.subtitle,
            residuals: &self.residuals,
            true_residual: self.true_residual,
            target: self.target,
            restarts: &self.restarts,
            attempts: &self.attempts,
            converged: self.converged,
        })
    }
}

/// Draws the residuals of a solve over its iterations.
pub fn residuals(title: &str, solution: &Solution) -> Scene {
    Curve::of(solution).draw(title)
}

/// Writes a plot to a file atomically.
///
/// # Errors
/// The name ends neither in .png nor in .svg, or the file system reports an error.
pub fn write(scene: &Scene, path: &Path) -> Result<()> {
    let data = encode(scene, path)?;
    krylith_core::io::atomic::write(path, |out| out.write_all(&data))
}

/// Returns the bytes of a plot, in the format of the file name's extension.
///
/// # Errors
/// The name ends neither in .png nor in .svg, or there is not enough memory for a PNG.
pub fn encode(scene: &Scene, path: &Path) -> Result<Vec<u8>> {
    let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match ending.as_str() {
        "svg" => Ok(scene.svg().into_bytes()),
        "png" => png(scene, path),
        _ => Err(Error::invalid(format!(
            "{}: plots are PNG or SVG; give a name that ends in .png or .svg",
            name(path)
        ))),
    }
}

fn png(scene: &Scene, path: &Path) -> Result<Vec<u8>> {
    let (width, height) = (scene.width, scene.height);
    scene.png().ok_or_else(|| {
        let message =
            format!("{}: not enough memory for a PNG image of {width} by {height} units", name(path));
        Error::invalid(message + "; give a name that ends in .svg")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_the_name_says_what_is_written() {
        let a = krylith_core::matrix::Csr::from_triplets(1, 1, &[(0, 0, 2.0)]).unwrap();
        let scene = residuals("a.mtx", &krylith_core::solve(&a, &[1.0]).unwrap());
        let folder = tempfile::tempdir().unwrap();
        for (name, begins) in [("a.svg", &b"<svg"[..]), ("a.PNG", b"\x89PNG"), ("b.Svg", b"<svg")] {
            let path = folder.path().join(name);
            write(&scene, &path).unwrap();
            assert!(std::fs::read(&path).unwrap().starts_with(begins), "{name}");
        }
        for name in ["a.pdf", "png", ""] {
            let error = write(&scene, &folder.path().join(name)).unwrap_err().to_string();
            assert!(error.contains(".png or .svg"), "{error}");
        }
    }
}
