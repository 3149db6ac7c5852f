//! The text form of preconditioners of coupled systems: `split(u: P, p: Q; schur=upper, S=selfp)`,
//! `cpr(p: P; decouple=NAME)`, and inner solves `cg(P; iterations=N)` and `chebyshev(P; degree=N)`.
//!
//! In parentheses, a semicolon separates parts from settings. A part is `FIELD: PRECONDITIONER`; `a+b` names
//! a group of fields. A comma continues the parameters of a part if `key=value` follows, and else begins the
//! next part: `split(u: amg:cycle=w,degree=3, p: jacobi)` has two parts.

use super::decouple::is_matrix_name;
use super::{Decouple, PrecondSpec};
use crate::matrix::MAX_BLOCK;
use crate::names::{unknown, whole_number};
use crate::{Error, Result};
use std::fmt::{self, Display};

/// Order in which a split solves its parts.
///
/// # Examples
/// ```
/// use krylith_core::precond::SplitForm;
/// assert_eq!("multiplicative".parse::<SplitForm>()?, SplitForm::Lower);
/// assert_eq!(SplitForm::Full.to_string(), "full");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitForm {
    /// Each part alone: block Jacobi. Also named `additive` and `diag`.
    Diagonal,
    /// In the order of the parts, each with the solutions of those before: block Gauss–Seidel. Also named
    /// `multiplicative`.
    Lower,
    /// In the opposite order.
    Upper,
    /// Forwards, then backwards. Symmetric if the matrix and the parts are. Also named `symmetric`.
    Full,
    /// As `Full` with diag(A)⁻¹ in place of the second solve for the first of two fields (SIMPLE). Only with
    /// a Schur complement.
    Simple,
}

impl std::str::FromStr for SplitForm {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "diagonal" | "diag" | "additive" => Ok(Self::Diagonal),
            "lower" | "multiplicative" => Ok(Self::Lower),
            "upper" => Ok(Self::Upper),
            "full" | "symmetric" => Ok(Self::Full),
            "simple" => Ok(Self::Simple),
            _ => unknown("form of a split", text, &["diagonal", "lower", "upper", "full", "simple"]),
        }
    }
}

impl Display for SplitForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Diagonal => "diagonal",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::Full => "full",
            Self::Simple => "simple",
        })
    }
}

/// Approximation of the Schur complement S = −D − C A⁻¹ B of [[A, B], [C, −D]], which the last part of a
/// split solves with.
///
/// # Examples
/// ```
/// use krylith_core::precond::SchurSpec;
/// let mass: SchurSpec = "Mp".to_lowercase().parse()?;
/// assert_eq!(mass, SchurSpec::Matrix("mp".into()));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum SchurSpec {
    /// −D − C diag(A)⁻¹ B, assembled.
    SelfP,
    /// The same with the sums of absolute values of the rows of A instead of its diagonal.
    SelfPRows,
    /// The block −D of the matrix.
    Block,
    /// −D − C M B with the preconditioner M of the first part, column by column: for at most 512 unknowns.
    Explicit,
    /// A matrix that the caller named. Its sign may be that of S or the opposite.
    Matrix(String),
    /// The least-squares commutator −L⁻¹ (C Q⁻¹ A Q⁻¹ B) L⁻¹ with L = C Q⁻¹ B (Elman, Howle, Shadid,
    /// Shuttleworth and Tuminaro 2006). Q is the diagonal of the named matrix, or of A.
    Lsc(Option<String>),
    /// Pressure convection–diffusion, −M⁻¹ F L⁻¹ (Kay, Loghin and Wathen 2002). The names are those of F, L
    /// and M: convection–diffusion, Laplacian and mass matrix on the pressure.
    Pcd([String; 3]),
}

impl std::str::FromStr for SchurSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let name = |name: &str| match name.trim() {
            name if is_matrix_name(name) => Ok(name.to_string()),
            name => Err(Error::invalid(format!(
                "S={text}: `{name}` is not the name of a matrix; known are selfp, selfp-rows, block, explicit, \
                 lsc, lsc(Q), pcd(F, L, M), and matrices given by name"
            ))),
        };
        let call = |of: &str| text.strip_prefix(of)?.trim().strip_prefix('(')?.strip_suffix(')');
        match text {
            "selfp" => return Ok(Self::SelfP),
            "selfp-rows" => return Ok(Self::SelfPRows),
            "block" => return Ok(Self::Block),
            "explicit" => return Ok(Self::Explicit),
            "lsc" => return Ok(Self::Lsc(None)),
            _ => {}
        }
        if let Some(weight) = call("lsc") {
            return Ok(Self::Lsc(Some(name(weight)?)));
        }
        if let Some(list) = call("pcd") {
            let names = list.split(',').map(name).collect::<Result<Vec<_>>>()?;
            let three = names.try_into().map_err(|_| {
                Error::invalid(format!("S={text}: expected three matrices, such as pcd(Fp, Lp, Mp)"))
            })?;
            return Ok(Self::Pcd(three));
        }
        name(text).map(Self::Matrix)
    }
}

