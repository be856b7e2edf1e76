//! The data of runs: records of relays, links and hosts, the metrics, and the store of the results. Results are not
//! judged here.

pub mod choices;
pub mod cpu;
pub mod fairness;
pub mod links;
pub mod manifest;
pub mod metric;
pub mod named;
pub mod packets;
pub mod results;
pub mod sequence;
pub mod store;
pub mod visits;
