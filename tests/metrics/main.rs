//! Metrics of relays with traffic: their values are correct, the page and the dashboard list no others, and their
//! number is bounded.
//!
//! `fixture` has relays with all kinds of traffic, and reads their metrics; each other module has one subject.
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
