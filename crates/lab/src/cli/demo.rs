//! `ekiden-lab demo`.

use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::campaign::Request;
use ekiden_lab::experiment::demo;

use crate::cli;
use crate::cli::run::{Ekiden, in_sandbox};

#[derive(Args)]
pub struct Demo {
    #[command(flatten)]
    ekiden: Ekiden,
}

impl Demo {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let experiment = cli::read("demo")?;
        // Nobody asked for results: they go where temporary files go, and the next demonstration begins anew.
        let out = std::env::temp_dir().join(format!("ekiden-lab-demo-{}", std::process::id()));
        let request = Request {
            out: Some(out.clone()),
            fresh: true,
            no_check: true,
            ekiden: self.ekiden.path,
            ..Request::default()
        };
        let results = in_sandbox(&experiment, &request);
        // Already gone, if this is the second of the two processes that get here.
        let _ = std::fs::remove_dir_all(&out);
        match results? {
            Err(ended) => Ok(ended),
            Ok(results) => {
                print!("{}", demo::story(&results));
                let failed = results.cells.iter().any(|cell| cell.summary.n == 0);
                Ok(ExitCode::from(if failed { cli::MISTAKE } else { 0 }))
            }
        }
    }
}
