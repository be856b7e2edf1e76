//! Installed client programs whose tests take long: `make test-clients` runs them, and `make test` skips them with a
//! message.

mod harness;

#[path = "clients_slow/browser.rs"]
mod browser;
#[path = "clients_slow/chromium.rs"]
mod chromium;
#[path = "clients/curl.rs"]
mod curl;
#[path = "clients_slow/dashboard.rs"]
mod dashboard;
#[path = "clients_slow/firefox.rs"]
mod firefox;
#[path = "clients_slow/many.rs"]
mod many;
#[path = "clients/programs.rs"]
mod programs;
#[path = "clients/servers.rs"]
mod servers;
#[path = "clients_slow/shell.rs"]
mod shell;
#[path = "clients_slow/site.rs"]
mod site;

use harness::skipped;

/// Returns whether the test must be skipped, because it does not run in `make test-clients` or a program is missing.
fn is_skipped(programs: &[&str]) -> bool {
    if std::env::var_os("EKIDEN_TEST_CLIENTS").is_none_or(|value| value != "1") {
        skipped("run make test-clients");
        return true;
    }
    programs::is_any_missing(programs)
}
