//! The options of commands that can run in virtual time.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use ekiden_lab::experiment::spec::file::ExperimentClock;
use ekiden_lab::virtual_time::kernel::VirtualKernel;
use ekiden_lab::virtual_time::machine::{
    DEFAULT_SEED, MIN_MEMORY, Machine, MachineCommand, MachineOptions, VirtualTime,
};
use ekiden_proto::units::Bytes;

use crate::cli;

/// The message for a user without a virtual kernel.
pub const BUILD_HINT: &str =
    "no virtual kernel: run `ekiden-lab kernel build`, or install the package ekiden-lab-kernel";

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
    /// End a virtual machine after this real time without progress of virtual time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = cli::parse_whole_seconds, help_heading = "Virtual time")]
    watchdog: Duration,
}

impl ClockOptions {
    /// Returns the virtual machines of an experiment with this `clock` that needs these congestion controls, or `None`
    /// for real time. Without an option, the time is virtual if the experiment and the kernel allow it.
    ///
    /// # Errors
    /// The options require a clock that the experiment or the kernel does not allow.
    pub fn choose(&self, clock: ExperimentClock, controls: &BTreeSet<String>) -> anyhow::Result<Option<VirtualTime>> {
        match clock {
            ExperimentClock::Real if self.is_virtual => {
                bail!(
                    "clock = \"real\": the experiment runs only in real time, because its figures depend on the time \
                     that processes take"
                )
            }
            ExperimentClock::Real => return Ok(None),
            ExperimentClock::Virtual if self.is_real => {
                bail!("clock = \"virtual\": the experiment runs only in virtual time")
            }
            ExperimentClock::Virtual | ExperimentClock::Either if self.is_real => return Ok(None),
            ExperimentClock::Virtual | ExperimentClock::Either => {}
        }
        let is_required = self.is_virtual || self.machine.kernel.is_some() || clock == ExperimentClock::Virtual;
        let Some(kernel) = self.machine.find_kernel()? else {
            ensure!(!is_required, BUILD_HINT);
            eprintln!("using real time: {BUILD_HINT}");
            return Ok(None);
        };
        let info = &kernel.info;
        let missing: Vec<&String> = controls.iter().filter(|name| !info.congestion_controls.contains(name)).collect();
        let lacks = || format!("the virtual kernel {} has no congestion control {missing:?}", info.release);
        ensure!(missing.is_empty() || !is_required, lacks());
        if !missing.is_empty() {
            eprintln!("using real time: {}", lacks());
            return Ok(None);
        }
        Ok(Some(VirtualTime { kernel, options: self.machine.options() }))
    }

    /// Returns whether the options require virtual time.
    pub const fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// Runs a command of this program in a virtual machine that may write in `host_directory`. Returns its exit code.
    ///
    /// # Errors
    /// There is no virtual kernel, or it does not start.
    pub fn run_in_machine(&self, arguments: &[String], host_directory: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let own = std::env::current_exe().context("cannot find the executable of this process")?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let command = MachineCommand { host_directory, ..MachineCommand::new(own, &arguments)?.with_own_environment() };
        self.machine.run(&command, DEFAULT_SEED)
    }
}

impl VirtualOptions {
    /// Runs a command in a virtual machine with a seed, with the standard streams of this process. Returns its exit code.
    ///
    /// # Errors
    /// There is no virtual kernel, or it does not start.
    pub fn run(&self, command: &MachineCommand, seed: u64) -> anyhow::Result<ExitCode> {
        let kernel = self.find_kernel()?.context(BUILD_HINT)?;
        let options = MachineOptions { seed, ..self.options() };
        Machine::run_interactively(&kernel.path, command, &options).map(ExitCode::from)
    }

    /// Returns the chosen kernel, or the default one, if there is one.
    fn find_kernel(&self) -> anyhow::Result<Option<VirtualKernel>> {
        let Some(path) = &self.kernel else { return VirtualKernel::find() };
        let kernel = VirtualKernel::open(path)?;
        ensure!(
            kernel.is_of_this_version(),
            "{}: this kernel was built by another version of ekiden-lab: run `ekiden-lab kernel build`",
            path.display()
        );
        Ok(Some(kernel))
    }

    fn options(&self) -> MachineOptions {
        // Distributes the machines of several processes over the processors.
        let processor = std::process::id() as usize;
        MachineOptions { processor, memory: self.memory, watchdog: self.watchdog, ..MachineOptions::default() }
    }
}

fn parse_memory(text: &str) -> Result<Bytes, String> {
    let memory = text.parse::<Bytes>().map_err(|error| error.to_string())?;
    if memory.0 < MIN_MEMORY.0 {
        return Err(format!("expected at least {} MiB", MIN_MEMORY.0 >> 20));
    }
    Ok(memory)
}
