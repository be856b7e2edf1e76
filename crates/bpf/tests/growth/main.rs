//! HighSpeed, Hybla, Westwood+, Vegas, Scalable and BIC: their arithmetic, as BPF and as in the virtual kernel,
//! compared with slow references in floating point, and connections that use them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod bic;
mod connections;
mod highspeed;
mod hybla;
mod loaded;
#[path = "../name_lock/mod.rs"]
#[allow(dead_code, reason = "these tests register names of their own, without the lock")]
mod name_lock;
mod network;
mod omitted_calls;
mod scalable;
#[path = "../stepper/mod.rs"]
mod stepper;
mod steps;
mod vegas;
mod westwood;
