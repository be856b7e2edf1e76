//! Tests in real namespaces, without privilege where possible. They run one after the other in a program without
//! libtest, whose threads would make fork(2) unsafe.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::panic;
use std::process::ExitCode;

use ekiden_lab::topology::sandbox::{self, SandboxEntry};

mod captures;
mod inside;
mod labs;
mod links;
mod outside;
mod pcapng;

/// The reason why a test could not run on this machine.
pub struct Skipped(String);

/// The name of a test, and its function.
pub type Test = (&'static str, fn() -> Result<(), Skipped>);

/// First argument of a process that builds a lab and waits for a signal.
pub const HOLD: &str = "--hold";
/// First argument of a process that runs a shell on the host `client`.
pub const SHELL: &str = "--shell";
/// First argument of a process that runs only the tests inside the sandbox, as the current user.
pub const INSIDE: &str = "--inside";

fn main() -> ExitCode {
    let role = std::env::args().nth(1).unwrap_or_default();
    match role.as_str() {
        "--list" => ExitCode::SUCCESS,
        HOLD => outside::hold(),
        SHELL => outside::shell(),
        INSIDE => run_inside(),
        _ => {
            let outside = run(outside::TESTS);
            if outside == ExitCode::SUCCESS { run_inside() } else { outside }
        }
    }
}

fn run_inside() -> ExitCode {
    let tests = [inside::TESTS, links::TESTS, captures::TESTS].concat();
    match sandbox::enter() {
        Ok(SandboxEntry::Inside) => run(&tests),
        Ok(SandboxEntry::Exited(code)) => ExitCode::from(code),
        Err(error) => {
            println!("skipped {} tests: {error:#}", tests.len());
            ExitCode::SUCCESS
        }
    }
}

fn run(tests: &[Test]) -> ExitCode {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in tests {
        match panic::catch_unwind(test) {
            Ok(Ok(())) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Ok(Err(Skipped(why))) => {
                skipped += 1;
                println!("test {name} ... ignored, {why}");
            }
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED");
            }
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; {skipped} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
