//! A lock and an unused name for each test that registers a congestion control or relies on its absence. The kernel has
//! one list of congestion controls for all namespaces, tests run concurrently, and a laboratory may hold names for
//! hours. The lock ends with the test in every case.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ekiden_bpf::congestion::{CATALOGUE, LoadedBy, RegistrationMethod, list, lookup, unload};
use ekiden_bpf::kernel::KernelTypes;
use ekiden_testing::skipped;

/// Timeout of a wait for other tests, and for the kernel, which releases links without owners in the background.
const TIMEOUT: Duration = Duration::from_secs(60);

/// While a test has this lock, no other test registers a name.
pub struct RegistrationLock {
    holder: Child,
    /// The name of a congestion control of the catalogue that is not registered in the kernel.
    pub name: &'static str,
}

impl RegistrationLock {
    /// Waits for the lock, and removes registrations that killed tests have left. `None`, with a printed reason, where
    /// the kernel accepts no programs of this process.
    pub fn acquire() -> Option<Self> {
        Self::acquire_matching(|_| true)
    }

    /// Like `acquire`, and waits until this name is unused.
    pub fn acquire_named(name: &str) -> Option<Self> {
        Self::acquire_matching(|one| one == name)
    }

    /// Like `acquire`; `None`, with a printed reason, also where registrations have no links.
    pub fn acquire_linked() -> Option<Self> {
        let lock = Self::acquire()?;
        if RegistrationMethod::best_for(&KernelTypes::running()?) == RegistrationMethod::Map {
            skipped("before Linux 6.4 registrations have no links, and outlive their process");
            return None;
        }
        Some(lock)
    }

    fn acquire_matching(fits: impl Fn(&str) -> bool) -> Option<Self> {
        if is_any_requirement_missing() {
            return None;
        }
        let lock = std::env::temp_dir().join("ekiden-congestion-controls.lock");
        let mut holder = Command::new("flock");
        // flock holds the lock until its standard input ends, at the latest at the end of this process.
        holder.arg(lock).args(["sh", "-c", "echo; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("flock of util-linux");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "\n", "flock did not get the lock");
        for algorithm in CATALOGUE {
            if lookup(algorithm.name).loaded_by == LoadedBy::Orphaned {
                unload(algorithm.name).unwrap();
            }
        }
        // In reverse order: other tests most likely use the first name of the catalogue.
        let names = || CATALOGUE.iter().rev().map(|algorithm| algorithm.name).filter(|name| fits(name));
        let name = wait_for("an unused name", || names().find(|name| is_absent(name)));
        Some(Self { holder, name })
    }
}

impl Drop for RegistrationLock {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Waits until the kernel no longer has this congestion control.
pub fn wait_absent(name: &str) {
    wait_for(&format!("the absence of the congestion control {name}"), || is_absent(name).then_some(()));
}

fn is_absent(name: &str) -> bool {
    lookup(name).loaded_by == LoadedBy::NotLoaded
}

/// Calls `look` until it returns a value.
pub fn wait_for<T>(label: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for {label}: {:?}", list());
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Whether the kernel accepts no congestion control of this process. Prints the reason.
pub fn is_any_requirement_missing() -> bool {
    let capabilities = ekiden_bpf::kernel::missing_capabilities();
    if !capabilities.is_empty() {
        skipped(format_args!("no {capabilities:?}"));
        return true;
    }
    let has_types = KernelTypes::running().is_some();
    if !has_types {
        skipped("the kernel has no BTF");
    }
    !has_types
}
