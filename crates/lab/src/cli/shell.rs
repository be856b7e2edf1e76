//! `ekiden-lab shell`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use ekiden_lab::capture::{CaptureOptions, CaptureSummary};
use ekiden_lab::emulator::StoppedCapture;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};
use ekiden_lab::topology::{LabRecording, RunningLab, file, shell};

use crate::cli::capture_arguments::CaptureArguments;
use crate::cli::virtual_options::ClockOptions;

#[derive(Args)]
pub struct ShellCommand {
    /// A lab file, or a built-in lab: acceptance, bufferbloat, long, lossy
    #[arg(value_name = "LAB")]
    file: PathBuf,
    /// Host of the shell [default: the first by name]
    host: Option<String>,
    #[command(flatten)]
    capture: CaptureArguments,
    #[command(flatten)]
    clock: ClockOptions,
}

impl ShellCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let name = self.file.to_str().context("the name of the lab is not UTF-8")?;
        let capture = self.capture.into_options();
        if self.clock.is_virtual() {
            return run_in_machine(&self.clock, name, self.host.as_deref(), capture.as_ref());
        }
        let lab = file::load_lab(&self.file)?;
        if let SandboxEntry::Exited(status) = sandbox::enter()? {
            return Ok(ExitCode::from(status));
        }
        let recording = LabRecording { capture: capture.as_ref(), ..LabRecording::default() };
        let running = RunningLab::start_with_recording(&lab, recording)?;
        let code = shell::run_shell(running.network(), &lab, self.host.as_deref())?;
        let captured = running.stop()?.map(StoppedCapture::finish).transpose()?;
        if let Some(warning) = captured.and_then(CaptureSummary::warning) {
            eprintln!("{warning}");
        }
        Ok(ExitCode::from(code))
    }
}

fn run_in_machine(
    clock: &ClockOptions,
    lab: &str,
    host: Option<&str>,
    capture: Option<&CaptureOptions>,
) -> anyhow::Result<ExitCode> {
    let mut arguments: Vec<String> = ["shell", lab].into_iter().chain(host).map(str::to_owned).collect();
    let capture = capture.map(CaptureOptions::in_machine).transpose()?;
    if let Some(capture) = &capture {
        let directory = capture.directory.to_str().context("the name of the directory is not UTF-8")?;
        arguments.extend([format!("--pcap={directory}"), format!("--pcap-snaplen={}", capture.snaplen)]);
    }
    clock.run_in_machine(&arguments, capture.map(|capture| capture.directory))
}
