//! What is in a host's kernel.

use crate::network::Host;

/// Everything in a host that could be ours.
pub fn everything(host: &Host) -> String {
    let script = "nft list ruleset; iptables-save -t raw; ip6tables-save -t raw; ip rule; ip -6 rule; \
        ip route show table all; ip -6 route show table all";
    host.shell(script).out
}

/// What could be ours, in alphabetical order and without the empty chain that iptables leaves in the table it made for everybody, and without what
/// comes and goes by itself.
pub fn ours(host: &Host) -> Vec<String> {
    let lines = everything(host);
    let names = ["ekiden", "EKIDEN", "0xe", "5734", "5735"];
    let mut ours: Vec<_> = lines.lines().filter(|line| names.iter().any(|name| line.contains(name))).collect();
    ours.sort_unstable();
    ours.into_iter().map(str::to_owned).collect()
}
