//! Careful Resume (RFC 9959): the congestion window that earlier sections to a relay have reached, and the part of it
//! with which the next session starts. The congestion control sends and validates the jump; this module saves windows,
//! divides them among sessions and deletes them. [`SectionStart`] describes how a section began a session; closing
//! events, `ekiden status`, `ekiden top`, the dashboard and the metrics use its words.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Smallest window worth a jump, in bytes: four initial windows of ten packets (RFC 9959, Observe).
const MIN_WINDOW: u64 = 4 * 10 * 1448;

/// Lifetime of a saved window; the RFC permits minutes on paths that change.
const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Divisor of the saved window for the sum of concurrent jumps: "at most half of the saved window" (RFC 9959,
/// Unvalidated).
const SAFE_PART: u64 = 2;

/// Age of the saved window up to which a section that has carried sessions may use all of it. RFC 7661 permits five
/// minutes to a connection that has validated its window.
const KEPT_LIFETIME: Duration = Duration::from_secs(60);

/// Pause without jumps after a retreat: the first, and the longest; the pause doubles with each retreat.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);

/// A jump for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeGrant {
    /// The congestion window to start with, in bytes.
    pub jump_bytes: u32,
    /// The round-trip time of the saved window. If the path has another round-trip time, there is no jump.
    pub saved_rtt: Duration,
    /// The time after which the grant is void.
    pub lifetime: Duration,
}

/// The outcome of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumeOutcome {
    /// The session sent too little data to need the jump.
    Unused,
    /// The path was another one, the grant was too old, or packets were lost before the jump.
    Rejected,
    /// The jump was sent, and is not yet acknowledged in full.
    Unconfirmed,
    /// All of the jump was acknowledged without a sign of congestion.
    Confirmed,
    /// A part of the jump was lost or marked by ECN, and the window was reduced.
    Retreated,
}

impl ResumeOutcome {
    /// Whether the jump was sent, with any outcome.
    #[must_use]
    pub const fn is_sent(self) -> bool {
        matches!(self, Self::Unconfirmed | Self::Confirmed | Self::Retreated)
    }

    /// The word used in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Rejected => "rejected",
            Self::Unconfirmed => "unconfirmed",
            Self::Confirmed => "confirmed",
            Self::Retreated => "retreated",
        }
    }
}

/// A jump of a session's congestion window on one section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Jump {
    /// Size of the jump, in bytes.
    pub bytes: u32,
    /// The result of the jump.
    pub outcome: ResumeOutcome,
}

/// The origin of the congestion window at the start of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartState {
    /// The initial window of a new section.
    Cold,
    /// A new section with a jump to a part of the window that earlier sections to the same relay reached (Careful
    /// Resume).
    Resumed,
    /// A section that has carried sessions and still has their window; a jump may widen the window.
    Reused,
}

impl StartState {
    /// The word used in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Resumed => "resumed",
            Self::Reused => "reused",
        }
    }
}

/// How a section began a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SectionStart {
    /// Number of sessions that the section carried before this session.
    pub earlier_sessions: u32,
    /// The jump of Careful Resume, if the session requested one.
    pub jump: Option<Jump>,
}

impl SectionStart {
    /// The state that follows from both fields. A new section whose jump was not sent is cold.
    #[must_use]
    pub const fn state(&self) -> StartState {
        match self.jump {
            _ if self.earlier_sessions > 0 => StartState::Reused,
            Some(jump) if jump.outcome.is_sent() => StartState::Resumed,
            _ => StartState::Cold,
        }
    }
}

impl Serialize for SectionStart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("SectionStart", 3)?;
        fields.serialize_field("start", &self.state())?;
        fields.serialize_field("earlier_sessions", &self.earlier_sessions)?;
        fields.serialize_field("jump", &self.jump)?;
        fields.end()
    }
}

/// The saved window of the sections to one relay, the jumps granted from it, and the pause after retreats.
#[derive(Debug, Default)]
pub struct ResumeMemory {
    saved: Option<SavedWindow>,
    /// Grants whose packets may be queued on the path at the same time: the end of that time, and the bytes.
    outstanding: Vec<(Instant, u64)>,
    /// No jump is granted before this time.
    paused_until: Option<Instant>,
    retreats: u32,
}

