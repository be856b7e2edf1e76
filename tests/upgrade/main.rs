//! Upgrades: a new process replaces the running process without effect on sessions, and a failed upgrade has no effect.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod failures;
mod fixture;
mod hitless;
mod old_process;
mod trust;
