//! `ekiden probe`: how does a target do, direct and through each relay?

use std::cell::RefCell;
use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ekiden_proto::path::plan::numbers::size;
use ekiden_proto::units::{Bytes, Span};
use ekiden_relay::config::Config;
use ekiden_relay::config::read::{self, ConfigErrors, Flags};
use ekiden_relay::probe::{self, ProbeBudget, ProbeReport, ProbeTarget, table, view};

/// Connects to a target, and downloads from it, direct and through each relay. Makes real traffic.
#[derive(Args)]
#[command(after_help = "exit status: 0 the target was reached by some way, 1 by none, 2 a mistake in what was asked, \
    130 interrupted")]
pub struct Probe {
    /// `HOST[:PORT]` (443 unless written), or the URL of a large file: only a download measures rates
    target: ProbeTarget,
    /// The configuration with the relays: every relay, and every path of a route, is tried
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
    /// A relay to try, as `ekiden run -F` takes it; several are tried each alone, and one behind the other
    #[arg(short = 'F', long = "forward", value_name = "URL", env = "EKIDEN_FORWARD", value_delimiter = ' ')]
    forward: Vec<String>,
    /// File with our own private key, made by `ekiden keygen`
    #[arg(long, value_name = "FILE", env = "EKIDEN_KEY")]
    key: Option<String>,
    /// Only this relay or path, and direct; may be given more than once
    #[arg(long, value_name = "NAME")]
    via: Vec<String>,
    /// Connections by each way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// How long to download by each way
    #[arg(long, value_name = "TIME", default_value = "5s")]
    time: Span,
    /// How much to download by each way, at most
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    bytes: Bytes,
    /// Everything, as JSON
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
        let done = probe::run_until_interrupted(probe::run(&config, &report, effort, &show_progress))?;
        show_progress("");
        let report = report.into_inner();
        if self.json {
            println!("{}", serde_json::to_string_pretty(&view::probe_view(&report, !done))?);
        } else {
            if !done {
                println!("Interrupted; so far:");
            }
            print!("{}", table::table(&report));
        }
        Ok(match (done, report.is_reached()) {
            (false, _) => ExitCode::from(130),
            (true, true) => ExitCode::SUCCESS,
            (true, false) => ExitCode::FAILURE,
        })
    }

    fn read(&self) -> Result<Config, ConfigErrors> {
        // Without a file there is no listener, and a configuration needs one.
        let listen = if self.config.is_none() { vec!["auto://127.0.0.1:0".to_owned()] } else { Vec::new() };
        let flags = Flags { listen, forward: self.forward.clone(), key: self.key.clone(), ..Flags::default() };
        read::load(self.config.as_deref(), &flags)
    }
}

/// What is about to happen.
fn describe_effort(report: &ProbeReport, effort: ProbeBudget) -> String {
    let (target, ways) = (&report.target, report.findings.len());
    let plural = if ways == 1 { "way" } else { "ways" };
    let connections = format!("probing {target} by {ways} {plural}: {} connections by each", effort.count);
    if report.target.url.is_none() {
        return connections;
    }
    let longest = Duration::as_secs_f64(&effort.time);
    format!("{connections}, and real traffic: {longest} s or {} by each", size(effort.bytes))
}

/// Progress, where somebody watches; nothing clears the line.
fn show_progress(what: &str) {
    let mut stderr = stderr();
    if stderr.is_terminal() {
        // A progress line that cannot be written is no reason to stop.
        let _ = write!(stderr, "\r\x1b[K{what}").and_then(|()| stderr.flush());
    }
}
