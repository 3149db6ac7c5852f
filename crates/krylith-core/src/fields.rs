//! Fields: named parts of the unknowns, such as velocity and pressure, and matrices that the caller gives by
//! name.
//!
//! Preconditioners of coupled systems (`split`, `cpr`) treat each field on its own. A field lists its
//! unknowns as numbers of scalar rows, so it works with any block size and any order. Names do not depend on
//! case, because preconditioners are written without case.

mod joined;
mod order;

use crate::matrix::Csr;
use crate::precond::NearNull;
use crate::text::count;
use crate::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// A named part of the unknowns of a system.
///
/// # Examples
/// ```
/// use krylith::{Field, Options, Problem, Solver, matrix::Csr};
/// // Two velocities and a pressure.
/// let entries = [(0, 0, 2.0), (0, 2, 1.0), (1, 1, 2.0), (1, 2, 1.0), (2, 0, 1.0), (2, 1, 1.0)];
/// let a = Csr::from_triplets(3, 3, &entries)?;
/// let problem = Problem::csr(&a)?.with_fields(vec![Field::range("u", 0..2), Field::range("p", 2..3)])?;
/// let options: Options = "precond=split(u: jacobi, p: jacobi; S=selfp) device=cpu".parse()?;
/// let mut x = [0.0; 3];
/// assert!(Solver::new(&problem, &options)?.solve(&[3.0, 3.0, 2.0], &mut x)?.converged());
/// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    name: String,
    unknowns: Arc<[u32]>,
    block: usize,
    near: Arc<[Vec<f64>]>,
    coordinates: Option<Arc<[[f64; 3]]>>,
}

impl Field {
    /// Creates a field from the numbers of its unknowns, in the order in which its block of the matrix is
    /// formed. Unknowns of a node that are contiguous in this order may form [blocks](Self::in_blocks).
    pub fn new(name: &str, unknowns: impl Into<Vec<u32>>) -> Self {
        let unknowns: Vec<u32> = unknowns.into();
        let name = name.to_ascii_lowercase();
        Self { name, unknowns: unknowns.into(), block: 1, near: [].into(), coordinates: None }
    }

    /// Creates a field of consecutive unknowns.
    pub fn range(name: &str, unknowns: Range<usize>) -> Self {
        Self::new(name, unknowns.map(|i| i as u32).collect::<Vec<_>>())
    }

    /// Creates a field of every `step`th unknown of a range, such as the pressure of interleaved `u, v, w,
    /// p`.
    pub fn strided(name: &str, unknowns: Range<usize>, step: usize) -> Self {
        Self::new(name, unknowns.step_by(step.max(1)).map(|i| i as u32).collect::<Vec<_>>())
    }

    /// Returns the field with this number of unknowns per node. They are contiguous in the order of the
    /// field.
    pub fn in_blocks(self, block: usize) -> Self {
        Self { block, ..self }
    }

    /// Returns the field with near-null vectors of its block of the matrix, such as rigid motions, for `amg`.
    /// Each is as long as the field.
    pub fn with_near_null_vectors(self, vectors: Vec<Vec<f64>>) -> Self {
        Self { near: vectors.into(), ..self }
    }

    /// Returns the field with coordinates of its nodes, one point per node.
    pub fn with_coordinates(self, points: Vec<[f64; 3]>) -> Self {
        Self { coordinates: Some(points.into()), ..self }
    }

    /// Returns the field with the rigid motions of an elastic body as near-null vectors. It needs blocks of 2
    /// or 3 displacements and coordinates.
    ///
    /// # Errors
    /// No coordinates; another number of unknowns per node.
    pub fn with_rigid_modes(self) -> Result<Self> {
        let points = self.coordinates.as_deref();
        let modes = points.and_then(|points| NearNull::rigid(self.block, points.to_vec()));
        match modes {
            Some(modes) => Ok(self.with_near_null_vectors(modes.vectors())),
            None => Err(Error::invalid(format!(
                "field `{}`: rigid modes need coordinates, and blocks of 2 or 3 displacements; the block size is {}",
                self.name, self.block
            ))),
        }
    }

