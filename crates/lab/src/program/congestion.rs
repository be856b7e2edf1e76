//! Congestion controls that the kernel does not have by itself: loaded by ekiden before the laboratory moves into its
//! sandbox, and unloaded at its end.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use ekiden_sys::{congestion, netns, process, signal};

use crate::experiment::read::ExperimentCell;
use crate::program::service::last_lines;

/// Those that `ekiden cc load` brings.
const EKIDEN_PROVIDED: [&str; 7] = ["ctcp", "highspeed", "hybla", "westwood", "vegas", "scalable", "bic"];

/// All that some cells ask for, of groups and of hosts.
#[must_use]
pub fn required_controls(cells: &[&ExperimentCell]) -> BTreeSet<String> {
    let groups = cells.iter().flat_map(|cell| &cell.spec.workload.group).map(|group| &group.congestion);
    let hosts = cells.iter().flat_map(|cell| cell.spec.lab.hosts.values()).filter_map(|host| host.congestion.as_ref());
    groups.chain(hosts).cloned().collect()
}

/// Whether figures may depend on ekiden, because it brings one of these.
#[must_use]
pub fn needs_ekiden(wanted: &BTreeSet<String>) -> bool {
    wanted.iter().any(|name| EKIDEN_PROVIDED.contains(&name.as_str()))
}

/// Congestion controls that were loaded. Dropped by the process that loaded them, and also when that is killed with all that it
/// forked, they are unloaded.
#[derive(Debug)]
pub struct LoadedControls {
    names: Vec<String>,
    /// Who unloads them, once nobody holds the other end of its standard input.
    unloader: Option<Child>,
    owner: u32,
}

/// Waits until its standard input ends, and unloads. It has to be there before the sandbox is: who has moved into another pid
/// namespace, whose head has ended, cannot start anybody (`pid_namespaces(7)`).
const UNLOAD_SCRIPT: &str = r#"cat > /dev/null; exec "$0" cc unload "$@" > /dev/null"#;

impl LoadedControls {
    /// Loads those of `wanted` that the kernel does not have. To be called outside of the sandbox.
    ///
    /// # Errors
    /// One is not there, and there is no ekiden or it does not bring it; the text says what to do.
    pub fn load(wanted: &BTreeSet<String>, ekiden: Option<&Path>) -> anyhow::Result<Self> {
        let mut loaded = Self { names: Vec::new(), unloader: None, owner: std::process::id() };
        for name in wanted.iter().filter(|name| !is_available(name)) {
            let has =
                std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
            let missing = || format!("congestion = {name:?}, but this kernel has: {}", has.trim());
            anyhow::ensure!(
                EKIDEN_PROVIDED.contains(&name.as_str()),
                "{}; ekiden brings {}; for another one load its module",
                missing(),
                EKIDEN_PROVIDED.join(", ")
            );
            let ekiden =
                ekiden.context("ekiden brings it: build it (make build), or say where it is with --ekiden PATH");
            let ekiden = ekiden.with_context(missing)?;
            ensure_bpf_file_system().with_context(missing)?;
            let output = Command::new(ekiden).args(["cc", "load", name]).stdin(Stdio::null()).output();
            let output = output.with_context(|| ekiden.display().to_string())?;
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(
                output.status.success(),
                "{}, and `ekiden cc load {name}` failed: {}",
                missing(),
                last_lines(&said)
            );
            loaded.start_unloader(ekiden, name)?;
            anyhow::ensure!(is_available(name), "{}, although `ekiden cc load {name}` succeeded", missing());
        }
        Ok(loaded)
    }

    /// Has everything that was loaded unloaded in the end.
    fn start_unloader(&mut self, ekiden: &Path, name: &str) -> anyhow::Result<()> {
        self.names.push(name.to_owned());
        let mut command = Command::new("sh");
        // In a group of its own, out of reach of the terminal's interrupts.
        command.args(["-c", UNLOAD_SCRIPT]).arg(ekiden).args(&self.names).stdin(Stdio::piped()).process_group(0);
        let caretaker = command.spawn().context("sh")?;
        if let Some(mut before) = self.unloader.replace(caretaker) {
            // Of fewer names: it goes without having done anything.
            signal::kill_group(before.id())?;
            before.wait()?;
        }
        Ok(())
    }
}

