//! A shell on a host of a running lab. `on HOST [COMMAND...]` switches to other hosts.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context as _, ensure};

use crate::topology::network::{HostHandle, Network};
use crate::topology::{Lab, sandbox};

/// Runs `$SHELL`, or `bash` if unset, on a host (by default the first by name), and returns its exit code. Without a
/// terminal on stdin, the shell reads commands from stdin and there is no greeting.
///
/// # Errors
/// The host or the shell does not exist.
pub fn run_shell(network: &Network, lab: &Lab, host: Option<&str>) -> anyhow::Result<u8> {
    let known = network.hosts().map(HostHandle::name).collect::<Vec<_>>().join(", ");
    let host = match host {
        Some(name) => network.host(name).with_context(|| format!("there is no host {name:?}; hosts are {known}"))?,
        None => network.hosts().next().context("the lab has no hosts")?,
    };
    let shell = PathBuf::from(env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "bash".into()));
    let commands = sandbox::run_directory()?.join("bin");
    let start = write_commands(&commands, network, &shell)?;
    let mut command = if io::stdin().is_terminal() {
        print!("{}", greeting(network, lab, host)?);
        host.command(start)
    } else {
        host.command(&shell)
    };
    command
        .env("PATH", path_with_commands(&commands)?)
        .env("EKIDEN_LAB", network.name())
        .env("EKIDEN_LAB_HOST", host.name());
    // Prompt of shells that do not read the `bashrc` of the lab.
    command.env("PS1", format!("{}@{}$ ", host.name(), network.name()));
    let status = command.status().with_context(|| format!("cannot run the shell {}", shell.display()))?;
    Ok(exit_code(status))
}

/// Returns the exit code as a shell reports it: 128 plus the signal number after a signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn path_with_commands(commands: &Path) -> anyhow::Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    Ok(env::join_paths(std::iter::once(commands.to_owned()).chain(env::split_paths(&path)))?)
}

/// Returns the greeting: hosts, addresses, links, and usage of `on`.
fn greeting(network: &Network, lab: &Lab, host: &HostHandle) -> anyhow::Result<String> {
    let mut text = format!("lab {}: a shell on {}\n", network.name(), host.name());
    for host in network.hosts() {
        writeln!(text, "  {:<16} {}", host.name(), host.address())?;
    }
    for (name, link) in &lab.links {
        writeln!(text, "  {} --- {name} --- {}", link.ends[0], link.ends[1])?;
    }
    text +=
        "`on HOST COMMAND...` runs a command on another host, `on HOST` opens a shell there, `exit` ends the lab.\n";
    Ok(text)
}

/// Writes the commands of the lab's shells into `directory`. Returns the command that starts an interactive shell.
fn write_commands(directory: &Path, network: &Network, shell: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let start = directory.join("lab-shell");
    let settings = directory.join("bashrc");
    fs::write(&settings, BASHRC)?;
    let named = |path: &Path| shell_quoted(&path.to_string_lossy());
    let is_bash = shell.file_name().is_some_and(|name| name == "bash");
    let options = if is_bash { format!(" --rcfile {} -i", named(&settings)?) } else { String::new() };
    write_script(&start, &format!("exec {}{options}\n", named(shell)?))?;
    write_script(&directory.join("on"), &on_script(network, &named(&start)?)?)?;
    Ok(start)
}

const BASHRC: &str = r#"[ -r ~/.bashrc ] && . ~/.bashrc
unset PROMPT_COMMAND
PS1='$EKIDEN_LAB_HOST@$EKIDEN_LAB:\w\$ '
"#;

/// Returns the script `on`, which enters the namespace of a host by a descriptor of this process.
fn on_script(network: &Network, start: &str) -> anyhow::Result<String> {
    let mut text = "case \"$1\" in\n".to_owned();
    for host in network.hosts() {
        writeln!(text, "{}) namespace={} ;;", host.name(), host.namespace_path()?.display())?;
    }
    let names = network.hosts().map(HostHandle::name).collect::<Vec<_>>().join(", ");
    writeln!(text, "*) echo \"on HOST [COMMAND...]; hosts are {names}\" >&2; exit 2 ;;\nesac")?;
    writeln!(text, "EKIDEN_LAB_HOST=$1 PS1=\"$1@$EKIDEN_LAB$ \"\nexport EKIDEN_LAB_HOST PS1\nshift")?;
    writeln!(text, "[ $# -gt 0 ] || set -- {start}\nexec nsenter --net=\"$namespace\" -- \"$@\"")?;
    Ok(text)
}

fn write_script(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{text}"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Quotes a word for sh.
fn shell_quoted(word: &str) -> anyhow::Result<String> {
    ensure!(!word.contains('\''), "path contains a quote: {word}");
    Ok(format!("'{word}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_passed_on() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(libc::SIGKILL)), 137);
    }
}
