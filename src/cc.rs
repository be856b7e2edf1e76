//! `ekiden cc`: congestion controls, and who has put them into the kernel.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use ekiden_bpf::congestion::{self, CongestionError, Origin, Pinned, Presence, Unloaded, Way};
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
            format!("{name} is no longer kept; until they end, it is held by {}", pids(processes))
        }
    }
}

fn pids(processes: &[u32]) -> String {
    let shown: Vec<_> = processes.iter().map(|process| format!("pid {process}")).collect();
    shown.join(", ")
}

/// Where it is from, in a word and in full.
fn origin(origin: &Origin) -> (&'static str, String) {
    match origin {
        Origin::Kernel => ("kernel", "kernel".to_owned()),
        Origin::Pinned => ("pinned", "ekiden cc load".to_owned()),
        Origin::Held(processes) => ("held", pids(processes)),
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
        let holders = if let Origin::Held(processes) = &one.origin { processes.as_slice() } else { &[] };
        let (from, loaded) = (origin(&one.origin).0, one.origin != Origin::NotLoaded);
        json!({
            "name": one.name, "origin": from, "holders": holders, "loaded": loaded,
            "without_privilege": one.free, "about": one.about,
        })
    };
    all.iter().map(one).collect()
}
