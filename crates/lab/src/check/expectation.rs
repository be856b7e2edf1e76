//! Computes the expected arrival of a probe: lines of constant rate in sequence, then a constant delay.

use super::probe::ProbeSeries;
use ekiden_emulator::conditions::{Conditions, Loss, LossPosition};
use ekiden_emulator::{Nanos, nanos};

/// The settings of a direction that determine the delay, without jitter and reordering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayModel {
    /// Bits per second of each line, in the order of the path.
    rates: Vec<u64>,
    overhead: u32,
    delay: Nanos,
    /// Whether lost probes have occupied the line, because loss is on the wire.
    is_lost_after_line: bool,
}

/// A probe with a reliable send time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedProbe {
    /// Index in the list of sent probes.
    pub number: usize,
    /// Expected time of arrival, in nanoseconds.
    pub expected: Nanos,
    /// Measured time of arrival, in nanoseconds.
    pub arrived: Nanos,
}

impl TimedProbe {
    /// Returns the measured minus the expected arrival, in microseconds; negative for an early arrival.
    pub fn error_micros(&self) -> f64 {
        (self.arrived as f64 - self.expected as f64) / 1e3
    }
}

impl DelayModel {
    /// Returns the model of a direction with these conditions.
    pub fn from_conditions(conditions: &Conditions) -> Self {
        let rates = [conditions.access_rate, conditions.rate].into_iter().flatten();
        Self {
            rates: rates.map(ekiden_proto::units::Rate::bits_per_second).collect(),
            overhead: conditions.count.overhead(),
            delay: conditions.delay.map_or(0, nanos),
            is_lost_after_line: conditions.loss.as_ref().map(Loss::at) == Some(LossPosition::Wire),
        }
    }

    /// Returns the delay of a packet of `bytes` on idle lines, in nanoseconds.
    pub fn unloaded_delay(&self, bytes: u32) -> Nanos {
        self.delay + self.rates.iter().map(|rate| transmission_time(bytes + self.overhead, *rate)).sum::<Nanos>()
    }

    /// Returns the probes of a series with reliable times: probes that arrived, if their send times and those of the
    /// probes queued before them are known. The queue must not have dropped any probe of the series.
    pub fn timed_probes(&self, series: &ProbeSeries) -> Vec<TimedProbe> {
        let mut free_at = vec![0; self.rates.len()];
        let mut actual_free_at = 0;
        let mut timed = Vec::new();
        for (number, (sent, arrived)) in series.sent.iter().zip(series.arrival_times()).enumerate() {
            if arrived.is_none() && !self.is_lost_after_line {
                continue;
            }
            let is_reliable = sent.is_timely() && sent.at >= actual_free_at;
            let departure = self.rates.iter().zip(&mut free_at).fold(sent.at, |at, (rate, free_at)| {
                *free_at = at.max(*free_at) + transmission_time(sent.bytes + self.overhead, *rate);
                *free_at
            });
            if !is_reliable {
                actual_free_at = (departure + sent.call_time).max(actual_free_at);
            } else if let Some(arrived) = arrived {
                timed.push(TimedProbe { number, expected: departure + self.delay, arrived });
            }
        }
        timed
    }
}

/// Returns the transmission time of `bytes` on a line of `rate` bits per second, in nanoseconds.
pub fn transmission_time(bytes: u32, rate: u64) -> Nanos {
    u64::from(bytes) * 8 * 1_000_000_000 / rate
}

#[cfg(test)]
mod tests {
    use super::super::probe::SentProbe;
    use super::*;

    fn path(text: &str) -> DelayModel {
        DelayModel::from_conditions(&toml::from_str(text).unwrap())
    }

    fn series(sent: &[(Nanos, Nanos)], lost: &[usize]) -> ProbeSeries {
        let arrived = (0..sent.len()).filter(|number| !lost.contains(number));
        let sent = sent.iter().map(|(at, took)| SentProbe { call_time: *took, ..SentProbe::for_test(*at, 1000) });
        ProbeSeries::for_test(sent, arrived.map(|number| (number, 1)))
    }

    fn expected(path: &DelayModel, series: &ProbeSeries) -> Vec<(usize, Nanos)> {
        path.timed_probes(series).iter().map(|timed| (timed.number, timed.expected)).collect()
    }

    #[test]
    fn expected_arrival_is_line_queueing_plus_delay() {
        // 1000 bytes take 1 ms at 8 Mbit/s.
        let path = path("rate = '8Mbit/s'\ndelay = '10ms'");
        let sent = series(&[(0, 1), (0, 1), (500_000, 1), (9_000_000, 1)], &[]);
        assert_eq!(expected(&path, &sent), [(0, 11_000_000), (1, 12_000_000), (2, 13_000_000), (3, 20_000_000)]);
    }

    #[test]
    fn access_line_precedes_link_and_overhead_counts_on_both() {
        let path = path("rate = '8Mbit/s'\naccess_rate = '16Mbit/s'\ncount = 'l2'");
        assert_eq!(expected(&path, &series(&[(0, 1)], &[])), [(0, 507_000 + 1_014_000)]);
    }

    #[test]
    fn only_wire_losses_occupy_the_line() {
        let sent = series(&[(0, 1), (0, 1)], &[0]);
        let at =
            |place: &str| path(&format!("rate = '8Mbit/s'\nloss = {{ model = 'bernoulli', p = 0.1, at = '{place}' }}"));
        assert_eq!(expected(&at("wire"), &sent), [(1, 2_000_000)]);
        assert_eq!(expected(&at("ingress"), &sent), [(1, 1_000_000)]);
    }

    #[test]
    fn untimely_probes_and_probes_queued_behind_are_excluded() {
        let sent = series(&[(0, 400_000), (1_200_000, 1), (1_400_000, 1), (9_000_000, 1)], &[]);
        let numbers: Vec<usize> =
            path("rate = '8Mbit/s'").timed_probes(&sent).iter().map(|timed| timed.number).collect();
        assert_eq!(numbers, [3]);
    }
}
