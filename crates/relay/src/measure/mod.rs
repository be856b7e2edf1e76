//! What sections are like: measured on the connections of sessions, told by other relays, and looked at where nothing
//! flows.
//!
//! [`EstimateStore`] is where it gathers, shared by all threads; [`SectionSampler`] is one connection of a session; [`answer`] and [`ReportClients`]
//! are the two sides of the connections on which relays tell each other.

pub mod answer;
mod between;
mod book;
mod caller;
mod chart;
mod history;
mod keeper;
mod place;
#[cfg(test)]
mod tests;
mod told;
mod watch;

pub use between::RelaySectionView;
pub use book::EstimateStore;
pub use history::EstimateHistory;
pub use keeper::ReportClients;
pub use place::{FirstHop, PeerId};
pub use watch::SectionSampler;
