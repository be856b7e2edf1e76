//! The TCP settings of a section.
//!
//! A [`Profile`] is an ordered list of [`Setting`]s. Each setting is declared once, in the table below: its key in the
//! configuration, its type, and its effect. `sys::sockopt` applies a profile setting by setting and reports an
//! [`Outcome`] for each, because a kernel may apply, clamp or reject an option.

mod outcome;
mod value;

use std::fmt;
use std::net::IpAddr;

use crate::tuning::Tuning;
use crate::units::{Bytes, Rate, Span};

pub use outcome::{AppliedSetting, Outcome};
pub use value::Algorithm;

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $variant:ident($type:ty) = $key:literal
        $(in $low:literal to $high:literal $(by $step:literal)?)?,)+) =>
    {
        /// One TCP setting of a section.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Setting { $($(#[doc = $doc])+ $variant($type),)+ }

        impl Setting {
            /// The keys of all settings, in the order in which they are applied.
            pub const KEYS: &'static [&'static str] = &[$($key),+];

            /// The key in the configuration.
            #[must_use]
            pub const fn key(&self) -> &'static str {
                match self { $(Self::$variant(_) => $key),+ }
            }

            /// Reads the value of `key`.
            ///
            /// # Errors
            /// The expected type, and the bounds where the setting has some. `None` if no setting has this key.
            pub fn read(key: &str, value: &str) -> Result<Self, Option<String>> {
                match key {
                    $($key => settings!(@read $type, value $(, $low, $high $(, $step)?)?).map(Self::$variant).map_err(Some),)+
                    _ => Err(None),
                }
            }
        }

        impl fmt::Display for Setting {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$variant(value) => write!(f, "{} = {value}", $key)),+ }
            }
        }
    };
    (@read $type:ty, $value:ident) => { value::read::<$type>($value) };
    (@read $type:ty, $value:ident, $low:literal, $high:literal $(, $step:literal)?) => {
        value::read_within::<$type>($value, [stringify!($low), stringify!($high)], &[$(stringify!($step))?])
    };
}