#[derive(Debug, Clone, Copy)]
struct SavedWindow {
    bytes: u64,
    rtt: Duration,
    at: Instant,
    address: IpAddr,
}

impl ResumeMemory {
    /// Saves the window of a session: `bytes` in a round trip of `rtt`, to the relay at `address`. Within the lifetime
    /// only a larger window replaces the saved one: most sessions end before they fill the path.
    pub fn observe(&mut self, now: Instant, bytes: u64, rtt: Duration, address: IpAddr) {
        let is_larger = |saved: &SavedWindow| bytes >= saved.bytes || saved.address != address;
        if bytes >= MIN_WINDOW && !rtt.is_zero() && self.valid(now).is_none_or(|saved| is_larger(&saved)) {
            self.saved = Some(SavedWindow { bytes, rtt, at: now, address });
        }
    }

    /// Grants a jump to a session that begins now on a section to `address`. The jump is half of the saved window, or
    /// all of it if the window was saved within the last minute and the section `is_used`, which means that it has
    /// carried sessions; the jumps granted within the last 1.5 round trips are subtracted. Returns `None` without a
    /// saved window, during the pause after a retreat, or if too little is left.
    pub fn grant(&mut self, now: Instant, address: IpAddr, is_used: bool) -> Option<ResumeGrant> {
        let saved = self.valid(now).filter(|saved| saved.address == address)?;
        if self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        self.outstanding.retain(|(until, _)| *until > now);
        let granted_bytes: u64 = self.outstanding.iter().map(|(_, bytes)| bytes).sum();
        let age = now.saturating_duration_since(saved.at);
        let divisor = if is_used && age <= KEPT_LIFETIME { 1 } else { SAFE_PART };
        let bytes = (saved.bytes / divisor).saturating_sub(granted_bytes);
        if bytes < MIN_WINDOW / 2 {
            return None;
        }
        self.outstanding.push((now + saved.rtt * 3 / 2, bytes));
        Some(ResumeGrant {
            jump_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            saved_rtt: saved.rtt,
            lifetime: LIFETIME.saturating_sub(age),
        })
    }

