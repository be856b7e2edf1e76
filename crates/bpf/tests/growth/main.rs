//! HighSpeed, Hybla, Westwood+, Vegas, Scalable and BIC: their arithmetic, as BPF and as in the virtual kernel,
//! compared with slow references in floating point, and connections that use them.

mod bic;
mod connections;
mod highspeed;
mod hybla;
mod loaded;
mod network;
mod omitted_calls;
mod scalable;
#[path = "../stepper/mod.rs"]
mod stepper;
mod steps;
mod vegas;
mod westwood;
