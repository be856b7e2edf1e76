//! `ekiden aqm`: active queue management (AQM) for packets that leave through an interface.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use ekiden_bpf::aqm::attach;
use ekiden_bpf::aqm::reading;
use ekiden_bpf::aqm::settings::{AqmMode, AqmSettings, DEFAULT_TABLE, DEFAULT_TARGET, QueueAmount};
use ekiden_proto::units::{Rate, Span};

/// Manage active queue management for forwarded packets. Packets of local sockets pass and are counted: TCP does not
/// see a drop at this point as a loss, and a relay's connections share the rate by pacing
#[derive(Args)]
pub struct Aqm {
    #[command(subcommand)]
    action: AqmAction,
}

#[derive(Subcommand)]
enum AqmAction {
    /// Manage the egress of an interface, until `detach` or until the interface is removed
    Attach(Box<AttachArgs>),
    /// Stop managing the egress of an interface
    Detach(DetachArgs),
    /// Show passed, marked and dropped packets, the rate of each connection, and the fairness
    Show(ShowArgs),
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeKind {
    /// Random early detection (RED): all connections have equal drop probability
    Red,
    /// RED with --n times the drop probability for the senders of --heavy
    Static,
    /// RED with --n times the drop probability for the most frequent connection in a sample
    Dynamic,
    /// Fair sharing with short queues: marks or drops packets of connections above their fair share, more often if they
    /// do not slow down
    Auto,
}

#[derive(Args)]
struct AttachArgs {
    /// The interface whose egress is managed
    #[arg(long, value_name = "IF")]
    dev: String,
    /// Rate of the link, like 100Mbit/s
    #[arg(long)]
    rate: Rate,
    /// Selects the connections whose packets are marked or dropped
    #[arg(long, value_enum)]
    mode: ModeKind,
    /// Use the real backlog of the interface instead of a virtual queue that drains at 98 % of --rate. Needs the
    /// kernel's BTF and a queueing discipline that counts its backlog (tbf, htb, ...), with --rate as its rate
    #[arg(long)]
    backlog: bool,
    /// Maximum queue length, like 1000pkt or 1MiB [default: 200 ms of --rate]
    #[arg(long, value_name = "AMOUNT")]
    limit: Option<QueueAmount>,
    /// Average queue length at which marks and drops begin [default: 10 ms of --rate]
    #[arg(long, value_name = "AMOUNT")]
    min: Option<QueueAmount>,
    /// Average queue length at which the probability of a mark or drop is --p; at twice this length it is 1
    /// [default: 30 ms of --rate]
    #[arg(long, value_name = "AMOUNT")]
    max: Option<QueueAmount>,
    /// Probability of a mark or drop at --max [default: 0.1]
    #[arg(long, value_name = "PROBABILITY")]
    p: Option<f64>,
    /// Weight of one packet in the average [default: 0.002]
    #[arg(long, value_name = "WEIGHT")]
    wq: Option<f64>,
    /// Factor of the probability for heavy connections [default: 10]
    #[arg(long, value_name = "TIMES")]
    n: Option<f64>,
    /// static: address of a heavy sender; may be repeated up to 16 times
    #[arg(long, value_name = "ADDRESS")]
    heavy: Vec<IpAddr>,
    /// dynamic: record the connection of one packet in this many
    #[arg(long, value_name = "PACKETS", default_value_t = 10)]
    rec_int: u32,
    /// dynamic: after this many packets the most frequent connection becomes the heavy one
    #[arg(long, value_name = "PACKETS", default_value_t = 100)]
    sta_int: u32,
    /// dynamic: number of recorded connections in the sample
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 100)]
    hist_len: u32,
    /// auto: queueing delay that is always acceptable
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_TARGET)]
    target: Span,
    /// Drop packets even if they can be marked (ECN, RFC 3168)
    #[arg(long)]
    no_ecn: bool,
    /// Maximum number of tracked connections, a power of two; 56 bytes each, 128 for auto. The longest idle are replaced first
    #[arg(long, value_name = "SLOTS", default_value_t = DEFAULT_TABLE)]
    table: u32,
    /// Replace the queue management that the interface has now
    #[arg(long)]
    replace: bool,
}

#[derive(Args)]
struct DetachArgs {
    /// The interface whose egress is managed
    #[arg(long, value_name = "IF")]
    dev: String,
}

#[derive(Args)]
struct ShowArgs {
    /// The egress interface [default: all managed interfaces of this network namespace]
    #[arg(long, value_name = "IF")]
    dev: Option<String>,
    /// Print the reports as JSON
    #[arg(long)]
    json: bool,
    /// Time over which rates are measured
    #[arg(long, value_name = "TIME", default_value = "1s")]
    watch: Span,
}

impl Aqm {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            AqmAction::Attach(attach) => attach.execute(),
            AqmAction::Detach(DetachArgs { dev }) => {
                attach::detach(&dev)?;
                println!("{dev} is no longer managed");
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
        anyhow::ensure!(!watch.0.is_zero(), "--watch 0: expected a time above zero, like 1s");
        let reports = reading::watch(dev.as_deref(), watch.0, std::thread::sleep)?;
        if json {
            println!("{}", serde_json::to_string_pretty(&reports)?);
            return Ok(ExitCode::SUCCESS);
        }
        if reports.is_empty() {
            println!("no managed interface in this network namespace: see `ekiden aqm attach`");
        }
        reports.iter().for_each(|report| print!("{report}"));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns an unpredictable number from random(4). It keys the random drops and the hash table of connections.
fn random_key() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