    /// Returns the name, in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the numbers of its unknowns.
    pub fn unknowns(&self) -> &[u32] {
        &self.unknowns
    }

    /// Returns the number of unknowns per node.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Returns the field with each unknown renumbered.
    #[doc(hidden)]
    pub fn renumbered(self, number: impl Fn(usize) -> usize) -> Self {
        let unknowns = self.unknowns.iter().map(|&i| number(i as usize) as u32).collect();
        Self { unknowns, ..self }
    }

    /// Returns the field with only these of its unknowns; they are whole blocks.
    pub(crate) fn restricted(&self, places: &[usize]) -> Self {
        let unknowns = places.iter().map(|&place| self.unknowns[place]).collect();
        let near = self.near.iter().map(|v| places.iter().map(|&place| v[place]).collect());
        let nodes = || places.iter().step_by(self.block).map(|place| place / self.block);
        let coordinates = self.coordinates.as_ref().map(|points| nodes().map(|node| points[node]).collect());
        Self { name: self.name.clone(), unknowns, block: self.block, near: near.collect(), coordinates }
    }

    /// Returns the near-null vectors, if there are any.
    ///
    /// # Errors
    /// As [`NearNull::new`].
    pub(crate) fn near(&self) -> Result<Option<NearNull>> {
        if self.near.is_empty() { Ok(None) } else { NearNull::new(&self.near).map(Some) }
    }

    pub(crate) fn coordinates(&self) -> Option<&[[f64; 3]]> {
        self.coordinates.as_deref()
    }

    /// Checks the field by itself.
    fn check(&self) -> Result<()> {
        let (name, n, b) = (&self.name, self.unknowns.len(), self.block);
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !letters || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(Error::invalid(format!(
                "field `{name}`: a name starts with a letter and has letters, digits and underscores only"
            )));
        }
        if n == 0 {
            return Err(Error::invalid(format!("field `{name}` has no unknowns; leave it out")));
        }
        if b == 0 || !n.is_multiple_of(b) {
            return Err(Error::invalid(format!(
                "field `{name}` has {} unknowns, which do not form blocks of {b}",
                count(n)
            )));
        }
        if let Some((i, v)) = self.near.iter().enumerate().find(|(_, v)| v.len() != n) {
            return Err(Error::invalid(format!(
                "field `{name}`: near-null vector {i} has {} numbers; expected {n}, one per unknown of the field",
                v.len()
            )));
        }
        match &self.coordinates {
            Some(points) if points.len() != n / b => Err(Error::invalid(format!(
                "field `{name}`: {} points for {} nodes; coordinates need one point per node",
                points.len(),
                n / b
            ))),
            _ => Ok(()),
        }
    }
}

/// Kinds of coupled systems that are recognised from the matrix alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coupled {
    /// A saddle point whose first block is close to its diagonal, such as fluxes and pressures.
    Flux,
    /// A saddle point whose first block is symmetric otherwise, as of displacements or slow velocities.
    Viscous,
    /// A saddle point whose first block is not symmetric, as of convected velocities.
    Convected,
    /// Three-field poroelasticity: displacements, fluxes that do not couple to them, and pressures.
    Porous,
    /// Cells of a pressure and transported unknowns.
    Cells,
    /// Edge elements of a curl-curl equation, which have no fields.
    CurlCurl,
}

/// What the matrix alone has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recognised {
    pub kind: Coupled,
    /// The fields in words.
    pub text: String,
}

/// The fields of a system, checked, and the matrices that the caller named.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    fields: Vec<Field>,
    matrices: Matrices,
    /// Set if the fields were not given but found in the matrix.
    recognised: Option<Recognised>,
}

/// Matrices by their names in small letters, with the names that the caller wrote.
type ByName = BTreeMap<String, (String, Arc<Csr>)>;

