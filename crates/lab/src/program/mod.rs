//! The real programs: servers, proxies and clients, how each is configured, started and found ready.
