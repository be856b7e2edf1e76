//! The window of a host: what one of its connections has under way at most, and the sysctls that make it so.
//!
//! Two limits have to agree. As a sender it is held back by its send buffer, whose room is nearly all for bytes: of 256 KiB
//! iperf3 has 245 to 250 under way. As a receiver it offers what its receive buffer leaves after the kernel's own books: on
//! Linux 6.18 that is 0.657 of it, seen with `ss` at buffers of 400,000 to 600,000 bytes. A host of at most 64 KiB is one from
//! before window scaling: it uses nothing of RFC 7323, neither scaling nor timestamps, and whoever talks to it is bound by
//! that as well.

use ekiden_proto::units::Bytes;

use crate::topology::Host;

/// The largest window without scaling (RFC 9293 section 3.1), in bytes.
pub const UNSCALED: u64 = 65_535;

/// What a window of this size has in use, in bytes.
#[must_use]
pub fn in_use(window: Bytes) -> u64 {
    if is_scaled(window) { window.0 } else { window.0.min(UNSCALED) }
}

/// Whether a host puts timestamps into its packets (RFC 7323), as far as its window says.
#[must_use]
pub fn has_timestamps(host: &Host) -> bool {
    host.window.is_none_or(is_scaled)
}

const fn is_scaled(window: Bytes) -> bool {
    window.0 > UNSCALED + 1
}

/// The sysctls that make a window.
#[must_use]
pub fn sysctls(window: Bytes) -> Vec<(&'static str, String)> {
    let buffer = |first: u64, most: u64| format!("4096 {} {most}", first.min(most));
    let receive = buffer(131_072, window.0 * 1000 / 657);
    let mut settings = vec![("net.ipv4.tcp_rmem", receive), ("net.ipv4.tcp_wmem", buffer(65_536, window.0))];
    if !is_scaled(window) {
        settings = vec![("net.ipv4.tcp_window_scaling", "0".to_owned()), ("net.ipv4.tcp_timestamps", "0".to_owned())];
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_made_of_buffers_and_a_small_one_of_what_is_left_out() {
        let large = Bytes(256 << 10);
        let wanted = [("net.ipv4.tcp_rmem", "4096 131072 399001"), ("net.ipv4.tcp_wmem", "4096 65536 262144")];
        assert_eq!(sysctls(large), wanted.map(|(key, value)| (key, value.to_owned())));
        assert_eq!(in_use(large), 262_144);
        let small = Bytes(64 << 10);
        assert!(sysctls(small).contains(&("net.ipv4.tcp_window_scaling", "0".to_owned())));
        assert_eq!(in_use(small), 65_535);
        assert!(!has_timestamps(&Host { window: Some(small), ..Host::default() }));
        assert!(has_timestamps(&Host::default()));
    }
}
