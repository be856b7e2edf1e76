//! Measurement of sections, and reports between relays, as `/api/paths` shows them.
//!
//! `reports` also has the helpers that read `/api/paths`; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "not every test file starts chains")]
#[path = "../sections/relays.rs"]
mod relays;

mod reports;

mod budget;
mod failures;
mod history;
