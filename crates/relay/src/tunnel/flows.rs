//! The flows of packets that have passed the rules. Packets that answer them need no permission of the rules.
//!
//! A table is bounded in size and time, with two generations as in [`AddressTable`](super::addresses::AddressTable).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::wire::ip::PacketFlow;

/// Largest number of flows in each generation.
const MAX_PER_GENERATION: usize = 4096;

/// Lifetime of a flow after its last packet, as `nf_conntrack_udp_timeout_stream`, at most twice as long. A full table
/// forgets flows earlier.
const LIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// The flows from the tunnels of this host, or the flows in both directions of one forwarded lane.
#[derive(Debug, Default)]
pub struct FlowTable(Mutex<FlowGenerations>);

#[derive(Debug, Default)]
struct FlowGenerations {
    young: HashSet<PacketFlow>,
    old: HashSet<PacketFlow>,
    /// When the young generation began.
    begun_at: Option<Instant>,
}

impl FlowGenerations {
    /// Begins a young generation if the current one is full or has reached [`LIVE_TIMEOUT`].
    fn rotate(&mut self, now: Instant) {
        let age = now.saturating_duration_since(*self.begun_at.get_or_insert(now));
        if age < LIVE_TIMEOUT && self.young.len() < MAX_PER_GENERATION {
            return;
        }
        self.old = std::mem::take(&mut self.young);
        if age >= 2 * LIVE_TIMEOUT {
            self.old.clear();
        }
        self.begun_at = Some(now);
    }
}

impl FlowTable {
    /// Records the flow of a sent packet. The answer may come in fragments.
    pub fn record(&self, packet: &[u8], now: Instant) {
        let Some(flow) = PacketFlow::of(packet) else { return };
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.rotate(now);
        generations.young.extend([flow, flow.of_later_fragments()]);
    }

    /// Returns whether a received packet answers a recorded flow. An answer prolongs the lifetime of the flow.
    pub fn is_answer(&self, packet: &[u8], now: Instant) -> bool {
        let Some(flow) = PacketFlow::answered_by(packet) else { return false };
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.rotate(now);
        generations.young.contains(&flow) || generations.old.remove(&flow) && generations.young.insert(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP from a port of 10.0.0.1 to port 53 of 10.0.0.2, or the answer.
    fn packet(port: u16, is_answer: bool) -> Vec<u8> {
        let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (client, server) = (port.to_be_bytes(), [0, 53]);
        let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        let [from, to] = if is_answer { [far, near] } else { [near, far] };
        let [source, destination] = if is_answer { [server, client] } else { [client, server] };
        [&head[..], &from, &to, &source, &destination, &[0, 8, 0, 0]].concat()
    }

    #[test]
    fn only_answers_of_recorded_flows_are_recognised() {
        let (flows, now) = (FlowTable::default(), Instant::now());
        flows.record(&packet(1, false), now);
        assert!(flows.is_answer(&packet(1, true), now));
        assert!(!flows.is_answer(&packet(2, true), now));
        assert!(!flows.is_answer(&packet(1, false), now));
        let mut later_fragment = packet(2, true);
        later_fragment[7] = 1;
        assert!(flows.is_answer(&later_fragment, now));
    }

    #[test]
    fn flow_expires_after_its_last_packet() {
        let (flows, now) = (FlowTable::default(), Instant::now());
        flows.record(&packet(1, false), now);
        assert!(flows.is_answer(&packet(1, true), now + LIVE_TIMEOUT), "live");
        assert!(flows.is_answer(&packet(1, true), now + 2 * LIVE_TIMEOUT), "prolonged by the answer");
        assert!(!flows.is_answer(&packet(1, true), now + 4 * LIVE_TIMEOUT));
        flows.record(&packet(1, false), now + 4 * LIVE_TIMEOUT);
        flows.record(&packet(2, false), now + 5 * LIVE_TIMEOUT);
        flows.record(&packet(2, false), now + 6 * LIVE_TIMEOUT);
        assert!(!flows.is_answer(&packet(1, true), now + 6 * LIVE_TIMEOUT), "other flows are live");
        assert!(flows.is_answer(&packet(2, true), now + 6 * LIVE_TIMEOUT));
    }

    #[test]
    fn inactive_flows_are_forgotten_and_active_flows_kept() {
        let (flows, now) = (FlowTable::default(), Instant::now());
        for port in 1..50_000 {
            flows.record(&packet(port, false), now);
            flows.record(&packet(0, false), now);
        }
        let halves = flows.0.lock().unwrap();
        assert!(halves.young.len() + halves.old.len() <= 2 * (MAX_PER_GENERATION + 1));
        drop(halves);
        assert!(flows.is_answer(&packet(0, true), now) && flows.is_answer(&packet(49_999, true), now));
        assert!(!flows.is_answer(&packet(1, true), now));
    }
}
