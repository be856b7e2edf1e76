//! `ekiden cc`: lists, loads and unloads BPF congestion controls, and provides them to the relay and other commands.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ekiden_bpf::congestion::{
    self, CongestionControl, CongestionError, LoadedBy, PinOutcome, RegistrationMethod, UnloadOutcome,
};
use ekiden_bpf::congestion::{RegistrationGuard, ResumePhase, ResumeRequest, TelemetryMap};
use ekiden_bpf::kernel::{self, KernelTypes};
use ekiden_proto::event::CongestionStatus;
use ekiden_proto::profile::{Algorithm, CompoundTcp};
use ekiden_proto::resume::{Jump, ResumeGrant, ResumeOutcome};
use ekiden_relay::config::congestion::{CongestionHandle, ProvidedControl, Telemetry};
use ekiden_relay::config::read::expected_one_of;
use serde_json::json;

/// Manage congestion controls. The relay itself loads those that its profiles name while it runs; `load` keeps one in
/// the kernel and makes it available to other programs
#[derive(Args)]
pub struct Cc {
    #[command(subcommand)]
    action: CcAction,
}

#[derive(Subcommand)]
enum CcAction {
    /// List the congestion controls of the kernel and those that ekiden can load
    List(ListControls),
    /// Load congestion controls into the kernel until they are unloaded, replacing older versions
    Load(LoadControls),
    /// Unload congestion controls; connections that use them continue
    Unload(UnloadControls),
}

