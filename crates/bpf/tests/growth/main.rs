//! HighSpeed, Hybla, Westwood+, Vegas, Scalable and BIC: their arithmetic, run in the kernel, against slow references in
//! floating point; and connections that use them.

mod bic;
mod connections;
mod highspeed;
mod hybla;
mod kept;
mod loaded;
mod network;
mod scalable;
mod steps;
mod vegas;
mod westwood;
