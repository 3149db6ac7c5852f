//! Fields of ranks whose rows gather on one of them.

use super::{Field, Fields};
use std::sync::Arc;

impl Field {
    /// Returns the numbers of the near-null vectors.
    pub(crate) fn near_numbers(&self) -> &[Vec<f64>] {
        &self.near
    }

    /// Appends the unknowns that another rank has of this field.
    fn append(&mut self, other: Field) {
        self.unknowns = [&*self.unknowns, &*other.unknowns].concat().into();
        let near = self.near.iter().zip(&*other.near).map(|(own, other)| [&own[..], &other[..]].concat());
        self.near = near.collect();
        let points = self.coordinates.as_deref().zip(other.coordinates.as_deref());
        self.coordinates = points.map(|(own, other)| Arc::from([own, other].concat()));
    }
}

impl Fields {
    /// Returns the fields that several ranks have of their own unknowns, checked on each of them, with the
    /// matrices that these fields have.
    pub fn joined(&self, ranks: Vec<Vec<Field>>) -> Self {
        let mut fields: Vec<Field> = Vec::new();
        for field in ranks.into_iter().flatten() {
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => known.append(field),
                None => fields.push(field),
            }
        }
        Self { fields, matrices: self.matrices.clone(), recognised: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_two_ranks_join_by_name() {
        let u = |r: std::ops::Range<usize>| {
            let near = vec![r.clone().map(|i| i as f64).collect()];
            Field::range("u", r).with_near_null_vectors(near)
        };
        let first = vec![u(0..2), Field::range("p", 2..3).with_coordinates(vec![[2.0; 3]])];
        let second = vec![Field::range("p", 7..8).with_coordinates(vec![[7.0; 3]]), u(4..7)];
        let joined = Fields::default().joined(vec![first, Vec::new(), second]);
        let [u, p] = joined.all() else { panic!("{joined:?}") };
        assert_eq!((u.name(), u.unknowns()), ("u", &[0, 1, 4, 5, 6][..]));
        assert_eq!(u.near_numbers(), [vec![0.0, 1.0, 4.0, 5.0, 6.0]]);
        assert_eq!((p.unknowns(), p.coordinates()), (&[2, 7][..], Some(&[[2.0; 3], [7.0; 3]][..])));
    }
}
