//! Where something stands: clients, servers, relays, and places where a relay could be.

use super::Position;

/// A place in the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What is there.
    pub roles: Roles,
    /// Where it is on earth.
    pub position: Option<Position>,
}

/// What is at a site, or could be; more than one is fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    /// Clients.
    pub client: bool,
    /// Servers.
    pub server: bool,
    /// A relay that stands.
    pub relay: bool,
    /// Room for a relay.
    pub possible: bool,
}

impl Roles {
    /// The words for them.
    pub const NAMES: [&'static str; 4] = ["client", "server", "relay", "possible"];

    /// Adds the role of this word; false where there is none.
    pub fn add_by_name(&mut self, word: &str) -> bool {
        match word {
            "client" => self.client = true,
            "server" => self.server = true,
            "relay" => self.relay = true,
            "possible" => self.possible = true,
            _ => return false,
        }
        true
    }
}
