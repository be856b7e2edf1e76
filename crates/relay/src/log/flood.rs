//! Bounds the lines that a peer can cause before authentication, by reason and source address, and counts the lines that are
//! left out.
//!
//! Each source may cause a burst of lines for each reason and then one line in a second, and all sources together a
//! larger burst and then ten lines in a second.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ekiden_proto::addr::source;
use ekiden_proto::event::{End, Event};

/// Lines of one source and reason: at once, and in a second after that.
const OF_SOURCE: (f64, f64) = (50.0, 1.0);

/// Lines of one reason: at once, and in a second after that.
const OF_ALL: (f64, f64) = (200.0, 10.0);

/// Most sources of a reason that are counted by themselves.
const MOST_SOURCES: usize = 1024;

/// Time between two summaries of one reason.
const PERIOD: Duration = Duration::from_secs(1);

/// The lines of one reason: budgets, and the count of the lines that were left out.
#[derive(Debug, Default)]
pub struct Flood(BTreeMap<&'static str, Reason>);

#[derive(Debug)]
struct Reason {
    all: Bucket,
    sources: HashMap<IpAddr, Bucket>,
    suppressed: u64,
    /// The first line that was left out since the last summary.
    since: Option<Instant>,
}

/// A token bucket: one token for each line.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// The reason and the source of a line that an unknown peer can cause as often as it likes.
pub fn cause(event: &Event) -> Option<(&'static str, Option<IpAddr>)> {
    match event {
        Event::Closed(closed) => match closed.end {
            End::HandshakeTimeout
            | End::BadHandshake(_)
            | End::LeftEarly
            | End::Unauthenticated
            | End::Overloaded
            | End::ClientLimit => Some((closed.end.word(), closed.client.map(|client| source(client.0.ip())))),
            _ => None,
        },
        Event::AcceptPaused { .. } => Some(("accept_paused", None)),
        Event::AcceptResumed { .. } => Some(("accept_resumed", None)),
        Event::BypassBegan { .. } => Some(("bypass_began", None)),
        Event::BypassEnded { .. } => Some(("bypass_ended", None)),
        _ => None,
    }
}

impl Flood {
    /// Whether a line is to be written; if not, it is counted.
    pub fn admits(&mut self, reason: &'static str, source: Option<IpAddr>, now: Instant) -> bool {
        let reason = self.0.entry(reason).or_insert_with(|| Reason::new(now));
        let admitted = reason.admits(source, now);
        if !admitted {
            reason.suppressed += 1;
            reason.since.get_or_insert(now);
        }
        admitted
    }

    /// When the next summary is due; none while nothing was left out.
    pub fn due(&self) -> Option<Instant> {
        self.0.values().filter_map(|reason| reason.since).min().map(|since| since + PERIOD)
    }

    /// The summaries that are due by `now`, or all of them at the end.
    pub fn summaries(&mut self, now: Instant, is_end: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, reason) in &mut self.0 {
            let is_due = |since: &Instant| is_end || *since + PERIOD <= now;
            if let Some(since) = reason.since.take_if(|since| is_due(since)) {
                let (lines, duration) = (std::mem::take(&mut reason.suppressed), now.saturating_duration_since(since));
                events.push(Event::Suppressed { reason: name, lines, duration });
            }
        }
        events
    }
}

impl Reason {
    fn new(now: Instant) -> Self {
        Self { all: Bucket::full(OF_ALL, now), sources: HashMap::new(), suppressed: 0, since: None }
    }

    fn admits(&mut self, source: Option<IpAddr>, now: Instant) -> bool {
        self.all.fill(OF_ALL, now);
        let Some(source) = source else { return self.all.take() };
        if self.sources.len() == MOST_SOURCES && !self.sources.contains_key(&source) {
            self.sources.retain(|_, bucket| bucket.fill(OF_SOURCE, now) < OF_SOURCE.0);
            if self.sources.len() == MOST_SOURCES {
                return self.all.take();
            }
        }
        let own = self.sources.entry(source).or_insert_with(|| Bucket::full(OF_SOURCE, now));
        own.fill(OF_SOURCE, now);
        own.tokens >= 1.0 && self.all.take() && own.take()
    }
}

impl Bucket {
    fn full((burst, _): (f64, f64), now: Instant) -> Self {
        Self { tokens: burst, at: now }
    }

    fn fill(&mut self, (burst, rate): (f64, f64), now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens, self.at) = ((self.tokens + passed * rate).min(burst), now);
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

    fn written(flood: &mut Flood, now: Instant, sources: impl Iterator<Item = Option<IpAddr>>) -> usize {
        sources.filter(|source| flood.admits("bad_handshake", *source, now)).count()
    }

    #[test]
    fn one_source_has_a_burst_and_then_a_line_in_a_second() {
        let (mut flood, began) = (Flood::default(), Instant::now());
        assert_eq!(written(&mut flood, began, std::iter::repeat_n(ip(1), 500)), 50);
        assert_eq!(written(&mut flood, began, std::iter::repeat_n(ip(2), 5)), 5, "another source");
        assert!(flood.admits("left_early", ip(1), began), "another reason");
        assert_eq!(written(&mut flood, began + 3 * SECOND, std::iter::repeat_n(ip(1), 500)), 3);
        let summaries = flood.summaries(began + 3 * SECOND, false);
        let [Event::Suppressed { reason, lines, duration }] = summaries[..] else { panic!("{summaries:?}") };
        assert_eq!((reason, lines, duration), ("bad_handshake", 450 + 497, 3 * SECOND));
        assert!(flood.due().is_none() && flood.summaries(began + 9 * SECOND, true).is_empty(), "it was told once");
    }

    #[test]
    fn many_sources_are_bounded_together_and_in_memory() {
        let (mut flood, began) = (Flood::default(), Instant::now());
        assert_eq!(written(&mut flood, began, (0..100_000).map(ip)), 200);
        assert!(flood.0["bad_handshake"].sources.len() <= MOST_SOURCES);
        assert_eq!(written(&mut flood, began + 2 * SECOND, (0..1000).map(ip)), 20);
        assert_eq!(written(&mut flood, began + 200 * SECOND, (200_000..200_010).map(ip)), 10);
        assert!(flood.0["bad_handshake"].sources.len() <= MOST_SOURCES);
    }

    #[test]
    fn a_summary_is_due_a_second_after_the_first_line_that_was_left_out() {
        let (mut flood, began) = (Flood::default(), Instant::now());
        assert_eq!(written(&mut flood, began, std::iter::repeat_n(ip(1), 51)), 50);
        assert_eq!(flood.due(), Some(began + PERIOD));
        assert!(flood.summaries(began + PERIOD / 2, false).is_empty());
        assert_eq!(flood.summaries(began + PERIOD, false).len(), 1);
        assert!(!flood.admits("bad_handshake", ip(1), began));
        assert_eq!(flood.summaries(began, true).len(), 1, "the end waits for no period");
    }
}
