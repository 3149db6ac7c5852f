//! Builds combinations of two preconditioners, and updates their values.

use super::{Boxed, PrecondInfo, Preconditioner, SharedOperator, Value};
use crate::Result;
use crate::comm::agree;
use crate::operator::{TermValues, Terms};
use crate::precond::{Additive, Multiplicative, PrecondSpec};
use crate::solver::SolverSpace;

/// A preconditioner and its description.
type Part<S> = (Box<dyn Preconditioner<S>>, PrecondInfo);

/// Builds the combination `wanted` of two preconditioners. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    wanted: &PrecondSpec,
    [(first, one), (second, two)]: [Part<S>; 2],
    a: &SharedOperator<S>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let (comm, mut info) = (space.comm(), one.with(two, wanted));
    let p: Box<dyn Preconditioner<S>> = match wanted {
        PrecondSpec::Sum(_) => Box::new(agree(comm, Additive::new(space, first, second))?),
        PrecondSpec::Symmetric(_) => {
            let mut p = agree(comm, Multiplicative::undamped(space, first, second, a.clone()))?;
            p.update_damping(space)?;
            if let Some(omega) = p.damping().filter(|omega| *omega < 1.0) {
                info.parameters.push(("damping".into(), Value::Number(omega)));
                info.details.push(format!("the first component is damped by a factor of {omega:.3}"));
            }
            Box::new(p)
        }
        _ => Box::new(agree(comm, Multiplicative::new(space, first, second, a.clone()))?),
    };
    Ok((Some(p), info))
}

impl PrecondInfo {
    /// Combines the descriptions of both parts of the combination `wanted`.
    fn with(self, other: Self, wanted: &PrecondSpec) -> Self {
        let part = |name: &str, parameters: Vec<(String, Value)>| {
            let name = ("name".to_string(), Value::Text(name.into()));
            Value::Parameters(parameters.into_iter().chain([name]).collect())
        };
        let parameters = vec![
            ("first".to_string(), part(&self.name, self.parameters)),
            ("second".into(), part(&other.name, other.parameters)),
        ];
        let (first, second) = ((self.name, self.text), (other.name, other.text));
        let (name, text) = match wanted {
            PrecondSpec::Sum(_) => (first.0 + "+" + &second.0, first.1 + " + " + &second.1),
            PrecondSpec::Symmetric(_) => (
                format!("symmetric({} then {})", first.0, second.0),
                format!("{}, then {}, then the first again", first.1, second.1),
            ),
            _ => (first.0 + " then " + &second.0, first.1 + ", then " + &second.1),
        };
        let then = matches!(wanted, PrecondSpec::Multiplicative(_));
        Self {
            name,
            parameters,
            numbers: self.numbers + other.numbers,
            matrix: self.matrix + other.matrix,
            text,
            details: [self.details, other.details].concat(),
            reason: String::new(),
            keeps_symmetry: !then && self.keeps_symmetry && other.keeps_symmetry,
        }
    }
}

impl<S: SolverSpace> Preconditioner<S>
    for Additive<S, Box<dyn Preconditioner<S>>, Box<dyn Preconditioner<S>>>
{
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        self.first_mut().update_values(space, terms, values)?;
        self.second_mut().update_values(space, terms, values)
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        self.first_mut().prepare_transpose(space, terms)?;
        self.second_mut().prepare_transpose(space, terms)
    }
    fn take_events(&mut self) -> Vec<String> {
        [self.first_mut().take_events(), self.second_mut().take_events()].concat()
    }
}

/// The operator inside is shared with the solver, which updates its values.
impl<S: SolverSpace> Preconditioner<S>
    for Multiplicative<S, Box<dyn Preconditioner<S>>, Box<dyn Preconditioner<S>>, SharedOperator<S>>
{
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        let mut parts = || {
            self.first_mut().update_values(space, terms, values)?;
            self.second_mut().update_values(space, terms, values)
        };
        let updated = parts();
        match self.damping() {
            None => updated,
            Some(_) => {
                agree(space.comm(), updated)?;
                self.update_damping(space)
            }
        }
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        self.operator_mut().borrow_mut().prepare_transpose(space, terms)?;
        self.first_mut().prepare_transpose(space, terms)?;
        self.second_mut().prepare_transpose(space, terms)
    }
    fn take_events(&mut self) -> Vec<String> {
        [self.first_mut().take_events(), self.second_mut().take_events()].concat()
    }
}
