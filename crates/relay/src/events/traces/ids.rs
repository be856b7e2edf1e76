//! Span ids, and the sampling of traces.
//!
//! Relays do not send their span ids to each other. A span id is derived from the trace id and the public key of the
//! relay, and each relay has the key of the previous relay from the handshake. A session crosses each relay at most
//! once, so the span ids of a trace are unique.

use std::fmt;

use ekiden_proto::key::PublicKey;
use ekiden_proto::wire::section::TraceId;
use sha2::{Digest, Sha256};

use crate::config::SampleRatio;

/// The id of a span (8 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

/// The span ids of one session in one relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSpanIds {
    /// The span of the whole session.
    pub session: SpanId,
    /// The span up to the client's request.
    pub ingress: SpanId,
    /// The span until the path is established.
    pub dial: SpanId,
    /// The span from the first byte to the end of the session.
    pub transfer: SpanId,
}

impl SessionSpanIds {
    /// Derives the span ids of the session with `trace` in the relay with the public key `key`.
    #[must_use]
    pub fn derive(trace: TraceId, key: &PublicKey) -> Self {
        let digest = Sha256::new().chain_update(trace.0).chain_update(key.0).finalize();
        let part = |at: usize| SpanId(std::array::from_fn(|byte| digest[at * 8 + byte]));
        Self { session: part(0), ingress: part(1), dial: part(2), transfer: part(3) }
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl SampleRatio {
    /// Returns whether a trace is sampled. The last seven bytes of a trace id are random (W3C Trace Context, Level 2,
    /// "Random Trace ID Flag"), so all relays that use them sample the same traces.
    #[must_use]
    pub fn is_sampled(self, trace: TraceId) -> bool {
        const BITS: u32 = 56;
        let chance = u128::from_be_bytes(trace.0) & ((1 << BITS) - 1);
        (chance as f64) < self.0 * (1_u64 << BITS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_ids_are_derived_from_trace_id_and_relay_key() {
        let (trace, key) = (TraceId([7; 16]), PublicKey([1; 32]));
        let ids = SessionSpanIds::derive(trace, &key);
        assert_eq!(ids, SessionSpanIds::derive(trace, &key));
        assert_ne!(ids.session, SessionSpanIds::derive(trace, &PublicKey([2; 32])).session);
        assert_ne!(ids.session, SessionSpanIds::derive(TraceId([8; 16]), &key).session);
        let all = [ids.session, ids.ingress, ids.dial, ids.transfer];
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])), "{all:?}");
        assert_eq!(SpanId([0, 1, 2, 3, 4, 5, 6, 0xab]).to_string(), "00010203040506ab");
    }

    #[test]
    fn sample_ratio_is_met_and_larger_ratios_include_smaller() {
        let traces: Vec<TraceId> = (0..10_000).map(|_| TraceId::generate()).collect();
        let sampled_count = |share: f64| traces.iter().filter(|trace| SampleRatio(share).is_sampled(**trace)).count();
        assert_eq!((sampled_count(0.0), sampled_count(1.0)), (0, traces.len()));
        // The expected 2500, plus and minus five standard deviations.
        assert!((2283..=2717).contains(&sampled_count(0.25)), "{}", sampled_count(0.25));
        assert!(
            traces.iter().all(|trace| !SampleRatio(0.25).is_sampled(*trace) || SampleRatio(0.5).is_sampled(*trace))
        );
        let smallest = TraceId([255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0]);
        assert!(SampleRatio(1e-15).is_sampled(smallest) && !SampleRatio(0.99).is_sampled(TraceId([255; 16])));
    }
}
