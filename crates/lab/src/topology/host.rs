//! A host of a running lab: a handle to its network namespace.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use ekiden_sys::netns;

/// A host of a running lab.
pub struct HostHandle {
    name: String,
    address: Ipv4Addr,
    namespace: Arc<OwnedFd>,
}

impl HostHandle {
    pub(super) fn new(name: &str, address: Ipv4Addr) -> anyhow::Result<Self> {
        let namespace =
            netns::new_network_namespace().with_context(|| format!("host {name:?}: no network namespace"))?;
        Ok(Self { name: name.to_owned(), address, namespace: Arc::new(namespace) })
    }

    /// Returns the name of the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address to which the name resolves on every host of the lab: that of its first link, by name of
    /// link.
    #[must_use]
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns a command that runs on this host. The process dies with the lab, as every process in the lab's pid
    /// namespace does. (`PR_SET_PDEATHSIG` would kill it when the starting *thread* ends.)
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        netns::start_in_network_namespace(&mut command, Arc::clone(&self.namespace));
        command
    }

    /// Runs `work` on a new thread on this host.
    ///
    /// # Errors
    /// The thread cannot enter the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let inside = || netns::enter_network_namespace(self.namespace.as_fd()).map(|()| work());
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Returns a path by which other processes of the lab can open the namespace while this process lives.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn namespace_path(&self) -> io::Result<PathBuf> {
        // The pid of getpid(2) differs if /proc belongs to an outer pid namespace.
        let me = fs::read_link("/proc/self")?;
        Ok(PathBuf::from("/proc").join(me).join("fd").join(self.namespace.as_raw_fd().to_string()))
    }

    /// Sets sysctls of this host and verifies their values.
    pub(super) fn set_sysctls<'a>(
        &self,
        settings: impl Iterator<Item = (&'a str, &'a str)> + Send,
    ) -> anyhow::Result<()> {
        let mut settings = settings;
        self.enter(|| {
            settings.try_for_each(|(key, value)| {
                set_sysctl(key, value).with_context(|| format!("host {:?}: sysctl {key} = {value:?}", self.name))
            })
        })?
    }
}

fn set_sysctl(key: &str, value: &str) -> anyhow::Result<()> {
    let file = format!("/proc/sys/{}", key.replace('.', "/"));
    fs::write(&file, value).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("this kernel has no such sysctl in a network namespace"),
        io::ErrorKind::PermissionDenied => anyhow::anyhow!("refused: a network namespace cannot change it"),
        _ => anyhow::Error::new(error).context("refused"),
    })?;
    let now = fs::read_to_string(&file).context("cannot read the value back")?;
    if !now.split_whitespace().eq(value.split_whitespace()) {
        bail!("the kernel set {:?} instead", now.trim());
    }
    Ok(())
}
