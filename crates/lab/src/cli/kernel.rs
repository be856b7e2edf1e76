//! The subcommand `ekiden-lab kernel`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ekiden_lab::virtual_time::build;
use ekiden_lab::virtual_time::kernel::{self, VirtualKernel};
use ekiden_lab::virtual_time::machine::{DEFAULT_SEED, MachineCommand};
use ekiden_lab::virtual_time::source::KernelSource;
use ekiden_sys::signal;

use crate::cli::virtual_options::{BUILD_HINT, VirtualOptions};

#[derive(Args)]
pub struct KernelCommand {
    #[command(subcommand)]
    action: KernelAction,
}

#[derive(Subcommand)]
enum KernelAction {
    /// Build a virtual kernel from the distribution's source, without root; some minutes
    Build {
        /// Version of the package linux-source-VERSION of the distribution or of Debian's backports [default: 7.2, or
        /// 6.12 if 7.2 is not available]
        version: Option<String>,
        /// A package linux-source-* or a tar archive of Linux, instead of a version
        #[arg(long, value_name = "FILE", conflicts_with = "version")]
        source: Option<PathBuf>,
    },
    /// List the built virtual kernels; the first is the default
    List,
    /// Run a command in a virtual kernel: as root, on the files of this machine, without its network
    Run {
        #[command(flatten)]
        options: VirtualOptions,
        /// Seed of every random number of the kernel: addresses, ports, hashes
        #[arg(long, default_value_t = DEFAULT_SEED)]
        seed: u64,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

impl KernelCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            KernelAction::Build { version, source } => {
                let version = version.map_or(KernelSource::Newest, KernelSource::Version);
                let source = source.map_or(version, KernelSource::File);
                let built = build::build_kernel(&source, &mut |line| eprintln!("{line}"))?;
                println!("{}", built.path.display());
            }
            KernelAction::List => print_kernels()?,
            KernelAction::Run { options, seed, command } => return run(&options, seed, &command),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_kernels() -> anyhow::Result<()> {
    let kernels = kernel::list()?;
    signal::end_on_broken_pipe()?;
    if !kernels.iter().any(VirtualKernel::is_of_this_version) {
        println!("{BUILD_HINT}");
    }
    for kernel in kernels {
        let note = if kernel.is_of_this_version() { "" } else { "   (unused: built by another version of ekiden-lab)" };
        println!("{:<20} {}{note}", kernel.info.release, kernel.path.display());
        println!("{:<20} from {}", "", kernel.info.source);
        println!("{:<20} congestion controls: {}", "", kernel.info.congestion_controls.join(" "));
    }
    Ok(())
}

fn run(options: &VirtualOptions, seed: u64, command: &[String]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = command.split_first().expect("clap requires a command");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    options.run(&MachineCommand::new(program, &arguments)?.with_own_environment(), seed)
}
