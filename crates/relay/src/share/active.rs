//! A section while it sends: what it was seen to send, and the ceiling it has for that.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ekiden_proto::share::{Pace, Seen};
use ekiden_sys::pacing::{Sent, ceiling, sent, set_ceiling};

/// A link's header, as tc(8) counts it, in bytes. What Ethernet adds beyond that is the operator's to leave room for.
const LINK: u64 = 14;

/// Looks in which nothing was sent, until a section is idle.
const QUIET: u32 = 3;

/// The shortest time that says something of a rate.
const LEAST_WATCH: Duration = Duration::from_millis(50);

/// The lowest ceiling, in bytes a second: below it a connection might be taken for dead.
const LEAST: u64 = 1500;

/// What is known of it. Rates are of whole packets, in bytes a second, where nothing else is said.
#[derive(Debug)]
pub struct Active {
    /// The ceiling that it had before, and gets back; of payload.
    own: u64,
    /// The one it has now; of payload.
    set: u64,
    /// The same, of whole packets.
    ceiling: u64,
    sent: Sent,
    at: Instant,
    pace: Pace,
    wants: u64,
    quiet: u32,
    second: Second,
}

/// What was seen since the last figures.
#[derive(Debug)]
struct Second {
    since: Instant,
    bytes: u64,
    looks: u32,
    held: u32,
}

/// What a section got of late, in bytes a second.
#[derive(Debug, Clone, Copy)]
pub struct Got {
    /// The rate.
    pub rate: f64,
    /// Whether it was watched for long enough, and held back for most of that.
    pub held: bool,
}

impl Active {
    /// Begins to watch.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(socket: BorrowedFd<'_>, now: Instant) -> io::Result<Self> {
        let own = ceiling(socket)?;
        Ok(Self {
            own,
            set: own,
            ceiling: own,
            sent: sent(socket)?,
            at: now,
            pace: Pace::default(),
            wants: 0,
            quiet: 0,
            second: Second::new(now),
        })
    }

    /// What it could use.
    pub fn wants(&self) -> u64 {
        self.wants
    }

    /// Looks what it has sent; false when it has become idle.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&mut self, socket: BorrowedFd<'_>, now: Instant) -> io::Result<bool> {
        let span = now.saturating_duration_since(self.at);
        if span < LEAST_WATCH.max(Pace::watch(self.ceiling, self.packet())) {
            return Ok(true);
        }
        let sent = sent(socket)?;
        let bytes = self.on_the_wire(sent.bytes.saturating_sub(self.sent.bytes));
        let receiver_held = sent.receiver_held.saturating_sub(self.sent.receiver_held) > span / 2;
        let seen = Seen { bytes, span, pauses: sent.unsent > 0 && !receiver_held };
        (self.sent, self.at) = (sent, now);
        let wants = self.pace.judge(seen, self.ceiling);
        self.second.note(bytes, wants == u64::MAX);
        // Its own profile may allow less than its share: what it does not use is the others'.
        self.wants = wants.min(self.on_the_wire(self.own));
        self.quiet = if bytes == 0 { self.quiet + 1 } else { 0 };
        Ok(self.quiet < QUIET)
    }

    /// Gives it a ceiling of whole packets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bound(&mut self, socket: BorrowedFd<'_>, ceiling: u64) -> io::Result<()> {
        let ceiling = ceiling.max(LEAST);
        let payload = (u128::from(ceiling) * u128::from(self.sent.segment) / u128::from(self.packet())) as u64;
        let payload = payload.min(self.own);
        self.ceiling = self.on_the_wire(payload);
        if payload != std::mem::replace(&mut self.set, payload) {
            set_ceiling(socket, payload)?;
        }
        Ok(())
    }

    /// Gives back the ceiling that it had before.
    pub fn release(&self, socket: BorrowedFd<'_>) {
        if self.set != self.own {
            // Fails only when the socket is already dead.
            let _ = set_ceiling(socket, self.own);
        }
    }

    /// What it got since this was asked last, which should be a second ago.
    pub fn got(&mut self, now: Instant) -> Got {
        std::mem::replace(&mut self.second, Second::new(now)).got(now)
    }

    /// A full packet.
    fn packet(&self) -> u64 {
        self.sent.segment + self.sent.headers + LINK
    }

    /// Payload with the headers it has in full packets.
    fn on_the_wire(&self, payload: u64) -> u64 {
        let whole = u128::from(payload) * u128::from(self.packet()) / u128::from(self.sent.segment);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }
}

impl Second {
    /// Half of a second may be missing when there are many to look at.
    const LEAST: Duration = Duration::from_millis(500);

    fn new(since: Instant) -> Self {
        Self { since, bytes: 0, looks: 0, held: 0 }
    }

    fn note(&mut self, bytes: u64, held: bool) {
        self.bytes += bytes;
        self.looks += 1;
        self.held += u32::from(held);
    }

    fn got(&self, now: Instant) -> Got {
        let span = now.saturating_duration_since(self.since);
        let held = span >= Self::LEAST && self.held * 2 > self.looks;
        Got { rate: self.bytes as f64 / span.as_secs_f64().max(1e-9), held }
    }
}
