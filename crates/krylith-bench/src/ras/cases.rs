//! The problems of the paper that `ras/mod.rs` names, and the variants that solve each of their linear
//! systems.

use super::newton::{Step, Taking, steps};
use super::plan::Shape;
use crate::launch::{Launch, of_first};
use krylith_core::Result;
use krylith_core::comm::agree;

/// A problem of the paper with the paper's linear solver.
///
/// The paper's text omits the tolerances and overlap of the cavity and the ventricle, and the ventricle's
/// fill; they are chosen here. For the cavity, FGMRES takes some hundred iterations, as in the paper. For the
/// ventricle, the fill is large enough for a solution: with ILU(0) and ILU(1) on four parts, FGMRES stagnates
/// at the paper's size, whichever library factorises. Parts correspond to the GPUs of the paper: the share of
/// one of its GPUs is one subdomain here.
pub(crate) struct Setting {
    /// Name of the part of the suite.
    pub name: &'static str,
    pub shape: Shape,
    /// The restart m of FGMRES(m).
    pub restart: usize,
    pub rtol: f64,
    /// Newton steps whose systems are solved, numbered from 1.
    pub newton: std::ops::Range<usize>,
    /// Number of time steps that are solved first.
    pub time_steps: usize,
    /// Level of fill of the linear solves between Newton steps.
    pub fill_between: usize,
    /// The paper's speed-ups over PB-RAS on as many cores, and over cuSPARSE's.
    pub paper: [f64; 2],
}

/// 600², Re 1, FGMRES(30), ILU(1), on 4 GPUs.
pub(crate) const CAVITY_600: Setting = Setting {
    name: "cavity600",
    shape: Shape { parts: 4, overlap: 1, fill: 1 },
    restart: 30,
    rtol: 1e-3,
    newton: 1..4,
    time_steps: 0,
    fill_between: 3,
    paper: [15.0, 4.6],
};

/// 1200², Re 10, FGMRES(100), ILU(2), on 8 GPUs.
pub(crate) const CAVITY_1200: Setting = Setting {
    name: "cavity1200",
    shape: Shape { parts: 8, overlap: 1, fill: 2 },
    restart: 100,
    paper: [13.0, 2.0],
    ..CAVITY_600
};

/// The second Newton step of the third time step, FGMRES(100).
pub(crate) const VENTRICLE: Setting = Setting {
    name: "ventricle",
    shape: Shape { parts: 4, overlap: 1, fill: 3 },
    restart: 100,
    rtol: 1e-6,
    newton: 2..3,
    time_steps: 2,
    paper: [13.9, 0.94],
    ..CAVITY_600
};

/// FGMRES(200), overlap 1, ILU(2), relative tolerance 1e-4, from 8 GPUs on.
pub(crate) const ARTERY: Setting = Setting {
    name: "artery",
    shape: Shape { parts: 8, overlap: 1, fill: 2 },
    restart: 200,
    rtol: 1e-4,
    newton: 2..3,
    time_steps: 0,
    fill_between: 2,
    paper: [15.1, 6.3],
};

impl Setting {
    /// Returns the problem's text, with `scale` times the paper's nodes.
    pub fn spec(&self, scale: f64) -> String {
        let side = |n: f64| ((n * scale.sqrt()).round() as usize).max(8);
        match self.name {
            "cavity600" => format!("cavity:{0}x{0},re=1", side(600.0)),
            "cavity1200" => format!("cavity:{0}x{0},re=10", side(1200.0)),
            // Without sheets, as when bench/runs were measured.
            "ventricle" => {
                format!("ventricle:{},as=0,afs=0", ((TETRAHEDRA * scale).round() as usize).max(1000))
            }
            _ => format!("artery:{}", ((NODES * scale).round() as usize).max(500)),
        }
    }
}

/// Number of nodes of the paper's artery.
const NODES: f64 = 1_497_225.0;
/// Number of tetrahedra of the ventricle; the paper's text omits it. They give a million unknowns, as in the
/// smaller cavity.
const TETRAHEDRA: f64 = 2e6;

/// A setting with its linear systems.
pub(crate) struct Case {
    pub setting: &'static Setting,
    pub spec: String,
    pub coordinates: Option<Vec<[f64; 3]>>,
    pub steps: Vec<Step>,
}

