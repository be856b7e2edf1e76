//! `ekiden cc`: congestion controls, and who has put them into the kernel.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ekiden_bpf::congestion::{
    self, CongestionControl, CongestionError, LoadedBy, PinOutcome, RegistrationMethod, UnloadOutcome,
};
use ekiden_bpf::congestion::{RegistrationGuard, TelemetryMap};
use ekiden_proto::event::CongestionStatus;
use ekiden_proto::profile::{Algorithm, CompoundTcp};
use ekiden_relay::config::congestion::{CongestionHandle, ProvidedControl, Telemetry};
use ekiden_relay::config::read::expected_one_of;
use serde_json::json;

/// A profile that names one of ours has the relay load it; this is for keeping one, and for other programs.
#[derive(Args)]
pub struct Cc {
    #[command(subcommand)]
    action: CcAction,
}

#[derive(Subcommand)]
enum CcAction {
    /// What the kernel has and ekiden carries; changes nothing
    List(ListControls),
    /// Puts them into the kernel, where they stay; in the place of older ones
    Load(LoadControls),
    /// Takes them out again; connections that use them go on
    Unload(UnloadControls),
}

#[derive(Args)]
struct ListControls {
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct LoadControls {
    /// Their names
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Registers them as kernels before 6.4 need it, which is done by itself there
    #[arg(long)]
    older: bool,
    /// With an error, all that the kernel said
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Args)]
struct UnloadControls {
    /// Their names
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Cc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            CcAction::List(ListControls { json: true }) => println!("{}", as_json(&congestion::list())),
            CcAction::List(ListControls { json: false }) => print!("{}", table(&congestion::list())),
            CcAction::Load(LoadControls { names, older, verbose }) => {
                let way = older.then_some(RegistrationMethod::Map);
                // All names before the first is loaded.
                let algorithms = names.iter().map(|name| congestion::find(name)).collect::<Result<Vec<_>, _>>()?;
                for algorithm in algorithms {
                    let pinned = congestion::pin(algorithm, way).map_err(|error| with_log(error, verbose))?;
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
        PinOutcome::Loaded => format!("{name} is loaded, until `ekiden cc unload {name}`"),
        PinOutcome::Updated => format!("{name} is updated: new connections get this one, older ones keep theirs"),
        PinOutcome::Unpinned => {
            format!(
                "{name} is loaded, until `ekiden cc unload {name}`; `ekiden status` cannot ask it, without a BPF file system"
            )
        }
    }
}

fn describe_unloaded(name: &str, unloaded: &UnloadOutcome) -> String {
    match unloaded {
        UnloadOutcome::Gone => format!("{name} is unloaded"),
        UnloadOutcome::Held(processes) => {
            format!("{name} is no longer kept; until they end, it is held by {}", holders(processes))
        }
    }
}

/// Who holds one. A pin in another mount namespace has no process.
pub fn holders(processes: &[u32]) -> String {
    match processes {
        [] => "a pin out of sight".to_owned(),
        _ => processes.iter().map(|process| format!("pid {process}")).collect::<Vec<_>>().join(", "),
    }
}

/// Where it is from, in a word and in full.
fn describe_loaded_by(origin: &LoadedBy) -> (&'static str, String) {
    match origin {
        LoadedBy::Kernel => ("kernel", "kernel".to_owned()),
        LoadedBy::Pinned => ("pinned", "ekiden cc load".to_owned()),
        LoadedBy::Held(processes) => ("held", holders(processes)),
        LoadedBy::Orphaned => ("left", "left by a killed process".to_owned()),
        LoadedBy::Hidden => ("hidden", "(only root sees)".to_owned()),
        LoadedBy::NotLoaded => ("not_loaded", "not loaded".to_owned()),
    }
}

fn allowed_users(one: &CongestionControl) -> &'static str {
    match (&one.loaded_by, one.is_unprivileged) {
        (LoadedBy::NotLoaded, _) => "nobody yet",
        (_, true) => "everybody",
        (_, false) => "CAP_NET_ADMIN",
    }
}

fn table(all: &[CongestionControl]) -> String {
    let heading = ["NAME", "FROM", "FOR", "WHAT IT IS"].map(str::to_owned);
    let row = |one: &CongestionControl| {
        [one.name.clone(), describe_loaded_by(&one.loaded_by).1, allowed_users(one).to_owned(), one.about.to_owned()]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(all.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (name, from, whom) = (width(0), width(1), width(2));
    let line = |[one, two, three, four]: &[String; 4]| format!("{one:name$}  {two:from$}  {three:whom$}  {four}");
    rows.iter().map(|row| line(row).trim_end().to_owned() + "\n").collect()
}

fn as_json(all: &[CongestionControl]) -> serde_json::Value {
    let one = |one: &CongestionControl| {
        let processes = if let LoadedBy::Held(processes) = &one.loaded_by { processes.as_slice() } else { &[] };
        let (from, loaded) = (describe_loaded_by(&one.loaded_by).0, one.loaded_by != LoadedBy::NotLoaded);
        json!({
            "name": one.name, "origin": from, "holders": processes, "loaded": loaded,
            "without_privilege": one.is_unprivileged, "about": one.about,
        })
    };
    all.iter().map(one).collect()
}

/// For the relay: has the kernel have the congestion control of this name while the result lives.
pub fn acquire(name: &str) -> Result<ProvidedControl, String> {
    let held = congestion::acquire(name, None).map_err(|error| error.to_string())?;
    let from = match &held.loaded_by {
        LoadedBy::Kernel => CongestionStatus::KERNEL.to_owned(),
        LoadedBy::NotLoaded => "loaded by this relay".to_owned(),
        other => describe_loaded_by(other).1,
    };
    Ok(ProvidedControl { from, control: Some(Box::new(AcquiredControl(held))) })
}

/// A congestion control of ours, or at least one that is in the kernel because we have it.
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

    fn set_options(&self, socket: BorrowedFd<'_>, wish: CompoundTcp) -> Result<(), String> {
        let sections = self
            .0
            .sections
            .as_ref()
            .ok_or("its storage is not ours to see: `ekiden cc load ctcp` is what shares it")?;
        sections.request_gamma(socket, wish.gamma, wish.auto_gamma).map_err(|error| match error.kind() {
            congestion::ErrorKind::PermissionDenied => TelemetryMap::write_permission_hint("ctcp"),
            _ => error.to_string(),
        })
    }
}

/// For `ekiden check --unit`: whether `ekiden cc load` knows it.
pub fn is_carried(name: &str) -> bool {
    congestion::find(name).is_ok()
}

/// For `ekiden check`: the expectation for a name that neither this kernel, nor another Linux, nor ekiden has.
pub fn unknown_control(name: &str) -> Option<String> {
    let there = congestion::list();
    let names = || there.iter().map(|one| one.name.as_str()).chain(Algorithm::LINUX.iter().copied());
    let is_there = names().any(|known| known == name) || ekiden_sys::congestion::check_available(name).is_ok();
    (!is_there).then(|| {
        expected_one_of(
            "a congestion control of Linux or of ekiden",
            name,
            names().collect::<BTreeSet<_>>().into_iter(),
        )
    })
}

/// For `ekiden check`: what is wrong with the name of a congestion control that nobody here knows.
pub fn load_hint(name: &str) -> Option<String> {
    let loaded = congestion::lookup(name).loaded_by != LoadedBy::NotLoaded;
    congestion::find(name).err().filter(|_| !loaded).map(|error| format!("the kernel has not loaded it, and {error}"))
}