impl Drop for LoadedControls {
    fn drop(&mut self) {
        // Whoever was forked has a copy, and only lets go of the pipe.
        let Some(mut caretaker) = self.unloader.take().filter(|_| self.owner == std::process::id()) else { return };
        drop(caretaker.stdin.take());
        if !caretaker.wait().is_ok_and(|status| status.success()) {
            let names = self.names.join(" ");
            eprintln!("still loaded: {names}; `ekiden cc unload {names}` takes out what is not in use");
        }
    }
}

/// Mounts a BPF file system where the host has none: `ekiden cc load` pins objects in it. The mount is in a mount namespace of
/// this process, so the mounts of the host do not change. The kernel removes the file system and its pins with the last
/// process of the laboratory (`mount_namespaces(7)`).
fn ensure_bpf_file_system() -> anyhow::Result<()> {
    let place = Path::new("/sys/fs/bpf");
    // Users who are not root cannot mount it, and `ekiden cc load` tells them what it needs.
    if process::effective_uid() != 0 || netns::is_bpf_file_system(place)? {
        return Ok(());
    }
    netns::unshare_mounts().context("cannot make a mount namespace")?;
    netns::make_mounts_private().context("cannot make mounts private")?;
    netns::mount_bpf(place).with_context(|| format!("cannot mount a BPF file system on {}", place.display()))
}

/// Whether connections can have it, also by a module that the kernel loads for the asking. What only root may choose is there.
fn is_available(name: &str) -> bool {
    !congestion::check_available(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::run::TempDir;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_the_kernel_has_needs_nobody() {
        let loaded = LoadedControls::load(&names(&["reno"]), None).unwrap();
        assert!(loaded.names.is_empty());
    }

    #[test]
    fn what_nobody_brings_says_what_there_is() {
        let error = LoadedControls::load(&names(&["frugal"]), None).unwrap_err().to_string();
        assert!(error.starts_with("congestion = \"frugal\", but this kernel has: "), "{error}");
        assert!(error.contains("reno") && error.contains("ekiden brings ctcp,"), "{error}");
    }

    #[test]
    fn what_ekiden_cannot_load_is_told_in_its_words() {
        let name = EKIDEN_PROVIDED.into_iter().find(|name| !is_available(name));
        let Some(name) = name else {
            eprintln!("skipped: this kernel has all congestion controls that ekiden brings");
            return;
        };
        let error = format!("{:#}", LoadedControls::load(&names(&[name]), None).unwrap_err());
        assert!(error.contains("--ekiden PATH"), "{error}");
        // A program that fails, whatever it is asked.
        let error = LoadedControls::load(&names(&[name]), Some(Path::new("/bin/false"))).unwrap_err().to_string();
        assert!(error.contains(&format!("`ekiden cc load {name}` failed: it printed nothing")), "{error}");
        let error = LoadedControls::load(&names(&[name]), Some(Path::new("/bin/true"))).unwrap_err().to_string();
        assert!(error.contains("succeeded"), "{error}");
    }

    #[test]
    fn what_was_loaded_is_unloaded_in_the_end_and_not_before() {
        let folder =
            TempDir::create(&std::env::temp_dir(), &format!("ekiden-lab-test-{}-cc", std::process::id())).unwrap();
        let (script, said) = (folder.path().join("ekiden"), folder.path().join("said"));
        // A shell writes the script: a program that another test starts meanwhile would hold a copy of our descriptor, and
        // the kernel executes nothing that is open for writing (execve(2), ETXTBSY).
        let write = "printf '#!/bin/sh\\necho \"$@\" >> %s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).args([&script, &said]).status().unwrap();
        assert!(written.success());
        let mut loaded = LoadedControls { names: Vec::new(), unloader: None, owner: std::process::id() };
        loaded.start_unloader(&script, "ctcp").unwrap();
        loaded.start_unloader(&script, "bic").unwrap();
        assert!(!said.exists(), "not yet");
        drop(loaded);
        assert_eq!(std::fs::read_to_string(&said).unwrap(), "cc unload ctcp bic\n");
    }
}
