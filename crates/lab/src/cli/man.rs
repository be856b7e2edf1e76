//! `ekiden-lab man`: the manual pages, from the declarations that also parse the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};

use crate::Cli;

#[derive(Args)]
pub struct ManCommand {
    /// Directory in which to create man1, the directory that man(1) searches
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let folder = self.folder.join("man1");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        write_pages(&command, &folder)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes one page for `command`, and one for each of its visible subcommands.
fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder)?;
    }
    let version = concat!("ekiden-lab ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone()).source(version).manual("ekiden");
    page.generate_to(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(())
}
