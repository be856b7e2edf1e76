//! The table of nftables (nft(8)): catching, holding, steering, and counting what passes by.

mod phrases;

use std::collections::BTreeSet;
use std::fmt::Write;

use super::owner::table;
use super::{Family, Marks, OWN_PROGRAMS, Queue, Ruleset, by_tproxy, interfaces};
use crate::config::Listener;
use phrases::{is, mark, matching, others, place, sources, translation};

pub(super) use phrases::set;

/// A first packet.
const SYN: &str = "tcp flags & (fin|syn|rst|ack) == syn";

/// The answer to one.
const SYN_ACK: &str = "tcp flags & (fin|syn|rst|ack) == (syn|ack)";

/// Lets go of a mark.
const UNMARK: &str = "meta mark set meta mark & 0x0000ffff";

/// Drops the table that is there, if there is one.
pub(super) fn replace(marks: Marks) -> String {
    let table = table(marks);
    format!("table inet {table}\ndelete table inet {table}\n")
}

/// The whole table.
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
        for (number, listener) in self.rules.catches.iter().enumerate() {
            counter(&format!("caught_{number}"), Some(&listener.name));
        }
        for (number, listener) in self.rules.catching_others() {
            counter(&format!("unanswered_{number}"), Some(&listener.name));
        }
        if self.rules.holds() {
            ["passed", "refused", "unreachable", "asymmetric"].into_iter().for_each(|name| counter(name, None));
        }
        if !self.rules.devices.is_empty() {
            ["unserved", "ended", "returned"].into_iter().for_each(|name| counter(name, None));
        }
    }

    /// First packets get CAUGHT; all else that has a transparent socket of ours gets LOCAL.
    fn catch(&mut self) {
        let rules = self.rules;
        // Where two daemons would catch the same, the one of the lower instance does.
        let before = 26 - rules.marks.instance();
        self.chain("catch", &format!("filter hook prerouting priority raw - {before}"), |table| {
            // It comes back in as it goes out now: whoever translates its source would not see the answers.
            if let Some(devices) = rules.devices() {
                table.line(&format!("{SYN} fib daddr oifname {devices} notrack"));
            }
            // Never to a socket: one in TIME_WAIT would answer for a connection that has its port again.
            let listeners = if rules.holds() { "goto listeners" } else { "accept" };
            table.line(&format!("{SYN} {listeners}"));
            // One that listens everywhere would take every packet to its port, whatever the address. A socket whose
            // handshake is not over matches neither way of "wildcard".
            for suspect in rules.listening_everywhere() {
                table.line(&format!("{suspect} socket wildcard 1 accept"));
            }
            let local = format!("socket transparent 1 {} notrack accept", mark(rules.marks.local()));
            table.line(&format!("meta l4proto tcp {local}"));
            let errors = "meta l4proto { icmp, ipv6-icmp }";
            table.line(&format!("{errors} socket wildcard 1 accept"));
            table.line(&format!("{errors} {local}"));
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

    /// A chain that takes what goes to a listener's targets, and another one that says how.
    fn targets(&mut self, name: &str, take: &str, listener: &Listener, how: &[String]) {
        self.chain(take, "", |table| how.iter().for_each(|line| table.line(line)));
        self.chain(name, "", |table| {
            for target in &listener.access.deny {
                table.line(&format!("{}return", matching(target)));
            }
            for target in &listener.access.allow {
                table.line(&format!("{}goto {take}", matching(target)));
            }
            if listener.access.allow.is_empty() {
                table.line(&format!("goto {take}"));
            }
        });
    }

    /// The gate gives a verdict. Without one, nobody waits.
    fn hold(&mut self) {
        let rules = self.rules;
        self.chain("hold", "filter hook prerouting priority raw", |table| {
            for (number, _) in rules.catching_others() {
                let (caught, queue) = (is(rules.marks.caught(number)), rules.marks.queue(number));
                table.line(&format!("{caught} meta l4proto tcp queue flags bypass to {queue}"));
            }
        });
    }

    fn steer(&mut self, gated: bool) {
        let (rules, marks) = (self.rules, self.rules.marks);
        self.chain("steer", "filter hook prerouting priority raw + 10", |table| {
            // Most packets are one or the other.
            table.line(&format!("{} accept", is(marks.local())));
            table.line("meta mark & 0xf0000000 != 0xe0000000 accept");
            for (number, listener) in rules.catching_others().filter(|(_, listener)| by_tproxy(listener)) {
                let (caught, to) = (is(marks.caught(number)), place(listener));
                let local = mark(marks.local());
                table.line(&format!("{caught} meta l4proto tcp tproxy {to} {local} notrack accept"));
                // TPROXY has found no listener.
                table.line(&format!("{caught} counter name unanswered_{number} {UNMARK}"));
            }
            for (number, _) in rules.redirecting().filter(|_| gated) {
                // Nobody has judged it: there is no daemon.
                table.line(&format!("{} counter name unanswered_{number} {UNMARK}", is(marks.caught(number))));
            }
            table.line(&format!("{} counter name passed {UNMARK}", is(marks.pass())));
            table.line(&format!("{} meta l4proto tcp counter name refused reject with tcp reset", is(marks.refused())));
            table.line(&format!(
                "{} counter name unreachable reject with icmpx type host-unreachable",
                is(marks.unreachable())
            ));
        });
    }

    /// Redirected connections have to be tracked, or nobody would translate the answers.
    fn translate(&mut self, gated: bool) {
        let (rules, marks) = (self.rules, self.rules.marks);
        if rules.redirecting().next().is_none() {
            return;
        }
        self.chain("translate", "nat hook prerouting priority dstnat", |table| {
            for (number, listener) in rules.redirecting() {
                let wanted = if gated { marks.let_in(number) } else { marks.caught(number) };
                table.line(&format!("{} meta l4proto tcp {}", is(wanted), translation(listener)));
            }
        });
    }

    /// Counts answers that go back by our interfaces to connections whose first packet did not come this way.
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

    /// What comes out of a tunnel's device was sent into it by this host. If nobody takes it, it has been everywhere:
    /// first packets that we cannot serve, and connections that an earlier daemon had, which are told that they are over.
    fn turn_back(&mut self) {
        if self.rules.devices.is_empty() {
            return;
        }
        let devices = self.rules.devices.clone();
        self.chain("turn_back", "filter hook forward priority filter - 20", |table| {
            for name in devices {
                let again = format!("iifname \"{name}\" oifname \"{name}\"");
                table.line(&format!("{again} {SYN} counter name unserved reject with icmpx type host-unreachable"));
                table.line(&format!("{again} meta l4proto tcp counter name ended reject with tcp reset"));
                table.line(&format!("{again} counter name returned reject with icmpx type admin-prohibited"));
            }
        });
    }

    /// What we send with somebody else's address is no business of conntrack. What this host's own programs send into a
    /// tunnel is none either: it comes back in, and with the same ends.
    fn output(&mut self) {
        let (rules, marks) = (self.rules, self.rules.marks);
        self.chain("output", "filter hook output priority raw", |table| {
            if let Some(devices) = rules.devices() {
                for ours in [marks.own(), marks.kept()] {
                    let ours = is(ours);
                    let never = "reject with icmpx type host-unreachable # a section inside its own tunnel";
                    table.line(&format!("oifname {devices} {ours} {never}"));
                }
                table.line(&format!("oifname {devices} meta l4proto tcp notrack"));
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
            let how = [format!("counter name caught_{number}"), format!("meta l4proto tcp {}", translation(listener))];
            self.targets(&format!("own_targets_{number}"), &format!("own_take_{number}"), listener, &how);
        }
        self.chain("own_programs", "nat hook output priority -100", |table| {
            table.line("meta mark & 0xf0000000 == 0xe0000000 accept # sent by this or another ekiden");
            table.line("fib daddr type local accept # this host's own");
            for (number, listener) in rules.catching_own_programs() {
                for source in sources(listener) {
                    table.line(&format!("{SYN} {source}jump own_targets_{number}"));
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
