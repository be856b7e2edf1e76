//! Namespaces, interfaces, addresses and routes of a lab that runs.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::emulator::Wire;
use crate::topology::Lab;

/// Hosts and wires of a running lab. All of it is gone when this is dropped, or when the process ends in whatever way.
pub struct Network {}

/// A host of a running lab.
pub struct HostHandle {}

impl Network {
    /// Makes namespaces, interfaces, addresses, neighbours and routes, and pins congestion control.
    ///
    /// # Errors
    /// What the system refused, with the remedy.
    pub fn build(_lab: &Lab) -> anyhow::Result<Self> {
        anyhow::bail!("not built")
    }

    /// A host by name.
    #[must_use]
    pub fn host(&self, _name: &str) -> Option<&HostHandle> {
        None
    }

    /// What the emulator has to drive: every link that is not bare.
    #[must_use]
    pub fn wires(&self) -> Vec<Wire> {
        Vec::new()
    }
}

impl HostHandle {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        ""
    }

    /// The address its name resolves to, on every host of the lab.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::UNSPECIFIED
    }

    /// A command that will run on this host, and die with the lab.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new(program)
    }

    /// Runs `work` on a thread of its own on this host.
    ///
    /// # Errors
    /// The namespace could not be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
        Ok(work())
    }
}
