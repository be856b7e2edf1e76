//! A virtual machine: a process that runs a virtual kernel, which runs one command and then turns itself off.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use ekiden_proto::units::Bytes;
use ekiden_sys::{init, signal, thread};
use serde::{Deserialize, Serialize};

use super::kernel::VirtualKernel;

/// The wall-clock time at which every machine starts: 2030-01-01 00:00 UTC, so that files of the host are older.
const START_NANOSECONDS: &str = "1893456000000000000";
/// The seed of a machine if the user sets none.
pub const DEFAULT_SEED: u64 = 1;
/// The smallest memory in which the programs of an experiment run.
pub const MIN_MEMORY: Bytes = Bytes(128 << 20);
/// Interval at which [`Machine::wait`] checks for the end of the machine and for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The properties of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineOptions {
    /// The memory of the machine. The host provides only the pages in use.
    pub memory: Bytes,
    /// The seed of every random number of the kernel, and thus of addresses, ports, hashes and losses.
    pub seed: u64,
    /// Real time without progress of virtual time after which the machine ends.
    pub watchdog: Duration,
    /// Index of the processor of the machine among the allowed ones. The kernel and its processes run in turn, which
    /// takes a third of the time if they share a processor.
    pub processor: usize,
}

impl Default for MachineOptions {
    fn default() -> Self {
        Self { memory: Bytes(2 << 30), seed: DEFAULT_SEED, watchdog: Duration::from_secs(60), processor: 0 }
    }
}

/// The kernel and the properties of the machines that run an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualTime {
    /// The kernel of all machines.
    pub kernel: VirtualKernel,
    /// The properties of the machines.
    pub options: MachineOptions,
}

/// The command that is run in a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCommand {
    /// The program, searched in `PATH` if it is a name.
    pub program: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<String>,
    /// The working directory of the program.
    pub directory: PathBuf,
    /// A directory of the host into which the machine can write; all other changes are lost with the machine.
    #[serde(default)]
    pub host_directory: Option<PathBuf>,
    /// The complete environment of the program.
    pub environment: BTreeMap<String, String>,
}

impl MachineCommand {
    /// Returns a command in the current directory, with an environment that is the same for every user.
    ///
    /// # Errors
    /// There is no current directory.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> anyhow::Result<Self> {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let environment = [("PATH", path), ("HOME", "/tmp"), ("LANG", "C.UTF-8")];
        Ok(Self {
            program: program.into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            directory: std::env::current_dir().context("cannot find the current directory")?,
            host_directory: None,
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        })
    }

    /// Adds the environment of this process.
    #[must_use]
    pub fn with_own_environment(mut self) -> Self {
        // A variable that is not valid Unicode cannot be passed in JSON.
        self.environment.extend(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
        self
    }
}

/// A running machine. It is killed on drop, and when the thread that booted it ends.
#[derive(Debug)]
pub struct Machine {
    process: Child,
}

impl Machine {
    /// Boots a machine that runs `command` as root, without the network of the host, on the files of the host with a
    /// temporary layer for changes. Standard output and error of the command are those of this process, or pipes if
    /// `is_piped`; standard input is a pipe.
    ///
    /// # Errors
    /// The kernel cannot be executed, or the executable of this process has a name with a space.
    pub fn boot(
        kernel: &Path,
        command: &MachineCommand,
        options: &MachineOptions,
        is_piped: bool,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find the executable of this process")?;
        let own = own.to_str().filter(|path| !path.contains(char::is_whitespace)).with_context(|| {
            format!("{}: the virtual kernel cannot start a program with a space in its path", own.display())
        })?;
        let stdio = || if is_piped { Stdio::piped() } else { Stdio::inherit() };
        let mut process = Command::new(kernel);
        process
            .args(kernel_arguments(own, options))
            .env_clear()
            // glibc 2.35 and later register a restartable sequence, which User-Mode Linux before 6.16 cannot have.
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .env("EKIDEN_SEED", format!("{:016x}", options.seed))
            .env("EKIDEN_WATCHDOG", format!("{:08}", options.watchdog.as_secs()))
            .stdin(Stdio::piped())
            .stdout(stdio())
            .stderr(stdio());
        let processors = thread::allowed_processors().context("cannot read the allowed processors")?;
        thread::start_on_processor(&mut process, processors[options.processor % processors.len()]);
        init::disable_address_randomization(&mut process);
        init::kill_with_parent(&mut process);
        let process = process.spawn().with_context(|| kernel.display().to_string())?;
        let mut machine = Self { process };
        machine.send_command(command)?;
        Ok(machine)
    }

