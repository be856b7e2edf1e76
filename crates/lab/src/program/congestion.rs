//! Congestion controls that the kernel does not have by itself: loaded by ekiden before the laboratory moves into its
//! sandbox, and unloaded at its end.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::Context;
use ekiden_sys::congestion;

use crate::experiment::read::Cell;
use crate::program::service::last_lines;

/// Those that `ekiden cc load` brings.
const OURS: [&str; 7] = ["ctcp", "highspeed", "hybla", "westwood", "vegas", "scalable", "bic"];

/// All that some cells ask for, of groups and of hosts.
#[must_use]
pub fn wanted(cells: &[&Cell]) -> BTreeSet<String> {
    let groups = cells.iter().flat_map(|cell| &cell.spec.workload.group).map(|group| &group.congestion);
    let hosts = cells.iter().flat_map(|cell| cell.spec.lab.hosts.values()).filter_map(|host| host.congestion.as_ref());
    groups.chain(hosts).cloned().collect()
}

/// Whether figures may depend on ekiden, because it brings one of these.
#[must_use]
pub fn are_ours(wanted: &BTreeSet<String>) -> bool {
    wanted.iter().any(|name| OURS.contains(&name.as_str()))
}

/// Congestion controls that were loaded, and are unloaded when this is dropped by the process that loaded them.
#[derive(Debug)]
pub struct Loaded {
    ekiden: PathBuf,
    names: Vec<String>,
    owner: u32,
}

impl Loaded {
    /// Loads those of `wanted` that the kernel does not have. To be called outside of the sandbox.
    ///
    /// # Errors
    /// One is not there, and there is no ekiden or it does not bring it; the text says what to do.
    pub fn load(wanted: &BTreeSet<String>, ekiden: Option<&Path>) -> anyhow::Result<Self> {
        let mut loaded = Self {
            ekiden: ekiden.map(Path::to_owned).unwrap_or_default(),
            names: Vec::new(),
            owner: std::process::id(),
        };
        for name in wanted.iter().filter(|name| !is_there(name)) {
            let has =
                std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
            let missing = || format!("congestion = {name:?}, but this kernel has: {}", has.trim());
            anyhow::ensure!(
                OURS.contains(&name.as_str()),
                "{}; ekiden brings {}; for another one load its module",
                missing(),
                OURS.join(", ")
            );
            let ekiden =
                ekiden.context("ekiden brings it: build it (make build), or say where it is with --ekiden PATH");
            let output = cc(ekiden.with_context(missing)?, "load", name)?;
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(
                output.status.success(),
                "{}, and `ekiden cc load {name}` failed: {}",
                missing(),
                last_lines(&said)
            );
            loaded.names.push(name.clone());
            anyhow::ensure!(is_there(name), "{}, although `ekiden cc load {name}` succeeded", missing());
        }
        Ok(loaded)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Whoever was forked has a copy.
        if self.owner != std::process::id() {
            return;
        }
        for name in &self.names {
            let said = match cc(&self.ekiden, "unload", name) {
                Ok(output) if output.status.success() => continue,
                Ok(output) => last_lines(&String::from_utf8_lossy(&output.stderr)),
                Err(error) => format!("{error:#}"),
            };
            eprintln!("congestion control {name} is still loaded, `ekiden cc unload {name}` takes it out: {said}");
        }
    }
}

/// Whether connections can have it, also by a module that the kernel loads for the asking. What only root may choose is there.
fn is_there(name: &str) -> bool {
    !congestion::choose(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn cc(ekiden: &Path, verb: &str, name: &str) -> anyhow::Result<Output> {
    let mut command = Command::new(ekiden);
    command.args(["cc", verb, name]).stdin(Stdio::null());
    command.output().with_context(|| ekiden.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_the_kernel_has_needs_nobody() {
        let loaded = Loaded::load(&names(&["reno"]), None).unwrap();
        assert!(loaded.names.is_empty());
    }

    #[test]
    fn what_nobody_brings_says_what_there_is() {
        let error = Loaded::load(&names(&["frugal"]), None).unwrap_err().to_string();
        assert!(error.starts_with("congestion = \"frugal\", but this kernel has: "), "{error}");
        assert!(error.contains("reno") && error.contains("ekiden brings ctcp,"), "{error}");
    }

    #[test]
    fn what_ekiden_cannot_load_is_told_in_its_words() {
        let name = OURS.into_iter().find(|name| !is_there(name));
        let Some(name) = name else {
            eprintln!("skipped: this kernel has all congestion controls that ekiden brings");
            return;
        };
        let error = format!("{:#}", Loaded::load(&names(&[name]), None).unwrap_err());
        assert!(error.contains("--ekiden PATH"), "{error}");
        // A program that fails, whatever it is asked.
        let error = Loaded::load(&names(&[name]), Some(Path::new("/bin/false"))).unwrap_err().to_string();
        assert!(error.contains(&format!("`ekiden cc load {name}` failed: it printed nothing")), "{error}");
        let error = Loaded::load(&names(&[name]), Some(Path::new("/bin/true"))).unwrap_err().to_string();
        assert!(error.contains("succeeded"), "{error}");
    }
}
