//! The order of fields in the numbering of a system, in words.

use super::{Field, Fields};

impl Fields {
    /// Describes how the unknowns of fields are numbered: by fields, interleaved or mixed. `None` without
    /// fields.
    pub(crate) fn order(&self) -> Option<String> {
        let mut fields: Vec<&Field> =
            self.all().iter().filter(|field| !field.unknowns().is_empty()).collect();
        fields.sort_by_key(|field| field.unknowns().iter().min().copied());
        let steps: Vec<Option<u32>> = fields.iter().map(|field| step(field)).collect();
        let named = |step: Option<u32>| {
            let of = fields.iter().zip(&steps).filter(|(_, own)| **own == step);
            of.map(|(field, _)| described(field, step)).collect::<Vec<_>>().join(", ")
        };
        let wide = steps.iter().flatten().copied().find(|step| *step > 1);
        let alternate = steps.iter().filter(|own| **own == wide).count();
        Some(match wide {
            _ if fields.is_empty() => return None,
            None if steps.iter().all(Option::is_some) => format!("by fields: {}", named(Some(1))),
            Some(_) if alternate < 2 || steps.iter().any(|own| *own != wide && *own != Some(1)) => {
                format!("mixed: {} take turns", named_all(&fields))
            }
            Some(_) if alternate == steps.len() => format!("interleaved: {}", named(wide)),
            Some(_) => format!("interleaved: {}; by fields: {}", named(wide), named(Some(1))),
            None => format!("mixed: {} take turns", named_all(&fields)),
        })
    }
}

fn named_all(fields: &[&Field]) -> String {
    let (last, others) = match fields {
        [others @ .., last] => (last.name(), others),
        [] => return String::new(),
    };
    let names: Vec<&str> = others.iter().map(|field| field.name()).collect();
    format!("{} and {last}", names.join(", "))
}

/// Names a field, and the order of its components if it has several and follows itself alone.
fn described(field: &Field, step: Option<u32>) -> String {
    let b = field.block();
    let components = match field.unknowns() {
        [first, second, ..] if b > 1 && step == Some(1) => match *second == first + 1 {
            true => format!(" (its {b} components alternate)"),
            false => format!(" (its {b} components follow one another)"),
        },
        _ => String::new(),
    };
    format!("{}{components}", field.name())
}

/// Returns the constant difference of successive unknowns, in ascending order; `None` if it varies.
fn step(field: &Field) -> Option<u32> {
    let mut own = field.unknowns().to_vec();
    own.sort_unstable();
    let step = own.get(1).map_or(1, |second| second - own[0]);
    own.windows(2).all(|pair| pair[1] - pair[0] == step).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_their_words() {
        let order = |fields: Vec<Field>| {
            let mut all = Fields::default();
            let n = fields.iter().map(|field| field.unknowns().len()).sum();
            all.set(fields, n).unwrap();
            all.order()
        };
        assert_eq!(order(Vec::new()), None);
        let by_field = vec![Field::range("p", 12..14), Field::range("u", 0..12)];
        assert_eq!(order(by_field).unwrap(), "by fields: u, p");
        let nodes =
            Field::new("u", (0..4).flat_map(|i| [i, 4 + i, 8 + i]).collect::<Vec<u32>>()).in_blocks(3);
        let found = order(vec![nodes, Field::range("p", 12..14)]).unwrap();
        assert_eq!(found, "by fields: u (its 3 components follow one another), p");
        let nodes = Field::range("u", 0..12).in_blocks(3);
        let found = order(vec![nodes, Field::range("p", 12..14)]).unwrap();
        assert_eq!(found, "by fields: u (its 3 components alternate), p");
        let cells = |wells: usize| {
            let mut all = vec![Field::strided("s", 1..12, 2), Field::strided("p", 0..12, 2)];
            all.extend((wells > 0).then(|| Field::range("w", 12..12 + wells)));
            order(all).unwrap()
        };
        assert_eq!(cells(0), "interleaved: p, s");
        assert_eq!(cells(3), "interleaved: p, s; by fields: w");
        let mixed = vec![Field::new("u", [0, 1, 2, 4, 5]), Field::new("p", [3, 6])];
        assert_eq!(order(mixed).unwrap(), "mixed: u and p take turns");
        let mixed =
            vec![Field::new("u", [0, 1, 2, 4, 5]), Field::new("p", [3, 7, 6]), Field::range("w", 8..9)];
        assert_eq!(order(mixed).unwrap(), "mixed: u, p and w take turns");
    }
}
