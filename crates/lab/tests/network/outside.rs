//! Tests outside the sandbox: the end of a lab, its signals, its shell, and the tests inside without privilege.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ekiden_lab::topology::network::Network;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};
use ekiden_lab::topology::shell as lab_shell;

use crate::labs::{cable, chain, lab};
use crate::{HOLD, INSIDE, SHELL, Skipped, Test};

pub const TESTS: &[Test] = &[
    ("killing_the_outer_process_ends_the_lab", killing_the_outer_process_ends_the_lab),
    ("signal_reaches_the_lab_and_sets_the_exit_code", signal_reaches_the_lab_and_sets_the_exit_code),
    ("shell_runs_commands_on_its_own_and_other_hosts", shell_runs_commands_on_its_own_and_other_hosts),
    ("tests_inside_the_sandbox_pass_without_privilege", tests_inside_the_sandbox_pass_without_privilege),
];

/// Duration of the program in a held lab, in seconds.
const PROGRAM_SECONDS: u64 = 60;

/// Runs `work` in the sandbox; if the process cannot enter one, prints the reason to stdout.
fn sandboxed(work: impl FnOnce() -> ExitCode) -> ExitCode {
    match sandbox::enter() {
        Ok(SandboxEntry::Inside) => work(),
        Ok(SandboxEntry::Exited(code)) => ExitCode::from(code),
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a shell on the host `client` of a chain.
pub fn shell() -> ExitCode {
    sandboxed(|| {
        let lab = chain();
        let network = Network::build(&lab).unwrap();
        ExitCode::from(lab_shell::run_shell(&network, &lab, Some("client")).unwrap())
    })
}

/// Builds a lab with running programs, prints READY, and waits for one of the programs.
pub fn hold() -> ExitCode {
    sandboxed(hold_inside)
}

fn hold_inside() -> ExitCode {
    let network = Network::build(&lab(&[("cable", cable("a", "b"))])).unwrap();
    // An orphan in its own session, which ends only with the PID namespace.
    let script = format!("setsid sleep {PROGRAM_SECONDS} & exit 0");
    network.host("a").unwrap().command("sh").args(["-c", &script]).status().unwrap();
    let mut waiting = network.host("b").unwrap().command("sleep").arg(PROGRAM_SECONDS.to_string()).spawn().unwrap();
    println!("READY");
    waiting.wait().unwrap();
    ExitCode::SUCCESS
}

fn start_held_lab() -> Result<(Child, BufReader<std::process::ChildStdout>), Skipped> {
    let mut outer = Command::new(own_executable()).arg(HOLD).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(outer.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    if line == "READY\n" {
        return Ok((outer, output));
    }
    outer.wait().unwrap();
    Err(Skipped(line.trim().to_owned()))
}

fn own_executable() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn killing_the_outer_process_ends_the_lab() -> Result<(), Skipped> {
    let (mut outer, mut output) = start_held_lab()?;
    let killed = Instant::now();
    outer.kill().unwrap();
    outer.wait().unwrap();
    // Every process of the lab holds the write end of the pipe; end of file means that all of them have ended.
    output.read_to_end(&mut Vec::new()).unwrap();
    assert!(killed.elapsed() < Duration::from_secs(PROGRAM_SECONDS / 2), "a process outlived the lab");
    Ok(())
}

fn signal_reaches_the_lab_and_sets_the_exit_code() -> Result<(), Skipped> {
    let (mut outer, mut output) = start_held_lab()?;
    let terminated = Command::new("kill").args(["-TERM", &outer.id().to_string()]).status().unwrap();
    assert!(terminated.success());
    output.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(outer.wait().unwrap().code(), Some(128 + 15));
    Ok(())
}

fn tests_inside_the_sandbox_pass_without_privilege() -> Result<(), Skipped> {
    const NOBODY: u32 = 65534;
    if ekiden_sys::process::effective_uid() != 0 {
        return Err(Skipped("this whole program runs without privilege".to_owned()));
    }
    // Other users may not have access to the directory of this program.
    let copy = std::env::temp_dir().join(format!("ekiden-lab-network-test-{}", std::process::id()));
    std::fs::copy(own_executable(), &copy).unwrap();
    let mut rootless = Command::new(&copy);
    rootless.arg(INSIDE).uid(NOBODY).gid(NOBODY).current_dir("/").env_remove("XDG_RUNTIME_DIR");
    let output = rootless.output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{}", text.replace("test ", "  rootless test "));
    if let Some(why) = text.strip_prefix("skipped ") {
        return Err(Skipped(why.trim().to_owned()));
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn shell_runs_commands_on_its_own_and_other_hosts() -> Result<(), Skipped> {
    let (mut possible, _) = start_held_lab()?;
    possible.kill().unwrap();
    possible.wait().unwrap();
    let script = r#"
        echo "here $EKIDEN_LAB_HOST"
        on server sh -c 'echo "there $EKIDEN_LAB_HOST"; ip -o -4 address show dev second | grep -o 10.100.1.2'
        on nobody true
        echo "code $?"
        exit 7
    "#;
    let mut command = Command::new(own_executable());
    command.arg(SHELL).env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "here client\nthere server\n10.100.1.2\ncode 2\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "on HOST [COMMAND...]; hosts are client, router, server\n");
    assert_eq!(output.status.code(), Some(7));
    Ok(())
}
