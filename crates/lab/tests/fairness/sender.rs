//! A model of a TCP sender: packets in flight, loss detection, recovery and timeouts. Every transmission has its own
//! number, and the path does not reorder. So when a transmission is acknowledged, earlier unacknowledged transmissions
//! are lost (RFC 8985 without its reordering window). The data of a transmission is not modelled.

use std::collections::VecDeque;

use ekiden_emulator::Nanos;

use crate::control::{AckSample, Algorithm, CongestionControl};

/// Packets that fit into a receive window and a send buffer of 16 MiB.
const BUFFER: f64 = 11_000.0;
const SHORTEST_TIMEOUT: f64 = 0.2;
const SHORTEST_PROBE: f64 = 0.01;

struct SentTransmission {
    number: u64,
    at: Nanos,
    delivered: u64,
    delivered_at: Nanos,
    first_sent_at: Nanos,
}

/// Proportional rate reduction (RFC 6937).
struct PrrRecovery {
    /// Recovery ends when a transmission with at least this number is acknowledged.
    end: u64,
    /// Packets in flight at the start of the recovery.
    flight: f64,
    delivered: f64,
    sent: f64,
    /// Number of packets that may be sent now.
    allowed: f64,
}

pub struct TcpSender {
    control: Box<dyn CongestionControl>,
    outstanding: VecDeque<SentTransmission>,
    next: u64,
    round_end: u64,
    recovery: Option<PrrRecovery>,
    delivered: u64,
    delivered_at: Nanos,
    first_sent_at: Nanos,
    smoothed_rtt: f64,
    rtt_deviation: f64,
    progress_at: Nanos,
    probed: bool,
    backoff: u32,
    /// Packets that a short transfer has yet to send; None for a transfer without an end.
    pub remaining: Option<u64>,
    pub reductions: u64,
}

pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

pub fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

impl TcpSender {
    pub fn new(kind: Algorithm, size: Option<u64>, now: Nanos) -> Self {
        Self {
            control: kind.start(),
            outstanding: VecDeque::new(),
            next: 0,
            round_end: 0,
            recovery: None,
            delivered: 0,
            delivered_at: now,
            first_sent_at: now,
            smoothed_rtt: 0.0,
            rtt_deviation: 0.0,
            progress_at: now,
            probed: false,
            backoff: 0,
            remaining: size,
            reductions: 0,
        }
    }

    pub fn pacing(&self) -> Option<f64> {
        self.control.pacing()
    }

    /// Whether a short transfer is completely acknowledged.
    pub fn is_done(&self) -> bool {
        self.remaining == Some(0) && self.outstanding.is_empty()
    }

    fn in_flight(&self) -> f64 {
        self.outstanding.len() as f64
    }

    /// Whether a packet may be sent now.
    pub fn may_send(&self) -> bool {
        if self.remaining == Some(0) {
            return false;
        }
        match &self.recovery {
            Some(recovery) => recovery.allowed >= 1.0,
            None => self.in_flight() + 1.0 <= self.control.window().clamp(1.0, BUFFER),
        }
    }

    /// Sends a packet, and returns its number.
    pub fn send(&mut self, now: Nanos) -> u64 {
        if self.outstanding.is_empty() {
            (self.delivered_at, self.first_sent_at, self.progress_at) = (now, now, now);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.allowed -= 1.0;
            recovery.sent += 1.0;
        }
        self.remaining = self.remaining.map(|left| left.saturating_sub(1));
        let number = self.next;
        self.next += 1;
        self.outstanding.push_back(SentTransmission {
            number,
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
        });
        number
    }

    fn add_lost(&mut self, packets: u64) {
        self.remaining = self.remaining.map(|left| left + packets);
    }

