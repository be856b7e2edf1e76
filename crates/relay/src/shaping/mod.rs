//! TODO

pub mod autotune;
pub mod fair_share;
