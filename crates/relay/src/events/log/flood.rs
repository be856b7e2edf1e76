//! Limits the log lines that a peer can cause before authentication, by reason and source address, and counts the
//! suppressed lines.
//!
//! For each reason, each source may cause a burst of lines and then one line per second. All sources together may cause
//! a larger burst and then ten lines per second.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ekiden_proto::addr::source_prefix;
use ekiden_proto::event::{EndReason, Event};

/// Limit for the lines of one source and reason: burst, and lines per second.
const SOURCE_LIMIT: LineLimit = LineLimit { burst: 50.0, per_second: 1.0 };

/// Limit for the lines of one reason from all sources: burst, and lines per second.
const TOTAL_LIMIT: LineLimit = LineLimit { burst: 200.0, per_second: 10.0 };

/// Maximum number of sources with their own token bucket, for each reason.
const MAX_SOURCES: usize = 1024;

/// Time between two summaries of one reason.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);

/// The rate limiter of the log, with one limiter for each reason.
#[derive(Debug, Default)]
pub struct LogRateLimiter(BTreeMap<&'static str, ReasonLimiter>);

#[derive(Debug)]
struct ReasonLimiter {
    total: TokenBucket,
    sources: HashMap<IpAddr, TokenBucket>,
    suppressed: u64,
    /// When the first line since the last summary was suppressed; `None` if no line was suppressed.
    suppressed_since: Option<Instant>,
}

/// Parameters of a token bucket.
#[derive(Clone, Copy)]
struct LineLimit {
    burst: f64,
    per_second: f64,
}

/// A token bucket: one token for each line.
#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    filled_at: Instant,
}

/// Returns the reason and the source of a line that an unauthenticated peer can cause at any rate; `None` for other
/// lines.
pub fn limited_reason(event: &Event) -> Option<(&'static str, Option<IpAddr>)> {
    match event {
        Event::Closed(closed) => match closed.end {
            EndReason::HandshakeTimeout
            | EndReason::BadHandshake(_)
            | EndReason::LeftEarly
            | EndReason::Unauthenticated
            | EndReason::Overloaded
            | EndReason::ClientLimit => {
                Some((closed.end.as_str(), closed.client.map(|client| source_prefix(client.0.ip()))))
            }
            _ => None,
        },
        Event::AcceptPaused { .. } => Some(("accept_paused", None)),
        Event::AcceptResumed { .. } => Some(("accept_resumed", None)),
        Event::BypassBegan { .. } => Some(("bypass_began", None)),
        Event::BypassEnded { .. } => Some(("bypass_ended", None)),
        _ => None,
    }
}

impl LogRateLimiter {
    /// Returns whether a line is to be written. If not, the line is counted as suppressed.
    pub fn admit(&mut self, reason: &'static str, source: Option<IpAddr>, now: Instant) -> bool {
        let reason = self.0.entry(reason).or_insert_with(|| ReasonLimiter::new(now));
        let admitted = reason.admit(source, now);
        if !admitted {
            reason.suppressed += 1;
            reason.suppressed_since.get_or_insert(now);
        }
        admitted
    }

    /// Returns when the next summary is due; `None` if no line was suppressed.
    pub fn next_summary_at(&self) -> Option<Instant> {
        self.0.values().filter_map(|reason| reason.suppressed_since).min().map(|since| since + SUMMARY_INTERVAL)
    }

    /// Returns the summaries that are due at `now`, or all summaries if `is_end` is set.
    pub fn summaries(&mut self, now: Instant, is_end: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, reason) in &mut self.0 {
            let is_due = |since: &Instant| is_end || *since + SUMMARY_INTERVAL <= now;
            if let Some(since) = reason.suppressed_since.take_if(|since| is_due(since)) {
                let (lines, duration) = (std::mem::take(&mut reason.suppressed), now.saturating_duration_since(since));
                events.push(Event::Suppressed { reason: name, lines, duration });
            }
        }
        events
    }
}

