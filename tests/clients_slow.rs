//! Real programs that take their time: run by `make test-clients`, and skipped aloud by `make test`.

mod harness;

#[path = "clients_slow/browser.rs"]
mod browser;
#[path = "clients_slow/chromium.rs"]
mod chromium;
#[path = "clients/curl.rs"]
mod curl;
#[path = "clients_slow/dashboard.rs"]
mod dashboard;
#[path = "clients_slow/many.rs"]
mod many;
#[path = "clients/programs.rs"]
mod programs;
#[path = "clients/servers.rs"]
mod servers;
#[path = "clients_slow/shell.rs"]
mod shell;

use std::io::Write;

/// Whether these tests are to be left out: unless `make test-clients` runs them, or where a program is missing.
fn left_out(programs: &[&str]) -> bool {
    if std::env::var_os("EKIDEN_TEST_CLIENTS").is_none_or(|value| value != "1") {
        let _ = writeln!(std::io::stderr(), "skipped: run make test-clients");
        return true;
    }
    programs::missing(programs)
}
