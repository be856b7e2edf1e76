//! The text of the rules.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use super::*;
use crate::config::read::{Flags, load};
use crate::rules::Queue;

fn rules(urls: &[&str]) -> Option<Ruleset> {
    let forward = vec!["socks5://203.0.113.1:1080".to_owned()];
    let flags = Flags { listen: urls.iter().map(|url| (*url).to_owned()).collect(), forward, ..Flags::default() };
    Ruleset::of(&load(None, &flags).unwrap_or_else(|mistakes| panic!("{mistakes}")))
}

fn table(urls: &[&str]) -> String {
    text(&rules(urls).unwrap(), &Queue::Nft, "x")
}

/// The lines of one chain, without those of its head.
fn chain(table: &str, name: &str) -> Vec<String> {
    let (_, rest) = table.split_once(&format!("  chain {name} {{\n")).unwrap_or_else(|| panic!("{name}: {table}"));
    let lines = rest.split("  }\n").next().unwrap().lines().map(str::trim);
    lines.filter(|line| !line.starts_with("type ")).map(str::to_owned).collect()
}

#[test]
fn nothing_is_needed_by_listeners_that_clients_know() {
    assert!(rules(&["auto://:1080", "tcp://:1081/h:1"]).is_none());
}

#[test]
fn a_listener_that_keeps_addresses_catches_nothing() {
    let table = table(&["socks://127.0.0.1:1080?keep_client_address=true"]);
    assert!(!table.contains("tproxy") && !table.contains("listeners") && !table.contains("counter"), "{table}");
    let [syn, socket, _, _] = &chain(&table, "catch")[..] else { panic!("{table}") };
    assert_eq!(syn, &format!("{SYN} accept"));
    assert!(socket.contains("socket transparent 1") && socket.contains("| 0xe1010000 notrack"));
    assert_eq!(chain(&table, "output"), ["meta mark & 0xffff0000 == 0xe1060000 notrack"]);
}

#[test]
fn what_comes_in_is_matched_by_interface_client_and_target() {
    let table = table(&["tproxy://[::]:7001?interfaces=lan0&interfaces=lan1&interfaces=lan0&clients=10.1.0.0/16\
        &clients=2001:db8::/32&deny=*:25&deny=10.9.0.0/16&allow=10.0.0.0/8:80&allow=[2001:db8::/32]:443"]);
    let from = "iifname { \"lan0\", \"lan1\" }";
    let expected = [
        "meta mark & 0xf0000000 == 0xe0000000 return # caught by another ekiden".to_owned(),
        "fib daddr type local return # this host's own".to_owned(),
        format!("{from} ip saddr 10.1.0.0/16 jump targets_0"),
        format!("{from} ip6 saddr 2001:db8::/32 jump targets_0"),
    ];
    assert_eq!(chain(&table, "listeners"), expected);
    let expected = [
        "tcp dport 25 return",
        "ip daddr 10.9.0.0/16 return",
        "ip daddr 10.0.0.0/8 tcp dport 80 goto take_0",
        "ip6 daddr 2001:db8::/32 tcp dport 443 goto take_0",
    ];
    assert_eq!(chain(&table, "targets_0"), expected);
    let take = "meta mark set meta mark & 0x0000ffff | 0xe1100000 counter name caught_0 accept";
    assert_eq!(chain(&table, "take_0"), [take]);
    assert_eq!(
        chain(&table, "hold"),
        ["meta mark & 0xffff0000 == 0xe1100000 meta l4proto tcp queue flags bypass to 57360"]
    );
}

#[test]
fn the_address_of_a_listener_says_which_family_it_catches() {
    for (bind, source, place) in [
        ("0.0.0.0:1", "meta nfproto ipv4 ", "tproxy to :1 "),
        ("[::]:1", "", "tproxy to :1 "),
        ("192.0.2.1:1", "meta nfproto ipv4 ", "tproxy ip to 192.0.2.1:1 "),
        ("127.0.0.1:1", "meta nfproto ipv4 ", "tproxy ip to 127.0.0.1:1 "),
        ("[2001:db8::1]:1", "meta nfproto ipv6 ", "tproxy ip6 to [2001:db8::1]:1 "),
    ] {
        let table = table(&[&format!("tproxy://{bind}?interfaces=lan0")]);
        let expected = format!("iifname {{ \"lan0\" }} {source}jump targets_0");
        assert_eq!(chain(&table, "listeners")[2], expected, "{bind}");
        assert!(chain(&table, "steer")[2].contains(place), "{bind}: {table}");
    }
}