impl Display for SchurSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelfP => f.write_str("selfp"),
            Self::SelfPRows => f.write_str("selfp-rows"),
            Self::Block => f.write_str("block"),
            Self::Explicit => f.write_str("explicit"),
            Self::Matrix(name) => f.write_str(name),
            Self::Lsc(None) => f.write_str("lsc"),
            Self::Lsc(Some(weight)) => write!(f, "lsc({weight})"),
            Self::Pcd(names) => write!(f, "pcd({})", names.join(", ")),
        }
    }
}

/// Parameters of `split`.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{SchurSpec, SplitForm, SplitSpec};
/// let spec: PrecondSpec = "split(u: amg:cycle=w,degree=3, p: jacobi; schur=upper, S=selfp)".parse()?;
/// let PrecondSpec::Split(SplitSpec { parts, form, schur }) = &spec else { panic!() };
/// assert_eq!((parts.len(), &parts[1].0[..]), (2, "p"));
/// assert_eq!((*form, schur), (SplitForm::Upper, &Some(SchurSpec::SelfP)));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SplitSpec {
    /// Field, or fields joined with `+`, and preconditioner of each part.
    pub parts: Vec<(String, PrecondSpec)>,
    /// Order of the parts.
    pub form: SplitForm,
    /// Matrix of the last part; its own block by default.
    pub schur: Option<SchurSpec>,
}

/// Parameters of `cpr`, the first stage of a constrained pressure residual.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// let spec: PrecondSpec = "cpr(p: amg) then ildu".parse()?;
/// assert_eq!(spec.to_string(), "cpr(p: amg) then ildu");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CprSpec {
    /// The field that is solved for.
    pub field: String,
    /// Its preconditioner.
    pub precond: Box<PrecondSpec>,
    /// Decoupling from the other fields.
    pub decouple: Decouple,
}

/// Parameters of `aux`, a correction in the range of a matrix P of the caller.
///
/// # Examples
/// Quadratic elements, whose smoother is followed by a correction in the linear elements:
/// ```
/// use krylith::precond::PrecondSpec;
/// let text = "symmetric(chebyshev(jacobi; degree=3, low=0.1) then aux(p: amg; block=3))";
/// assert_eq!(text.parse::<PrecondSpec>()?.to_string(), text);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AuxSpec {
    /// Name of P.
    pub matrix: String,
    /// Preconditioner of RAP.
    pub precond: Box<PrecondSpec>,
    /// Number of unknowns per node of RAP.
    pub block: usize,
    /// Name of R, with a row for each column of P; by default R is Pᵀ.
    pub restriction: Option<String>,
}

/// Method of an inner solve with a fixed number of iterations.
///
/// # Examples
/// ```
/// use krylith_core::precond::InnerMethod;
/// assert_eq!(InnerMethod::Cg.name(), "cg");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InnerMethod {
    /// Flexible conjugate gradients. The outer method must be flexible too.
    Cg,
    /// The Chebyshev polynomial of the whole spectrum, which is estimated at set-up. It is linear.
    Chebyshev,
}

impl InnerMethod {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cg => "cg",
            Self::Chebyshev => "chebyshev",
        }
    }

    /// Returns the key of its number of iterations, and the default.
    fn key(self) -> (&'static str, usize) {
        match self {
            Self::Cg => ("iterations", 10),
            Self::Chebyshev => ("degree", 5),
        }
    }
}

/// Parameters of an inner solve.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// let spec: PrecondSpec = "chebyshev(jacobi; degree=5)".parse()?;
/// assert_eq!(spec.to_string(), "chebyshev(jacobi)"); // the default degree
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct InnerSpec {
    /// The method.
    pub method: InnerMethod,
    /// Its preconditioner.
    pub precond: Box<PrecondSpec>,
    /// Number of iterations: products with the matrix and applications of the preconditioner.
    pub iterations: usize,
    /// Lower end of the interval of a Chebyshev polynomial, as a share of its upper end; the whole spectrum
    /// by default. A smoother has a share of 0.1 to 0.3.
    pub low: Option<f64>,
}

