//! The nftables table (nft(8)): intercepts, holds and steers first packets, and counts packets that bypass the relay.

mod statements;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::owner::table;
use super::{Family, Marks, OWN_PROGRAMS, Queue, Ruleset, by_tproxy, interfaces};
use crate::config::{Listener, QuicPolicy, TargetPattern};
use statements::{QUIC_PORT, is, mark, matching, matching_quic, others, place, sources, translation};

pub(super) use statements::set;

/// Matches TCP packets. The protocol is a number, because nft(8) looks names up in /etc/protocols, which minimal
/// containers lack.
const TCP: &str = "meta l4proto 6";

/// Matches ICMP and ICMPv6 packets.
const ICMP: &str = "meta l4proto { 1, 58 }";

/// Matches the first packet of a connection.
const SYN: &str = "tcp flags & (fin|syn|rst|ack) == syn";

/// Matches the answer to a first packet.
const SYN_ACK: &str = "tcp flags & (fin|syn|rst|ack) == (syn|ack)";

/// Clears the bits of ekiden in a mark.
const UNMARK: &str = "meta mark set meta mark & 0x0000ffff";

/// Accepts outgoing packets of relays.
const ACCEPT_OF_EKIDEN: &str = "meta mark & 0xf0000000 == 0xe0000000 accept # sent by this or another ekiden";

/// Returns the commands that delete the table of this instance if it exists.
pub(super) fn replace(marks: Marks) -> String {
    let table = table(marks);
    format!("table inet {table}\ndelete table inet {table}\n")
}

/// Returns the whole table in the syntax of nft(8).
pub(super) fn text(rules: &Ruleset, queue: &Queue, comment: &str) -> String {
    let gated = !matches!(queue, Queue::Missing(_));
    let mut table = Table { rules, text: format!("table inet {} {{\n  comment \"{comment}\"\n", table(rules.marks)) };
    table.counters();
    table.catch();
    if *queue == Queue::Nft && rules.holds() {
        table.hold();
    }
    if rules.holds() {
        table.steer(gated);
        table.translate(gated);
        table.watch();
    }
    table.turn_back();
    table.output();
    table.own_programs();
    table.keep_translating();
    table.quic();
    table.text + "}\n"
}

struct Table<'a> {
    rules: &'a Ruleset,
    text: String,
}

