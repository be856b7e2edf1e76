//! The options of commands that can run in virtual time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use ekiden_lab::experiment::spec::file::ExperimentClock;
use ekiden_lab::virtual_time::kernel::VirtualKernel;
use ekiden_lab::virtual_time::machine::{MIN_MEMORY, Machine, MachineCommand, MachineOptions, VirtualTime};
use ekiden_proto::units::{Bytes, Span};

const BUILD_HINT: &str = "no virtual kernel; `ekiden-lab kernel build` builds one";

/// Options of commands that run in real or in virtual time.
#[derive(Args, Clone)]
pub struct ClockOptions {
    /// Run in virtual time: processes take no time, and the clock jumps when all of them wait
    #[arg(long = "virtual", conflicts_with = "is_real", help_heading = "Virtual time")]
    is_virtual: bool,
    /// Run in real time
    #[arg(long = "real", help_heading = "Virtual time")]
    is_real: bool,
    #[command(flatten)]
    machine: VirtualOptions,
}

/// Options of virtual machines.
#[derive(Args, Clone)]
pub struct VirtualOptions {
    /// The virtual kernel [default: the first of `ekiden-lab kernel list`]
    #[arg(long, value_name = "FILE", help_heading = "Virtual time")]
    kernel: Option<PathBuf>,
    /// Memory of a virtual machine
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_memory, help_heading = "Virtual time")]
    memory: Bytes,
    /// Ends a virtual machine in which no virtual time passes for so long in real time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_seconds, help_heading = "Virtual time")]
    watchdog: Span,
}

impl ClockOptions {
    /// Returns the virtual machines of an experiment with this `clock` that needs these congestion controls, or none for
    /// real time. Without an option, the time is virtual if the experiment and the kernel allow it.
    ///
    /// # Errors
    /// The options ask for a clock that the experiment or the kernel does not allow.
    pub fn choose(&self, clock: ExperimentClock, controls: &BTreeSet<String>) -> anyhow::Result<Option<VirtualTime>> {
        match clock {
            ExperimentClock::Real if self.is_virtual => {
                bail!("clock = \"real\": the experiment depends on the time that processes take")
            }
            ExperimentClock::Real => return Ok(None),
            ExperimentClock::Virtual if self.is_real => {
                bail!("clock = \"virtual\": the experiment does not run in real time")
            }
            ExperimentClock::Virtual | ExperimentClock::Either if self.is_real => return Ok(None),
            ExperimentClock::Virtual | ExperimentClock::Either => {}
        }
        let is_required = self.is_virtual || self.machine.kernel.is_some() || clock == ExperimentClock::Virtual;
        if !is_required && VirtualKernel::find()?.is_none() {
            eprintln!("in real time: {BUILD_HINT}");
            return Ok(None);
        }
        let virtual_time = self.machine.virtual_time()?;
        let info = &virtual_time.kernel.info;
        let missing: Vec<&String> = controls.iter().filter(|name| !info.congestion_controls.contains(name)).collect();
        let lacks = || format!("the virtual kernel {} has no congestion control {missing:?}", info.release);
        ensure!(missing.is_empty() || !is_required, lacks());
        if !missing.is_empty() {
            eprintln!("in real time: {}", lacks());
            return Ok(None);
        }
        Ok(Some(virtual_time))
    }

    /// Runs a command of this program in a virtual machine, if the options ask for one. Returns its exit code.
    ///
    /// # Errors
    /// There is no virtual kernel, or it does not start.
    pub fn run_in_machine(&self, arguments: &[&str]) -> anyhow::Result<Option<ExitCode>> {
        if !self.is_virtual {
            return Ok(None);
        }
        let own = std::env::current_exe().context("cannot find the executable of this process")?;
        let command = MachineCommand::new(own, arguments)?.with_own_environment();
        self.machine.run(&command).map(Some)
    }
}

impl VirtualOptions {
    /// Runs a command in a virtual machine, with the standard streams of this process. Returns its exit code.
    ///
    /// # Errors
    /// There is no virtual kernel, or it does not start.
    pub fn run(&self, command: &MachineCommand) -> anyhow::Result<ExitCode> {
        let VirtualTime { kernel, options } = self.virtual_time()?;
        Machine::boot(&kernel.path, command, &options, false)?.pass_input_and_wait().map(ExitCode::from)
    }

    /// Returns the chosen kernel, or the default one, and the properties of the machine.
    fn virtual_time(&self) -> anyhow::Result<VirtualTime> {
        let kernel = match &self.kernel {
            Some(path) => VirtualKernel::open(path)?,
            None => VirtualKernel::find()?.context(BUILD_HINT)?,
        };
        // Machines of several processes shall not all run on the same processor.
        let processor = std::process::id() as usize;
        let options =
            MachineOptions { processor, memory: self.memory, watchdog: self.watchdog.0, ..MachineOptions::default() };
        Ok(VirtualTime { kernel, options })
    }
}

fn parse_memory(text: &str) -> Result<Bytes, String> {
    let memory = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    if memory.0 < MIN_MEMORY.0 {
        return Err(format!("at least {} MiB", MIN_MEMORY.0 >> 20));
    }
    Ok(memory)
}

fn parse_seconds(text: &str) -> Result<Span, String> {
    let time = text.parse::<Span>().map_err(|error| error.to_string())?;
    if time.0.as_secs() == 0 || time.0.subsec_nanos() > 0 {
        return Err("expected whole seconds, like 60s".into());
    }
    Ok(time)
}