/// The matrices that the caller named. Clones share them, so that preconditioners see new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Matrices(Arc<RwLock<ByName>>);

impl Matrices {
    /// Returns the matrix of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn matrix(&self, name: &str) -> Result<Arc<Csr>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&name.to_ascii_lowercase()).map(|(_, matrix)| matrix.clone()).ok_or_else(|| {
            let known: Vec<&str> = all.values().map(|(name, _)| &name[..]).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            Error::invalid(format!("no matrix has the name `{name}`; matrices given by name: {known}"))
        })
    }

    /// Gives a matrix new values, for everyone who shares it.
    ///
    /// # Errors
    /// No such matrix; another pattern; a value that is not finite.
    pub fn renew(&self, name: &str, matrix: Csr) -> Result<()> {
        let old = self.matrix(name)?;
        matrix.check_finite().map_err(|e| Error::invalid(format!("matrix `{name}`: {e}")))?;
        let same = (old.rows(), old.columns()) == (matrix.rows(), matrix.columns())
            && old.row_ptr() == matrix.row_ptr()
            && old.col() == matrix.col();
        if !same {
            return Err(Error::invalid(format!(
                "the new matrix `{name}` is {}×{} with {} entries, and the old {}×{} with {}; only values may change. Make a \
                 new solver for another pattern",
                matrix.rows(),
                matrix.columns(),
                count(matrix.nonzeros()),
                old.rows(),
                old.columns(),
                count(old.nonzeros())
            )));
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, to)) = all.get_mut(&name.to_ascii_lowercase()) {
            *to = Arc::new(matrix);
        }
        Ok(())
    }

    /// Gives a matrix new values, in the order of its rows, for everyone who shares it.
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    pub fn renew_values(&self, name: &str, values: &[f64]) -> Result<()> {
        let mut new = (*self.matrix(name)?).clone();
        if values.len() != new.nonzeros() {
            return Err(Error::invalid(format!(
                "{} new values for the matrix `{name}`, which stores {}; expected one value per stored entry",
                values.len(),
                new.nonzeros()
            )));
        }
        new.values_mut().copy_from_slice(values);
        self.renew(name, new)
    }

    /// Returns the same matrices, of which new ones are not shared.
    fn apart(&self) -> Self {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Self(Arc::new(RwLock::new(all.clone())))
    }
}

/// Approximations of a Schur complement, whose names no matrix can have.
const RESERVED: [&str; 6] = ["selfp", "selfp-rows", "block", "explicit", "lsc", "pcd"];

impl Fields {
    /// Sets the fields of a system of `n` unknowns. Each unknown must belong to exactly one field.
    ///
    /// # Errors
    /// An overlap, a gap, a number out of range, or two fields of one name; with the numbers.
    pub fn set(&mut self, fields: Vec<Field>, n: usize) -> Result<()> {
        const NONE: u32 = u32::MAX;
        let mut owner = vec![NONE; n];
        for (k, field) in fields.iter().enumerate() {
            field.check()?;
            if fields[..k].iter().any(|other| other.name == field.name) {
                return Err(Error::invalid(format!("two fields have the name `{}`", field.name)));
            }
            for &i in field.unknowns() {
                let Some(owner) = owner.get_mut(i as usize) else {
                    return Err(Error::invalid(format!(
                        "field `{}` has the unknown {i}, but the system has {n}; numbers start at 0",
                        field.name
                    )));
                };
                if *owner != NONE {
                    return Err(Error::invalid(format!(
                        "unknown {i} belongs to the fields `{}` and `{}`; each unknown belongs to one field",
                        fields[*owner as usize].name, field.name
                    )));
                }
                *owner = k as u32;
            }
        }
        let gaps = owner.iter().filter(|owner| **owner == NONE).count();
        if let Some(first) = owner.iter().position(|owner| *owner == NONE).filter(|_| !fields.is_empty()) {
            return Err(Error::invalid(format!(
                "{} of {} unknowns belong to no field; the first is {first}",
                count(gaps),
                count(n)
            )));
        }
        (self.fields, self.recognised) = (fields, None);
        Ok(())
    }

