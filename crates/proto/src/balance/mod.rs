//! Distributes sessions among equivalent relays, the **members** of a group: by load, or by the client.
//!
//! One failed connection marks a member as down; its latency marks it as slow ([`MemberLoad`]). At least half of the members are
//! never slow, so that the others cannot be overloaded by a common cause, for example a slow network.

mod load;

use std::net::IpAddr;
use std::time::Duration;

pub use load::{MemberLoad, PROBE_INTERVAL};

use crate::aqm::mix;

/// How the sessions of a group are shared among its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// Of two random members, the one with fewer sessions (Mitzenmacher: The power of two choices in randomized load
    /// balancing, 2001). A member that comes back does not get all new sessions at once.
    #[default]
    Least,
    /// A fixed member for each client, by rendezvous hashing (Thaler, Ravishankar: Using name-based mappings to
    /// increase hit rates, 1998): if a member fails, only its own clients move. All relays with the same group choose
    /// the same member.
    Client,
}

impl Balance {
    /// All values, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::Least, Self::Client];

    /// The word in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Least => "least",
            Self::Client => "client",
        }
    }
}

/// The state of a member at a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberState {
    /// Identifies the member on all relays: [`member_id`] of its address.
    pub id: u64,
    /// Whether the last attempt to connect to the member succeeded.
    pub is_up: bool,
    /// Whether the member has just refused a session: [`MemberLoad::is_refusing`].
    pub is_refusing: bool,
    /// Whether the member is slow: see [`are_slow`].
    pub is_slow: bool,
    /// Open sessions at the member.
    pub sessions: usize,
}

/// Returns the indices of `members` in the order in which a session of `client` tries them. `random` is a random
/// number. Slow members come after the others, then members that refuse sessions, and last those that are down: a
/// refusing member has few sessions and would otherwise be preferred.
#[must_use]
pub fn order(balance: Balance, members: &[MemberState], client: IpAddr, random: u64) -> Vec<usize> {
    let tier = |at: usize| (!members[at].is_up, members[at].is_refusing, members[at].is_slow);
    let mut indices: Vec<usize> = (0..members.len()).collect();
    match balance {
        Balance::Client => {
            let client = client_hash(client);
            indices.sort_by_key(|&at| (tier(at), std::cmp::Reverse(mix(client ^ members[at].id))));
        }
        Balance::Least => {
            // A random permutation: its first two members of the best tier are the two choices.
            indices.sort_by_key(|&at| (tier(at), mix(random ^ at as u64)));
            if let [first, second, ..] = indices[..]
                && tier(first) == tier(second)
                && members[second].sessions < members[first].sessions
            {
                indices.swap(0, 1);
            }
        }
    }
    indices
}

/// Computes the identifier of a member from its address (FNV-1a).
#[must_use]
pub fn member_id(address: &str) -> u64 {
    address.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn client_hash(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(v4) => mix(u64::from(v4.to_bits())),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            mix(mix((bits >> 64) as u64) ^ bits as u64)
        }
    }
}

/// A member is slow if its latency is more than this many times the median.
const SLOW_FACTOR: u32 = 3;

/// This time is added to latencies before they are compared: smaller differences are scheduling noise.
const LATENCY_FLOOR: Duration = Duration::from_millis(1);

/// Returns for each member whether it is slow, compared with the median of the members with a latency. For an even
/// number it is the lower of the two middle values, so that one of two members can be slow.
#[must_use]
pub fn are_slow(latencies: &[Option<Duration>]) -> Vec<bool> {
    let mut measured: Vec<Duration> = latencies.iter().flatten().copied().collect();
    measured.sort_unstable();
    let Some(&median) = measured.get(measured.len().saturating_sub(1) / 2) else { return vec![false; latencies.len()] };
    let limit = (median + LATENCY_FLOOR) * SLOW_FACTOR;
    latencies.iter().map(|latency| latency.is_some_and(|latency| latency + LATENCY_FLOOR > limit)).collect()
}

#[cfg(test)]
mod tests;
