//! `ekiden man`: writes the manual pages. Those of commands come from the clap declarations, that of the configuration
//! file from `ekiden.example.toml`.

mod configuration;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};

use crate::Cli;

/// The footer of each page.
const VERSION: &str = concat!("ekiden ", env!("CARGO_PKG_VERSION"));

/// Write the manual pages
#[derive(Args)]
pub struct Man {
    /// Output directory; receives the subdirectories man1 and man5, where man(1) searches
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        write_commands(&command, &create_folder(&self.folder, "man1")?)?;
        write(&create_folder(&self.folder, "man5")?.join("ekiden.toml.5"), configuration::page().render().as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes one page for this command and one for each visible subcommand, recursively.
fn write_commands(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_commands(below, folder)?;
    }
    let others: &[&str] = match command.get_name() {
        "ekiden" => &["ekiden.toml(5)", "ekiden-lab(1)"],
        _ => &["ekiden(1)", "ekiden.toml(5)"],
    };
    let page = clap_mangen::Man::new(command.clone()).source(VERSION).manual("ekiden");
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(see_also(&mut Roff::new(), others).to_roff().into_bytes());
    write(&folder.join(page.get_filename()), &text)
}

fn see_also<'a>(page: &'a mut Roff, others: &[&str]) -> &'a Roff {
    page.control("SH", ["SEE ALSO"]);
    for (number, other) in others.iter().enumerate() {
        let (name, section) = other.split_once('(').unwrap_or((other, ""));
        let rest = if section.is_empty() { String::new() } else { format!("({section}") };
        page.text([bold(name), roman(if number + 1 < others.len() { format!("{rest},") } else { rest })]);
    }
    page
}

fn create_folder(folder: &Path, section: &str) -> anyhow::Result<PathBuf> {
    let folder = folder.join(section);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn write(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
