//! Sessions as OpenTelemetry has them, with a collector of the tests' own: a real HTTP server that speaks OTLP.
//!
//! `collector` is that server; every other module is one question.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../sections/relays.rs"]
#[allow(dead_code, reason = "every test file uses its own part of it")]
mod relays;

mod collector;

mod chain;
mod settings;
mod trouble;
