//! Reads options from a file, in which a value is text, a number, or true or false.

use super::{Options, TABLE, canonical};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use std::fmt;

/// Takes the value of one option.
struct Value<'a>(&'a mut Options, &'static str);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl Value<'_> {
    fn put<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.0.set(self.1, text).map_err(|e| E::custom(format!("{} = {text}: {e}", self.1)))
    }
}

impl Visitor<'_> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, or true and false")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.put(text)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.put(if value { "true" } else { "false" })
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.put(&value.to_string())
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.put(&value.to_string())
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.put(&format!("{value:e}"))
    }
}

/// The name of an option.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = (&'static str, String);
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = (&'static str, String);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an option")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let known = || TABLE.iter().map(|option| format!("`{}`", option.name)).collect::<Vec<_>>().join(", ");
        let name = canonical(text)
            .ok_or_else(|| E::custom(format!("unknown field `{text}`, expected one of {}", known())))?;
        Ok((name, text.into()))
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// Reads the whole section.
        struct Section;
        impl<'de> Visitor<'de> for Section {
            type Value = Options;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("options of a solve")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Options, A::Error> {
                let (mut options, mut seen) = (Options::default(), Vec::new());
                while let Some((name, as_written)) = map.next_key_seed(Key)? {
                    if seen.contains(&name) {
                        return Err(de::Error::custom(format!("`{name}` is given twice")));
                    }
                    seen.push(name);
                    map.next_value_seed(Value(&mut options, name))?;
                    options.note_old(&as_written, name);
                }
                Ok(options)
            }
        }
        from.deserialize_map(Section)
    }
}
