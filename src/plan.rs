//! `ekiden plan`: predicts where relays help, and the best places for more relays.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ekiden_proto::path::plan::{Plan as Prediction, PlanInput, implausible, picture, table, view};
use ekiden_proto::quantity::time;
use ekiden_relay::config::plan::{self, PlanFile, UnmeasuredRtt};
use ekiden_relay::probe;

/// Predict and rank paths, and find the best sites for the next one or two relays
#[derive(Args)]
pub struct Plan {
    /// The file with sites and round-trip times; docs/planning.md describes its format
    file: PathBuf,
    /// Print the complete plan as JSON
    #[arg(long)]
    json: bool,
    /// Also draw the network and the best paths into this file
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Number of paths to show for each pair of client and server
    #[arg(long, value_name = "N", default_value_t = 5)]
    paths: usize,
}

impl Plan {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let plan_file = match plan::load(&self.file) {
            Ok(plan_file) => plan_file,
            Err(mistakes) => {
                eprintln!("{mistakes}");
                return Ok(ExitCode::from(2));
            }
        };
        for warning in &plan_file.warnings {
            eprintln!("{warning}");
        }
        let network =
            measure_missing(plan_file).map_err(|error| anyhow::anyhow!("{}: {error}", self.file.display()))?;
        let Some(network) = network else { return Ok(ExitCode::from(130)) };
        let plan = Prediction::compute(&network);
        if let Some(file) = &self.picture {
            std::fs::write(file, picture::render_svg(&network, &plan))
                .with_context(|| format!("cannot write the picture to {}", file.display()))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&view::build(&network, &plan))?);
        } else {
            print!("{}", table::table(&network, &plan, self.paths));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Measures the round-trip times that the file leaves open, and reports each result on stderr. Returns `None` if the
/// user presses Ctrl-C.
fn measure_missing(plan_file: PlanFile) -> Result<Option<PlanInput>, String> {
    let mut measured: Vec<(UnmeasuredRtt, Duration)> = Vec::new();
    if !plan_file.to_measure.is_empty() {
        eprintln!("measuring {} round trip(s) with TCP connections...", plan_file.to_measure.len());
        let results = probe::measure_round_trips(&plan_file.to_measure).map_err(|error| error.to_string())?;
        let Some(results) = results else { return Ok(None) };
        for (entry, result) in results {
            let UnmeasuredRtt { name, address, .. } = &entry;
            match result {
                Ok(rtt) => {
                    eprintln!("  {name} ({address}): {}", time(rtt.as_secs_f64()));
                    measured.push((entry, rtt));
                }
                Err(cause) => eprintln!("  {name} ({address}): {}", cause.sentence()),
            }
        }
    }
    let network = plan_file.complete(&measured)?;
    for anomaly in implausible::find_anomalies(&network.sites, &network.matrix) {
        let (first, second) = anomaly.sites;
        if measured.iter().any(|(entry, _)| entry.sites == (first, second) || entry.sites == (second, first)) {
            let names = (&network.sites[first].name, &network.sites[second].name);
            eprintln!("warning: {} - {}, as measured: expected {}", names.0, names.1, anomaly.expected);
        }
    }
    Ok(Some(network))
}
