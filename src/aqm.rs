//! `ekiden aqm`: queue management where packets leave by an interface.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use ekiden_bpf::aqm::attach;
use ekiden_bpf::aqm::reading;
use ekiden_bpf::aqm::settings::{AqmMode, AqmSettings, DEFAULT_TABLE, DEFAULT_TARGET, QueueAmount};
use ekiden_proto::units::{Rate, Span};

/// For packets that this host forwards. Its own sockets' packets are let through and counted: a drop here is no loss to
/// them, and connections of a relay share by pacing.
#[derive(Args)]
pub struct Aqm {
    #[command(subcommand)]
    action: AqmAction,
}

#[derive(Subcommand)]
enum AqmAction {
    /// Manages what leaves by an interface, until `detach`, or until the interface is gone
    Attach(Box<AttachArgs>),
    /// Lets packets leave as if nothing had ever been there
    Detach(DetachArgs),
    /// What was let through, marked and dropped, who sends how much, and how fairly
    Show(ShowArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeKind {
    /// Random early detection: everybody is hit alike
    Red,
    /// RED that hits the senders of --heavy --n times as often
    Static,
    /// RED that hits the connection that is the most frequent in a sample --n times as often
    Dynamic,
    /// Hits whoever has had more than the others, the more often the less they answer: shares fairly, keeps queues short
    Auto,
}

#[derive(Args)]
struct AttachArgs {
    /// The interface by which packets leave
    #[arg(long, value_name = "IF")]
    dev: String,
    /// What the line takes, like 100Mbit/s
    #[arg(long)]
    rate: Rate,
    /// Who is hit
    #[arg(long, value_enum)]
    mode: ModeKind,
    /// Looks at what really waits at the interface, and not at a queue that is only counted and drains at 98 % of --rate.
    /// Needs the kernel's BTF and a queueing discipline that counts what waits (tbf, htb, ...), with --rate as its rate
    #[arg(long)]
    backlog: bool,
    /// How much waits at most, like 1000pkt or 1MiB [default: 200 ms of --rate]
    #[arg(long, value_name = "AMOUNT")]
    limit: Option<QueueAmount>,
    /// The average at which hits begin [default: 10 ms of --rate]
    #[arg(long, value_name = "AMOUNT")]
    min: Option<QueueAmount>,
    /// The average at which their probability is --p; up to twice that, it rises to 1 [default: 30 ms of --rate]
    #[arg(long, value_name = "AMOUNT")]
    max: Option<QueueAmount>,
    /// The probability of a hit at --max [default: 0.1]
    #[arg(long, value_name = "PROBABILITY")]
    p: Option<f64>,
    /// The weight of a packet in the average [default: 0.002]
    #[arg(long, value_name = "WEIGHT")]
    wq: Option<f64>,
    /// How many times as often the heavy are hit [default: 10]
    #[arg(long, value_name = "TIMES")]
    n: Option<f64>,
    /// static: the address of a heavy sender; may be given 16 times
    #[arg(long, value_name = "ADDRESS")]
    heavy: Vec<IpAddr>,
    /// dynamic: every so many packets the connection of one is recorded
    #[arg(long, value_name = "PACKETS", default_value_t = 10)]
    rec_int: u32,
    /// dynamic: every so many packets the most frequent connection becomes the heavy one
    #[arg(long, value_name = "PACKETS", default_value_t = 100)]
    sta_int: u32,
    /// dynamic: how many recorded connections are remembered
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 100)]
    hist_len: u32,
    /// auto: a waiting time that is always acceptable
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_TARGET)]
    target: Span,
    /// Drops also where a mark (RFC 3168) would do
    #[arg(long)]
    no_ecn: bool,
    /// How many connections are told apart; a power of two. Those silent for the longest make room; 64 bytes each
    #[arg(long, value_name = "SLOTS", default_value_t = DEFAULT_TABLE)]
    table: u32,
    /// Takes the place of what manages the interface now
    #[arg(long)]
    replace: bool,
}

#[derive(Args)]
struct DetachArgs {
    /// The interface
    #[arg(long, value_name = "IF")]
    dev: String,
}

#[derive(Args)]
struct ShowArgs {
    /// The interface [default: all that are managed, of this network namespace]
    #[arg(long, value_name = "IF")]
    dev: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// For how long rates are measured
    #[arg(long, value_name = "TIME", default_value = "1s")]
    watch: Span,
}

impl Aqm {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            AqmAction::Attach(attach) => attach.execute(),
            AqmAction::Detach(DetachArgs { dev }) => {
                attach::detach(&dev)?;
                println!("{dev} is not managed any more");
                Ok(ExitCode::SUCCESS)
            }
            AqmAction::Show(show) => show.execute(),
        }
    }
}

impl AttachArgs {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let settings = self.settings();
        attach::attach(&self.dev, &settings, random_key()?, self.replace)?;
        println!("{} is managed ({}): `ekiden aqm show --dev {0}`", self.dev, settings.mode);
        Ok(ExitCode::SUCCESS)
    }

    fn settings(&self) -> AqmSettings {
        let mode = match self.mode {
            ModeKind::Red => AqmMode::Red,
            ModeKind::Static => AqmMode::Static { heavy: self.heavy.clone() },
            ModeKind::Auto => AqmMode::Auto { target: self.target },
            ModeKind::Dynamic => {
                AqmMode::Dynamic { rec_int: self.rec_int, sta_int: self.sta_int, hist_len: self.hist_len }
            }
        };
        let default = AqmSettings::new(self.rate, mode);
        AqmSettings {
            backlog: self.backlog,
            limit: self.limit.unwrap_or(default.limit),
            min: self.min.unwrap_or(default.min),
            max: self.max.unwrap_or(default.max),
            p: self.p.unwrap_or(default.p),
            wq: self.wq.unwrap_or(default.wq),
            n: self.n.unwrap_or(default.n),
            ecn: !self.no_ecn,
            table: self.table,
            ..default
        }
    }
}

impl ShowArgs {
    fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { dev, json, watch } = self;
        anyhow::ensure!(!watch.0.is_zero(), "--watch 0: rates are of a time, like 1s");
        let reports = reading::watch(dev.as_deref(), watch.0, std::thread::sleep)?;
        if json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
            return Ok(ExitCode::SUCCESS);
        }
        if reports.is_empty() {
            println!("no interface of this network namespace is managed: `ekiden aqm attach` does that");
        }
        reports.iter().for_each(|report| print!("{report}"));
        Ok(ExitCode::SUCCESS)
    }
}

/// A number that nobody outside can guess (random(4)): with it, chance and the places of connections cannot be foreseen.
fn random_key() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
