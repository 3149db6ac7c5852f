//! What a caller knows of a system beside its entries: coordinates, a grid, null vectors, fields, matrices by
//! name.

use super::Problem;
use crate::comm::agree;
use crate::fields::{Field, Fields};
use crate::matrix::{Csr, first_not_finite};
use crate::precond::NearNull;
use crate::text::plural;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

impl<'a> Problem<'a> {
    /// Adds the coordinates of nodes, one point per node of the whole system or of this rank's rows.
    /// Subdomains are then boxes in space.
    ///
    /// # Errors
    /// A wrong number of points; a coordinate that is not finite.
    pub fn with_coordinates(self, points: impl Into<Cow<'a, [[f64; 3]]>>) -> Result<Self> {
        let points = points.into();
        let (own, all) = (self.terms.block_rows(), self.unknowns / (self.block() * self.stages()));
        if points.len() != own && points.len() != all {
            return Err(Error::invalid(format!(
                "got {} points for {own} nodes; coordinates need one point per node",
                points.len()
            )));
        }
        if let Some(e) = first_not_finite(points.as_flattened()) {
            let i = e / 3;
            let [x, y, z] = points[i];
            return Err(Error::invalid(format!(
                "coordinates: point {i} is ({x}, {y}, {z}); every number must be finite"
            )));
        }
        Ok(Self { coordinates: Some(Arc::new(points.into_owned())), ..self })
    }

    /// Declares that the nodes of the whole system form a structured grid with this many nodes in x, y and z,
    /// numbered with x fastest.
    ///
    /// # Errors
    /// A grid with another number of nodes than the system.
    pub fn with_grid(self, grid: [usize; 3]) -> Result<Self> {
        let order = self.block() * self.stages();
        let nodes = self.unknowns / order;
        let [x, y, z] = grid;
        match x.checked_mul(y).and_then(|plane| plane.checked_mul(z)) {
            Some(count) if count == nodes => Ok(Self { grid: Some(grid), ..self }),
            _ => Err(Error::invalid(format!(
                "the grid has {x}×{y}×{z} nodes, but the system has {nodes} nodes with {} each",
                plural(order, "unknown")
            ))),
        }
    }

    /// Adds null vectors of the operator, for a singular consistent system. Along these vectors the solution
    /// keeps the components of the initial guess. Each vector is as long as x. This function does not check
    /// that they are null vectors; [`check_null_vector`](Self::check_null_vector) does.
    ///
    /// # Errors
    /// A vector of another length.
    pub fn with_null_vectors(self, vectors: impl Into<Cow<'a, [Vec<f64>]>>) -> Result<Self> {
        let (null, n) = (vectors.into(), self.own_len());
        match null.iter().position(|v| v.len() != n) {
            Some(i) => {
                Err(Error::invalid(format!("null vector {i} has {} numbers; expected {n}", null[i].len())))
            }
            None => Ok(Self { null, ..self }),
        }
    }