// The bounds are those of the kernel's source that the comment cites (Linux 6.18). For a value outside, setsockopt(2)
// returns an error, or clamps or masks the value without one.
settings! {
    /// Multipath TCP where both ends support it (RFC 8684), else TCP; the socket must be created as an MPTCP socket.
    Mptcp(bool) = "mptcp",
    /// Local address that dialled sections bind to; only for dialled sections. A unicast address (RFC 1122, 3.2.1.3;
    /// RFC 4291, 2.5.2 and 2.7).
    Bind(IpAddr) = "bind",
    /// `SO_MARK`, for policy routing; needs `CAP_NET_ADMIN`. All 32 bits (socket(7)).
    Fwmark(u32) = "fwmark" in 0 to 4294967295,
    /// Differentiated services code point: six bits (RFC 2474, 3).
    Dscp(u8) = "dscp" in 0 to 63,
    /// Congestion control algorithm, `TCP_CONGESTION`. "auto" is the system's own algorithm, or reno on short paths if
    /// the system's own one paces ([`crate::tuning::needs_system_control`]).
    Congestion(Algorithm) = "congestion",
    /// Number of the connection's own packets in the queues of the path that Compound TCP takes for congestion; 0 is
    /// the default of Compound TCP, 30. `ctcp.h` multiplies it as a fixed-point number of 32 bits.
    CtcpGamma(u32) = "ctcp_gamma" in 0 to 65535,
    /// Compound TCP chooses this number from its share of the queue, 5 to 30 packets.
    CtcpAutoGamma(bool) = "ctcp_auto_gamma",
    /// Receive window of a dialled section in its first round trip; autotuning continues from this value. Bounded by
    /// `net.core.rmem_max` without `CAP_NET_ADMIN`, and by 64 KiB before Linux 6.10 (`tcp_select_initial_window()`,
    /// net/ipv4/tcp_output.c). Not applied to listeners, where unknown clients could fill the buffers.
    InitialRwnd(Bytes) = "initial_rwnd" in "64KiB" to "1023MiB",
    /// Fixed receive buffer. Switches autotuning off: it can limit a section, never make it faster. The kernel doubles
    /// the value, to at least `SOCK_MIN_RCVBUF` and at most `INT_MAX` (socket(7), net/core/sock.c).
    Rcvbuf(Bytes) = "rcvbuf" in "4KiB" to "1023MiB",
    /// Fixed send buffer. Switches autotuning off. Doubled and bounded likewise (`SOCK_MIN_SNDBUF`).
    Sndbuf(Bytes) = "sndbuf" in "4KiB" to "1023MiB",
    /// Upper bound of the advertised window, `TCP_WINDOW_CLAMP`: at least half of `SOCK_MIN_RCVBUF` (tcp(7)), and less
    /// than 1 GiB, the largest window that can be advertised (RFC 7323, 2.3).
    WindowClamp(Bytes) = "window_clamp" in "4KiB" to "1GiB",
    /// Limit of unsent bytes in the kernel, `TCP_NOTSENT_LOWAT`; 0 is `net.ipv4.tcp_notsent_lowat`. No send buffer is
    /// larger than 1 GiB.
    NotsentLowat(Bytes) = "notsent_lowat" in "0B" to "1GiB",
    /// Maximum segment size, `TCP_MAXSEG`: from `TCP_MIN_MSS` to `MAX_TCP_WINDOW` (include/net/tcp.h).
    Mss(u16) = "mss" in 88 to 32767,
    /// No Nagle delay, `TCP_NODELAY` (RFC 896).
    Nodelay(bool) = "nodelay",
    /// Acknowledge immediately at the start, `TCP_QUICKACK`; the kernel may leave this mode later.
    Quickack(bool) = "quickack",
    /// TCP Fast Open (RFC 7413): accept data in the SYN, or send it.
    FastOpen(bool) = "fast_open",
    /// Idle time before the first keep-alive probe, in seconds, up to `MAX_TCP_KEEPIDLE` (include/net/tcp.h); "0s" switches
    /// probes off.
    Keepalive(Span) = "keepalive" in "0s" to "32767s" by "1s",
    /// Time between keep-alive probes, in seconds, up to `MAX_TCP_KEEPINTVL`.
    KeepaliveInterval(Span) = "keepalive_interval" in "1s" to "32767s" by "1s",
    /// Unanswered keep-alive probes before the connection is closed, up to `MAX_TCP_KEEPCNT`.
    KeepaliveCount(u8) = "keepalive_count" in 1 to 127,
    /// Longest time for which data may stay unacknowledged, `TCP_USER_TIMEOUT` (RFC 5482): milliseconds, an `int`; 0 is
    /// the kernel's default (tcp(7)).
    UserTimeout(Span) = "user_timeout" in "0s" to "596h" by "1ms",
    /// Lower bound of the retransmission timeout, `TCP_RTO_MIN_US`, Linux 6.15: from `TCP_TIMEOUT_MIN`, two jiffies at 250 Hz, to
    /// `TCP_RTO_MIN`.
    RtoMin(Span) = "rto_min" in "8ms" to "200ms",
    /// Upper bound of the retransmission timeout, `TCP_RTO_MAX_MS`, Linux 6.15: in milliseconds, from 1 s to
    /// `TCP_RTO_MAX_SEC`.
    RtoMax(Span) = "rto_max" in "1s" to "120s" by "1ms",
    /// Longest delay of an acknowledgement, `TCP_DELACK_MAX_US`, Linux 6.15: from `TCP_TIMEOUT_MIN` to `TCP_DELACK_MAX`.
    DelackMax(Span) = "delack_max" in "8ms" to "200ms",
    /// No exponential backoff while few segments are in flight, `TCP_THIN_LINEAR_TIMEOUTS`.
    ThinLinearTimeouts(bool) = "thin_linear_timeouts",
    /// Upper bound of the sending rate, `SO_MAX_PACING_RATE` (socket(7)): from one full packet in 1.5 s to the rate of
    /// the fastest interfaces.
    PacingRate(Rate) = "pacing_rate" in "8kbit/s" to "400Gbit/s",
    /// Delay added to every segment sent, `TCP_TX_DELAY`; takes effect under the fq queueing discipline only, up to its `horizon`
    /// (tc-fq(8)).
    TxDelay(Span) = "tx_delay" in "0s" to "10s",
    /// Whether settings that the profile omits are tuned to the path ([`crate::tuning`]).
    Tune(bool) = "tune",
}

