//! How clients reach a listener.

/// How clients reach a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// SOCKS4, 4a, 5 and HTTP told apart by the first bytes.
    Auto,
    /// SOCKS4, 4a and 5.
    Socks,
    /// HTTP forward proxy.
    Http,
    /// Everything to one fixed target.
    Tcp,
    /// Connections that are routed through this host, caught by TPROXY.
    Tproxy,
    /// Connections that are routed through this host or made by its programs, caught by address translation.
    Redirect,
    /// Connections to networks that are behind another relay, caught by TPROXY at a TUN device.
    Tun,
    /// Other relays, with keys.
    Section,
}

impl ListenerKind {
    /// Whether clients do not know of the listener.
    #[must_use]
    pub const fn is_transparent(self) -> bool {
        matches!(self, Self::Tproxy | Self::Redirect | Self::Tun)
    }

    /// Whether TPROXY brings clients to it.
    #[must_use]
    pub const fn uses_tproxy(self) -> bool {
        matches!(self, Self::Tproxy | Self::Tun)
    }

    /// All kinds, in the order in which they are documented.
    pub const ALL: [Self; 8] =
        [Self::Auto, Self::Socks, Self::Http, Self::Tcp, Self::Tproxy, Self::Redirect, Self::Tun, Self::Section];

    /// Its word in the configuration, in logs and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Socks => "socks",
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Tproxy => "tproxy",
            Self::Redirect => "redirect",
            Self::Tun => "tun",
            Self::Section => "section",
        }
    }
}