    /// Adds near-null vectors of the operator, such as the [rigid modes](Self::rigid_modes) of an elastic
    /// body. Algebraic multigrid (`amg`, `coarse`) then has one unknown per near-null vector at every coarse
    /// node. One to eight vectors are possible, each as long as x.
    ///
    /// # Errors
    /// A vector that has another length, is zero, or has an entry that is not finite; too many vectors.
    ///
    /// ```
    /// use krylith::{Problem, Solver, matrix::Bsr};
    /// let a = Bsr::new(2, 2, 2, vec![0, 1, 2], vec![0, 1], vec![4., 1., 1., 4., 4., 1., 1., 4.])?;
    /// let problem = Problem::bsr(&a)?.with_coordinates(vec![[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])?;
    /// let modes = problem.rigid_modes()?;
    /// assert_eq!(modes[2], [0.0, -0.5, 0.0, 0.5]); // the rotation, at x = 0 and x = 1
    /// let problem = problem.with_near_null_vectors(modes)?;
    /// let mut solver = Solver::new(&problem, &"precond=amg device=cpu".parse()?)?;
    /// assert!(solver.solve(&[1.0; 4], &mut [0.0; 4])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn with_near_null_vectors(self, vectors: impl Into<Cow<'a, [Vec<f64>]>>) -> Result<Self> {
        let (given, n) = (vectors.into(), self.own_len());
        let near = if given.is_empty() { None } else { Some(NearNull::new(&given)?) };
        match given.iter().position(|v| v.len() != n) {
            Some(i) => Err(Error::invalid(format!(
                "near-null vector {i} has {} numbers; expected {n}",
                given[i].len()
            ))),
            // One rank's part of a vector may be zero.
            None => match given.iter().position(|v| self.numbers.is_none() && v.iter().all(|v| *v == 0.0)) {
                Some(i) => Err(Error::invalid(format!("near-null vector {i} is zero; leave it out"))),
                None => Ok(Self { near, ..self }),
            },
        }
    }

    /// Adds the [rigid modes](Self::rigid_modes) as near-null vectors, without storing their numbers.
    ///
    /// # Errors
    /// As [`rigid_modes`](Self::rigid_modes).
    pub fn with_rigid_modes(self) -> Result<Self> {
        let near = Some(self.rigid()?);
        Ok(Self { near, ..self })
    }

    /// Returns the rigid motions of an elastic body whose components are displacements: two translations and
    /// one rotation in 2-D, three translations and three rotations in 3-D.
    ///
    /// # Errors
    /// No coordinates; nodes without 2 or 3 components; several stages.
    pub fn rigid_modes(&self) -> Result<Vec<Vec<f64>>> {
        Ok(self.rigid()?.vectors())
    }

    pub(crate) fn rigid(&self) -> Result<NearNull> {
        let Some(points) = &self.coordinates else {
            return Err(Error::invalid(
                "rigid modes need the coordinates of the nodes, which this system does not have; add \
                 coordinates",
            ));
        };
        let own = match self.numbers.as_deref() {
            Some(numbers) if points.len() != self.terms.block_rows() => {
                Arc::new(numbers.iter().map(|&i| points[i as usize]).collect())
            }
            _ => points.clone(),
        };
        let modes = if self.stages() == 1 { NearNull::rigid(self.block(), own) } else { None };
        modes.ok_or_else(|| {
            Error::invalid(format!(
                "rigid modes need nodes with 2 or 3 displacements and one stage; this system has {} \
                 components and {} stages",
                self.block(),
                self.stages()
            ))
        })
    }

    /// Adds the fields of the system, for preconditioners that treat each on its own. Each unknown belongs to
    /// one field. In a distributed problem a field lists numbers of the whole system: all of them, or this
    /// rank's own. Collective there. In a Kronecker sum the fields are those of one stage.
    ///
    /// # Errors
    /// An overlap, a gap, a number out of range, two fields of one name, a field whose vectors have another
    /// length.
    pub fn with_fields(self, fields: Vec<Field>) -> Result<Self> {
        let all = self.checked_fields(fields)?;
        Ok(Self { fields: Arc::new(all), ..self })
    }

    /// Returns these fields, checked, with the matrices that have names. Collective in a distributed problem.
    ///
    /// # Errors
    /// As [`with_fields`](Self::with_fields).
    pub(crate) fn checked_fields(&self, fields: Vec<Field>) -> Result<Fields> {
        let mut all = (*self.fields).clone();
        match self.numbers.as_deref() {
            None => all.set(fields, self.unknowns / self.stages())?,
            Some(numbers) => {
                let b = self.block() as u64;
                let own = numbers.iter().flat_map(|node| node * b..(node + 1) * b);
                let total = self.unknowns / self.stages();
                agree(&*self.comm, all.set_own(fields, total, own))?;
            }
        }
        Ok(all)
    }

    /// Adds a matrix that a preconditioner refers to by name, such as the mass matrix of the pressure in
    /// `split(u: amg, p: jacobi; S=Mp)`.
    ///
    /// # Errors
    /// A value that is not finite.
    pub fn with_matrix(self, name: &str, matrix: Csr) -> Result<Self> {
        let mut all = (*self.fields).clone();
        all.add_matrix(name, matrix)?;
        Ok(Self { fields: Arc::new(all), ..self })
    }

    /// Returns the fields of the system.
    pub fn fields(&self) -> &[Field] {
        self.fields.all()
    }
}
