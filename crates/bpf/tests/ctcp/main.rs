//! Compound TCP: its arithmetic against a model, and real connections. The programs run in this machine's kernel.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod arithmetic;
mod base;
mod connections;
mod dice;
mod kernel;
#[path = "../growth/loaded.rs"]
mod loaded;
mod model;
#[path = "../growth/network.rs"]
mod network;
mod response;
mod slow_start;
