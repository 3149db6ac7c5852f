//! The flags of a solver's options, made of their declarations in `krylith_core::options`.

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use krylith_core::Options;
use krylith_core::options::{Group, Kind, OptionInfo, TABLE};

/// Flags of a whole solve.
pub type SolveFlags = Flags<true>;

/// Flags of the linear solves in Newton's method, which sets their tolerances itself.
pub type LinearFlags = Flags<false>;

/// Options as flags: those of a whole solve, or of linear solves within another method.
#[derive(Debug, Clone, Default)]
pub struct Flags<const WHOLE: bool>(pub Options);

impl<const WHOLE: bool> Flags<WHOLE> {
    fn options() -> impl Iterator<Item = &'static OptionInfo> {
        TABLE.iter().filter(|option| WHOLE || option.group != Group::Stop)
    }

    fn heading(group: Group) -> &'static str {
        match group {
            Group::Machine => "Machine",
            _ if !WHOLE => "Linear solves",
            Group::System => "System",
            Group::Method => "Method",
            Group::Limit | Group::Stop => "When to stop",
        }
    }

    /// The default of an option in help texts. `krylith newton` has a default method of its own.
    fn default_words(option: &OptionInfo) -> &'static str {
        match option.name {
            "method" if !WHOLE => "fgmres",
            _ => option.default,
        }
    }
}

/// `max-iters`.
fn flag(name: &'static str) -> String {
    name.replace('_', "-")
}

/// Returns a parser that reads a value into options without any other value.
fn parser(name: &'static str) -> ValueParser {
    ValueParser::new(move |text: &str| Options::one(name, text))
}

/// The flag of an option, by its present name or an old one.
fn arg(option: &OptionInfo, name: &'static str, heading: &'static str, default: &str) -> Arg {
    let help = format!("{} [default: {default}]", option.help).replace('`', "");
    let arg = Arg::new(name).long(flag(name)).value_name(option.metavar).help(help).help_heading(heading);
    let arg = match option.kind {
        Kind::Flag => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Count | Kind::Real => arg.allow_negative_numbers(true),
        _ => arg,
    };
    arg.value_parser(parser(name))
}

impl<const WHOLE: bool> Args for Flags<WHOLE> {
    fn augment_args(command: Command) -> Command {
        Self::options().fold(command, |command, option| {
            let (heading, default) = (Self::heading(option.group), Self::default_words(option));
            let arg = |name: &'static str| arg(option, name, heading, default);
            command.arg(arg(option.name)).args(option.old_names.iter().map(|name| arg(name).hide(true)))
        })
    }
    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const WHOLE: bool> FromArgMatches for Flags<WHOLE> {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(found)?;
        Ok(flags)
    }
    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), Error> {
        // The method comes last, so that a flag for one of its options overrides the options after the
        // method's name.
        let names = Self::options().flat_map(|option| std::iter::once(&option.name).chain(option.old_names));
        let (method, others): (Vec<&str>, Vec<&str>) = names.partition(|name| **name == "method");
        for name in others.into_iter().chain(method) {
            if let Some(given) = found.get_one::<Options>(name) {
                self.0 = self.0.and(given);
            }
        }
        Ok(())
    }
}
