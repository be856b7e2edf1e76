//! HighSpeed, Hybla, Westwood+, Vegas, Scalable and BIC: their arithmetic, as BPF and as in the virtual kernel, against
//! slow references in floating point; and connections that use them.

mod bic;
mod connections;
mod highspeed;
mod hybla;
mod kept;
mod loaded;
mod network;
mod scalable;
#[path = "../stepper/mod.rs"]
mod stepper;
mod steps;
mod vegas;
mod westwood;
