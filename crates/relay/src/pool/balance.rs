//! The load of relays, and the choice among the members of a group. [`ekiden_proto::balance`] makes the decisions.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ekiden_proto::balance::{Balance, MemberLoad, MemberState, are_slow, member_id, order};

use super::hop_pool::HopPool;
use crate::config::Hop;

/// The pools of the members of one group.
#[derive(Debug)]
pub struct PoolGroup {
    /// The hop with several addresses.
    pub hop: Arc<Hop>,
    balance: Balance,
    members: Vec<(u64, Arc<HopPool>)>,
}

impl PoolGroup {
    /// Creates the group of `hop`; `None` if the hop has only one address. `pool_of` returns the pool of a member.
    pub fn new(hop: &Arc<Hop>, pool_of: impl Fn(&Arc<Hop>) -> Arc<HopPool>) -> Option<Self> {
        let group = hop.group.as_ref()?;
        let members = group.members.iter().map(|member| (member_id(&member.address.to_string()), pool_of(member)));
        Some(Self { hop: Arc::clone(hop), balance: group.balance, members: members.collect() })
    }

    /// Returns the members in the order in which a session of `client` tries them.
    pub fn order(&self, client: IpAddr, now: Instant) -> Vec<Arc<Hop>> {
        let indices = order(self.balance, &self.states(now), client, RandomState::new().hash_one(()));
        indices.into_iter().map(|index| Arc::clone(&self.members[index].1.hop)).collect()
    }

    /// Returns the pool of each member, and whether the member is slow.
    pub fn slowness(&self, now: Instant) -> impl Iterator<Item = (&Arc<HopPool>, bool)> {
        self.members.iter().zip(self.states(now)).map(|((_, pool), state)| (pool, state.is_slow))
    }

    fn states(&self, now: Instant) -> Vec<MemberState> {
        let load_states: Vec<_> = self.members.iter().map(|(_, pool)| pool.load_state(now)).collect();
        let latencies: Vec<_> = load_states.iter().map(|state| state.latency.filter(|_| state.is_up)).collect();
        let members = self.members.iter().zip(load_states).zip(are_slow(&latencies));
        members
            .map(|(((id, _), state), is_slow)| MemberState {
                id: *id,
                is_up: state.is_up,
                is_refusing: state.is_refusing,
                is_slow,
                sessions: state.sessions,
            })
            .collect()
    }
}

/// The load of a relay at one moment.
#[derive(Debug, Clone, Copy)]
pub struct LoadState {
    /// Whether the last attempt to reach the relay succeeded.
    pub is_up: bool,
    /// Whether the relay has refused a session recently.
    pub is_refusing: bool,
    /// Number of open sessions through the relay.
    pub sessions: usize,
    /// The latency of the relay; `None` if unknown.
    pub latency: Option<Duration>,
}

/// Counts one session in the load of a relay, from the selection of the relay until the drop of this value.
#[derive(Debug)]
pub struct SessionLoad {
    pool: Arc<HopPool>,
    is_waiting: AtomicBool,
}

impl SessionLoad {
    pub(super) fn new(pool: Arc<HopPool>) -> Self {
        pool.update_load(|load, now| load.on_session(now));
        Self { pool, is_waiting: AtomicBool::new(true) }
    }

    /// Records the answer of the relay. `latency` is the time from OPEN to the answer, minus the setup time that the
    /// relay reports; `None` if the answer does not contain that time.
    pub fn on_answer(&self, latency: Option<Duration>) {
        if self.is_waiting.swap(false, Ordering::Relaxed) {
            self.pool.update_load(|load, now| load.on_answer(now, latency));
        }
    }

    /// Records that the relay has no room for the session, or has closed the connection before its answer.
    pub fn on_refusal(&self) {
        self.pool.update_load(MemberLoad::on_refusal);
    }
}

impl Drop for SessionLoad {
    fn drop(&mut self) {
        let is_waiting = *self.is_waiting.get_mut();
        self.pool.update_load(|load, now| load.on_session_end(now, is_waiting));
    }
}
