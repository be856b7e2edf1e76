//! `ekiden-lab check`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use ekiden_lab::check::{self, CheckSize};
use ekiden_lab::topology::file;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};
use ekiden_sys::signal;

use crate::cli;
use crate::cli::virtual_options::ClockOptions;

#[derive(Args)]
pub struct CheckCommand {
    /// A lab file, or a built-in lab: acceptance, bufferbloat, long, lossy
    #[arg(value_name = "LAB")]
    file: PathBuf,
    /// Measure each link for a few seconds (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Measure as long as the published criteria require
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    clock: ClockOptions,
}

impl CheckCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let name = self.file.to_str().context("the name of the lab is not UTF-8")?;
        let size = if self.full { "--full" } else { "--quick" };
        if self.clock.is_virtual() {
            return self.clock.run_in_machine(&["check", name, size].map(str::to_owned), None);
        }
        let lab = file::load_lab(&self.file)?;
        if let SandboxEntry::Exited(status) = sandbox::enter()? {
            return Ok(ExitCode::from(status));
        }
        let size = if self.full { CheckSize::Full } else { CheckSize::Quick };
        let rows = check::run(&lab, size, &mut |row| eprintln!("{} {}: {}", row.link, row.property, row.measured))?;
        signal::end_on_broken_pipe()?;
        print!("{}", check::format_table(&rows));
        Ok(ExitCode::from(if rows.iter().all(|row| row.pass) { 0 } else { cli::EXIT_MISSED }))
    }
}