impl Case {
    /// Solves the steps before the required systems.
    ///
    /// # Errors
    /// Returns an error if a problem cannot be created, or if a Newton step fails.
    pub fn new(
        setting: &'static Setting,
        spec: &str,
        device: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let mut problem = krylith_problems::nonlinear::by_text(spec)?;
        let coordinates = problem.coordinates().map(<[_]>::to_vec);
        let mut x = problem.initial();
        // Solve to a tight tolerance; if it is not reached, continue with the best solution if it reduces
        // ‖F‖.
        let Shape { parts, overlap, .. } = setting.shape;
        let linear = |rtol: f64| {
            format!(
                "method=fgmres:restart={} precond=ras:overlap={overlap},parts={parts},fill={} {device} \
                 rtol={rtol:e} max_iters=3000",
                setting.restart.max(100),
                setting.fill_between
            )
        };
        for time_step in 1..=setting.time_steps {
            progress(&format!("{spec}: time step {time_step}"));
            let how = Taking { linear: &linear(1e-6), keep: 0..0, end: 1e-8 };
            steps(&mut *problem, &mut x, &how, progress)?;
            if !problem.next_step(&mut x)? {
                break;
            }
        }
        progress(&format!("{spec}: Newton steps whose systems are solved"));
        let how = Taking { linear: &linear(1e-8), keep: setting.newton.clone(), end: 1e-11 };
        let steps = steps(&mut *problem, &mut x, &how, progress)?;
        if steps.is_empty() {
            return Err(krylith_core::Error::invalid(format!(
                "{spec}: Newton's method ends before step {}",
                setting.newton.start
            )));
        }
        Ok(Self { setting, spec: problem.spec().to_string(), coordinates, steps })
    }

    pub fn rows(&self) -> usize {
        self.steps[0].jacobian.block_rows()
    }
}

/// Returns the systems of rank 0 on every rank: Newton's steps end at other bits on other processes.
/// Collective.
///
/// # Errors
/// Returns an error if a rank could not make its case.
pub(crate) fn common(launch: &Launch, case: Result<Case>) -> Result<Case> {
    let Some(comm) = launch.comm() else { return case };
    let mut case = agree(&**comm, case)?;
    for step in &mut case.steps {
        step.rhs = of_first(&**comm, &step.rhs)?;
        let values = of_first(&**comm, step.jacobian.values())?;
        step.jacobian.values_mut().copy_from_slice(&values);
    }
    Ok(case)
}

/// Kind of an algorithm, for tables and figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Exact RAS on one core: PB-RAS_C.
    OneCore,
    /// Exact RAS by the vendor's library: PB-RAS_G.
    Vendor,
    /// Exact RAS by Krylith.
    Exact,
    /// Randomized factors, Jacobi sweeps: PB-R(ilu)-RAS.
    Jacobi,
    /// Randomized factors and sweeps: PB-R-RAS.
    Random,
    /// Exact factors with another triangular solve.
    Ras,
    /// RAS with a second level: the coarse levels of algebraic multigrid.
    TwoLevel,
    /// Another preconditioner.
    Other,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::OneCore => "one-core",
            Kind::Vendor => "vendor",
            Kind::Exact => "exact",
            Kind::Jacobi => "jacobi",
            Kind::Random => "random",
            Kind::Ras => "ras",
            Kind::TwoLevel => "two-level",
            Kind::Other => "other",
        }
    }
}

/// One algorithm with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Way {
    pub name: String,
    pub kind: Kind,
    /// Method and preconditioner, as options.
    pub text: String,
    /// Sweeps of the factorisation and of the triangular solves, and rows per warp, if the variant has them.
    pub sweeps: Option<[usize; 3]>,
}

impl Way {
    fn ras(setting: &Setting, kind: Kind, name: String, words: &str, sweeps: Option<[usize; 3]>) -> Self {
        let Shape { parts, overlap, fill } = setting.shape;
        let restart = setting.restart;
        let text = format!(
            "method=fgmres:restart={restart} precond=ras:overlap={overlap},parts={parts},fill={fill},{words}"
        );
        Self { name, kind, text, sweeps }
    }

    /// Returns RAS with exact factors and solves, on a GPU or on all cores.
    pub fn exact(setting: &Setting) -> Self {
        let name = "PB-RAS, Krylith's".into();
        Self::ras(setting, Kind::Exact, name, "factor=exact,solve=exact", None)
    }

    /// Returns exact RAS on one core.
    pub fn one_core(setting: &Setting) -> Self {
        Self { name: "PB-RAS, one core".into(), kind: Kind::OneCore, ..Self::exact(setting) }
    }

    /// Returns PB-R(ilu)-RAS or PB-R-RAS.
    pub fn random(setting: &Setting, kind: Kind, [eta, gamma, rows]: [usize; 3]) -> Self {
        let (title, solve) = match kind {
            Kind::Jacobi => ("PB-R(ilu)-RAS", "jacobi"),
            _ => ("PB-R-RAS", "random"),
        };
        let name = format!("{title}, η {eta}, γ {gamma}, f_dp {rows}");
        let words = format!("factor=random,eta={eta},solve={solve},gamma={gamma},fdp={rows}");
        Self::ras(setting, kind, name, &words, Some([eta, gamma, rows]))
    }

