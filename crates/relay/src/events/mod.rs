//! TODO

pub mod log;
pub mod metrics;
pub mod recent;
pub mod traces;