impl Setting {
    fn position(&self) -> usize {
        Self::KEYS.iter().position(|key| *key == self.key()).unwrap_or(Self::KEYS.len())
    }
}

/// A named list of TCP settings, with at most one value for each key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// The name by which the configuration refers to the profile.
    pub name: String,
    settings: Vec<Setting>,
}

/// The names of the built-in profiles.
pub const BUILT_IN: &[&str] = &["lan", "auto", "longhaul", "lossy", "satellite"];

impl Profile {
    /// An empty profile: the kernel's defaults.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), settings: Vec::new() }
    }

    /// The built-in profile of this name, one of [`BUILT_IN`].
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let settings: &[(&str, &str)] = match name {
            "lan" => &[("congestion", Algorithm::AUTO), ("nodelay", "true"), ("keepalive", "5min")],
            // For sections of unknown length.
            "auto" => &[
                ("congestion", Algorithm::AUTO),
                ("initial_rwnd", "2MiB"),
                ("notsent_lowat", "1MiB"),
                ("nodelay", "true"),
                ("keepalive", "1min"),
                ("user_timeout", "2min"),
            ],
            // BBR keeps the rate despite the random loss of long paths. Unsent data stays in the relay, where it holds
            // back the sender, and not in the socket buffer, where it only waits.
            "longhaul" => &[
                ("congestion", "bbr"),
                ("initial_rwnd", "2MiB"),
                ("notsent_lowat", "1MiB"),
                ("nodelay", "true"),
                ("keepalive", "1min"),
                ("user_timeout", "2min"),
                ("rto_max", "10s"),
            ],
            // Tail losses dominate the cost of a lossy path: retransmit early, and bound the backoff.
            "lossy" => &[
                ("congestion", "bbr"),
                ("initial_rwnd", "2MiB"),
                ("notsent_lowat", "512KiB"),
                ("nodelay", "true"),
                ("keepalive", "30s"),
                ("user_timeout", "2min"),
                ("rto_min", "40ms"),
                ("rto_max", "3s"),
                ("thin_linear_timeouts", "true"),
            ],
            // With a round-trip time of half a second, a shorter timeout would only duplicate data.
            "satellite" => &[
                ("congestion", "bbr"),
                ("initial_rwnd", "2MiB"),
                ("notsent_lowat", "2MiB"),
                ("nodelay", "true"),
                ("keepalive", "2min"),
                ("user_timeout", "5min"),
                ("rto_max", "20s"),
            ],
            _ => return None,
        };
        let mut profile = Self::named(name);
        for (key, value) in settings {
            profile.set(Setting::read(key, value).expect("invariant: built-in profiles are valid"));
        }
        Some(profile)
    }

    /// Adds a setting, or replaces the setting of the same key.
    pub fn set(&mut self, setting: Setting) {
        self.settings.retain(|old| old.key() != setting.key());
        let at = self.settings.partition_point(|old| old.position() < setting.position());
        self.settings.insert(at, setting);
    }

    /// The settings in the order in which they must be applied.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The congestion control that the profile names; `None` if it names none, or "auto".
    #[must_use]
    pub fn congestion(&self) -> Option<&Algorithm> {
        self.settings.iter().find_map(|setting| match setting {
            Setting::Congestion(algorithm) if algorithm.0 != Algorithm::AUTO => Some(algorithm),
            _ => None,
        })
    }

    /// Whether the congestion control is chosen by the path: `congestion = "auto"`.
    #[must_use]
    pub fn has_auto_congestion(&self) -> bool {
        self.has_setting("congestion") && self.congestion().is_none()
    }

    /// The options for Compound TCP; `None` if there are none, or the profile names another congestion control.
    #[must_use]
    pub fn compound_tcp(&self) -> Option<CompoundTcp> {
        self.congestion().filter(|algorithm| algorithm.0 == "ctcp")?;
        let mut options = None;
        for setting in &self.settings {
            match setting {
                Setting::CtcpGamma(gamma) => options.get_or_insert_with(CompoundTcp::default).gamma = *gamma,
                Setting::CtcpAutoGamma(on) => options.get_or_insert_with(CompoundTcp::default).auto_gamma = *on,
                _ => {}
            }
        }
        options
    }

    /// Whether the profile has a value for `key`.
    #[must_use]
    pub fn has_setting(&self, key: &str) -> bool {
        self.settings.iter().any(|setting| setting.key() == key)
    }

    /// Whether the sections of the profile are tuned while they run.
    #[must_use]
    pub fn is_tuned(&self) -> bool {
        self.settings.contains(&Setting::Tune(true))
    }

    /// All settings of a socket before it connects or listens: those of the profile, and the initial tuning.
    pub fn initial_settings(&self) -> impl Iterator<Item = Setting> {
        let tuned = self.is_tuned().then(Tuning::initial_settings).into_iter().flatten();
        self.settings.iter().cloned().chain(tuned.filter(|setting| !self.has_setting(setting.key())))
    }

    /// Whether sockets must be created as Multipath TCP sockets.
    #[must_use]
    pub fn mptcp(&self) -> bool {
        self.settings.contains(&Setting::Mptcp(true))
    }
}

