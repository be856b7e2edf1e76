//! The load of one member, as a relay measures it on its own sessions.
//!
//! Latency is the time from OPEN to ANSWER without the time that the member itself needed for the target, which ANSWER
//! contains. It is thus a round trip and the time in which the member was busy with other work; a slow target does not
//! count. The average rises fast and falls slowly, so that a member that is slow only under load does not alternate
//! between idle and overloaded. Of two consecutive measurements the smaller counts, so that one lost packet does not
//! make a member slow.
//!
//! A member that hangs sends no answers, so its latency would never be measured. Instead, the time counts in which
//! sessions waited and the member sent no answer. The answer to a probe ends this time: a member whose sessions all
//! wait for slow targets still answers the probe.

use std::time::{Duration, Instant};

/// Time constants of the average of latencies.
const RISE: Duration = Duration::from_millis(300);
const FALL: Duration = Duration::from_secs(3);

/// Upper bound of a measured latency, so that a member that had hung is not slow for minutes after it continues.
const MAX_LATENCY: Duration = Duration::from_secs(2);

/// Time without an answer after which a member is probed, and interval between two probes of a slow member.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Time without an answer, while a session waits for one, above which it counts as latency.
const MAX_SILENCE: Duration = Duration::from_millis(750);

/// Time after a refusal in which other members are preferred.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// The load of one member.
#[derive(Debug, Default)]
pub struct MemberLoad {
    sessions: usize,
    /// Number of sessions that have no answer yet.
    waiting: usize,
    /// Time of the last answer or new connection, or of the first session that waits since then; `None` while no
    /// session waits.
    silent_since: Option<Instant>,
    latency: Option<AverageLatency>,
    /// End of the pause after the last refusal.
    refused_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct AverageLatency {
    average: Duration,
    /// The measurement at the time `at`, which may be an outlier.
    last: Duration,
    at: Instant,
}

impl MemberLoad {
    /// Number of open sessions, counted from the choice of the member to their end.
    #[must_use]
    pub const fn sessions(&self) -> usize {
        self.sessions
    }

    /// The latency; `None` before the first measurement.
    #[must_use]
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        let silence = Some(self.silence(now)).filter(|silence| *silence > MAX_SILENCE);
        self.latency.map(|latency| latency.average).max(silence)
    }

    /// Whether the member has refused a session within the last second.
    #[must_use]
    pub fn is_refusing(&self, now: Instant) -> bool {
        self.refused_until.is_some_and(|until| now < until)
    }

    /// Whether a probe is due.
    #[must_use]
    pub fn needs_probe(&self, now: Instant, is_slow: bool) -> bool {
        is_slow || self.silence(now) >= PROBE_INTERVAL
    }

    fn silence(&self, now: Instant) -> Duration {
        self.silent_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Records that a session was assigned to the member.
    pub fn on_session(&mut self, now: Instant) {
        self.sessions += 1;
        self.waiting += 1;
        self.silent_since.get_or_insert(now);
    }

    /// Records the answer to a session, and the latency if the answer contains it.
    pub fn on_answer(&mut self, now: Instant, latency: Option<Duration>) {
        self.waiting -= 1;
        self.silent_since = (self.waiting > 0).then_some(now);
        if let Some(latency) = latency {
            self.record_latency(now, latency);
        }
    }

    /// Records that the member has no room for a session, or has closed the connection before its answer.
    pub fn on_refusal(&mut self, now: Instant) {
        self.refused_until = Some(now + REFUSAL_PAUSE);
    }

    /// Records the end of a session; `is_waiting` if the session has ended without an answer.
    pub fn on_session_end(&mut self, now: Instant, is_waiting: bool) {
        self.sessions -= 1;
        if !is_waiting {
            return;
        }
        self.waiting -= 1;
        if self.waiting == 0 {
            let silence = self.silence(now).min(MAX_LATENCY);
            if silence > MAX_SILENCE {
                self.latency = Some(AverageLatency { average: silence, last: silence, at: now });
            }
            self.silent_since = None;
        }
    }

    /// Records that a new connection to the member is established; its setup of two round trips took `setup_time`. The
    /// time counts as a measurement for a probe, which has no concurrent connections, and as long as there is no other
    /// measurement.
    pub fn on_connected(&mut self, now: Instant, setup_time: Duration, is_probe: bool) {
        self.silent_since = self.silent_since.map(|_| now);
        if is_probe || self.latency.is_none() {
            self.record_latency(now, setup_time / 2);
        }
    }

    fn record_latency(&mut self, now: Instant, latency: Duration) {
        let latency = latency.min(MAX_LATENCY);
        let average = self.latency.map_or(latency, |previous| {
            let smaller = latency.min(previous.last);
            let constant = if smaller > previous.average { RISE } else { FALL };
            let weight = (-now.saturating_duration_since(previous.at).as_secs_f64() / constant.as_secs_f64()).exp();
            previous.average.mul_f64(weight) + smaller.mul_f64(1.0 - weight)
        });
        self.latency = Some(AverageLatency { average, last: latency, at: now });
    }
}
