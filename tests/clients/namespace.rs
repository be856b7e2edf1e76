//! A network namespace with an address that never answers and an address without a route: loopback has neither.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::programs::{is_any_missing, run_successfully, run_to_end};
use crate::harness::skipped;

/// Packets to this address are sent and never answered.
pub const SILENT: &str = "192.0.2.9";

/// An address without a route.
pub const UNREACHABLE: &str = "198.51.100.1";

/// A network namespace, removed when the value is dropped.
pub struct Namespace(String);

impl Namespace {
    /// Creates a namespace; `None`, with a message that the test is skipped, without the permission or iproute2.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ekiden-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if is_any_missing(&["ip"]) {
            return None;
        }
        let made = run_to_end(Command::new("ip").args(["netns", "add", &name]));
        if made.code != 0 {
            skipped(format_args!("no network namespaces: {}", made.err.trim()));
            return None;
        }
        let namespace = Self(name);
        // The other end of the pair drops frames for any hardware address but its own.
        let commands = [
            "link set lo up",
            "link add here type veth peer name there",
            "link set here up",
            "link set there up",
            "address add 192.0.2.1/24 dev here",
            &format!("neighbour add {SILENT} lladdr 02:00:00:00:00:09 dev here"),
        ];
        for command in commands {
            run_successfully(namespace.command("ip").args(command.split(' ')));
        }
        Some(namespace)
    }

    /// Returns a command that runs `program` in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}