/// Largest number of inner iterations; a higher one is a mistake.
const MOST_INNER: usize = 1000;

/// Pieces of text between separators that stand outside parentheses.
fn pieces(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut start, mut all) = (0i32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            c if c == separator && depth == 0 => {
                all.push(text[start..at].trim());
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    all.push(text[start..].trim());
    all
}

/// Returns the parts and the settings of the text in parentheses.
fn halves<'t>(name: &str, inside: &'t str) -> Result<(&'t str, Vec<(&'t str, &'t str)>)> {
    let halves = pieces(inside, ';');
    let [parts, settings @ ..] = &halves[..] else { return Ok(("", Vec::new())) };
    if settings.len() > 1 {
        return Err(Error::invalid(format!(
            "{name}({inside}): one `;` at most separates parts from settings"
        )));
    }
    let settings =
        settings.first().filter(|text| !text.is_empty()).map_or(Vec::new(), |text| pieces(text, ','));
    let settings = settings.into_iter().map(|setting| {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            Error::invalid(format!("{name}({inside}): the setting `{setting}` is not key=value"))
        })?;
        Ok((key.trim(), value.trim()))
    });
    let settings = settings.collect::<Result<Vec<_>>>()?;
    match settings.iter().enumerate().find(|(i, (key, _))| settings[..*i].iter().any(|other| other.0 == *key))
    {
        Some((_, (key, _))) => Err(Error::invalid(format!("{name}({inside}): `{key}` is given twice"))),
        None => Ok((parts, settings)),
    }
}

/// Returns the label and the preconditioner of each part.
fn labelled(name: &str, text: &str) -> Result<Vec<(String, PrecondSpec)>> {
    // Text of each part: label and preconditioner.
    let mut parts: Vec<(String, String)> = Vec::new();
    for piece in pieces(text, ',') {
        let begins = piece.find([':', '=']).filter(|&at| piece[at..].starts_with(':'));
        match (begins, parts.last_mut()) {
            (None, Some((_, last))) if piece.contains('=') || piece == "deterministic" => {
                *last += &format!(",{piece}");
            }
            (Some(at), _) => {
                let label: Vec<&str> = piece[..at].split('+').map(str::trim).collect();
                parts.push((label.join("+"), piece[at + 1..].trim().into()));
            }
            _ => {
                return Err(Error::invalid(format!(
                    "{name}({text}): `{piece}` is not FIELD: PRECONDITIONER, such as u: amg"
                )));
            }
        }
    }
    let parsed = parts.into_iter().map(|(label, text)| match &text[..] {
        // The identity of a part of a split: for a few unknowns that no diagonal entry scales.
        "none" if name == "split" => Ok((label, PrecondSpec::None)),
        "" | "auto" | "none" => Err(Error::invalid(format!(
            "{name}: the part of `{label}` needs a preconditioner by name, such as jacobi, ildu or amg"
        ))),
        text => Ok((label, text.parse::<PrecondSpec>()?)),
    });
    parsed.collect()
}

/// Parses `split`, `cpr` and inner solves; `None` for other text.
pub(super) fn parse(text: &str) -> Option<Result<PrecondSpec>> {
    let (name, rest) = text.split_once('(')?;
    let inside = rest.strip_suffix(')')?;
    match name.trim_end() {
        "split" => Some(split(inside).map(PrecondSpec::Split)),
        "cpr" => Some(cpr(inside).map(PrecondSpec::Cpr)),
        "aux" => Some(aux(inside).map(PrecondSpec::Aux)),
        "stage" => Some(stage(inside)),
        "fieldsplit" => {
            Some(Err(Error::invalid(format!("unknown preconditioner `fieldsplit`; write split({inside})"))))
        }
        "cg" => Some(inner(InnerMethod::Cg, inside).map(PrecondSpec::Inner)),
        "chebyshev" => Some(inner(InnerMethod::Chebyshev, inside).map(PrecondSpec::Inner)),
        _ => None,
    }
}

