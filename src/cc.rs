//! `ekiden cc`: congestion controls, and who has put them into the kernel.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ekiden_bpf::congestion::{self, CongestionError, Origin, Pinned, Presence, Unloaded, Way};
use ekiden_bpf::congestion::{Held, Sections};
use ekiden_proto::event::Congestion;
use ekiden_proto::profile::{Algorithm, CompoundTcp};
use ekiden_relay::config::read::one_of;
use ekiden_relay::congestion::{Control, Provided, Telemetry};
use serde_json::json;

/// A profile that names one of ours has the relay load it; this is for keeping one, and for other programs.
#[derive(Args)]
pub struct Cc {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// What the kernel has and ekiden carries; changes nothing
    List(List),
    /// Puts them into the kernel, where they stay; in the place of older ones
    Load(Load),
    /// Takes them out again; connections that use them go on
    Unload(Unload),
}

#[derive(Args)]
struct List {
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Load {
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
struct Unload {
    /// Their names
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Cc {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List(List { json: true }) => println!("{}", as_json(&congestion::list())),
            Action::List(List { json: false }) => print!("{}", table(&congestion::list())),
            Action::Load(Load { names, older, verbose }) => {
                let way = older.then_some(Way::Map);
                // All names before the first is loaded.
                let algorithms = names.iter().map(|name| congestion::find(name)).collect::<Result<Vec<_>, _>>()?;
                for algorithm in algorithms {
                    let pinned = congestion::pin(algorithm, way).map_err(|error| explained(error, verbose))?;
                    println!("{}", loaded(algorithm.name, pinned));
                }
            }
            Action::Unload(Unload { names }) => {
                for name in names {
                    println!("{}", unloaded(&name, &congestion::unload(&name)?));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn explained(error: CongestionError, verbose: bool) -> anyhow::Error {
    match error.log().filter(|_| verbose) {
        Some(log) => anyhow::anyhow!("{error}\n{log}"),
        None => error.into(),
    }
}

fn loaded(name: &str, pinned: Pinned) -> String {
    match pinned {
        Pinned::Loaded => format!("{name} is loaded, until `ekiden cc unload {name}`"),
        Pinned::Updated => format!("{name} is updated: new connections get this one, older ones keep theirs"),
        Pinned::Unpinned => {
            format!(
                "{name} is loaded, until `ekiden cc unload {name}`; `ekiden status` cannot ask it, without a BPF file system"
            )
        }
    }
}

fn unloaded(name: &str, unloaded: &Unloaded) -> String {
    match unloaded {
        Unloaded::Gone => format!("{name} is unloaded"),
        Unloaded::Held(processes) => {
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
fn origin(origin: &Origin) -> (&'static str, String) {
    match origin {
        Origin::Kernel => ("kernel", "kernel".to_owned()),
        Origin::Pinned => ("pinned", "ekiden cc load".to_owned()),
        Origin::Held(processes) => ("held", holders(processes)),
        Origin::Left => ("left", "left by a killed process".to_owned()),
        Origin::Hidden => ("hidden", "(only root sees)".to_owned()),
        Origin::NotLoaded => ("not_loaded", "not loaded".to_owned()),
    }
}

fn choosable(one: &Presence) -> &'static str {
    match (&one.origin, one.free) {
        (Origin::NotLoaded, _) => "nobody yet",
        (_, true) => "everybody",
        (_, false) => "CAP_NET_ADMIN",
    }
}

fn table(all: &[Presence]) -> String {
    let heading = ["NAME", "FROM", "FOR", "WHAT IT IS"].map(str::to_owned);
    let row =
        |one: &Presence| [one.name.clone(), origin(&one.origin).1, choosable(one).to_owned(), one.about.to_owned()];
    let rows: Vec<_> = std::iter::once(heading).chain(all.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (name, from, whom) = (width(0), width(1), width(2));
    let line = |[one, two, three, four]: &[String; 4]| format!("{one:name$}  {two:from$}  {three:whom$}  {four}");
    rows.iter().map(|row| line(row).trim_end().to_owned() + "\n").collect()
}

fn as_json(all: &[Presence]) -> serde_json::Value {
    let one = |one: &Presence| {
        let processes = if let Origin::Held(processes) = &one.origin { processes.as_slice() } else { &[] };
        let (from, loaded) = (origin(&one.origin).0, one.origin != Origin::NotLoaded);
        json!({
            "name": one.name, "origin": from, "holders": processes, "loaded": loaded,
            "without_privilege": one.free, "about": one.about,
        })
    };
    all.iter().map(one).collect()
}

/// For the relay: has the kernel have the congestion control of this name while the result lives.
pub fn provide(name: &str) -> Result<Provided, String> {
    let held = congestion::hold(name, None).map_err(|error| error.to_string())?;
    let from = match &held.origin {
        Origin::Kernel => Congestion::KERNEL.to_owned(),
        Origin::NotLoaded => "loaded by this relay".to_owned(),
        other => origin(other).1,
    };
    Ok(Provided { from, control: Some(Box::new(Ours(held))) })
}

/// A congestion control of ours, or at least one that is in the kernel because we have it.
#[derive(Debug)]
struct Ours(Held);

impl Control for Ours {
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

    fn ask(&self, socket: BorrowedFd<'_>, wish: CompoundTcp) -> Result<(), String> {
        let sections = self
            .0
            .sections
            .as_ref()
            .ok_or("its storage is not ours to see: `ekiden cc load ctcp` is what shares it")?;
        sections.ask(socket, wish.gamma, wish.auto_gamma).map_err(|error| match error.kind() {
            congestion::ErrorKind::PermissionDenied => Sections::may_not_ask("ctcp"),
            _ => error.to_string(),
        })
    }
}

/// For `ekiden check --unit`: whether `ekiden cc load` knows it.
pub fn is_carried(name: &str) -> bool {
    congestion::find(name).is_ok()
}

/// For `ekiden check`: the expectation for a name that neither this kernel, nor another Linux, nor ekiden has.
pub fn unknown(name: &str) -> Option<String> {
    let there = congestion::list();
    let names = || there.iter().map(|one| one.name.as_str()).chain(Algorithm::OF_LINUX.iter().copied());
    let is_there = names().any(|known| known == name) || ekiden_sys::congestion::choose(name).is_ok();
    (!is_there).then(|| {
        one_of("a congestion control of Linux or of ekiden", name, names().collect::<BTreeSet<_>>().into_iter())
    })
}

/// For `ekiden check`: what is wrong with the name of a congestion control that nobody here knows.
pub fn hint(name: &str) -> Option<String> {
    let loaded = congestion::presence(name).origin != Origin::NotLoaded;
    congestion::find(name).err().filter(|_| !loaded).map(|error| format!("the kernel has not loaded it, and {error}"))
}
