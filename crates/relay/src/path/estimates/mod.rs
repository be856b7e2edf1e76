//! Estimates of sections: sampled on the connections of sessions, reported by other relays, and measured by probes on
//! sections without traffic.
//!
//! [`EstimateStore`] holds the estimates for all threads; a [`SectionSampler`] samples one connection. Relays exchange
//! reports on separate connections: [`report_server`] is the server side, [`ReportClients`] is the client side.

mod history;
mod map;
mod report_client;
mod report_clients;
pub mod report_server;
mod reports;
mod sampler;
mod store;

pub use history::EstimateHistory;
pub use map::RelaySectionView;
pub use report_clients::ReportClients;
pub use sampler::SectionSampler;
pub use sampler::{FirstHop, PeerId};
pub use store::EstimateStore;

#[cfg(test)]
mod tests;
