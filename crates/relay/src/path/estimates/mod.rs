//! What sections are like: measured on the connections of sessions, told by other relays, and looked at where nothing
//! flows.
//!
//! [`EstimateStore`] is where it gathers, shared by all threads; [`SectionSampler`] is one connection of a session; [`answer`] and [`ReportClients`]
//! are the two sides of the connections on which relays tell each other.

mod history;
mod map;
mod peer;
mod report_client;
mod report_clients;
pub mod report_server;
mod reports;
mod sampler;
mod sections;
mod store;

pub use history::EstimateHistory;
pub use peer::{FirstHop, PeerId};
pub use report_clients::ReportClients;
pub use sampler::SectionSampler;
pub use sections::RelaySectionView;
pub use store::EstimateStore;

#[cfg(test)]
mod tests;
