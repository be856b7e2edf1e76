//! Counters of the kernel rules.

use super::Marks;
use super::apply::run;
use super::error::RulesError;
use super::owner::table;

/// One counter of the relay's nftables table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// The counted event: `caught`, `unanswered`, `passed`, `refused`, `unreachable` or `asymmetric`; of tunnels
    /// `unserved`, `ended` and `returned`; of QUIC `quic-passed` and `quic-refused`.
    pub what: String,
    /// The listener; `None` for a counter of all listeners.
    pub listener: Option<String>,
    /// Number of packets, retransmissions of first packets included.
    pub packets: u64,
}

/// Reads the counters of `instance`. Applying rules resets them.
///
/// # Errors
/// nft has failed, in most cases because the table does not exist or for lack of privilege.
pub fn counters(instance: u8) -> Result<Vec<Counter>, RulesError> {
    let table = table(Marks::new(instance));
    run("nft", &["list", "counters", "table", "inet", &table], "").map(|text| read(&text))
}

fn read(text: &str) -> Vec<Counter> {
    let mut counters: Vec<Counter> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("counter ").and_then(|rest| rest.strip_suffix(" {")) {
            let what = name.split('_').next().unwrap_or(name).to_owned();
            counters.push(Counter { what, listener: None, packets: 0 });
        } else if let Some(counter) = counters.last_mut() {
            if let Some(comment) = line.strip_prefix("comment \"").and_then(|rest| rest.strip_suffix('"')) {
                counter.listener = Some(comment.to_owned());
            } else if let Some(count) = line.strip_prefix("packets ") {
                counter.packets = count.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            }
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_nft_lists_them() {
        let text = "table inet ekiden {\n\tcounter caught_0 {\n\t\tcomment \"tproxy-7001\"\n\t\tpackets 3 bytes 180\n\t}\n\
            \tcounter asymmetric {\n\t\tpackets 1 bytes 60\n\t}\n}\n";
        let counter = |what: &str, listener: Option<&str>, packets| Counter {
            what: what.to_owned(),
            listener: listener.map(str::to_owned),
            packets,
        };
        assert_eq!(read(text), [counter("caught", Some("tproxy-7001"), 3), counter("asymmetric", None, 1)]);
    }
}
