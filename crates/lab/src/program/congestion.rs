//! Congestion controls missing in the kernel. ekiden loads them before the laboratory enters its sandbox, and unloads
//! them at the end.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use ekiden_sys::{congestion, netns, process, signal};

use crate::experiment::spec::read::ExperimentCell;
use crate::program::service::last_lines;

/// Congestion controls available through `ekiden cc load`.
const EKIDEN_PROVIDED: [&str; 8] =
    ["ctcp", "highspeed", "hybla", "westwood", "vegas", "scalable", "bic", "cubicresume"];

/// Returns the congestion controls of all groups and hosts of the cells.
#[must_use]
pub fn required_controls(cells: &[&ExperimentCell]) -> BTreeSet<String> {
    let groups = cells.iter().flat_map(|cell| &cell.spec.workload.group).map(|group| &group.congestion);
    let hosts = cells.iter().flat_map(|cell| cell.spec.lab.hosts.values()).filter_map(|host| host.congestion.as_ref());
    groups.chain(hosts).cloned().collect()
}

/// Returns whether results may depend on the ekiden binary, because ekiden provides one of `controls`.
#[must_use]
pub fn needs_ekiden(controls: &BTreeSet<String>) -> bool {
    controls.iter().any(|name| EKIDEN_PROVIDED.contains(&name.as_str()))
}

/// Loaded congestion controls. They are unloaded when the process that loaded them drops this value, and also when that
/// process is killed with its children.
#[derive(Debug)]
pub struct LoadedControls {
    names: Vec<String>,
    /// Process that unloads the controls when all write ends of its stdin are closed.
    unloader: Option<Child>,
    owner: u32,
}

/// Waits for the end of stdin, then unloads. It must start before the sandbox: after the init process of its pid
/// namespace has ended, a process cannot fork (`pid_namespaces(7)`).
const UNLOAD_SCRIPT: &str = r#"cat > /dev/null; exec "$0" cc unload "$@" > /dev/null"#;

impl LoadedControls {
    /// Loads those of `controls` that the kernel lacks. Must be called outside of the sandbox.
    ///
    /// # Errors
    /// A control is missing, and ekiden is missing or does not provide it. The error names the remedy.
    pub fn load(controls: &BTreeSet<String>, ekiden: Option<&Path>) -> anyhow::Result<Self> {
        let mut loaded = Self { names: Vec::new(), unloader: None, owner: std::process::id() };
        for name in controls.iter().filter(|name| !is_available(name)) {
            let available =
                std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
            let missing = || format!("congestion = {name:?}, but this kernel has: {}", available.trim());
            anyhow::ensure!(
                EKIDEN_PROVIDED.contains(&name.as_str()),
                "{}; ekiden provides {}; for others load the kernel module",
                missing(),
                EKIDEN_PROVIDED.join(", ")
            );
            let ekiden = ekiden
                .context("ekiden provides this congestion control: build ekiden (make build), or pass --ekiden PATH");
            let ekiden = ekiden.with_context(missing)?;
            ensure_bpf_file_system().with_context(missing)?;
            let output = Command::new(ekiden).args(["cc", "load", name]).stdin(Stdio::null()).output();
            let output = output.with_context(|| ekiden.display().to_string())?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            anyhow::ensure!(
                output.status.success(),
                "{}, and `ekiden cc load {name}` failed: {}",
                missing(),
                last_lines(&stderr)
            );
            loaded.start_unloader(ekiden, name)?;
            anyhow::ensure!(is_available(name), "{}, although `ekiden cc load {name}` succeeded", missing());
        }
        Ok(loaded)
    }

    /// Replaces the unloader by one for all names loaded so far.
    fn start_unloader(&mut self, ekiden: &Path, name: &str) -> anyhow::Result<()> {
        self.names.push(name.to_owned());
        let mut command = Command::new("sh");
        // A separate process group, so that interrupts of the terminal do not reach the unloader.
        command.args(["-c", UNLOAD_SCRIPT]).arg(ekiden).args(&self.names).stdin(Stdio::piped()).process_group(0);
        let unloader = command.spawn().context("sh")?;
        if let Some(mut before) = self.unloader.replace(unloader) {
            // The old unloader has fewer names. It is killed before it unloads any.
            signal::kill_group(before.id())?;
            before.wait()?;
        }
        Ok(())
    }
}