fn split(inside: &str) -> Result<SplitSpec> {
    let (parts, settings) = halves("split", inside)?;
    let parts = labelled("split", parts)?;
    if parts.len() < 2 {
        return Err(Error::invalid(format!(
            "split({inside}): expected two parts or more, one for each field"
        )));
    }
    let (mut form, mut schur) = (None, None);
    for (key, value) in settings {
        match key {
            "form" | "schur" if form.is_some() => {
                return Err(Error::invalid(format!(
                    "split({inside}): `form` and `schur` say the same; give one"
                )));
            }
            "form" => form = Some(value.parse::<SplitForm>()?),
            "schur" => {
                form = Some(value.parse::<SplitForm>()?);
                schur = schur.or(Some(SchurSpec::SelfP));
            }
            "s" => schur = Some(value.parse::<SchurSpec>()?),
            _ => return unknown("setting of split", key, &["form", "schur", "S"]),
        }
    }
    if schur.is_some() && parts.len() != 2 {
        return Err(Error::invalid(format!(
            "split({inside}): a Schur complement needs two parts; join fields with `+`, as in u+v: split(…)"
        )));
    }
    if form == Some(SplitForm::Simple) && schur.is_none() {
        return Err(Error::invalid(format!(
            "split({inside}): the form simple needs a Schur complement; write schur=simple, S=selfp"
        )));
    }
    let form = form.unwrap_or(if schur.is_some() { SplitForm::Upper } else { SplitForm::Lower });
    Ok(SplitSpec { parts, form, schur })
}

fn cpr(inside: &str) -> Result<CprSpec> {
    let (parts, settings) = halves("cpr", inside)?;
    let mut parts = labelled("cpr", parts)?;
    let (Some((field, precond)), true) = (parts.pop(), parts.is_empty()) else {
        return Err(Error::invalid(format!("cpr({inside}): expected one field, such as cpr(p: amg)")));
    };
    let mut decouple = Decouple::default();
    for (key, value) in settings {
        match key {
            "decouple" => decouple = value.parse()?,
            _ => return unknown("setting of cpr", key, &["decouple"]),
        }
    }
    Ok(CprSpec { field, precond: Box::new(precond), decouple })
}

fn stage(inside: &str) -> Result<PrecondSpec> {
    let of: PrecondSpec = inside.parse()?;
    match of {
        PrecondSpec::Auto | PrecondSpec::None | PrecondSpec::Stage(_) | PrecondSpec::Stages(_) => {
            Err(Error::invalid(format!(
                "stage({inside}): expected the preconditioner of one stage, such as stage(amg)"
            )))
        }
        of => Ok(PrecondSpec::Stages(Box::new(of))),
    }
}

fn aux(inside: &str) -> Result<AuxSpec> {
    let (parts, settings) = halves("aux", inside)?;
    let mut parts = labelled("aux", parts)?;
    let (Some((matrix, precond)), true) = (parts.pop(), parts.is_empty()) else {
        return Err(Error::invalid(format!("aux({inside}): expected one matrix, such as aux(P: amg)")));
    };
    let (mut block, mut restriction) = (1, None);
    for (key, value) in settings {
        match key {
            "block" => {
                block = whole_number(value, 1, MAX_BLOCK)
                    .map_err(|e| Error::invalid(format!("aux: block={value}: {e}")))?;
            }
            "r" if value.is_empty() => {
                return Err(Error::invalid("aux: R=: expected the name of a matrix"));
            }
            "r" => restriction = Some(value.to_string()),
            _ => return unknown("setting of aux", key, &["block", "R"]),
        }
    }
    Ok(AuxSpec { matrix, precond: Box::new(precond), block, restriction })
}

fn inner(method: InnerMethod, inside: &str) -> Result<InnerSpec> {
    let (name, (known, mut iterations)) = (method.name(), method.key());
    let (precond, settings) = halves(name, inside)?;
    let precond = match precond {
        "" | "auto" | "none" => {
            return Err(Error::invalid(format!(
                "{name}({inside}): name its preconditioner, such as {name}(jacobi)"
            )));
        }
        text => Box::new(text.parse()?),
    };
    let mut low = None;
    for (key, value) in settings {
        match key {
            key if key == known => {
                iterations = whole_number(value, 1, MOST_INNER)
                    .map_err(|e| Error::invalid(format!("{name}: {key}={value}: {e}")))?;
            }
            "low" if method == InnerMethod::Chebyshev => {
                let share = value.parse().ok().filter(|share: &f64| *share > 0.0 && *share < 1.0);
                low = Some(share.ok_or_else(|| {
                    Error::invalid(format!(
                        "{name}: low={value}: expected a number between 0 and 1, such as 0.1"
                    ))
                })?);
            }
            _ if method == InnerMethod::Chebyshev => {
                return unknown("setting of chebyshev", key, &[known, "low"]);
            }
            _ => return unknown(&format!("setting of {name}"), key, &[known]),
        }
    }
    Ok(InnerSpec { method, precond, iterations, low })
}

impl Display for SplitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.parts.iter().map(|(label, precond)| format!("{label}: {precond}")).collect();
        write!(f, "split({}; ", parts.join(", "))?;
        match &self.schur {
            Some(schur) => write!(f, "schur={}, S={schur})", self.form),
            None => write!(f, "form={})", self.form),
        }
    }
}

