//! Experiments: what varies, what is compared, how often, and what was published about it.

pub mod results;
