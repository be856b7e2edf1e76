//! Why a client did not get where it wanted: one list, so that a SOCKS code, an HTTP status, a log line and a metric
//! label can never tell different stories.

use std::fmt;

/// The true cause of a failed dial, as far as anyone on the path knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The target answered with RST: nobody listens on that port.
    Refused,
    /// No route, or an ICMP message said that the host or network cannot be reached.
    Unreachable,
    /// No answer within the deadline.
    TimedOut,
    /// The name does not exist, or has no address.
    NameNotFound,
    /// The name servers did not answer, or answered with a failure.
    NameServerFailed,
    /// The relay's own rules forbid the target.
    Denied,
    /// A next hop refused our credentials or forbade the target.
    DeniedByHop,
    /// A next hop does not speak the protocol it was configured with.
    HopProtocol,
    /// A next hop could not do it and did not say why.
    HopFailed,
    /// The connection was made and reset before it could be used.
    Reset,
    /// The server answered, and not in the protocol it was asked in.
    BadAnswer,
    /// This relay is out of descriptors, ports or memory.
    Exhausted,
    /// The path leads back to a relay that it has passed, or through too many.
    Loop,
}

impl Cause {
    /// The word used in logs, metric labels and JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
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
            Self::DeniedByHop => "http_request_denied",
            Self::HopProtocol | Self::BadAnswer => "http_protocol_error",
            Self::HopFailed => "destination_unavailable",
            Self::Reset => "connection_terminated",
            Self::Exhausted => "connection_limit_reached",
            Self::Loop => "proxy_loop_detected",
        }
    }

    /// The HTTP status a forward proxy answers with (RFC 9110, 15.6; RFC 9209, 2.3 for the recommended ones).
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::TimedOut => 504,
            Self::Denied | Self::DeniedByHop => 403,
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

    /// One sentence for the person who sees the error page.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Refused => "The server refused the connection: nothing listens on that port.",
            Self::Unreachable => "The server cannot be reached: there is no route to it.",
            Self::TimedOut => "There was no answer in time.",
            Self::NameNotFound => "The server's name does not exist.",
            Self::NameServerFailed => "The server's name could not be looked up: the name servers failed.",
            Self::Denied => "This relay does not forward to that address.",
            Self::DeniedByHop => "The next relay did not accept our credentials, or does not forward to that address.",
            Self::HopProtocol => "The next relay does not speak the protocol it is configured with.",
            Self::HopFailed => "The next relay could not connect, and did not say why.",
            Self::BadAnswer => "The server's answer is not HTTP, or could be read in two ways.",
            Self::Reset => "The server closed the connection before it answered.",
            Self::Exhausted => "This relay is out of resources; try again.",
            Self::Loop => {
                "The path leads back to a relay it has passed; this is a mistake in the relays' configuration."
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

serialize_as_text!(Cause);
