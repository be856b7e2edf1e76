//! Errors of loading and unloading congestion controls, with their remedies.

use std::io;
use std::path::PathBuf;

use crate::kernel::{BTF, Capability};

/// Each names its remedy.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// ekiden has no congestion control of this name.
    #[error("ekiden has no congestion control {name:?}{}: `ekiden cc list` lists the available ones",
             suggestion_text(*.meant))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The name that was probably meant.
        meant: Option<&'static str>,
    },
    /// Without types nothing can be fitted to the kernel.
    #[error(
        "the kernel's type information {BTF} is missing: use a kernel with CONFIG_DEBUG_INFO_BTF=y, and in a container \
         make /sys/kernel visible"
    )]
    NoBtf,
    /// The kernel is too old, or has BPF switched off.
    #[error(
        "this kernel cannot load congestion controls: loading requires Linux 5.7 or later (arm64: 6.0) on a 64-bit \
         machine, with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_JIT=y"
    )]
    NoStructOps,
    /// This process may not.
    #[error("loading a congestion control requires {}: run as root, or `setcap cap_bpf,cap_perfmon=ep` on the program, \
             or AmbientCapabilities=CAP_BPF CAP_PERFMON and SystemCallFilter=bpf in the systemd unit; selecting a loaded \
             control requires no capability", capability_names(.lacking))]
    NotPermitted {
        /// The capabilities that the process lacks.
        lacking: Vec<Capability>,
    },
    /// No BPF file system is mounted to pin programs in.
    #[error(
        "no BPF file system is mounted at /sys/fs/bpf, where loaded programs are pinned: mount -t bpf bpf /sys/fs/bpf \
         (systemd mounts it at boot)"
    )]
    NotMounted,
    /// A pin cannot be created, read or removed.
    #[error("{}: {cause} (requires root or the owner of the directory)", .path.display())]
    Pin {
        /// The pin that cannot be created, read or removed.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// Another program has registered the name.
    #[error("the name {name} is taken {by}")]
    NameTaken {
        /// The name of the congestion control.
        name: String,
        /// The other program, and the remedy.
        by: String,
    },
    /// There is nothing to unload.
    #[error("{name} is not loaded: `ekiden cc list` shows the loaded ones")]
    NotLoaded {
        /// The name of the congestion control.
        name: String,
    },
    /// The kernel said no, and it is none of the above.
    #[error(
        "the kernel refuses {name}: {cause}; `ekiden cc load {name} --verbose` shows the reasons of the kernel; please \
         report them"
    )]
    Refused {
        /// The name of the congestion control.
        name: String,
        /// In a few words.
        cause: String,
        /// All that libbpf and the verifier said.
        log: String,
    },
}

impl CongestionError {
    /// The messages of libbpf and the verifier, if any.
    #[must_use]
    pub fn log(&self) -> Option<&str> {
        match self {
            Self::Refused { log, .. } => Some(log),
            _ => None,
        }
    }
}

fn suggestion_text(meant: Option<&str>) -> String {
    meant.map(|name| format!(", perhaps {name}?")).unwrap_or_default()
}

fn capability_names(lacking: &[Capability]) -> String {
    lacking.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(" and ")
}