impl Display for CprSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, precond, decouple } = self;
        match *decouple == Decouple::default() {
            true => write!(f, "cpr({field}: {precond})"),
            false => write!(f, "cpr({field}: {precond}; decouple={decouple})"),
        }
    }
}

impl Display for AuxSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = (self.block != 1).then(|| format!("block={}", self.block));
        let restriction = self.restriction.iter().map(|name| format!("R={name}"));
        let settings: Vec<String> = block.into_iter().chain(restriction).collect();
        match settings.is_empty() {
            true => write!(f, "aux({}: {})", self.matrix, self.precond),
            false => write!(f, "aux({}: {}; {})", self.matrix, self.precond, settings.join(", ")),
        }
    }
}

impl Display for InnerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, (key, default)) = (self.method.name(), self.method.key());
        let iterations = (self.iterations != default).then(|| format!("{key}={}", self.iterations));
        let settings: Vec<String> =
            iterations.into_iter().chain(self.low.map(|low| format!("low={low}"))).collect();
        match settings.is_empty() {
            true => write!(f, "{name}({})", self.precond),
            false => write!(f, "{name}({}; {})", self.precond, settings.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_are_read_as_printed() {
        for text in [
            "split(u: amg, p: jacobi; form=lower)",
            "split(u: amg:cycle=w,coarsen=smoothed, p: chebyshev(jacobi; degree=3); schur=upper, S=mp)",
            "split(u+v: split(u: ildu, v: ildu; form=full), p: lu; schur=full, S=lsc(q))",
            "split(u: ras:deterministic, p: amg; schur=diagonal, S=pcd(f, l, m))",
            "split(u+p: split(u: amg, p: jacobi; schur=upper, S=selfp), m: none; form=diagonal)",
            "cpr(p: amg; decouple=row-sums) then ildu",
            "cg(amg; iterations=8)",
            "symmetric(jacobi then chebyshev(jacobi))",
            "symmetric(chebyshev(jacobi; degree=2, low=0.25) then aux(g: amg) then aux(pi: amg; block=3))",
        ] {
            let spec: PrecondSpec = text.parse().unwrap();
            let printed = spec.to_string();
            assert_eq!(printed.parse::<PrecondSpec>().unwrap(), spec, "{text}: {printed}");
        }
        let short: PrecondSpec = "split( u : amg , p : jacobi ; S = selfp )".parse().unwrap();
        assert_eq!(short.to_string(), "split(u: amg, p: jacobi; schur=upper, S=selfp)");
        let short: PrecondSpec = "split(u: amg, p: jacobi; schur=full)".parse().unwrap();
        assert_eq!(short.to_string(), "split(u: amg, p: jacobi; schur=full, S=selfp)");
    }

    #[test]
    fn wrong_text_is_refused_with_the_place() {
        let refused = |text: &str| text.parse::<PrecondSpec>().unwrap_err().to_string();
        assert!(refused("split(u: amg)").contains("two parts or more"));
        assert!(refused("split(amg, p: jacobi)").contains("`amg` is not FIELD: PRECONDITIONER"));
        assert!(refused("split(u: amg, p: auto)").contains("the part of `p` needs a preconditioner"));
        assert!(refused("aux(p: none)").contains("the part of `p` needs a preconditioner"));
        assert!(refused("split(u: amg, p: jacobi; form=lower; S=a)").contains("one `;` at most"));
        assert!(refused("split(u: amg, p: jacobi; lower)").contains("`lower` is not key=value"));
        assert!(refused("split(u: amg, p: jacobi; S=3)").contains("`3` is not the name of a matrix"));
        assert!(refused("split(u: amg, p: jacobi; S=pcd(a, b))").contains("three matrices"));
        assert!(refused("split(u: amg, v: amg, p: jacobi; S=selfp)").contains("needs two parts"));
        assert!(refused("split(u: amg, p: jacobi; S=a, S=b)").contains("`s` is given twice"));
        assert!(refused("cpr(p: amg, u: amg)").contains("expected one field"));
        assert!(refused("cg(none)").contains("name its preconditioner"));
        assert!(refused("chebyshev(jacobi; degree=0)").contains("degree=0"));
        assert!(refused("chebyshev(jacobi; low=1)").contains("between 0 and 1"));
        assert!(refused("aux(amg)").contains("`amg` is not FIELD: PRECONDITIONER"));
        assert!(refused("aux(p: amg; block=9)").contains("block=9"));
    }
}