    /// Writes the command, preceded by its length: [`super::guest`] reads it first, and leaves the rest of standard
    /// input to the command.
    fn send_command(&mut self, command: &MachineCommand) -> anyhow::Result<()> {
        let text = serde_json::to_string(command)?;
        let stdin = self.process.stdin.as_mut().context("the machine has no standard input")?;
        write!(stdin, "{:08x}{text}", text.len()).context("the virtual kernel does not start")
    }

    /// The process ID, on the host, of the machine's kernel.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Writes `input` to the command of a machine that was booted with pipes, and returns the output of the command and
    /// the exit status of the machine.
    ///
    /// # Errors
    /// The machine has no pipes, or wait4(2) failed. A command that fails is not an error.
    pub fn run_to_end(mut self, input: &[u8]) -> anyhow::Result<Output> {
        let pipes = (self.process.stdin.take(), self.process.stdout.take(), self.process.stderr.take());
        let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) = pipes else {
            anyhow::bail!("the machine has no pipes");
        };
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        // Errors of the pipes are ignored: if the machine ended early, its status is more informative.
        let status = std::thread::scope(|scope| {
            scope.spawn(|| drop(stdout.read_to_end(&mut output)));
            scope.spawn(|| drop(stderr.read_to_end(&mut errors)));
            scope.spawn(move || drop(stdin.write_all(input)));
            self.wait()
        });
        Ok(Output { status: status?, stdout: output, stderr: errors })
    }

    /// Boots a machine with the standard input, output and error of this process, and returns the exit code of the
    /// command. An interrupt, such as Ctrl-C, ends the machine; then the exit code is 128 plus the number of the
    /// signal.
    ///
    /// # Errors
    /// Those of [`Self::boot`]; wait4(2) or sigaction(2) failed.
    pub fn run_interactively(kernel: &Path, command: &MachineCommand, options: &MachineOptions) -> anyhow::Result<u8> {
        // Before the boot, so that an interrupt cannot end this process and leave the machine running.
        signal::catch_interrupts()?;
        let mut machine = Self::boot(kernel, command, options, false)?;
        let mut stdin = machine.process.stdin.take().context("the machine has no standard input")?;
        // The thread may still wait for input when the machine has ended. It ends with this process.
        std::thread::spawn(move || drop(std::io::copy(&mut std::io::stdin().lock(), &mut stdin)));
        let status = machine.wait()?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.or_else(signal::interrupt_exit_code).unwrap_or(u8::MAX))
    }

    /// Waits for the end of the machine. An interrupt of this process kills the machine, which has nothing to save.
    fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.process.try_wait().context("cannot wait for the virtual machine")? {
                return Ok(status);
            }
            if signal::is_interrupted() {
                self.process.kill().context("cannot kill the virtual machine")?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only if the machine has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kernel_arguments(init: &str, options: &MachineOptions) -> Vec<String> {
    // Without a console argument the kernel would append one to the arguments of init.
    let words = "root=none rootfstype=hostfs rootflags=/ ro console=tty0 con=null con0=null ssl=null \
         dummy.numdummies=0 ifb.numifbs=0 quiet loglevel=1 uml_dir=/proc/ time-travel=inf-cpu";
    let mut all: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    all.push(format!("time-travel-start={START_NANOSECONDS}"));
    all.push(format!("mem={}M", options.memory.0 >> 20));
    // Linux 6.16 and later: a system call of the guest then costs two futex(2) instead of six ptrace(2).
    all.push("seccomp=auto".to_owned());
    all.push(format!("init={init}"));
    all.extend(["--", "guest"].map(str::to_owned));
    all
}
