//! `ekiden-lab report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::collect::results::Results;
use ekiden_lab::experiment::collect::store;
use ekiden_lab::experiment::judge::analyse;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::report::{self, Agreement, CellAgreement};
use ekiden_sys::signal;

use crate::cli;

#[derive(Args)]
pub struct ReportCommand {
    /// A folder of results
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Test whether another folder of results of the same experiment agrees within the intervals
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
}

impl ReportCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let results = load_results(&self.dir)?;
        if let Some(other) = &self.against {
            let other = load_results(other)?;
            let agreement = Agreement::new(&results.cells, &other.cells);
            signal::end_on_broken_pipe()?;
            let [same, agree, differ] = CellAgreement::ALL.map(|one| agreement.count(one));
            print!("{}", agreement.lines(&CellAgreement::ALL));
            println!("\n{} of {} cells agree within their intervals", same + agree, same + agree + differ);
            return Ok(ExitCode::from(if same + agree > 0 && differ == 0 { 0 } else { cli::EXIT_MISSED }));
        }
        let page = report::write(&results, &self.dir)?;
        cli::print_report(&results, &page)?;
        Ok(ExitCode::from(cli::run::print_verdict(&results)))
    }
}

/// Reads the results in a directory.
pub fn load_results(dir: &Path) -> anyhow::Result<Results> {
    let (manifest, runs, checks) = store::load(dir)?;
    let experiment = Experiment::parse(&manifest.name, &manifest.file);
    let experiment = experiment.map_err(|mistakes| cli::format_errors(&manifest.name, &mistakes))?;
    Ok(analyse::build_results(&experiment, &manifest, &runs, &checks))
}
