//! Packets through tunnels that are not TCP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::Metrics;
use super::declare::Declare;
use crate::tun::{DirectionCounters, PacketCounters};

label_sets! {
    ByDirection { listener: String, direction: &'static str }
    ByReason { listener: String, reason: &'static str }
}

/// The numbers of tunnels.
#[derive(Debug, Default)]
pub(super) struct TunnelMetrics {
    counters: Mutex<HashMap<String, Arc<PacketCounters>>>,
    packets: Family<ByDirection, Counter>,
    bytes: Family<ByDirection, Counter>,
    dropped: Family<ByReason, Counter>,
}

impl TunnelMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("tunnel_packets", "Packets through lanes, by direction", self.packets.clone());
        r.declare("tunnel_packet_bytes", "Bytes of these, IP headers included", self.bytes.clone());
        let dropped = "Packets of tunnels that went nowhere, by why";
        r.declare("tunnel_packets_dropped", dropped, self.dropped.clone());
    }

    fn new_counters(&self, listener: &str) -> PacketCounters {
        let label = |direction| ByDirection { listener: listener.to_owned(), direction };
        let counts = |direction| DirectionCounters {
            packets: self.packets.get_or_create_owned(&label(direction)),
            bytes: self.bytes.get_or_create_owned(&label(direction)),
        };
        let dropped = |reason| self.dropped.get_or_create_owned(&ByReason { listener: listener.to_owned(), reason });
        PacketCounters::new(counts, dropped)
    }
}

impl Metrics {
    /// The packet counters of a listener, for its lanes to count into as they go.
    #[must_use]
    pub fn packet_counters(&self, listener: &str) -> Arc<PacketCounters> {
        let mut crossings = self.tunnels.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let made =
            crossings.entry(listener.to_owned()).or_insert_with(|| Arc::new(self.tunnels.new_counters(listener)));
        Arc::clone(made)
    }

    /// Counts a packet of a tunnel that goes nowhere.
    pub fn record_packet_dropped(&self, listener: &str, reason: &'static str) {
        self.tunnels.dropped.get_or_create(&ByReason { listener: listener.to_owned(), reason }).inc();
    }
}