impl Table<'_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "    {text}");
    }

    fn chain(&mut self, name: &str, hook: &str, lines: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.text, "  chain {name} {{");
        if !hook.is_empty() {
            self.line(&format!("type {hook}; policy accept;"));
        }
        lines(self);
        self.text += "  }\n";
    }

    fn counters(&mut self) {
        let mut counter = |name: &str, comment: Option<&str>| {
            let comment = comment.map_or(String::new(), |comment| format!("comment \"{comment}\"; "));
            let _ = writeln!(self.text, "  counter {name} {{ {comment}}}");
        };
        for (number, listener) in self.rules.listeners.iter().enumerate() {
            counter(&format!("caught_{number}"), Some(&listener.name));
        }
        for (number, listener) in self.rules.catching_others() {
            counter(&format!("unanswered_{number}"), Some(&listener.name));
        }
        for (number, listener, policy) in self.rules.judging_quic() {
            counter(&quic_counter(number, policy), Some(&listener.name));
        }
        if self.rules.holds() {
            ["passed", "refused", "unreachable", "asymmetric"].into_iter().for_each(|name| counter(name, None));
        }
        if !self.rules.devices.is_empty() {
            ["unserved", "ended", "returned"].into_iter().for_each(|name| counter(name, None));
        }
    }

    /// Marks first packets CAUGHT, and other packets with a transparent socket of the relay LOCAL.
    fn catch(&mut self) {
        let rules = self.rules;
        // If two daemons would intercept the same packet, the lower instance does.
        let before = 26 - rules.marks.instance();
        self.chain("catch", &format!("filter hook prerouting priority raw - {before}"), |table| {
            // The packet re-enters by the device with unchanged addresses. Source address translation would prevent a
            // match of the answers.
            if let Some(devices) = rules.devices() {
                table.line(&format!("{SYN} fib daddr oifname {devices} notrack"));
            }
            // A first packet is never matched with a socket: a socket in TIME_WAIT would answer for a new connection
            // with the same port.
            let listeners = if rules.holds() { "goto listeners" } else { "accept" };
            table.line(&format!("{SYN} {listeners}"));
            // A wildcard-bound listener would take every packet to its port, for any address. A socket in its handshake
            // matches neither value of "wildcard".
            for suspect in rules.listening_everywhere() {
                table.line(&format!("{suspect} socket wildcard 1 accept"));
            }
            let local = format!("socket transparent 1 {} notrack accept", mark(rules.marks.local()));
            table.line(&format!("{TCP} {local}"));
            table.line(&format!("{ICMP} socket wildcard 1 accept"));
            table.line(&format!("{ICMP} {local}"));
        });
        if !rules.holds() {
            return;
        }
        self.chain("listeners", "", |table| {
            table.line("meta mark & 0xf0000000 == 0xe0000000 return # caught by another ekiden");
            table.line("fib daddr type local return # this host's own");
            for (number, listener) in rules.catching_others() {
                for source in sources(listener) {
                    table.line(&format!("iifname {} {source}jump targets_{number}", others(listener)));
                }
            }
        });
        for (number, listener) in rules.catching_others() {
            let take = format!("{} counter name caught_{number} accept", mark(rules.marks.caught(number)));
            self.targets(&format!("targets_{number}"), &format!("take_{number}"), listener, &[take]);
        }
    }

    /// Adds a chain that matches a listener's targets, and a chain with the statements for them.
    fn targets(&mut self, name: &str, take: &str, listener: &Listener, statements: &[String]) {
        self.matched_targets(name, take, listener, statements, |target| Some(matching(target)));
    }

    /// Like `targets`, with the match that `to_match` returns for a target.
    fn matched_targets(
        &mut self,
        name: &str,
        take: &str,
        listener: &Listener,
        statements: &[String],
        to_match: impl Fn(&TargetPattern) -> Option<String>,
    ) {
        self.chain(take, "", |table| statements.iter().for_each(|line| table.line(line)));
        self.chain(name, "", |table| {
            for target in listener.access.deny.iter().filter_map(&to_match) {
                table.line(&format!("{target}return"));
            }
            for target in listener.access.allow.iter().filter_map(&to_match) {
                table.line(&format!("{target}goto {take}"));
            }
            if listener.access.allow.is_empty() {
                table.line(&format!("goto {take}"));
            }
        });
    }

    /// Queues first packets for a verdict of the gate. Without a gate, no packet waits.
    fn hold(&mut self) {
        let rules = self.rules;
        self.chain("hold", "filter hook prerouting priority raw", |table| {
            for (number, _) in rules.catching_others() {
                let (caught, queue) = (is(rules.marks.caught(number)), rules.marks.queue(number));
                table.line(&format!("{caught} {TCP} queue flags bypass to {queue}"));
            }
        });
    }

    fn steer(&mut self, gated: bool) {
        let (rules, marks) = (self.rules, self.rules.marks);
        self.chain("steer", "filter hook prerouting priority raw + 10", |table| {
            // Most packets match one of these two rules.
            table.line(&format!("{} accept", is(marks.local())));
            table.line("meta mark & 0xf0000000 != 0xe0000000 accept");
            for (number, listener) in rules.catching_others().filter(|(_, listener)| by_tproxy(listener)) {
                let (admitted, to) = (is(admitted(marks, number, gated)), place(listener));
                let local = mark(marks.local());
                table.line(&format!("{admitted} {TCP} tproxy {to} {local} notrack accept"));
                // TPROXY has found no listener.
                table.line(&format!("{admitted} counter name unanswered_{number} {UNMARK}"));
            }
            for (number, _) in rules.catching_others().filter(|_| gated) {
                // No verdict was given: no daemon runs, or the queue is full.
                table.line(&format!("{} counter name unanswered_{number} {UNMARK}", is(marks.caught(number))));
            }
            table.line(&format!("{} counter name passed {UNMARK}", is(marks.pass())));
            table.line(&format!("{} {TCP} counter name refused reject with tcp reset", is(marks.refused())));
            table.line(&format!(
                "{} counter name unreachable reject with icmpx type host-unreachable",
                is(marks.unreachable())
            ));
        });
    }

    /// Translates the destination of redirected connections. They must be tracked, because otherwise the kernel does
    /// not translate the answers.
    fn translate(&mut self, gated: bool) {
        let (rules, marks) = (self.rules, self.rules.marks);
        if rules.redirecting().next().is_none() {
            return;
        }
        self.chain("translate", "nat hook prerouting priority dstnat", |table| {
            for (number, listener) in rules.redirecting() {
                table.line(&format!("{} {TCP} {}", is(admitted(marks, number, gated)), translation(listener)));
            }
        });
    }

    /// Counts answers that leave by the interfaces of listeners and belong to connections whose first packet did not
    /// arrive there.
    fn watch(&mut self) {
        let rules = self.rules;
        let names: BTreeSet<_> = rules.catching_others().flat_map(|(_, listener)| interfaces(listener)).collect();
        let names = set(names.into_iter().filter(|name| *name != OWN_PROGRAMS));
        let addresses = |family: &Family| if *family == Family::Ipv4 { "ipv4_addr" } else { "ipv6_addr" };
        for family in &rules.families {
            let (word, address) = (family.word(), addresses(family));
            let _ = writeln!(
                self.text,
                "  set begun_{word} {{ type {address} . inet_service . {address} . inet_service; \
                 flags dynamic, timeout; timeout 10s; size 65535; }}"
            );
        }
        self.chain("watch", "filter hook forward priority filter - 10", |table| {
            for family in &rules.families {
                let ip = family.word();
                table.line(&format!(
                    "iifname {names} {SYN} add @begun_{ip} {{ {ip} saddr . tcp sport . {ip} daddr . tcp dport }}"
                ));
                table.line(&format!(
                    "oifname {names} {SYN_ACK} {ip} daddr . tcp dport . {ip} saddr . tcp sport != @begun_{ip} \
                     counter name asymmetric"
                ));
            }
        });
    }

    /// Rejects packets that would be forwarded from a tunnel's device into the same device, because no socket accepts
    /// them: first packets that this relay cannot serve, packets of connections of an earlier daemon, which are reset,
    /// and packets that are not TCP.
    fn turn_back(&mut self) {
        if self.rules.devices.is_empty() {
            return;
        }
        let devices = self.rules.devices.clone();
        self.chain("turn_back", "filter hook forward priority filter - 20", |table| {
            for name in devices {
                let returned = format!("iifname \"{name}\" oifname \"{name}\"");
                table.line(&format!("{returned} {SYN} counter name unserved reject with icmpx type host-unreachable"));
                table.line(&format!("{returned} {TCP} counter name ended reject with tcp reset"));
                table.line(&format!("{returned} counter name returned reject with icmpx type admin-prohibited"));
            }
        });
    }

    /// Packets that the relay sends with another host's address bypass conntrack. So do packets of programs on this
    /// host into a tunnel, because they re-enter with the same addresses.
    fn output(&mut self) {
        let (rules, marks) = (self.rules, self.rules.marks);
        self.chain("output", "filter hook output priority raw", |table| {
            if let Some(devices) = rules.devices() {
                for ours in [marks.own(), marks.kept()] {
                    let ours = is(ours);
                    let never = "reject with icmpx type host-unreachable # a section inside its own tunnel";
                    table.line(&format!("oifname {devices} {ours} {never}"));
                }
                table.line(&format!("oifname {devices} {TCP} notrack"));
            }
            table.line(&format!("{} notrack", is(marks.kept())));
        });
    }

    fn own_programs(&mut self) {
        let rules = self.rules;
        if rules.catching_own_programs().next().is_none() {
            return;
        }
        for (number, listener) in rules.catching_own_programs() {
            let statements = [format!("counter name caught_{number}"), format!("{TCP} {}", translation(listener))];
            self.targets(&format!("own_targets_{number}"), &format!("own_take_{number}"), listener, &statements);
        }
        self.chain("own_programs", "nat hook output priority -100", |table| {
            table.line(ACCEPT_OF_EKIDEN);
            table.line("fib daddr type local accept # this host's own");
            for (number, listener) in rules.catching_own_programs() {
                for source in sources(listener) {
                    table.line(&format!("{SYN} {source}jump own_targets_{number}"));
                }
            }
        });
    }

    /// Keeps the kernel translating the packets of running connections. Without a chain for address translation and a
    /// rule that uses conntrack, the kernel stops, also for connections that it tracks already.
    fn keep_translating(&mut self) {
        if self.rules.translates {
            let hook = "nat hook prerouting priority dstnat";
            self.chain("translated", hook, |table| table.line("ct state new accept"));
        }
    }

    /// Counts QUIC packets from the clients of a listener to its targets, and rejects them if the listener is
    /// configured to. The relay carries only TCP, so QUIC packets bypass it.
    fn quic(&mut self) {
        let rules = self.rules;
        for (number, listener, policy) in rules.judging_quic() {
            let count = format!("counter name {}", quic_counter(number, policy));
            let statement = match policy {
                QuicPolicy::Pass => format!("{count} accept"),
                QuicPolicy::Refuse => format!("{count} reject with icmpx type port-unreachable"),
            };
            let (name, take) = (format!("quic_targets_{number}"), format!("quic_take_{number}"));
            self.matched_targets(&name, &take, listener, &[statement], matching_quic);
        }
        let is_not_tunnel = |listener: &Listener| listener.tun.is_none();
        if rules.catching_others().any(|(_, listener)| is_not_tunnel(listener)) {
            self.chain("quic", "filter hook forward priority filter - 10", |table| {
                for (number, listener) in rules.catching_others().filter(|(_, listener)| is_not_tunnel(listener)) {
                    table.match_quic(number, listener, &format!("iifname {} ", others(listener)));
                }
            });
        }
        if rules.catching_own_programs().next().is_some() {
            self.chain("own_quic", "filter hook output priority filter - 10", |table| {
                table.line(ACCEPT_OF_EKIDEN);
                table.line("fib daddr type local accept # this host's own");
                for (number, listener) in rules.catching_own_programs() {
                    table.match_quic(number, listener, "");
                }
            });
        }
    }

    /// Adds the jump for QUIC packets from the clients of a listener to the chain of its targets.
    fn match_quic(&mut self, number: usize, listener: &Listener, from: &str) {
        for source in sources(listener) {
            self.line(&format!("{from}{source}udp dport {QUIC_PORT} jump quic_targets_{number}"));
        }
    }
}

