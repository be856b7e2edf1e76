//! BBR version 1 (Cardwell, Cheng, Gunn, Yeganeh, Jacobson: BBR: congestion-based congestion control, ACM Queue 14(5),
//! 2016; draft-cardwell-iccrg-bbr-congestion-control-00), without its detection of policers.

use std::collections::VecDeque;

use super::{AckSample, CongestionControl, INITIAL_WINDOW};

const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The number of rounds over which the maximum rate is taken.
const RATE_ROUNDS: u64 = 10;
const MIN_RTT_SECONDS: f64 = 10.0;
const PROBE_RTT_SECONDS: f64 = 0.2;
const MIN_WINDOW: f64 = 4.0;

#[derive(PartialEq)]
enum BbrState {
    Startup,
    Drain,
    ProbeRate,
    ProbeRtt { until: Option<f64> },
}

pub struct Bbr {
    state: BbrState,
    /// The maximum rate of the last rounds and the candidates to succeed it, in descending order, each with its round.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    min_rtt: f64,
    min_rtt_at: f64,
    full_rate: f64,
    full_rounds: u32,
    phase: usize,
    phase_began: f64,
    /// The window after a timeout. It grows by a packet per acknowledgement up to twice the bandwidth-delay product,
    /// which ends the limit.
    restart: Option<f64>,
}

impl Bbr {
    pub const fn new() -> Self {
        Self {
            state: BbrState::Startup,
            rates: VecDeque::new(),
            round: 0,
            min_rtt: f64::INFINITY,
            min_rtt_at: 0.0,
            full_rate: 0.0,
            full_rounds: 0,
            phase: 0,
            phase_began: 0.0,
            restart: None,
        }
    }

    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn bandwidth_delay_product(&self) -> f64 {
        if self.rates.is_empty() { INITIAL_WINDOW } else { self.rate() * self.min_rtt }
    }

    fn observe(&mut self, ack: &AckSample) {
        self.round += u64::from(ack.round);
        while self.rates.back().is_some_and(|(_, rate)| *rate <= ack.rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, ack.rate));
        while self.rates.front().is_some_and(|(round, _)| round + RATE_ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    fn grow(&mut self, ack: &AckSample) {
        match self.state {
            BbrState::Startup if ack.round => {
                if self.rate() >= 1.25 * self.full_rate {
                    (self.full_rate, self.full_rounds) = (self.rate(), 0);
                } else {
                    self.full_rounds += 1;
                }
                if self.full_rounds >= 3 {
                    self.state = BbrState::Drain;
                }
            }
            BbrState::Drain if ack.in_flight <= self.bandwidth_delay_product() => self.probe_rate(ack.now),
            BbrState::ProbeRate => self.next_phase(ack),
            _ => (),
        }
    }

    fn probe_rate(&mut self, now: f64) {
        // BBR starts in a random phase other than the draining phase. Here the round number selects the phase.
        let phase = usize::try_from(self.round % 7).unwrap();
        (self.state, self.phase, self.phase_began) = (BbrState::ProbeRate, if phase == 1 { 7 } else { phase }, now);
    }

    fn next_phase(&mut self, ack: &AckSample) {
        let elapsed = ack.now - self.phase_began > self.min_rtt;
        let over = match CYCLE[self.phase] {
            gain if gain > 1.0 => {
                elapsed
                    && ack.in_flight
                        >= (gain * self.bandwidth_delay_product()).min(2.0 * self.bandwidth_delay_product() - 1.0)
            }
            gain if gain < 1.0 => elapsed || ack.in_flight <= self.bandwidth_delay_product(),
            _ => elapsed,
        };
        // In BBR, loss also ends the first phase. Without a reaction to loss, the limit here is two round trips.
        if over || ack.now - self.phase_began > 2.0 * self.min_rtt {
            (self.phase, self.phase_began) = ((self.phase + 1) % 8, ack.now);
        }
    }

    fn observe_rtt(&mut self, ack: &AckSample) {
        let expired = ack.now > self.min_rtt_at + MIN_RTT_SECONDS;
        if ack.rtt <= self.min_rtt || expired {
            (self.min_rtt, self.min_rtt_at) = (ack.rtt, ack.now);
        }
        if expired && !matches!(self.state, BbrState::ProbeRtt { .. }) {
            self.state = BbrState::ProbeRtt { until: None };
        }
        if let BbrState::ProbeRtt { until } = self.state {
            match until {
                None if ack.in_flight <= MIN_WINDOW => {
                    self.state = BbrState::ProbeRtt { until: Some(ack.now + PROBE_RTT_SECONDS.max(self.min_rtt)) };
                }
                Some(end) if ack.now >= end => {
                    self.min_rtt_at = ack.now;
                    if self.full_rounds >= 3 { self.probe_rate(ack.now) } else { self.state = BbrState::Startup }
                }
                _ => (),
            }
        }
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, ack: &AckSample) {
        self.observe(ack);
        self.grow(ack);
        self.observe_rtt(ack);
        self.restart =
            self.restart.map(|window| window + 1.0).filter(|window| *window < 2.0 * self.bandwidth_delay_product());
    }

    fn on_loss(&mut self, _: f64) {}

    fn on_timeout(&mut self, _: f64) {
        self.restart = Some(1.0);
    }

    fn window(&self) -> f64 {
        let gain = if self.state == BbrState::Startup { HIGH_GAIN } else { 2.0 };
        let window = match self.state {
            BbrState::ProbeRtt { .. } => MIN_WINDOW,
            _ => (gain * self.bandwidth_delay_product()).max(MIN_WINDOW),
        };
        self.restart.map_or(window, |restart| restart.min(window))
    }

    fn pacing(&self) -> Option<f64> {
        let gain = match self.state {
            BbrState::Startup => HIGH_GAIN,
            BbrState::Drain => 1.0 / HIGH_GAIN,
            BbrState::ProbeRate => CYCLE[self.phase],
            BbrState::ProbeRtt { .. } => 1.0,
        };
        // Before the first sample, Linux assumes a round trip of 1 ms. The window limits the effect.
        let rate = if self.rates.is_empty() { INITIAL_WINDOW / 0.001 } else { self.rate() };
        Some(gain * rate * 0.99)
    }

    fn ignores_loss(&self) -> bool {
        true
    }
}