impl ReasonLimiter {
    fn new(now: Instant) -> Self {
        Self {
            total: TokenBucket::full(TOTAL_LIMIT, now),
            sources: HashMap::new(),
            suppressed: 0,
            suppressed_since: None,
        }
    }

    fn admit(&mut self, source: Option<IpAddr>, now: Instant) -> bool {
        self.total.refill(TOTAL_LIMIT, now);
        let Some(source) = source else { return self.total.take() };
        if self.sources.len() == MAX_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, bucket| bucket.refill(SOURCE_LIMIT, now) < SOURCE_LIMIT.burst);
            if self.sources.len() == MAX_SOURCES {
                return self.total.take();
            }
        }
        let own = self.sources.entry(source).or_insert_with(|| TokenBucket::full(SOURCE_LIMIT, now));
        own.refill(SOURCE_LIMIT, now);
        own.tokens >= 1.0 && self.total.take() && own.take()
    }
}

impl TokenBucket {
    fn full(limit: LineLimit, now: Instant) -> Self {
        Self { tokens: limit.burst, filled_at: now }
    }

    fn refill(&mut self, limit: LineLimit, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        (self.tokens, self.filled_at) = ((self.tokens + passed * limit.per_second).min(limit.burst), now);
        self.tokens
    }

    fn take(&mut self) -> bool {
        let has = self.tokens >= 1.0;
        self.tokens -= if has { 1.0 } else { 0.0 };
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ip(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    fn written(limiter: &mut LogRateLimiter, now: Instant, sources: impl Iterator<Item = Option<IpAddr>>) -> usize {
        sources.filter(|source| limiter.admit("bad_handshake", *source, now)).count()
    }

    #[test]
    fn source_is_limited_to_a_burst_and_one_line_per_second() {
        let (mut limiter, began) = (LogRateLimiter::default(), Instant::now());
        assert_eq!(written(&mut limiter, began, std::iter::repeat_n(ip(1), 500)), 50);
        assert_eq!(written(&mut limiter, began, std::iter::repeat_n(ip(2), 5)), 5, "another source");
        assert!(limiter.admit("left_early", ip(1), began), "another reason");
        assert_eq!(written(&mut limiter, began + 3 * SECOND, std::iter::repeat_n(ip(1), 500)), 3);
        let summaries = limiter.summaries(began + 3 * SECOND, false);
        let [Event::Suppressed { reason, lines, duration }] = summaries[..] else { panic!("{summaries:?}") };
        assert_eq!((reason, lines, duration), ("bad_handshake", 450 + 497, 3 * SECOND));
        assert!(
            limiter.next_summary_at().is_none() && limiter.summaries(began + 9 * SECOND, true).is_empty(),
            "each summary is emitted once"
        );
    }

    #[test]
    fn sources_share_a_rate_limit_and_use_bounded_memory() {
        let (mut limiter, began) = (LogRateLimiter::default(), Instant::now());
        assert_eq!(written(&mut limiter, began, (0..100_000).map(ip)), 200);
        assert!(limiter.0["bad_handshake"].sources.len() <= MAX_SOURCES);
        assert_eq!(written(&mut limiter, began + 2 * SECOND, (0..1000).map(ip)), 20);
        assert_eq!(written(&mut limiter, began + 200 * SECOND, (200_000..200_010).map(ip)), 10);
        assert!(limiter.0["bad_handshake"].sources.len() <= MAX_SOURCES);
    }

    #[test]
    fn summary_is_due_an_interval_after_the_first_suppressed_line() {
        let (mut limiter, began) = (LogRateLimiter::default(), Instant::now());
        assert_eq!(written(&mut limiter, began, std::iter::repeat_n(ip(1), 51)), 50);
        assert_eq!(limiter.next_summary_at(), Some(began + SUMMARY_INTERVAL));
        assert!(limiter.summaries(began + SUMMARY_INTERVAL / 2, false).is_empty());
        assert_eq!(limiter.summaries(began + SUMMARY_INTERVAL, false).len(), 1);
        assert!(!limiter.admit("bad_handshake", ip(1), began));
        assert_eq!(limiter.summaries(began, true).len(), 1, "shutdown emits summaries at once");
    }
}
