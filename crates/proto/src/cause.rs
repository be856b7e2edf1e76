//! Causes of failed dials: one list for SOCKS codes, HTTP statuses, log lines and metric labels, so that they cannot
//! disagree.

use std::fmt;

/// The original cause of a failed dial, as precisely as any relay on the path reports it. The numbers belong to the
/// section protocol: they never change and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The target answered with RST: no process listens on the port.
    Refused = 1,
    /// No route, or an ICMP message said that the host or network cannot be reached.
    Unreachable = 2,
    /// No answer within the deadline.
    TimedOut = 3,
    /// The name does not exist, or has no address.
    NameNotFound = 4,
    /// The name servers did not answer, or answered with a failure.
    NameServerFailed = 5,
    /// The relay's own rules forbid the target.
    Denied = 6,
    /// A next hop rejected the credentials of this relay, or forbade the target.
    DeniedByHop = 7,
    /// A next hop does not speak its configured protocol.
    HopProtocol = 8,
    /// A next hop failed without a reason.
    HopFailed = 9,
    /// The connection was reset before its first use.
    Reset = 10,
    /// The server answered in another protocol.
    BadAnswer = 11,
    /// This relay is out of descriptors, ports or memory.
    Exhausted = 12,
    /// The path returns to a relay that it has passed, or has too many relays.
    Loop = 13,
    /// The quota of the user or of the listener is used up.
    OverQuota = 14,
    /// The session limit of the user or of the listener is reached.
    SessionLimit = 15,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Refused,
        Self::Unreachable,
        Self::TimedOut,
        Self::NameNotFound,
        Self::NameServerFailed,
        Self::Denied,
        Self::DeniedByHop,
        Self::HopProtocol,
        Self::HopFailed,
        Self::Reset,
        Self::BadAnswer,
        Self::Exhausted,
        Self::Loop,
        Self::OverQuota,
        Self::SessionLimit,
    ];

    /// The number of the cause in the section protocol; never 0, which means success.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The cause with the number `code`. An unknown number, of a later version, is [`Cause::HopFailed`].
    ///
    /// ```
    /// use ekiden_proto::cause::Cause;
    /// assert_eq!(Cause::from_code(1), Cause::Refused);
    /// assert_eq!(Cause::from_code(200), Cause::HopFailed);
    /// ```
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self::ALL.into_iter().find(|cause| cause.code() == code).unwrap_or(Self::HopFailed)
    }

    /// The word used in logs, metric labels and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::NameNotFound => "name_not_found",
            Self::NameServerFailed => "name_server_failed",
            Self::Denied => "denied",
            Self::DeniedByHop => "denied_by_hop",
            Self::HopProtocol => "hop_protocol",
            Self::HopFailed => "hop_failed",
            Self::Reset => "reset",
            Self::BadAnswer => "bad_answer",
            Self::Exhausted => "exhausted",
            Self::Loop => "loop",
            Self::OverQuota => "over_quota",
            Self::SessionLimit => "session_limit",
        }
    }

    /// The RFC 9209 `Proxy-Status` error type.
    #[must_use]
    pub const fn proxy_status(self) -> &'static str {
        match self {
            Self::Refused => "connection_refused",
            Self::Unreachable => "destination_ip_unroutable",
            Self::TimedOut => "connection_timeout",
            Self::NameNotFound | Self::NameServerFailed => "dns_error",
            Self::Denied => "destination_ip_prohibited",
            Self::DeniedByHop | Self::OverQuota => "http_request_denied",
            Self::HopProtocol | Self::BadAnswer => "http_protocol_error",
            Self::HopFailed => "destination_unavailable",
            Self::Reset => "connection_terminated",
            Self::Exhausted | Self::SessionLimit => "connection_limit_reached",
            Self::Loop => "proxy_loop_detected",
        }
    }

    /// The HTTP status of a forward proxy's error response (RFC 9110, 15.6; RFC 6585, 4; RFC 9209, 2.3 for the
    /// recommended statuses).
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::TimedOut => 504,
            Self::Denied | Self::DeniedByHop => 403,
            Self::OverQuota | Self::SessionLimit => 429,
            Self::Exhausted => 503,
            Self::Loop
            | Self::Refused
            | Self::Unreachable
            | Self::NameNotFound
            | Self::NameServerFailed
            | Self::HopProtocol
            | Self::HopFailed
            | Self::Reset
            | Self::BadAnswer => 502,
        }
    }

    /// The predicate of a sentence whose subject is the hop that failed for this cause.
    #[must_use]
    pub const fn hop_predicate(self) -> &'static str {
        match self {
            Self::Refused => "refused the connection: nothing listens on its port",
            Self::Unreachable => "cannot be reached: there is no route to it",
            Self::TimedOut => "did not answer in time",
            Self::NameNotFound => "cannot be reached: its name does not exist",
            Self::NameServerFailed => "cannot be reached: its name could not be looked up",
            Self::Denied => "does not forward to that address",
            Self::DeniedByHop => "did not accept the credentials of this relay, or does not forward to that address",
            Self::HopProtocol => "does not speak the configured protocol",
            Self::HopFailed => "could not connect, and gave no reason",
            Self::BadAnswer => "answered with malformed or ambiguous HTTP",
            Self::Reset => "closed the connection before it answered",
            Self::Exhausted => "cannot be connected to: this relay is out of resources",
            Self::Loop => "occurs twice on the path",
            Self::OverQuota => "does not forward now: the quota of its listener is used up",
            Self::SessionLimit => "does not forward now: the session limit of its listener is reached",
        }
    }

    /// The cause as a complete sentence, for error pages.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Refused => "The server refused the connection: nothing listens on that port.",
            Self::Unreachable => "The server cannot be reached: there is no route to it.",
            Self::TimedOut => "The server did not answer in time.",
            Self::NameNotFound => "The server's name does not exist.",
            Self::NameServerFailed => "The server's name could not be looked up: the name servers failed.",
            Self::Denied => "This relay does not forward to that address.",
            Self::DeniedByHop => {
                "The next relay did not accept the credentials of this relay, or does not forward to that address."
            }
            Self::HopProtocol => "The next relay does not speak the configured protocol.",
            Self::HopFailed => "The next relay could not connect, and gave no reason.",
            Self::BadAnswer => "The server's answer is malformed or ambiguous HTTP.",
            Self::Reset => "The server closed the connection before it answered.",
            Self::Exhausted => "This relay is out of resources; try again.",
            Self::OverQuota => "The quota is used up.",
            Self::SessionLimit => "The session limit is reached.",
            Self::Loop => "The path contains a relay twice: correct the configuration of the relays.",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

serialize_as_text!(Cause);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_code_of_its_own() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(cause.code()), place + 1, "{cause}");
            assert_eq!(Cause::from_code(cause.code()), cause);
        }
        for unknown in [0, 16, 255] {
            assert_eq!(Cause::from_code(unknown), Cause::HopFailed, "{unknown}");
        }
    }
}
