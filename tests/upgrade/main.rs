//! Upgrades: another process replaces a running one without effect on sessions; a failed upgrade has no effect either.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod failures;
mod fixture;
mod hitless;
mod old_process;
mod trust;