#[test]
fn redirects_are_translated_and_own_programs_do_not_wait() {
    let table = table(&[
        "tproxy://0.0.0.0:1?interfaces=lan0",
        "redirect://0.0.0.0:2?interfaces=lan1&interfaces=lo&deny=*:25",
        "redirect://127.0.0.1:3?interfaces=lo",
    ]);
    assert_eq!(chain(&table, "translate"), ["meta mark & 0xffff0000 == 0xe1210000 meta l4proto tcp redirect to :2"]);
    assert_eq!(chain(&table, "own_targets_1"), ["tcp dport 25 return", "goto own_take_1"]);
    assert_eq!(chain(&table, "own_take_2"), ["counter name caught_2", "meta l4proto tcp dnat ip to 127.0.0.1:3"]);
    assert_eq!(chain(&table, "hold").len(), 2, "{table}");
    assert!(!chain(&table, "listeners").iter().any(|line| line.contains("\"lo\"")), "{table}");
    assert!(table.contains("counter unanswered_1 ") && !table.contains("unanswered_2"), "{table}");
}

#[test]
fn released_rules_only_keep_what_runs() {
    let rules = rules(&["tproxy://[::]:1?interfaces=lan0"]).unwrap().released();
    let table = text(&rules, &Queue::Nft, "x");
    assert!(table.contains("socket transparent 1") && table.contains("chain output"), "{table}");
    assert!(!table.contains("tproxy") && !table.contains("queue"), "{table}");
}

#[test]
fn the_script_names_the_programs_and_the_instance() {
    let rules = rules(&["tproxy://[::]:1?interfaces=lan0"]).unwrap();
    let script = rules.script(&Queue::Iptables);
    let parts: Vec<_> = script.lines().filter_map(|line| line.strip_suffix(" <<'END'")).collect();
    let expected =
        ["ip -4 -batch -", "ip -6 -batch -", "iptables-restore --noflush", "ip6tables-restore --noflush", "nft -f -"];
    assert_eq!(parts, expected);
    assert!(!rules.script(&Queue::Nft).contains("iptables"));
    let other = Ruleset { marks: Marks::new(2), ..rules };
    let script = other.script(&Queue::Iptables);
    for part in ["table inet ekiden-2 {", "EKIDEN-2", "0xe2010000", "lookup 57346", "pref 187", "--queue-num 57376"] {
        assert!(script.contains(part), "no {part} in {script}");
    }
    assert!(!script.contains("0xe1"), "{script}");
}

/// Also while nothing is caught any more: what goes into the device comes out of it until it is gone.
#[test]
fn what_comes_out_of_a_tunnel_goes_into_none() {
    let rules =
        rules(&["tun://a?net=10.1.0.0/16", "tun://b?net=fd00::/8", "tproxy://[::]:7001?interfaces=lan0"]).unwrap();
    for rules in [rules.released(), rules] {
        let table = text(&rules, &Queue::Nft, "x");
        let out_and_in = |name: &str| format!("iifname \"{name}\" oifname \"{name}\"");
        let expected = ["a", "b"].map(out_and_in).map(|again| {
            [
                format!("{again} {SYN} counter name unserved reject with icmpx type host-unreachable"),
                format!("{again} meta l4proto tcp counter name ended reject with tcp reset"),
                format!("{again} counter name returned reject with icmpx type admin-prohibited"),
            ]
        });
        assert_eq!(chain(&table, "turn_back"), expected.concat());
        let untracked = format!("{SYN} fib daddr oifname {{ \"a\", \"b\" }} notrack");
        assert_eq!(chain(&table, "catch")[0], untracked);
        let output = chain(&table, "output");
        for (line, ours) in output.iter().zip(["0xe1020000", "0xe1060000"]) {
            let own = format!("oifname {{ \"a\", \"b\" }} meta mark & 0xffff0000 == {ours} reject with icmpx");
            assert!(line.starts_with(&own), "{line}");
        }
        assert_eq!(output[2], "oifname { \"a\", \"b\" } meta l4proto tcp notrack");
    }
}
