//! Structs whose comments are the documentation of the code and the table in the guide.

/// Declares structs of a report; the comments of their fields are printed in the guide.
macro_rules! described {
    ($(
        $(#[doc = $of:literal])+
        pub struct $name:ident {
            $($(#[doc = $doc:literal])+ $(#[serde $serde:tt])? pub $field:ident: $type:ty,)+
        }
    )+) => {
        $(
            $(#[doc = $of])+
            #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
            pub struct $name { $($(#[doc = $doc])+ $(#[serde $serde])? pub $field: $type,)+ }
        )+

        /// All structs with their fields: name, type and text.
        #[cfg(test)]
        pub const STRUCTS: &[$crate::report::described::Struct] = &[$((
            stringify!($name),
            &[$((stringify!($field), stringify!($type), &[$($doc),+])),+],
        )),+];
    };
}
pub(crate) use described;

/// The name of a struct, and the name, type and lines of text of each field.
#[cfg(test)]
pub type Struct = (&'static str, &'static [(&'static str, &'static str, &'static [&'static str])]);

/// Returns the rows of a table: the path of a field from `name`, its JSON type, and its text.
#[cfg(test)]
pub fn rows(structs: &[Struct], name: &str, path: &str) -> Vec<[String; 3]> {
    let Some((_, fields)) = structs.iter().find(|(known, _)| *known == name) else { return Vec::new() };
    let mut rows = Vec::new();
    for (field, of, lines) in *fields {
        let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let path = if path.is_empty() { field.to_string() } else { format!("{path}.{field}") };
        let inner = inside(of);
        let below =
            self::rows(structs, &inner, &if of.contains("Vec") { format!("{path}[]") } else { path.clone() });
        rows.push([path, kind(of), text]);
        rows.extend(below);
    }
    rows
}

/// Returns the innermost name of a type such as `Vec < Option < f64 > >`.
#[cfg(test)]
fn inside(of: &str) -> String {
    let plain = of.replace(' ', "");
    let name = plain.rsplit(['<', ':']).next().unwrap_or_default();
    name.trim_end_matches('>').to_string()
}

#[cfg(test)]
fn kind(of: &str) -> String {
    let plain = of.replace(' ', "");
    if let Some(inner) = plain.strip_prefix("Option<") {
        return format!("{} or null", kind(inner.trim_end_matches('>')));
    }
    if let Some(inner) = plain.strip_prefix("Vec<") {
        let inner = kind(inner.strip_suffix('>').unwrap_or(inner));
        return format!(
            "list of {}",
            inner.replace("number", "numbers").replace("text", "texts").replace("object", "objects")
        );
    }
    match inside(&plain).as_str() {
        "String" => "text",
        "bool" => "true or false",
        "u32" | "u64" | "usize" | "f64" => "number",
        _ => "object",
    }
    .into()
}