    /// Notes that the fields were found in the matrix.
    pub fn mark(&mut self, found: Recognised) {
        self.recognised = Some(found);
    }

    /// Returns the fields and matrices that the caller gave, without recognised fields.
    pub fn given(&self) -> Self {
        if self.recognised.is_none() {
            return self.clone();
        }
        Self { matrices: self.matrices.clone(), ..Self::default() }
    }

    /// Returns true if the caller named a matrix.
    pub fn has_matrices(&self) -> bool {
        !self.matrices.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns what was found in the matrix, if the fields come from there.
    pub fn recognised(&self) -> Option<&Recognised> {
        self.recognised.as_ref()
    }

    /// Sets the fields of a distributed system of `n` unknowns. Each of this rank's own unknowns, `own`, must
    /// belong to exactly one field. Unknowns of other ranks may be listed too.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_own(&mut self, fields: Vec<Field>, n: usize, own: impl Iterator<Item = u64>) -> Result<()> {
        let mut owner: HashMap<u64, Option<usize>> = own.map(|i| (i, None)).collect();
        for (k, field) in fields.iter().enumerate() {
            field.check()?;
            if fields[..k].iter().any(|other| other.name == field.name) {
                return Err(Error::invalid(format!("two fields have the name `{}`", field.name)));
            }
            for &i in field.unknowns() {
                if i as usize >= n {
                    return Err(Error::invalid(format!(
                        "field `{}` has the unknown {i}, but the system has {n}; numbers start at 0",
                        field.name
                    )));
                }
                match owner.get_mut(&u64::from(i)) {
                    Some(owner @ None) => *owner = Some(k),
                    Some(Some(other)) => {
                        return Err(Error::invalid(format!(
                            "unknown {i} belongs to the fields `{}` and `{}`; each unknown belongs to one field",
                            fields[*other].name, field.name
                        )));
                    }
                    None => {}
                }
            }
        }
        let without = owner.iter().filter(|(_, owner)| owner.is_none()).map(|(i, _)| *i);
        if let Some(first) = without.min().filter(|_| !fields.is_empty()) {
            return Err(Error::invalid(format!("unknown {first} of this rank belongs to no field")));
        }
        (self.fields, self.recognised) = (fields, None);
        Ok(())
    }

    /// Adds a matrix by name, or replaces the one of this name.
    ///
    /// # Errors
    /// A value that is not finite; a name that has another meaning, or that differs from another only in
    /// case.
    pub fn add_matrix(&mut self, name: &str, matrix: Csr) -> Result<()> {
        matrix.check_finite().map_err(|e| Error::invalid(format!("matrix `{name}`: {e}")))?;
        let key = name.to_ascii_lowercase();
        if RESERVED.contains(&&key[..]) {
            return Err(Error::invalid(format!(
                "a matrix cannot have the name `{name}`: S={key} already has a meaning; choose another name"
            )));
        }
        self.matrices = self.matrices.apart();
        let mut all = self.matrices.0.write().unwrap_or_else(PoisonError::into_inner);
        match all.get(&key) {
            Some((other, _)) if other != name => Err(Error::invalid(format!(
                "the names of the matrices `{other}` and `{name}` differ only in case, which preconditioners ignore; rename \
                 one"
            ))),
            _ => {
                all.insert(key, (name.into(), Arc::new(matrix)));
                Ok(())
            }
        }
    }

