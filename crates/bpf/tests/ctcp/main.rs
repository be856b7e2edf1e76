//! Compound TCP: its arithmetic, as BPF and as in the virtual kernel, compared with a model, and connections in the
//! running kernel.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod arithmetic;
mod base;
mod connections;
#[path = "../growth/loaded.rs"]
mod loaded;
mod model;
#[path = "../name_lock/mod.rs"]
#[allow(dead_code, reason = "these tests register names of their own, without the lock")]
mod name_lock;
#[path = "../growth/network.rs"]
mod network;
mod response;
mod rng;
mod slow_start;
#[path = "../stepper/mod.rs"]
mod stepper;
mod steps;
