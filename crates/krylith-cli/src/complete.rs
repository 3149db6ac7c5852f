//! `krylith completions` and `krylith man`, generated from the same description as the help.

use crate::args::{self, CompletionsArgs, ManArgs};
use crate::failure::{DONE, Failure, Result};
use crate::output;
use clap_mangen::Man;
use krylith_core::names::did_you_mean;
use krylith_core::text::name;
use std::path::Path;

/// Prints the completion script of a shell.
///
/// # Errors
/// Never.
pub fn completions(args: &CompletionsArgs) -> Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "krylith", &mut text);
    output::print(&String::from_utf8_lossy(&text));
    Ok(DONE)
}

/// Prints a page of the manual, or writes all of them.
///
/// # Errors
/// The subcommand is unknown, or the folder cannot be written.
pub fn man(args: &ManArgs) -> Result<u8> {
    // After `build` every command knows its full name.
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).map_err(|e| {
            Failure::usage(format!("--out {}: the folder cannot be created ({e})", name(folder)))
        })?;
        write(folder, "krylith".into(), &command)?;
        for page in command.get_subcommands() {
            write(folder, format!("krylith-{}", page.get_name()), page)?;
        }
        return Ok(DONE);
    }
    let page = match &args.page {
        None => command.clone(),
        Some(name) => {
            let known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            let found =
                command.get_subcommands().find(|page| krylith_core::names::same(page.get_name(), name));
            found.cloned().ok_or_else(|| {
                let hint = did_you_mean("command", name, &known);
                Failure::usage(format!(
                    "unknown page `{name}`; the known pages are {}{hint}",
                    known.join(", ")
                ))
            })?
        }
    };
    output::print(&String::from_utf8_lossy(&rendered(&page)?));
    Ok(DONE)
}

fn rendered(page: &clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(page.clone())
        .render(&mut text)
        .map_err(|e| Failure::machine(format!("the manual cannot be generated: {e}")))?;
    Ok(text)
}

fn write(folder: &Path, page_name: String, page: &clap::Command) -> Result<()> {
    let (path, text) = (folder.join(page_name + ".1"), rendered(page)?);
    output::write(&path, |out| out.write_all(&text))?;
    output::print(&format!("wrote {}\n", name(path)));
    Ok(())
}
