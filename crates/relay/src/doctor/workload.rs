//! The workload to check for: a rate at a round-trip time, a number of sessions, and the requirements of a
//! configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::profile::{BUILT_IN, Profile, Setting};
use ekiden_proto::units::Rate;

use crate::config::Config;
use crate::config::budget::Budget;

/// The workload to check for.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Target rate of a single connection.
    pub rate: Rate,
    /// Round-trip time at which a connection must reach `rate`.
    pub rtt: Duration,
    /// Number of concurrent sessions.
    pub sessions: u64,
    /// The configuration to run, if one was given.
    pub config: Option<Config>,
    /// Whether the relay can load the congestion control of this name into the kernel.
    pub can_load: fn(&str) -> bool,
}

impl Workload {
    /// Returns the bandwidth-delay product, in bytes.
    #[must_use]
    pub fn bandwidth_delay_product(&self) -> u64 {
        (self.rate.bytes_per_second() as f64 * self.rtt.as_secs_f64()) as u64
    }

    /// Returns the rate, in Mbit/s, of a connection with at most `window` bytes in flight.
    #[must_use]
    pub fn max_mbits(&self, window: u64) -> u64 {
        (window as f64 * 8.0 / self.rtt.as_secs_f64() / 1e6) as u64
    }

    /// Returns a message such as "a single connection with an RTT of 200 ms cannot exceed about 240 Mbit/s, and the
    /// target is 1000 Mbit/s".
    pub(super) fn limit_message(&self, window: u64) -> String {
        let (rtt, rate) = (self.rtt.as_secs_f64() * 1e3, self.rate.bits_per_second() as f64 / 1e6);
        format!(
            "a single connection with an RTT of {rtt} ms cannot exceed about {} Mbit/s, and the target is {rate} Mbit/s",
            self.max_mbits(window)
        )
    }

    /// Returns the profiles of the configuration, each once; without a configuration the built-in profiles.
    #[must_use]
    pub fn profiles(&self) -> Vec<Profile> {
        let Some(config) = &self.config else {
            return BUILT_IN.iter().filter_map(|name| Profile::built_in(name)).collect();
        };
        let by_name: BTreeMap<_, _> = config.profiles().map(|profile| (profile.name.as_str(), profile)).collect();
        by_name.into_values().cloned().collect()
    }

    /// Returns whether any profile has a setting that `matches` accepts.
    pub(super) fn has_setting(&self, matches: impl Fn(&Setting) -> bool) -> bool {
        self.profiles().iter().flat_map(Profile::settings).any(matches)
    }

    /// Returns whether the configuration intercepts connections to other hosts or keeps client addresses.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.needed_marks().is_some())
    }

    /// Returns the number of sessions for which `files` descriptors suffice.
    #[must_use]
    pub fn session_capacity(&self, files: u64) -> u64 {
        let Some(mut config) = self.config.clone() else { return files.saturating_sub(64) / 2 };
        config.limits.sessions = None;
        Budget::new(files, &config).sessions as u64
    }
}