    /// Returns the fields.
    pub fn all(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the matrix of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn matrix(&self, name: &str) -> Result<Arc<Csr>> {
        self.matrices.matrix(name)
    }

    /// Returns the matrices, shared.
    pub fn matrices(&self) -> &Matrices {
        &self.matrices
    }

    /// Returns the same fields with matrices of their own.
    pub fn apart(&self) -> Self {
        Self { matrices: self.matrices.apart(), ..self.clone() }
    }

    /// Returns the field that a part of a split names: one field, or several joined with `+`. A group keeps
    /// neither blocks nor near-null vectors.
    ///
    /// # Errors
    /// A field that does not exist.
    pub fn field(&self, label: &str) -> Result<Field> {
        if self.fields.is_empty() {
            return Err(Error::invalid(format!(
                "the preconditioner names the field `{label}`, but the system has no fields; give them: \
                 --fields u=0:90000,p=90000: in the command, fields={{…}} in Python, `with_fields` in Rust"
            )));
        }
        let find = |name: &str| {
            self.fields.iter().find(|field| field.name == name).ok_or_else(|| {
                let known: Vec<&str> = self.fields.iter().map(Field::name).collect();
                Error::invalid(format!("no field has the name `{name}`; the fields are {}", known.join(", ")))
            })
        };
        let mut parts = label.split('+').map(|name| find(name.trim()));
        let first = parts.next().expect("a split has one part at least")?;
        let rest = parts.collect::<Result<Vec<_>>>()?;
        if rest.is_empty() {
            return Ok(first.clone());
        }
        let all = std::iter::once(first).chain(rest).flat_map(|field| field.unknowns().iter().copied());
        Ok(Field::new(label, all.collect::<Vec<_>>()))
    }

    /// Returns the fields inside the group `label`, renumbered to the group, with the same matrices.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn within(&self, label: &str) -> Result<Self> {
        let (mut fields, mut start) = (Vec::new(), 0);
        for name in label.split('+') {
            let field = self.field(name.trim())?;
            let end = start + field.unknowns.len() as u32;
            fields.push(Field { unknowns: (start..end).collect(), ..field });
            start = end;
        }
        Ok(Self { fields, matrices: self.matrices.clone(), recognised: None })
    }

    /// Returns the fields with other numbers, without the unknowns that have none.
    pub fn mapped(mut self, number: impl Fn(u32) -> Option<u32>) -> Self {
        for field in &mut self.fields {
            let own = field.unknowns.iter().enumerate();
            let (kept, numbers): (Vec<usize>, Vec<u32>) =
                own.filter_map(|(place, i)| Some((place, number(*i)?))).unzip();
            *field = Field { unknowns: numbers.into(), ..field.restricted(&kept) };
        }
        self
    }
}

/// Reads fields from text, `u=0:90000,p=90000:`, for a system of `n` unknowns. A field is one or more runs,
/// `start:stop:step`, joined with `+`: `u[3]=0::4+1::4+2::4,p=3::4`. A number in brackets is the block size.
/// Unknowns ascend.
///
/// # Errors
/// Text of another form, with the field.
pub fn fields_of_text(text: &str, n: usize) -> Result<Vec<Field>> {
    text.split(',').map(|field| field_of_text(field.trim(), n)).collect()
}

