//! Running nft(8), ip(8) and `iptables-restore`.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

use super::error::RulesError;

/// Runs a program with a text as its standard input; returns what it wrote.
///
/// # Errors
/// That it is not there, or what it complained about.
pub(super) fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<String, RulesError> {
    let output = feed(command(program).args(arguments), input).map_err(|error| match error.kind() {
        ErrorKind::NotFound => RulesError::not_installed(program),
        _ => RulesError::failed(program, &error.to_string()),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(RulesError::failed(program, &String::from_utf8_lossy(&output.stderr)))
}

/// A program from where administrators keep theirs: users' `PATH` often lacks it.
pub(super) fn command(program: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(OsString::from(":/usr/sbin:/sbin"));
    let mut command = Command::new(program);
    // Messages are read here.
    command.env("PATH", path).env("LC_ALL", "C");
    command
}

/// Runs a command to its end.
pub(super) fn feed(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // These programs read all before they write. One that does not read fails, and says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    child.wait_with_output()
}