    /// Records the outcome of a grant. After a retreat the saved values are deleted (RFC 9959, Safe Retreat).
    pub fn on_outcome(&mut self, now: Instant, outcome: ResumeOutcome) {
        match outcome {
            ResumeOutcome::Confirmed => self.retreats = 0,
            ResumeOutcome::Retreated => {
                let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.retreats)).min(LONGEST_PAUSE);
                self.saved = None;
                self.paused_until = Some(now + pause);
                self.retreats += 1;
            }
            ResumeOutcome::Unused | ResumeOutcome::Rejected | ResumeOutcome::Unconfirmed => {}
        }
    }

    /// Whether there is no saved window and no pause that still matters.
    #[must_use]
    pub fn is_empty(&self, now: Instant) -> bool {
        self.valid(now).is_none() && self.paused_until.is_none_or(|until| until + LONGEST_PAUSE < now)
    }

    fn valid(&self, now: Instant) -> Option<SavedWindow> {
        self.saved.filter(|saved| now.saturating_duration_since(saved.at) < LIFETIME)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const RELAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn remembering(bytes: u64) -> (ResumeMemory, Instant) {
        let (mut memory, now) = (ResumeMemory::default(), Instant::now());
        memory.observe(now, bytes, RTT, RELAY);
        (memory, now)
    }

    fn jump(memory: &mut ResumeMemory, now: Instant) -> Option<u32> {
        memory.grant(now, RELAY, false).map(|grant| grant.jump_bytes)
    }

    #[test]
    fn jump_is_half_of_the_observed_window() {
        let (mut memory, now) = remembering(1_000_000);
        let later = now + Duration::from_secs(60);
        let grant = memory.grant(later, RELAY, false).unwrap();
        assert_eq!((grant.jump_bytes, grant.saved_rtt), (500_000, RTT));
        assert_eq!(grant.lifetime, LIFETIME - Duration::from_secs(60));
        assert_eq!(jump(&mut memory, now + LIFETIME), None, "too old");
        assert_eq!(jump(&mut remembering(MIN_WINDOW - 1).0, now), None, "too little to save");
    }

    #[test]
    fn reused_section_gets_the_whole_window_for_a_minute() {
        let (mut memory, now) = remembering(1_000_000);
        let mut jump =
            |seconds| memory.grant(now + Duration::from_secs(seconds), RELAY, true).map(|grant| grant.jump_bytes);
        assert_eq!([0, 60, 61].map(&mut jump), [Some(1_000_000), Some(1_000_000), Some(500_000)]);
        assert_eq!(jump(61), None, "the window is taken");
    }

    #[test]
    fn concurrent_sessions_share_a_single_jump() {
        let (mut memory, now) = remembering(1_000_000);
        assert_eq!((jump(&mut memory, now), jump(&mut memory, now)), (Some(500_000), None));
        assert_eq!(jump(&mut memory, now + RTT), None, "the first jump may still be in the queue");
        assert_eq!(jump(&mut memory, now + RTT * 3 / 2), Some(500_000));
    }

    #[test]
    fn saved_window_is_bound_to_the_address() {
        let (mut memory, now) = remembering(1_000_000);
        let elsewhere = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!(memory.grant(now, elsewhere, false), None);
        memory.observe(now, 200_000, RTT, elsewhere);
        assert_eq!(memory.grant(now, elsewhere, false).unwrap().jump_bytes, 100_000);
        assert_eq!(jump(&mut memory, now), None, "the saved window belongs to the new address");
    }

    #[test]
    fn small_window_replaces_only_an_old_large_window() {
        let (mut memory, now) = remembering(1_000_000);
        memory.observe(now + RTT, 100_000, RTT, RELAY);
        assert_eq!(jump(&mut memory, now + RTT), Some(500_000));
        let late = now + LIFETIME;
        memory.observe(late, 100_000, RTT, RELAY);
        assert_eq!(jump(&mut memory, late), Some(50_000));
    }

    #[test]
    fn pause_after_each_retreat_doubles() {
        let (mut memory, mut now) = remembering(1_000_000);
        for seconds in [10, 20, 40] {
            memory.on_outcome(now, ResumeOutcome::Retreated);
            assert_eq!(jump(&mut memory, now), None);
            memory.observe(now, 250_000, RTT, RELAY);
            let pause = Duration::from_secs(seconds);
            assert_eq!(jump(&mut memory, now + pause - RTT), None, "{seconds} s");
            now += pause;
            assert_eq!(jump(&mut memory, now), Some(125_000));
        }
        memory.on_outcome(now, ResumeOutcome::Confirmed);
        memory.on_outcome(now, ResumeOutcome::Retreated);
        memory.observe(now, 250_000, RTT, RELAY);
        assert!(jump(&mut memory, now + FIRST_PAUSE).is_some(), "a success ends the doubling");
        assert!(!memory.is_empty(now) && ResumeMemory::default().is_empty(now));
    }

    const OUTCOMES: [ResumeOutcome; 5] = [
        ResumeOutcome::Unused,
        ResumeOutcome::Rejected,
        ResumeOutcome::Unconfirmed,
        ResumeOutcome::Confirmed,
        ResumeOutcome::Retreated,
    ];

    fn start(earlier_sessions: u32, outcome: Option<ResumeOutcome>) -> SectionStart {
        SectionStart { earlier_sessions, jump: outcome.map(|outcome| Jump { bytes: 500_000, outcome }) }
    }

    #[test]
    fn only_a_sent_jump_counts_as_resumed() {
        let states = OUTCOMES.map(|outcome| start(0, Some(outcome)).state().as_str());
        assert_eq!(states, ["cold", "cold", "resumed", "resumed", "resumed"]);
        assert_eq!(SectionStart::default().state(), StartState::Cold);
        assert_eq!(start(3, Some(ResumeOutcome::Confirmed)).state(), StartState::Reused);
    }

    #[test]
    fn json_values_match_the_labels() {
        let jump = json!({ "bytes": 500_000, "outcome": "confirmed" });
        let fields = json!({ "start": "reused", "earlier_sessions": 3, "jump": jump });
        assert_eq!(json!(start(3, Some(ResumeOutcome::Confirmed))), fields);
        assert_eq!(json!(start(0, None)), json!({ "start": "cold", "earlier_sessions": 0, "jump": null }));
        assert_eq!(json!(OUTCOMES), json!(OUTCOMES.map(ResumeOutcome::as_str)));
    }
}