#[derive(Args)]
struct ListControls {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct LoadControls {
    /// Names of the congestion controls
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Use the registration method of kernels before 6.4, which is the default on those kernels
    #[arg(long)]
    older: bool,
    /// On errors, print the complete log of the kernel's verifier
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Args)]
struct UnloadControls {
    /// Names of the congestion controls
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Cc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            CcAction::List(ListControls { json: true }) => println!("{}", as_json(&congestion::list())),
            CcAction::List(ListControls { json: false }) => print!("{}", table(&congestion::list())),
            CcAction::Load(LoadControls { names, older, verbose }) => {
                let method = older.then_some(RegistrationMethod::Map);
                // Check all names before loading the first.
                let algorithms = names.iter().map(|name| congestion::find(name)).collect::<Result<Vec<_>, _>>()?;
                for algorithm in algorithms {
                    let pinned = congestion::pin(algorithm, method).map_err(|error| with_log(error, verbose))?;
                    println!("{}", describe_loaded(algorithm.name, pinned));
                }
            }
            CcAction::Unload(UnloadControls { names }) => {
                for name in names {
                    println!("{}", describe_unloaded(&name, &congestion::unload(&name)?));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn with_log(error: CongestionError, verbose: bool) -> anyhow::Error {
    match error.log().filter(|_| verbose) {
        Some(log) => anyhow::anyhow!("{error}\n{log}"),
        None => error.into(),
    }
}

fn describe_loaded(name: &str, pinned: PinOutcome) -> String {
    match pinned {
        PinOutcome::Loaded => format!("{name} is loaded until `ekiden cc unload {name}`"),
        PinOutcome::Updated => {
            format!("{name} is updated: new connections use the new version, open ones keep the old version")
        }
        PinOutcome::Unpinned => {
            format!(
                "{name} is loaded until `ekiden cc unload {name}`; without a BPF file system `ekiden status` cannot \
                 read its state"
            )
        }
    }
}

fn describe_unloaded(name: &str, unloaded: &UnloadOutcome) -> String {
    match unloaded {
        UnloadOutcome::Gone => format!("{name} is unloaded"),
        UnloadOutcome::Held(processes) => {
            format!("{name} is unpinned, but stays in the kernel while it is held by {}", holders(processes))
        }
    }
}

/// Lists the processes that hold a congestion control. A pin in another mount namespace has no process.
pub fn holders(processes: &[u32]) -> String {
    match processes {
        [] => "a pin in another mount namespace".to_owned(),
        _ => processes.iter().map(|process| format!("pid {process}")).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the origin as a JSON value and as text for tables.
fn describe_loaded_by(origin: &LoadedBy) -> (&'static str, String) {
    match origin {
        LoadedBy::Kernel => ("kernel", "kernel".to_owned()),
        LoadedBy::Pinned => ("pinned", "ekiden cc load".to_owned()),
        LoadedBy::Held(processes) => ("held", holders(processes)),
        LoadedBy::Orphaned => ("left", "left by a killed process".to_owned()),
        LoadedBy::Hidden => ("hidden", "(visible to root)".to_owned()),
        LoadedBy::NotLoaded => ("not_loaded", "not loaded".to_owned()),
    }
}

fn allowed_users(control: &CongestionControl) -> &'static str {
    match (&control.loaded_by, control.is_unprivileged) {
        (LoadedBy::NotLoaded, _) => "-",
        (_, true) => "all users",
        (_, false) => "CAP_NET_ADMIN",
    }
}

fn table(controls: &[CongestionControl]) -> String {
    let heading = ["NAME", "FROM", "USABLE BY", "DESCRIPTION"].map(str::to_owned);
    let row = |control: &CongestionControl| {
        [
            control.name.clone(),
            describe_loaded_by(&control.loaded_by).1,
            allowed_users(control).to_owned(),
            control.about.to_owned(),
        ]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(controls.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (name, from, users) = (width(0), width(1), width(2));
    let line = |[one, two, three, four]: &[String; 4]| format!("{one:name$}  {two:from$}  {three:users$}  {four}");
    rows.iter().map(|row| line(row).trim_end().to_owned() + "\n").collect()
}

fn as_json(controls: &[CongestionControl]) -> serde_json::Value {
    let to_json = |control: &CongestionControl| {
        let processes = if let LoadedBy::Held(processes) = &control.loaded_by { processes.as_slice() } else { &[] };
        let (from, loaded) = (describe_loaded_by(&control.loaded_by).0, control.loaded_by != LoadedBy::NotLoaded);
        json!({
            "name": control.name, "origin": from, "holders": processes, "loaded": loaded,
            "without_privilege": control.is_unprivileged, "about": control.about,
        })
    };
    controls.iter().map(to_json).collect()
}

/// Provides a congestion control to the relay: loads it if the kernel does not have it, and holds it until the result
/// is dropped.
pub fn acquire(name: &str) -> Result<ProvidedControl, String> {
    let acquired = congestion::acquire(name, None).map_err(|error| error.to_string())?;
    let from = match &acquired.loaded_by {
        LoadedBy::Kernel => CongestionStatus::KERNEL.to_owned(),
        LoadedBy::NotLoaded => "loaded by this relay".to_owned(),
        other => describe_loaded_by(other).1,
    };
    Ok(ProvidedControl { from, control: Some(Box::new(AcquiredControl(acquired))) })
}

/// A congestion control that this process holds in the kernel.
#[derive(Debug)]
struct AcquiredControl(RegistrationGuard);

impl CongestionHandle for AcquiredControl {
    fn telemetry(&self, socket: BorrowedFd<'_>) -> Option<Telemetry> {
        let section = self.0.sections.as_ref()?.read(socket)?;
        Some(Telemetry {
            window: section.window,
            loss_window: section.loss_window,
            delay_window: section.delay_window,
            base_rtt: Duration::from_micros(section.base_rtt_us.into()),
            queued: section.queued,
            gamma: section.gamma_now,
            rounds: section.rounds,
            losses: section.losses,
            timeouts: section.timeouts,
        })
    }

    fn set_options(&self, socket: BorrowedFd<'_>, options: CompoundTcp) -> Result<(), String> {
        let sections = self
            .0
            .sections
            .as_ref()
            .ok_or("the socket storage of ctcp is not accessible: run `ekiden cc load ctcp` to share it")?;
        sections.request_gamma(socket, options.gamma, options.auto_gamma).map_err(|error| match error.kind() {
            congestion::ErrorKind::PermissionDenied => TelemetryMap::write_permission_hint("ctcp"),
            _ => error.to_string(),
        })
    }

    fn can_resume(&self) -> bool {
        self.0.resumes.is_some()
    }

    fn request_resume(&self, socket: BorrowedFd<'_>, grant: ResumeGrant) -> Result<(), String> {
        let ResumeGrant { jump_bytes, saved_rtt, lifetime } = grant;
        let resumes = self.0.resumes.as_ref().ok_or("this congestion control cannot resume")?;
        let request = ResumeRequest { jump_bytes, saved_rtt, lifetime };
        resumes.request(socket, &request).map_err(|error| error.to_string())
    }

    fn resume_outcome(&self, socket: BorrowedFd<'_>) -> Option<Jump> {
        let state = self.0.resumes.as_ref()?.state(socket)?;
        let outcome = match state.phase {
            ResumePhase::Waiting => ResumeOutcome::Unused,
            ResumePhase::Rejected(_) => ResumeOutcome::Rejected,
            ResumePhase::Unvalidated | ResumePhase::Validating => ResumeOutcome::Unconfirmed,
            ResumePhase::Validated => ResumeOutcome::Confirmed,
            ResumePhase::Retreating | ResumePhase::Retreated => ResumeOutcome::Retreated,
        };
        Some(Jump { bytes: state.sent_bytes, outcome })
    }
}

/// Returns whether `ekiden cc load` can load this congestion control, for `ekiden check --unit`. It cannot replace a
/// control of the kernel that has the name.
pub fn is_carried(name: &str) -> bool {
    congestion::find(name).is_ok() && congestion::lookup(name).loaded_by != LoadedBy::Kernel
}

/// Returns whether a relay with the privileges of this process can load this congestion control, for `ekiden doctor`.
pub fn can_load(name: &str) -> bool {
    let is_supported = || KernelTypes::running().is_some_and(|kernel| congestion::check_support(&kernel).is_ok());
    is_carried(name) && kernel::missing_capabilities().is_empty() && is_supported()
}

/// Returns the error of `ekiden check` for a name that is a congestion control neither of this kernel, nor of any
/// Linux, nor of ekiden.
pub fn unknown_control(name: &str) -> Option<String> {
    let listed = congestion::list();
    let names = || listed.iter().map(|control| control.name.as_str()).chain(Algorithm::LINUX.iter().copied());
    let is_known = names().any(|known| known == name) || ekiden_sys::congestion::check_available(name).is_ok();
    (!is_known).then(|| {
        expected_one_of(
            "a congestion control of Linux or of ekiden",
            name,
            names().collect::<BTreeSet<_>>().into_iter(),
        )
    })
}

/// Returns a hint for `ekiden check` if the kernel has not loaded this congestion control and ekiden cannot load it.
pub fn load_hint(name: &str) -> Option<String> {
    let loaded = congestion::lookup(name).loaded_by != LoadedBy::NotLoaded;
    congestion::find(name)
        .err()
        .filter(|_| !loaded)
        .map(|error| format!("the kernel has not loaded this congestion control, and {error}"))
}
