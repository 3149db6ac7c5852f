//! Machine files that are part of Krylith, by name.

use crate::Machine;
use crate::words::fold;
use krylith_core::{Error, Result};
use std::path::Path;

/// A machine file that is part of Krylith.
///
/// # Examples
/// ```
/// use krylith_model::{Machine, machines};
/// for shipped in machines::ALL {
///     assert_eq!(Machine::open(shipped.name.as_ref())?, shipped.machine()?);
/// }
/// let measured = machines::ALL[0].machine()?;
/// assert!(measured.sources["kernels"].starts_with("measured by `krylith bench links"));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// The machine's name on the command line.
    pub name: &'static str,
    /// The text of the machine file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),*) => {
        [$(Shipped { name: $name, text: include_str!(concat!("../machines/", $name, ".toml")) }),*]
    };
}

/// All included machines; the first one is measured.
pub const ALL: [Shipped; 6] = shipped!["h200-nvlink", "jupiter", "okp-a100", "okp-v100", "summit", "abci"];

/// Describes all machines in text: name, hardware, how much was measured, and the origin of each number.
///
/// # Errors
/// Returns an error if an included file is invalid, which a test rules out.
pub fn list() -> Result<String> {
    let mut out = String::new();
    for shipped in ALL {
        let machine = shipped.machine()?;
        out += &format!("{}\n", shipped.name);
        out += &fold(&format!("  {}", machine.name));
        out += &fold(&format!("  {}", machine.origin()));
        let kinds = [
            ("products and GMRES", !machine.kernels.dense.0.is_empty()),
            ("--poisson", machine.poisson.is_some()),
        ];
        let kinds: Vec<&str> = kinds.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
        out += &fold(&format!("  predicts {}", kinds.join(", ")));
        for (what, source) in &machine.sources {
            out += &fold(&format!("    {what}: {source}"));
        }
    }
    Ok(out)
}

impl Shipped {
    /// Returns the machine.
    ///
    /// # Errors
    /// Returns an error if the included file is invalid, which a test rules out.
    pub fn machine(&self) -> Result<Machine> {
        Machine::parse(self.text).map_err(|e| Error::invalid(format!("machine `{}`: {e}", self.name)))
    }
}

impl Machine {
    /// Opens the included machine of that name, in any case, or the file at that path.
    ///
    /// # Errors
    /// Returns an error if it is neither a name nor a file, and one with the line if it is not a machine
    /// file.
    pub fn open(name: &Path) -> Result<Self> {
        let text = name.to_string_lossy();
        if let Some(shipped) = ALL.iter().find(|s| s.name.eq_ignore_ascii_case(&text)) {
            return shipped.machine();
        }
        // A single word without an extension is meant as a name.
        let is_name = name.components().count() == 1 && name.extension().is_none();
        if is_name && !name.exists() {
            let names: Vec<&str> = ALL.iter().map(|s| s.name).collect();
            return Err(Error::invalid(format!(
                "no machine `{text}`; the known ones are {}; the path of a machine file is accepted, too",
                names.join(", ")
            )));
        }
        Self::read(name)
    }

    /// Returns a few words on how much of the machine was measured.
    pub fn origin(&self) -> String {
        match self.estimated.as_slice() {
            [] => "measured".into(),
            [all] if all == "all of it" => "from data sheets and papers; nothing was measured".into(),
            parts => format!("measured, but for {}", parts.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_here_and_read_by_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut names: Vec<&str> = ALL.iter().map(|s| s.name).collect();
        files.sort();
        names.sort();
        assert_eq!(files, names);
        for shipped in ALL {
            let machine = Machine::open(shipped.name.to_uppercase().as_ref()).unwrap();
            assert_eq!(machine, shipped.machine().unwrap());
            assert!(!machine.sources.is_empty(), "{}: nothing says where its numbers are from", shipped.name);
        }
    }

    #[test]
    fn a_name_that_is_none_lists_them_and_a_path_is_read() {
        let error = Machine::open("h100".as_ref()).unwrap_err().to_string();
        assert!(error.contains("no machine `h100`") && error.contains("h200-nvlink, jupiter"), "{error}");
        for path in ["missing.toml", "./h200-nvlink"] {
            let error = Machine::open(path.as_ref()).unwrap_err().to_string();
            assert!(error.contains(path) && !error.contains("no machine"), "{error}");
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = Machine::open(&folder.join("machines/jupiter.toml")).unwrap();
        assert_eq!(read, Machine::open("jupiter".as_ref()).unwrap());
    }

    #[test]
    fn the_list_says_where_each_is_from() {
        let text = list().unwrap();
        for shipped in ALL {
            assert!(text.contains(&format!("{}\n", shipped.name)), "{text}");
        }
        for word in ["measured by `krylith bench links", "data sheet", "predicts --poisson", "Table IV"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn the_origin_names_what_was_not_measured() {
        let origin = |name: &str| Machine::open(name.as_ref()).unwrap().origin();
        assert_eq!(origin("h200-nvlink"), "measured, but for network, gpus_per_host");
        assert_eq!(origin("summit"), "from data sheets and papers; nothing was measured");
    }
}