    /// Handles the acknowledgement of a transmission; `marked` if it echoes a congestion mark.
    pub fn acknowledge(&mut self, number: u64, marked: bool, now: Nanos) {
        let flight = self.in_flight();
        let mut lost = 0;
        while self.outstanding.front().is_some_and(|sent| sent.number < number) {
            self.outstanding.pop_front();
            lost += 1;
        }
        if self.outstanding.front().is_none_or(|sent| sent.number != number) {
            return;
        }
        let Some(sent) = self.outstanding.pop_front() else { return };
        self.add_lost(lost);
        (self.progress_at, self.probed, self.backoff) = (now, false, 0);
        let ack = self.observe(&sent, now);
        self.update_window(&ack, number, flight, lost > 0 || marked);
    }

    fn observe(&mut self, sent: &SentTransmission, now: Nanos) -> AckSample {
        let rtt = seconds(now - sent.at);
        if self.smoothed_rtt == 0.0 {
            (self.smoothed_rtt, self.rtt_deviation) = (rtt, rtt / 2.0);
        } else {
            self.rtt_deviation += (f64::abs(rtt - self.smoothed_rtt) - self.rtt_deviation) / 4.0;
            self.smoothed_rtt += (rtt - self.smoothed_rtt) / 8.0;
        }
        self.delivered += 1;
        (self.delivered_at, self.first_sent_at) = (now, sent.at);
        let interval = (sent.at - sent.first_sent_at).max(now - sent.delivered_at);
        let round = sent.number >= self.round_end;
        if round {
            self.round_end = self.next;
        }
        let rate = (self.delivered - sent.delivered) as f64 / seconds(interval).max(1e-6);
        AckSample { now: seconds(now), rtt, round, rate, in_flight: self.in_flight() }
    }

    fn update_window(&mut self, ack: &AckSample, number: u64, flight: f64, congested: bool) {
        if self.control.ignores_loss() {
            self.control.on_ack(ack);
            return;
        }
        if self.recovery.as_ref().is_some_and(|recovery| number >= recovery.end) {
            self.recovery = None;
        }
        if self.recovery.is_none() && congested {
            self.control.on_loss(ack.now);
            self.reductions += 1;
            self.recovery = Some(PrrRecovery { end: self.next, flight, delivered: 0.0, sent: 0.0, allowed: 0.0 });
        }
        let (window, in_flight) = (self.control.window().max(1.0), self.in_flight());
        let Some(recovery) = &mut self.recovery else {
            self.control.on_ack(ack);
            return;
        };
        recovery.delivered += 1.0;
        let allowed = if in_flight > window {
            (recovery.delivered * window / recovery.flight).ceil() - recovery.sent
        } else {
            (window - in_flight).min((recovery.delivered - recovery.sent).max(1.0) + 1.0)
        };
        let first = f64::from(recovery.sent == 0.0);
        recovery.allowed = allowed.max(first);
    }

    /// The time of the next probe or timeout. None if no packet is in flight.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.outstanding.is_empty() {
            return None;
        }
        let timeout = if self.smoothed_rtt == 0.0 {
            1.0
        } else {
            self.smoothed_rtt + (4.0 * self.rtt_deviation).max(SHORTEST_TIMEOUT)
        };
        let probe = (2.0 * self.smoothed_rtt).max(SHORTEST_PROBE);
        let patience = if self.probed || self.smoothed_rtt == 0.0 {
            timeout * f64::from(1 << self.backoff)
        } else {
            probe.min(timeout)
        };
        Some(self.progress_at + nanos(patience))
    }

    /// Handles an expired deadline. Returns the number of a probe if one is sent.
    pub fn on_timer(&mut self, now: Nanos) -> Option<u64> {
        self.progress_at = now;
        if !self.probed && self.smoothed_rtt > 0.0 {
            self.probed = true;
            self.add_lost(1);
            return Some(self.send(now));
        }
        self.probed = true;
        self.backoff = (self.backoff + 1).min(6);
        self.add_lost(self.outstanding.len() as u64);
        self.outstanding.clear();
        self.recovery = None;
        self.control.on_timeout(seconds(now));
        None
    }
}
