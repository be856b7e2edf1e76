//! Whether a packet was lost or damaged where nothing should be: anywhere but in the emulated link.

use super::row::Finding;

/// No packet may be missing from all accounts: dropped or found damaged by hosts (what, and how many), or lost between
/// the kernel and the emulator.
pub fn check_hidden_drops(hosts: &[(String, u64)], emulator: u64) -> Finding {
    let named: Vec<String> =
        hosts.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{what} {count}")).collect();
    let on_hosts: u64 = hosts.iter().map(|(_, count)| count).sum();
    let names = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    Finding {
        wanted: "interface drops, checksum errors; packet socket drops: 0".to_owned(),
        measured: format!("{on_hosts}{names}; {emulator}"),
        pass: on_hosts == 0 && emulator == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_is_too_many_and_has_a_name() {
        assert!(check_hidden_drops(&[], 0).pass);
        assert!(!check_hidden_drops(&[], 1).pass);
        let dropped = check_hidden_drops(&[("client: wan rx_dropped".to_owned(), 2)], 0);
        assert!(!dropped.pass && dropped.measured.contains("client: wan rx_dropped 2"), "{dropped:?}");
    }
}
