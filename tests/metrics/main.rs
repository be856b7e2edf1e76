//! Metrics of relays with traffic: names and values, the number of series, the dashboard and the documentation.
//!
//! `fixture` starts relays, generates traffic and reads the metrics; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../sections/relays.rs"]
#[allow(dead_code, reason = "every test file uses its own part of it")]
mod relays;

mod fixture;

mod conventions;
mod dashboard;
mod process;
mod schema;
mod sessions;
