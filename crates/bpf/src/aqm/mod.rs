//! Queue management at the egress of an interface: a tc program at its clsact.
//!
//! The program and its maps live as long as the filter that holds them; there is no file, pin or process.
//! [`watch`](reading::watch) and [`detach`](attach::detach) find them through the interface's filters, so they
//! disappear with the interface. The arithmetic is `ekiden_proto::aqm`, mirrored in `src/bpf/aqm*.h`; its parameters
//! are computed here, once, and are in the program's read-only data.

use std::io;

pub mod attach;
pub mod encode;
pub mod maps;
pub mod object;
pub mod reading;
pub mod report;
pub mod settings;

/// The name of the program in the kernel's lists.
pub const PROGRAM: &str = "ekiden_aqm";

/// The parameters of the program beside the user's settings.
#[derive(Debug, Clone, Copy)]
pub struct ProgramParams {
    /// A secret number that makes random decisions and the slots of connections unpredictable.
    pub hash_key: u64,
    /// Whether frames begin with an Ethernet header.
    pub ethernet: bool,
}

/// Errors, with their remedies.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that make no sense.
    #[error("{0}")]
    Settings(String),
    /// The network namespace has no such interface.
    #[error("no interface {0} in this network namespace: `ip link` lists them")]
    NoInterface(String),
    /// Something is there already.
    #[error(
        "{0} is already managed: `ekiden aqm show --dev {0}` shows the settings; add --replace to replace them, or run \
         `ekiden aqm detach --dev {0}` first"
    )]
    AlreadyAttached(String),
    /// The interface has no program of ekiden to detach or to show.
    #[error("{0} is not managed: `ekiden aqm show` lists the managed interfaces")]
    NotAttached(String),
    /// The kernel did not permit it.
    #[error(
        "{0}: not permitted. Run ekiden as root, or with CAP_NET_ADMIN and CAP_BPF (and CAP_PERFMON for --backlog)"
    )]
    NotPermitted(&'static str),
    /// Programs of others may be looked at by root only.
    #[error("reading the counters: not permitted. Run ekiden as root: opening BPF maps by id requires CAP_SYS_ADMIN")]
    NotReadable,
    /// The kernel was built without it.
    #[error(
        "this kernel has no {what} ({option}): check with `zgrep {option} /proc/config.gz`, or run `modprobe {module}`"
    )]
    MissingFeature {
        /// The missing kernel object, in words.
        what: &'static str,
        /// The option that has it.
        option: &'static str,
        /// The module, if it is one.
        module: &'static str,
    },
    /// `--backlog` reads the kernel's own structures.
    #[error("--backlog needs Linux 6.2 or later with /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF): omit --backlog")]
    NoKernelContext,
    /// `--backlog` where nothing ever waits.
    #[error(
        "--backlog: {interface} has the queueing discipline {kind}, which does not report its backlog: replace the \
         discipline by one that does (`tc qdisc add dev {interface} root tbf rate ... burst ... limit ...`), or omit \
         --backlog"
    )]
    NoBacklog {
        /// The name of the interface.
        interface: String,
        /// The kind of the other filter.
        kind: String,
    },
    /// The verifier, or a kernel that is too old.
    #[error("the kernel rejects the program (Linux 5.12 or later is required): {source}\n{log}")]
    LoadRejected {
        /// The error of the system.
        source: io::Error,
        /// The messages of libbpf and the verifier.
        log: String,
    },
    /// Any other error of the kernel.
    #[error("{what}: {source}")]
    Kernel {
        /// The operation that failed, in words.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Of a system call.
    fn from_io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(EPERM | EACCES) => Self::NotPermitted(what),
            _ => Self::Kernel { what, source },
        }
    }
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
