//! The method that options mean, and options that a method means: one text for both.

use super::{Options, fits, info};
use crate::method::{BicgstabOptions, CbcgOptions, CgOptions, GmresOptions, MethodName, MethodSpec};
use crate::{Error, Result};
use std::fmt::{self, Display};
use std::str::FromStr;

impl MethodSpec {
    /// Returns the method of this name with its options. `restart` is the default number of basis vectors of
    /// GMRES.
    pub(crate) fn of(name: MethodName, options: &Options, restart: usize) -> Self {
        match name {
            MethodName::Auto | MethodName::Gmres | MethodName::Fgmres => MethodSpec::Gmres(GmresOptions {
                restart: options.restart.unwrap_or(restart),
                orthogonalization: options.orthogonalization.unwrap_or_default(),
                basis: options.precision.unwrap_or_default(),
                flexible: name == MethodName::Fgmres,
                complex: false,
            }),
            MethodName::Bicgstab => MethodSpec::Bicgstab(BicgstabOptions {
                reductions: options.reductions.unwrap_or_default(),
                complex: false,
            }),
            MethodName::Cg => MethodSpec::Cg(CgOptions { form: options.form.unwrap_or_default() }),
            MethodName::Cbcg => MethodSpec::Cbcg(CbcgOptions {
                steps: options.s.unwrap_or(CbcgOptions::default().steps),
                basis: options.basis.unwrap_or_default(),
            }),
            MethodName::Minres => MethodSpec::Minres,
        }
    }

    /// The method that options mean: the one they name, else the one whose options they give, else `auto`.
    ///
    /// # Errors
    /// [`Error::Option`] for an option of another method.
    pub(crate) fn meant(options: &Options) -> Result<MethodName> {
        let given = options.given();
        let mut given = given.iter().filter_map(|(key, _)| Some((*key, info(key)?.method?)));
        let first = given.clone().next();
        let method = match options.method.unwrap_or_default() {
            MethodName::Auto => first.map_or(MethodName::Auto, |option| option.1),
            named => named,
        };
        match given.find(|option| !fits(option.1, method)) {
            None => Ok(method),
            Some((key, owner)) => Err(Error::Option {
                key,
                message: format!("applies only to method {owner}, and the method is {method}; leave it out"),
            }),
        }
    }

    /// Options that say this method and nothing else.
    pub fn options(&self) -> Options {
        match self {
            MethodSpec::Gmres(gmres) => Options {
                method: Some(self.name()),
                restart: Some(gmres.restart),
                orthogonalization: Some(gmres.orthogonalization),
                ..Options::default()
            },
            MethodSpec::Bicgstab(bicgstab) => Options {
                method: Some(MethodName::Bicgstab),
                reductions: Some(bicgstab.reductions),
                ..Options::default()
            },
            MethodSpec::Cg(cg) => {
                Options { method: Some(MethodName::Cg), form: Some(cg.form), ..Options::default() }
            }
            MethodSpec::Cbcg(cbcg) => Options {
                method: Some(MethodName::Cbcg),
                s: Some(cbcg.steps),
                basis: Some(cbcg.basis),
                ..Options::default()
            },
            MethodSpec::Minres => Options { method: Some(MethodName::Minres), ..Options::default() },
        }
    }
}

impl FromStr for MethodSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let options = format!("method={text}").parse::<Options>()?.settled()?;
        match options.method {
            None | Some(MethodName::Auto) => Err(Error::invalid(format!("`{text}` does not name a method"))),
            Some(name) => Ok(Self::of(name, &options, GmresOptions::default().restart)),
        }
    }
}

impl Display for MethodSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.options().to_string();
        f.write_str(text.strip_prefix("method=").unwrap_or(&text))
    }
}