/// Returns the mark of first packets that continue to a listener: those that the gate admits, or all without a gate.
const fn admitted(marks: Marks, number: usize, gated: bool) -> u32 {
    if gated { marks.let_in(number) } else { marks.caught(number) }
}

/// Returns the name of the counter of QUIC packets of a listener.
fn quic_counter(number: usize, policy: QuicPolicy) -> String {
    match policy {
        QuicPolicy::Pass => format!("quic-passed_{number}"),
        QuicPolicy::Refuse => format!("quic-refused_{number}"),
    }
}

#[cfg(test)]
mod tests {
    //! The text of the nft script.

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
    fn proxy_listeners_need_no_rules() {
        assert!(rules(&["auto://:1080", "tcp://:1081/h:1"]).is_none());
    }

    #[test]
    fn keep_client_address_alone_intercepts_nothing() {
        let table = table(&["socks://127.0.0.1:1080?keep_client_address=true"]);
        assert!(!table.contains("tproxy") && !table.contains("listeners") && !table.contains("counter"), "{table}");
        let [syn, socket, _, _] = &chain(&table, "catch")[..] else { panic!("{table}") };
        assert_eq!(syn, &format!("{SYN} accept"));
        assert!(socket.contains("socket transparent 1") && socket.contains("| 0xe1010000 notrack"));
        assert_eq!(chain(&table, "output"), ["meta mark & 0xffff0000 == 0xe1060000 notrack"]);
    }