/// The options of a profile for Compound TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompoundTcp {
    /// The value of [`Setting::CtcpGamma`], in packets.
    pub gamma: u32,
    /// The value of [`Setting::CtcpAutoGamma`].
    pub auto_gamma: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_exist_with_ordered_settings() {
        for name in BUILT_IN {
            let profile = Profile::built_in(name).unwrap();
            let positions: Vec<_> = profile.settings().iter().map(Setting::position).collect();
            assert!(positions.is_sorted(), "{name}: {positions:?}");
        }
        assert_eq!(Profile::built_in("none"), None);
    }

    #[test]
    fn setting_a_key_again_replaces_its_value() {
        let mut profile = Profile::built_in("longhaul").unwrap();
        let count = profile.settings().len();
        profile.set(Setting::read("congestion", "cubic").unwrap());
        assert_eq!(profile.settings().len(), count);
        assert!(profile.settings().contains(&Setting::Congestion(Algorithm("cubic".into()))));
    }

    #[test]
    fn compound_tcp_options_require_congestion_ctcp() {
        let profile = |settings: &[(&str, &str)]| {
            let mut profile = Profile::named("test");
            settings.iter().for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
            profile.compound_tcp()
        };
        let both = CompoundTcp { gamma: 12, auto_gamma: true };
        assert_eq!(profile(&[("congestion", "ctcp"), ("ctcp_gamma", "12"), ("ctcp_auto_gamma", "true")]), Some(both));
        assert_eq!(profile(&[("congestion", "cubic"), ("ctcp_gamma", "12")]), None);
        assert_eq!(profile(&[("congestion", "ctcp")]), None);
    }

    #[test]
    fn initial_tuning_fills_only_unset_keys() {
        let initial = |settings: &[(&str, &str)]| {
            let mut profile = Profile::named("test");
            settings.iter().for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
            profile.initial_settings().map(|setting| setting.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(initial(&[("tune", "false")]), ["tune = false"]);
        assert_eq!(
            initial(&[("tune", "true"), ("rto_min", "90ms")]),
            ["rto_min = 90ms", "tune = true", "notsent_lowat = 1MiB", "delack_max = 20ms"]
        );
    }

    #[test]
    fn errors_name_the_expected_value() {
        assert_eq!(Setting::read("rto_min", "5"), Err(Some("a time from \"8ms\" to \"200ms\"".to_owned())));
        assert_eq!(
            Setting::read("congestion", "a name too long for it"),
            Err(Some("a congestion control like \"bbr\"".to_owned()))
        );
        assert_eq!(Setting::read("nagle", "true"), Err(None));
    }

    /// Regression: values that a kernel masks, clamps or refuses were accepted, and `dscp = 99` was reported as
    /// applied.
    #[test]
    fn each_setting_has_its_bounds() {
        let all: &[(&str, &[&str], &[&str])] = &[
            ("mptcp", &["true", "false"], &["yes", "1"]),
            (
                "bind",
                &["192.0.2.1", "2001:db8::1", "127.0.0.1"],
                &["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "host"],
            ),
            ("fwmark", &["0", "4294967295"], &["-1", "4294967296", "0x10"]),
            ("dscp", &["0", "63"], &["64", "99", "-1"]),
            ("congestion", &["bbr", "a-name_of15char"], &["", "a_name_of16chars", "b r"]),
            ("ctcp_gamma", &["0", "1", "65535"], &["65536", "4294967295"]),
            ("ctcp_auto_gamma", &["true"], &["5"]),
            ("initial_rwnd", &["64KiB", "1023MiB"], &["65535B", "1GiB"]),
            ("rcvbuf", &["4KiB", "1023MiB"], &["4095B", "1GiB", "0B"]),
            ("sndbuf", &["4KiB", "1023MiB"], &["4095B", "1GiB", "0B"]),
            ("window_clamp", &["4KiB", "1GiB"], &["1B", "4095B", "2GiB"]),
            ("notsent_lowat", &["0B", "1B", "1GiB"], &["2GiB"]),
            ("mss", &["88", "32767"], &["0", "20", "87", "32768", "65535"]),
            ("nodelay", &["false"], &["0"]),
            ("quickack", &["true"], &["on"]),
            ("fast_open", &["true"], &["on"]),
            ("keepalive", &["0s", "1s", "32767s"], &["1500ms", "1ms", "32768s", "10h"]),
            ("keepalive_interval", &["1s", "32767s"], &["0s", "1ms", "1.5s", "32768s"]),
            ("keepalive_count", &["1", "127"], &["0", "128", "255"]),
            ("user_timeout", &["0s", "1ms", "596h"], &["1us", "1.5ms", "597h"]),
            ("rto_min", &["8ms", "200ms"], &["1ms", "7999us", "201ms", "0s"]),
            ("rto_max", &["1s", "2min"], &["999ms", "121s", "0s", "1.0005s"]),
            ("delack_max", &["8ms", "200ms"], &["1ms", "201ms"]),
            ("thin_linear_timeouts", &["true"], &["1"]),
            ("pacing_rate", &["8kbit/s", "400Gbit/s"], &["7kbit/s", "401Gbit/s"]),
            ("tx_delay", &["0s", "1us", "10s"], &["11s"]),
            ("tune", &["false"], &["auto"]),
        ];
        assert_eq!(all.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), Setting::KEYS);
        let mut wrong = Vec::new();
        for (key, good, bad) in all {
            wrong.extend(
                good.iter()
                    .filter(|text| Setting::read(key, text).is_err())
                    .map(|text| format!("{key} = {text} is refused")),
            );
            wrong.extend(
                bad.iter()
                    .filter(|text| Setting::read(key, text).is_ok())
                    .map(|text| format!("{key} = {text} is accepted")),
            );
        }
        assert_eq!(wrong, Vec::<String>::new());
    }
}