fn field_of_text(text: &str, n: usize) -> Result<Field> {
    let wrong = |why: &str| {
        Error::invalid(format!("field `{text}`: {why}; expected NAME=START:STOP:STEP, such as u=0:90000"))
    };
    let (name, runs) = text.split_once('=').ok_or_else(|| wrong("`=` is missing"))?;
    let (name, block) = match name.trim().split_once('[') {
        None => (name.trim(), 1),
        Some((name, rest)) => {
            let size = rest.strip_suffix(']').and_then(|size| size.trim().parse().ok());
            (name, size.ok_or_else(|| wrong("the block size in brackets is not a whole number"))?)
        }
    };
    let mut unknowns: Vec<u32> = Vec::new();
    for run in runs.split('+') {
        let mut numbers = run.split(':');
        let mut number = |otherwise: usize| match numbers.next().map(str::trim) {
            None | Some("") => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| wrong(&format!("`{text}` is not a whole number"))),
        };
        let (start, stop, step) = (number(0)?, number(n)?, number(1)?);
        if !run.contains(':') || numbers.next().is_some() {
            return Err(wrong(&format!("`{run}` is not a run")));
        }
        if step == 0 || stop > n || start > stop {
            return Err(wrong(&format!("`{run}` is not within the {n} unknowns of the system")));
        }
        unknowns.extend((start..stop).step_by(step).map(|i| i as u32));
    }
    unknowns.sort_unstable();
    Ok(Field::new(name, unknowns).in_blocks(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(fields: Vec<Field>, n: usize) -> String {
        Fields::default().set(fields, n).unwrap_err().to_string()
    }

    #[test]
    fn wrong_fields_are_refused_with_their_numbers() {
        let (u, p) = (|r| Field::range("u", r), |r| Field::range("p", r));
        assert!(refused(vec![u(0..4), p(3..6)], 6).contains("unknown 3 belongs to the fields `u` and `p`"));
        assert!(
            refused(vec![u(0..3), p(5..6)], 6).contains("2 of 6 unknowns belong to no field; the first is 3")
        );
        assert!(refused(vec![u(0..3), p(3..7)], 6).contains("unknown 6, but the system has 6"));
        assert!(refused(vec![u(0..3), u(3..6)], 6).contains("two fields have the name `u`"));
        assert!(
            refused(vec![u(0..5).in_blocks(2), p(5..6)], 6)
                .contains("5 unknowns, which do not form blocks of 2")
        );
        assert!(refused(vec![Field::range("2d", 0..6)], 6).contains("starts with a letter"));
        Fields::default().set(vec![u(0..3), p(3..6)], 6).unwrap();
    }

    #[test]
    fn names_of_matrices_are_not_ambiguous() {
        let (mut fields, one) = (Fields::default(), Csr::from_triplets(1, 1, &[(0, 0, 1.0)]).unwrap());
        fields.add_matrix("M", one.clone()).unwrap();
        fields.add_matrix("M", one.clone()).unwrap();
        let refused =
            |fields: &mut Fields, name| fields.add_matrix(name, one.clone()).unwrap_err().to_string();
        assert!(refused(&mut fields, "m").contains("`M` and `m` differ only in case"));
        assert!(refused(&mut fields, "LSC").contains("S=lsc already has a meaning"));
        assert!(fields.matrix("q").unwrap_err().to_string().contains("matrices given by name: M"));
    }

    #[test]
    fn text_lists_runs_of_unknowns() {
        let fields = fields_of_text("u[3]=0::4+1::4+2::4, P=3::4", 8).unwrap();
        assert_eq!(
            (fields[0].name(), fields[0].block(), fields[0].unknowns()),
            ("u", 3, &[0, 1, 2, 4, 5, 6][..])
        );
        assert_eq!((fields[1].name(), fields[1].unknowns()), ("p", &[3, 7][..]));
        let refused = |text: &str| fields_of_text(text, 8).unwrap_err().to_string();
        assert!(refused("u").contains("`=` is missing"));
        assert!(refused("u=0:9").contains("`0:9` is not within the 8 unknowns"));
        assert!(refused("u=3").contains("`3` is not a run"));
        assert!(refused("u=0:x").contains("`x` is not a whole number"));
        assert!(refused("u=0:8:0").contains("not within"));
    }

    #[test]
    fn groups_are_renumbered() {
        let mut fields = Fields::default();
        let all = ["a", "b", "c"].into_iter().enumerate();
        fields.set(all.map(|(k, name)| Field::strided(name, k..6, 3)).collect(), 6).unwrap();
        assert_eq!(fields.field("c+a").unwrap().unknowns(), [2, 5, 0, 3]);
        let inner = fields.within("c+a").unwrap();
        assert_eq!(inner.all()[1].unknowns(), [2, 3]);
        assert!(fields.field("d").unwrap_err().to_string().contains("the fields are a, b, c"));
    }
}
