//! `ekiden probe`: measures a target, direct and through each relay.

use std::cell::RefCell;
use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ekiden_proto::quantity::compact_size;
use ekiden_proto::units::{Bytes, Span};
use ekiden_relay::config::Config;
use ekiden_relay::config::read::{self, ConfigErrors, Flags};
use ekiden_relay::probe::{self, ProbeBudget, ProbeReport, ProbeTarget, VISIT_BYTES, table, view};
use ekiden_sys::signal;

/// Connect to a target and download from it, direct and through each relay. This creates real traffic
#[derive(Args)]
#[command(
    after_help = "exit status: 0 at least one path reached the target, 1 no path reached it, 2 invalid arguments or \
    configuration, 130 interrupted"
)]
pub struct Probe {
    /// `HOST[:PORT]` (default port 443), or the URL of a large file: only a download measures rates
    target: ProbeTarget,
    /// Configuration file or directory with the relays: each relay, and each path of a route, is probed
    #[arg(short = 'c', long = "config", value_name = "PATH", env = "EKIDEN_CONFIG", value_delimiter = ':')]
    config: Vec<PathBuf>,
    /// A relay to probe, in the syntax of `ekiden run -F`; several relays are probed one by one and as a chain
    #[arg(short = 'F', long = "forward", value_name = "URL", env = "EKIDEN_FORWARD", value_delimiter = ' ')]
    forward: Vec<String>,
    /// File with this host's private key, made by `ekiden keygen`
    #[arg(long, value_name = "FILE", env = "EKIDEN_KEY")]
    key: Option<String>,
    /// Probe only this relay or path, and the direct path; may be repeated
    #[arg(long, value_name = "NAME")]
    via: Vec<String>,
    /// Number of connections per path
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// Maximum duration of the download per path, and of each of the two visits before it
    #[arg(long, value_name = "TIME", default_value = "5s")]
    time: Span,
    /// Maximum size of the download per path; a visit has 1 MiB at most
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    bytes: Bytes,
    /// Print the complete report as JSON
    #[arg(long)]
    json: bool,
}

impl Probe {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let config = match self.read() {
            Ok(config) => config,
            Err(mistakes) => {
                eprintln!("{mistakes}");
                return Ok(ExitCode::from(2));
            }
        };
        config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        let report = match ProbeReport::new(&config, &self.via, self.target.clone()) {
            Ok(report) => RefCell::new(report),
            Err(unknown) => {
                eprintln!("ekiden: {unknown}");
                return Ok(ExitCode::from(2));
            }
        };
        let effort = ProbeBudget { count: self.count, time: self.time.0, bytes: self.bytes.0 };
        eprintln!("{}", describe_effort(&report.borrow(), effort));
        let is_complete = probe::run_until_interrupted(probe::run(&config, &report, effort, &show_progress))?;
        show_progress("");
        let report = report.into_inner();
        signal::end_on_broken_pipe()?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&view::probe_view(&report, !is_complete))?);
        } else {
            if !is_complete {
                println!("Interrupted; so far:");
            }
            print!("{}", table::table(&report));
        }
        Ok(match (is_complete, report.has_result()) {
            (false, _) => ExitCode::from(130),
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::FAILURE,
        })
    }

    fn read(&self) -> Result<Config, ConfigErrors> {
        // A configuration requires at least one listener; without a file there is none.
        let listen = if self.config.is_empty() { vec!["auto://127.0.0.1:0".to_owned()] } else { Vec::new() };
        let flags = Flags { listen, forward: self.forward.clone(), key: self.key.clone(), ..Flags::default() };
        read::load(self.config.iter().map(PathBuf::as_path), &flags)
    }
}

/// Describes the traffic that the probe will create.
fn describe_effort(report: &ProbeReport, effort: ProbeBudget) -> String {
    let (target, path_count) = (&report.target, report.findings.len());
    let plural = if path_count == 1 { "path" } else { "paths" };
    let connections = format!("probing {target} over {path_count} {plural}: {} connections per path", effort.count);
    if report.target.url.is_none() {
        return connections;
    }
    let longest = Duration::as_secs_f64(&effort.time);
    let visit = compact_size(effort.bytes.min(VISIT_BYTES));
    let download = compact_size(effort.bytes);
    format!(
        "{connections}, two visits of {visit} per path, and real traffic of at most {longest} s or {download} per path"
    )
}

/// Replaces the progress line on stderr if that is a terminal. An empty `progress` clears the line.
fn show_progress(progress: &str) {
    let mut stderr = stderr();
    if stderr.is_terminal() {
        // A progress line that cannot be written is no reason to stop.
        let _ = write!(stderr, "\r\x1b[K{progress}").and_then(|()| stderr.flush());
    }
}
