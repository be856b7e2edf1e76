//! OpenTelemetry traces of sessions, received by a collector of the tests: a real HTTP server that speaks OTLP.
//!
//! `collector` is that server; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../sections/relays.rs"]
#[allow(dead_code, reason = "every test file uses its own part of it")]
mod relays;
#[path = "../sections/streams.rs"]
#[allow(dead_code, reason = "every test file uses its own part of it")]
mod streams;

mod collector;

mod chain;
mod failures;
mod settings;