    #[test]
    fn tproxy_rules_match_interface_client_and_target() {
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
            ["meta mark & 0xffff0000 == 0xe1100000 meta l4proto 6 queue flags bypass to 57360"]
        );
    }

    #[test]
    fn tproxy_family_follows_the_bind_address() {
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
    fn packets_without_a_verdict_reach_no_listener() {
        let rules = rules(&["tproxy://[::]:1?interfaces=lan0", "redirect://[::]:2?interfaces=lan0"]).unwrap();
        let tproxy = "meta l4proto 6 tproxy to :1 meta mark set meta mark & 0x0000ffff | 0xe1010000 notrack accept";
        let packets = |mark: &str| format!("meta mark & 0xffff0000 == {mark}");
        let unanswered = |mark: &str, number| {
            format!("{} counter name unanswered_{number} meta mark set meta mark & 0x0000ffff", packets(mark))
        };
        let table = text(&rules, &Queue::Nft, "x");
        let expected = [
            format!("{} {tproxy}", packets("0xe1200000")),
            unanswered("0xe1200000", 0),
            unanswered("0xe1100000", 0),
            unanswered("0xe1110000", 1),
        ];
        assert_eq!(chain(&table, "steer")[2..6], expected);
        assert_eq!(chain(&table, "translate"), [format!("{} meta l4proto 6 redirect to :2", packets("0xe1210000"))]);
        let table = text(&rules, &Queue::Missing("none".to_owned()), "x");
        let expected = [format!("{} {tproxy}", packets("0xe1100000")), unanswered("0xe1100000", 0)];
        assert_eq!(chain(&table, "steer")[2..4], expected);
        assert_eq!(table.matches("unanswered_1 ").count(), 1, "{table}");
        assert_eq!(chain(&table, "translate"), [format!("{} meta l4proto 6 redirect to :2", packets("0xe1110000"))]);
    }

    #[test]
    fn redirects_use_nat_and_local_programs_are_not_held() {
        let table = table(&[
            "tproxy://0.0.0.0:1?interfaces=lan0",
            "redirect://0.0.0.0:2?interfaces=lan1&interfaces=lo&deny=*:25",
            "redirect://127.0.0.1:3?interfaces=lo",
        ]);
        assert_eq!(chain(&table, "translate"), ["meta mark & 0xffff0000 == 0xe1210000 meta l4proto 6 redirect to :2"]);
        assert_eq!(chain(&table, "own_targets_1"), ["tcp dport 25 return", "goto own_take_1"]);
        assert_eq!(chain(&table, "own_take_2"), ["counter name caught_2", "meta l4proto 6 dnat ip to 127.0.0.1:3"]);
        assert_eq!(chain(&table, "hold").len(), 2, "{table}");
        assert!(!chain(&table, "listeners").iter().any(|line| line.contains("\"lo\"")), "{table}");
        assert!(table.contains("counter unanswered_1 ") && !table.contains("unanswered_2"), "{table}");
    }

    #[test]
    fn released_rules_serve_existing_connections_only() {
        let rules = rules(&["tproxy://[::]:1?interfaces=lan0"]).unwrap().released();
        let table = text(&rules, &Queue::Nft, "x");
        assert!(table.contains("socket transparent 1") && table.contains("chain output"), "{table}");
        assert!(!table.contains("tproxy") && !table.contains("queue") && !table.contains("nat hook"), "{table}");
    }

    #[test]
    fn released_rules_keep_translating_existing_connections() {
        let redirect = rules(&["redirect://[::]:1?interfaces=lan0&interfaces=lo"]).unwrap();
        let mut without = rules(&["tproxy://0.0.0.0:1?interfaces=lan0"]).unwrap();
        without.add_sessions_of(&redirect);
        assert_eq!(without.families, [Family::Ipv4, Family::Ipv6]);
        for rules in [redirect.released(), without] {
            let table = text(&rules, &Queue::Nft, "x");
            assert_eq!(chain(&table, "translated"), ["ct state new accept"]);
            assert_eq!(table.matches("nat hook").count(), 1, "{table}");
        }
    }

    #[test]
    fn script_contains_the_commands_and_the_instance() {
        let rules = rules(&["tproxy://[::]:1?interfaces=lan0"]).unwrap();
        let script = rules.script(&Queue::Iptables);
        let parts: Vec<_> = script.lines().filter_map(|line| line.strip_suffix(" <<'END'")).collect();
        let expected = [
            "ip -4 -batch -",
            "ip -6 -batch -",
            "iptables-restore --noflush",
            "ip6tables-restore --noflush",
            "nft -f -",
        ];
        assert_eq!(parts, expected);
        assert!(!rules.script(&Queue::Nft).contains("iptables"));
        let other = Ruleset { marks: Marks::new(2), ..rules };
        let script = other.script(&Queue::Iptables);
        for part in ["table inet ekiden-2 {", "EKIDEN-2", "0xe2010000", "lookup 57346", "pref 187", "--queue-num 57376"]
        {
            assert!(script.contains(part), "no {part} in {script}");
        }
        assert!(!script.contains("0xe1"), "{script}");
    }

    /// This holds for released rules, too: packets come out of the device until the device is removed.
    #[test]
    fn packets_from_a_tunnel_are_not_sent_back_into_a_tunnel() {
        let rules =
            rules(&["tun://a?net=10.1.0.0/16", "tun://b?net=fd00::/8", "tproxy://[::]:7001?interfaces=lan0"]).unwrap();
        for rules in [rules.released(), rules] {
            let table = text(&rules, &Queue::Nft, "x");
            let out_and_in = |name: &str| format!("iifname \"{name}\" oifname \"{name}\"");
            let expected = ["a", "b"].map(out_and_in).map(|again| {
                [
                    format!("{again} {SYN} counter name unserved reject with icmpx type host-unreachable"),
                    format!("{again} meta l4proto 6 counter name ended reject with tcp reset"),
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
            assert_eq!(output[2], "oifname { \"a\", \"b\" } meta l4proto 6 notrack");
        }
    }
}