impl Drop for LoadedControls {
    fn drop(&mut self) {
        // A forked child has a copy of this value, and must only close the pipe.
        let Some(mut unloader) = self.unloader.take().filter(|_| self.owner == std::process::id()) else { return };
        drop(unloader.stdin.take());
        if !unloader.wait().is_ok_and(|status| status.success()) {
            let names = self.names.join(" ");
            eprintln!("still loaded: {names}; `ekiden cc unload {names}` unloads those not in use");
        }
    }
}

/// Mounts a BPF file system if the host has none, because `ekiden cc load` pins objects in it. The mount is in a mount
/// namespace of this process, so the mounts of the host do not change. The kernel removes the file system and its pins
/// with the last process of the laboratory (`mount_namespaces(7)`).
fn ensure_bpf_file_system() -> anyhow::Result<()> {
    let path = Path::new("/sys/fs/bpf");
    // Other users than root cannot mount it; `ekiden cc load` reports the missing privileges.
    if process::effective_uid() != 0 || netns::is_bpf_file_system(path)? {
        return Ok(());
    }
    netns::unshare_mounts().context("cannot make a mount namespace")?;
    netns::make_mounts_private().context("cannot make mounts private")?;
    netns::mount_bpf(path).with_context(|| format!("cannot mount a BPF file system on {}", path.display()))
}

/// Returns whether connections can use a congestion control, including modules that the kernel loads on demand. A
/// control restricted to root counts as available.
fn is_available(name: &str) -> bool {
    !congestion::check_available(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use ekiden_testing::skipped;

    use super::*;
    use crate::temp_dir::TempDir;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn available_control_is_not_loaded() {
        let loaded = LoadedControls::load(&names(&["reno"]), None).unwrap();
        assert!(loaded.names.is_empty());
    }

    #[test]
    fn unknown_control_error_lists_the_available_controls() {
        let error = LoadedControls::load(&names(&["frugal"]), None).unwrap_err().to_string();
        assert!(error.starts_with("congestion = \"frugal\", but this kernel has: "), "{error}");
        assert!(error.contains("reno") && error.contains("ekiden provides ctcp,"), "{error}");
    }

    #[test]
    fn failure_to_load_a_control_is_explained() {
        let name = EKIDEN_PROVIDED.into_iter().find(|name| !is_available(name));
        let Some(name) = name else {
            skipped("this kernel has all congestion controls that ekiden provides");
            return;
        };
        let error = format!("{:#}", LoadedControls::load(&names(&[name]), None).unwrap_err());
        assert!(error.contains("--ekiden PATH"), "{error}");
        // A program that always fails.
        let error = LoadedControls::load(&names(&[name]), Some(Path::new("/bin/false"))).unwrap_err().to_string();
        assert!(error.contains(&format!("`ekiden cc load {name}` failed: no output")), "{error}");
        let error = LoadedControls::load(&names(&[name]), Some(Path::new("/bin/true"))).unwrap_err().to_string();
        assert!(error.contains("succeeded"), "{error}");
    }

    #[test]
    fn loaded_controls_are_unloaded_on_drop() {
        let folder = TempDir::for_test();
        let (script, calls) = (folder.path().join("ekiden"), folder.path().join("said"));
        // A shell writes the script. A child of another test could inherit a writable descriptor of this process, and
        // the kernel does not execute a file that is open for writing (execve(2), ETXTBSY).
        let write = "printf '#!/bin/sh\\necho \"$@\" >> %s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).args([&script, &calls]).status().unwrap();
        assert!(written.success());
        let mut loaded = LoadedControls { names: Vec::new(), unloader: None, owner: std::process::id() };
        loaded.start_unloader(&script, "ctcp").unwrap();
        loaded.start_unloader(&script, "bic").unwrap();
        assert!(!calls.exists(), "unloaded before the drop");
        drop(loaded);
        assert_eq!(std::fs::read_to_string(&calls).unwrap(), "cc unload ctcp bic\n");
    }
}
