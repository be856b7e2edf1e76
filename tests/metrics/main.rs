//! Numbers of relays that serve: that they are true, that the page about them and the dashboard know no others, and that
//! they stay few.
//!
//! `scrape` reads them, `streams` flow, `scene` are relays to which much happens; every other module is one question.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../sections/relays.rs"]
#[allow(dead_code, reason = "every test file uses its own part of it")]
mod relays;

mod scene;

mod conventions;
mod dashboard;
mod itself;
mod schema;
mod sessions;
