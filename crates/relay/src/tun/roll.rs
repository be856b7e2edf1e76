//! The lanes of this process, for those who want to see them, and for answers that have to find theirs.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ekiden_proto::direction::Direction;

use super::crossing::PacketCounters;
use super::lane::Lane;
use super::seen::AddressTable;
use super::sources::LaneRemote;
use crate::status::LaneView;

/// All lanes, of all threads.
#[derive(Debug, Default)]
pub struct LaneRegistry {
    lanes: Mutex<Vec<(Box<str>, Weak<Lane>)>>,
    /// Where addresses were last seen.
    pub(super) addresses: AddressTable,
}

impl LaneRegistry {
    /// Enters a new lane of a listener.
    pub(super) fn register(
        &self,
        listener: &str,
        crossing: &Arc<PacketCounters>,
        remote: LaneRemote,
        sends: Direction,
    ) -> Arc<Lane> {
        let lane = Lane::new(crossing, remote, sends);
        let mut all = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, lane)| lane.strong_count() > 0);
        all.push((listener.into(), Arc::downgrade(&lane)));
        lane
    }

    /// What `ekiden status` shows.
    #[must_use]
    pub fn views(&self) -> Vec<LaneView> {
        let all = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|(listener, lane)| Some(lane.upgrade()?.view(listener))).collect()
    }
}
