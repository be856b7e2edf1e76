//! The data of runs: what relays, links and hosts recorded, the metrics, and the store with the results. Judges
//! nothing.

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