    /// Returns exact factors with the default solves of `ras`.
    pub fn default(setting: &Setting) -> Self {
        Self::ras(setting, Kind::Ras, "RAS as ras takes it".into(), "factor=exact,solve=auto", None)
    }

    /// Returns exact factors with randomized solves.
    pub fn ours(setting: &Setting, [gamma, rows]: [usize; 2]) -> Self {
        let name = format!("exact factors, Alg. 3, γ {gamma}, f_dp {rows}");
        let words = format!("factor=exact,solve=random,gamma={gamma},fdp={rows}");
        Self::ras(setting, Kind::Ras, name, &words, None)
    }

    /// Returns RAS with the default solves and a second level: added, or before it.
    pub fn two_level(setting: &Setting) -> [Self; 2] {
        let one = Self::default(setting);
        let (method, ras) = one.text.split_once(" precond=").unwrap_or((&one.text, "ras"));
        let of = |name: &str, precond: String| Self {
            name: name.into(),
            kind: Kind::TwoLevel,
            text: format!("{method} precond={precond}"),
            sweeps: None,
        };
        [of("RAS + coarse", format!("{ras} + coarse")), of("coarse then RAS", format!("coarse then {ras}"))]
    }

    /// Returns the other preconditioners.
    pub fn others(setting: &Setting) -> Vec<Self> {
        let other = |name: &str, text: &str| Self {
            name: name.into(),
            kind: Kind::Other,
            text: text.into(),
            sweeps: None,
        };
        let [added, before] = Self::two_level(setting);
        vec![
            Self::default(setting),
            added,
            before,
            Self::ours(setting, [3, 8]),
            Self::ours(setting, [5, 8]),
            Self::ours(setting, [5, 16]),
            other("ILDU(0), BiCGSTAB", "method=bicgstab precond=ildu"),
            other("point-block Jacobi, BiCGSTAB", "method=bicgstab precond=jacobi"),
            other("auto", "method=auto precond=auto"),
        ]
    }
}

/// Returns all variants of a setting: with some of the paper's parameters, or with all of them.
pub(crate) fn ways(setting: &Setting, full: bool) -> Vec<Way> {
    let mut all = vec![Way::exact(setting)];
    let (etas, gammas, rows): (Vec<usize>, Vec<usize>, Vec<usize>) = match (setting.name, full) {
        ("cavity600", false) => (vec![3, 5, 8], vec![5, 8, 10], vec![8]),
        ("cavity600", true) => ((1..=8).collect(), vec![5, 8, 10], vec![8]),
        ("cavity1200", _) => (vec![8], vec![10, 15, 20], vec![8, 16, 32]),
        ("ventricle", false) => (vec![5, 8], vec![5, 6, 8], vec![8]),
        ("ventricle", true) => (vec![3, 5, 8, 10], (3..=10).collect(), vec![8]),
        (_, false) => (vec![8], vec![5, 8, 10], vec![8]),
        (_, true) => (vec![8], (5..=10).collect(), vec![8]),
    };
    for kind in [Kind::Jacobi, Kind::Random] {
        for &eta in &etas {
            // With Jacobi sweeps, the rows per warp change only the factors.
            let rows = if kind == Kind::Jacobi { &rows[..1] } else { &rows[..] };
            for &rows in rows {
                all.extend(gammas.iter().map(|&gamma| Way::random(setting, kind, [eta, gamma, rows])));
            }
        }
    }
    all.extend(Way::others(setting));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names_of_their_own() {
        for setting in [&CAVITY_600, &CAVITY_1200, &VENTRICLE, &ARTERY] {
            for full in [false, true] {
                let names: Vec<String> = ways(setting, full).into_iter().map(|way| way.name).collect();
                for (i, name) in names.iter().enumerate() {
                    assert!(!names[..i].contains(name), "{name}");
                }
            }
        }
        for way in Way::two_level(&ARTERY) {
            let options: krylith_core::Options = way.text.parse().unwrap();
            let precond = options.precond.unwrap().to_string();
            assert!(precond.contains("coarse") && precond.contains("ras:"), "{precond}");
        }
        assert_eq!(CAVITY_600.spec(0.0016), "cavity:24x24,re=1");
        assert_eq!(CAVITY_1200.spec(1.0), "cavity:1200x1200,re=10");
    }
}
