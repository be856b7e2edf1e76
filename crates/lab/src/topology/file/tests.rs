use std::time::Duration;

use ekiden_proto::units::Span;

use super::*;
use crate::topology::LossRecovery;
use ekiden_emulator::conditions::{Conditions, Loss, LossPosition, QueueKind, SizeAccounting};

fn lab(text: &str) -> Result<Lab, String> {
    parse_lab(text.parse().unwrap()).map_err(|errors| errors.to_string())
}

/// Returns the errors of a lab of two hosts and a link `wan` with these keys.
fn link_errors(link: &str) -> String {
    let hosts = "lab = 1\nname = \"x\"\n[host.a]\n[host.b]\n";
    lab(&format!("{hosts}[link.wan]\nends = [\"a\", \"b\"]\n{link}")).unwrap_err()
}

const FULL: &str = r#"
    lab = 1
    name = "full"
    seed = 42
    mode = "exact"
    [module.tcp_cubic]
    hystart = false
    [default.host]
    congestion = "cubic"
    sysctl = { net.ipv4.tcp_rmem = "4096 1 2" }
    [default.link]
    rate = "100Mbit/s"
    loss = { model = "bernoulli", p = 0.01, at = "ingress" }
    [host.client]
    [host.server]
    offload = "off"
    sysctl = { "net.ipv4.tcp_sack" = 0 }
    [host.router]
    forward = true
    [link.access]
    ends = ["client", "router"]
    rate = false
    loss = false
    [link.wan]
    ends = ["router", "server"]
    mtu = 9000
    count = "wire"
    delay = "100ms"
    queue = { kind = "red", limit = "64pkt", min = "5pkt", max = "15pkt", p = 0.1 }
    reverse = { loss = { p = 0 }, queue = { kind = "codel", limit = "1MiB" }, delay = false }
    [[event]]
    at = "9s"
    link = "wan"
    set = { loss = { p = 0.5 }, reverse = { down = true } }
    [[event]]
    at = "5s"
    link = "wan"
    set = { rate = "5Mbit/s" }
"#;

#[test]
fn defaults_are_inherited_and_overridden() {
    let lab = lab(FULL).unwrap();
    let server = &lab.hosts["server"];
    assert_eq!(server.congestion.as_deref(), Some("cubic"));
    assert_eq!(lab.modules["tcp_cubic"]["hystart"], "0");
    let sysctls: Vec<_> = server.sysctl.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(sysctls, [("net.ipv4.tcp_rmem", "4096 1 2"), ("net.ipv4.tcp_sack", "0")]);
    assert!(lab.links["access"].is_bare());
    let wan = &lab.links["wan"];
    assert_eq!((wan.mtu, wan.forward.rate, wan.reverse.count), (9000, "100Mbit/s".parse().ok(), SizeAccounting::Wire));
    assert_eq!(wan.forward.loss, Some(Loss::Bernoulli { p: 0.01, at: LossPosition::Ingress }));
    assert_eq!(wan.reverse.loss, Some(Loss::Bernoulli { p: 0.0, at: LossPosition::Ingress }));
    assert_eq!((wan.forward.delay.is_some(), wan.reverse.delay), (true, None));
}

#[test]
fn events_are_sorted_and_cumulative() {
    let lab = lab(FULL).unwrap();
    let [first, second] = &lab.events[..] else { panic!("{:?}", lab.events) };
    assert_eq!((first.at.to_string(), second.at.to_string()), ("5s".to_owned(), "9s".to_owned()));
    assert_eq!((first.forward.rate, first.reverse.rate), ("5Mbit/s".parse().ok(), "5Mbit/s".parse().ok()));
    assert_eq!(second.forward.rate, first.forward.rate);
    assert_eq!(second.forward.loss, Some(Loss::Bernoulli { p: 0.5, at: LossPosition::Ingress }));
    assert_eq!((second.forward.down, second.reverse.down), (false, true));
}

#[test]
fn written_lab_parses_to_an_equal_lab() {
    let once = lab(FULL).unwrap();
    let text = Lab { seed: u64::MAX, ..once.clone() }.to_toml();
    assert_eq!(lab(&text).unwrap(), Lab { seed: u64::MAX, ..once });
    for written in ["wq = 0.002", "count = \"l3\"", "forward = false", "backend = \"packet\"", "target = \"5ms\""] {
        assert!(text.contains(written), "{written} is not in\n{text}");
    }
}

#[test]
fn example_labs_parse() {
    for text in [
        include_str!("../../../labs/long.toml"),
        include_str!("../../../labs/lossy.toml"),
        include_str!("../../../labs/bufferbloat.toml"),
    ] {
        let lab = lab(text).unwrap();
        assert!(lab.links.values().any(|link| !link.is_bare()), "{}", lab.name);
    }
}

#[test]
fn all_mistakes_are_reported_together() {
    let text = r#"
        lab = 2
        seed = -1
        mode = "quick"
        colour = "red"
        [module]
        tcp_bbr = 1
        [module.tcp_cubic]
        "../hystart" = 1
        beta = [717]
        [host.a]
        forwards = true
        offload = "yes"
        [host.b_c]
        sysctl = { "kernel.panic" = 1 }
        [link.l]
        ends = ["a", "x"]
        [link.m]
        ends = ["a", "a"]
        mtu = 100
        [link.n]
        rate = "fast"
    "#;
    let expected = r#"
colour: is not a key; expected one of lab, name, seed, mode, backend, family, module, default, host, link, event
lab = 2: expected 1, the version of the format
name: is missing; expected the name of the lab
seed = -1: expected a whole number, not negative
mode = "quick": expected "exact", "fast", "coarse" or "auto"
module.tcp_bbr = 1: expected a table
module.tcp_cubic.../hystart = "1": expected a parameter like hystart = 0
module.tcp_cubic.beta = [717]: expected a parameter like hystart = 0
host.a.forwards: is not a key; expected one of forward, congestion, window, rto_min, recovery, sysctl, offload
host.a.offload = "yes": expected "gso" or "off"
host.b_c: expected a name of letters, digits and '-', not localhost
host.b_c.sysctl."kernel.panic" = "1": expected a setting of a network namespace like "net.ipv4.tcp_rmem"
link.l.ends = ["a", "x"]: there is no host "x"; hosts are a, b_c
link.m.ends = ["a", "a"]: expected two different hosts
link.m.mtu = 100: expected the bytes of the largest IP packet, 576 to 65535
link.n.ends: is missing; expected two hosts like ["client", "server"]
link.n.rate = "fast": expected a rate like "200Mbit/s" or "1Gbit/s""#;
    assert_eq!(lab(text).unwrap_err(), expected.trim_start());
}

#[test]
fn link_mistakes_are_explained() {
    let tail_drop = KEY_QUEUE;
    for (link, expected) in [
        ("rate = 10", r#"link.wan.rate = 10: expected a rate like "200Mbit/s" or "1Gbit/s""#.to_owned()),
        ("trace = [3, 1]", "link.wan.trace = [3, 1]: expected a delivery trace: a file like \"lte.trace\", or its times in ms in ascending order".to_owned()),
        ("trace = [1]\nrate = '1Mbit/s'", "link.wan.trace: expected a rate or a trace, not both; rate = false removes an inherited rate".to_owned()),
        ("delay = 10", r#"link.wan.delay = 10: expected a time like "50ms", in whole microseconds"#.to_owned()),
        ("reverse = 1", "link.wan.reverse = 1: expected a table of the differences from ends[1] to ends[0]".to_owned()),
        (
            r#"reverse = { delay = "5" }"#,
            r#"link.wan.reverse.delay = "5": expected a time like "50ms", in whole microseconds"#.to_owned(),
        ),
        (
            r#"loss = { model = "bernoulli", p = 1.5 }"#,
            "link.wan.loss.p = 1.5: expected a probability between 0 and 1".to_owned(),
        ),
        (
            r#"loss = { model = "pattern", every = 3, lost = [3] }"#,
            "link.wan.loss.lost = [3]: expected numbers from 0 to 2".to_owned(),
        ),
        ("reorder = { p = -0.1, by = \"1ms\" }", "link.wan.reorder.p = -0.1: expected a probability between 0 and 1".to_owned()),
        (
            r#"queue = { kind = "tail-drop", limit = 64 }"#,
            format!(
                "link.wan.queue = {{ kind = \"tail-drop\", limit = 64 }}: expected a text in quotes, not 64; {tail_drop}"
            ),
        ),
        (r#"queue = { kind = "tail-drop", limit = "0pkt" }"#, r#"link.wan.queue.limit = "0pkt": expected room for at least one packet"#.to_owned()),
        (
            r#"queue = { kind = "red", limit = "9pkt", min = "5pkt", max = "5pkt", p = 0.1 }"#,
            r#"link.wan.queue.min = "5pkt": expected less than max, 5pkt"#.to_owned(),
        ),
        (
            r#"queue = { kind = "red", limit = "9KiB", min = "1pkt", max = "5pkt", p = 0.1 }"#,
            r#"link.wan.queue = { kind = "red", limit = "9KiB", max = "5pkt", min = "1pkt", p = 0.1 }: expected limit, min and max all in packets or all in bytes"#.to_owned(),
        ),
    ] {
        assert_eq!(link_errors(link), expected, "{link}");
    }
}

const KEY_QUEUE: &str = r#"expected a table like { kind = "tail-drop", limit = "64pkt" }; kinds are tail-drop, red, static-priority, dynamic-priority, auto, codel, fq-codel"#;

#[test]
fn event_mistakes_are_explained() {
    for (event, expected) in [
        (r#"at = 5"#, r#"event.0.at = 5: expected a time since the start, like "5s""#),
        (r#"at = "5s""#, "event.0.link: is missing; expected the name of a link"),
        ("at = \"5s\"\nlink = \"lan\"", r#"event.0.link = "lan": there is no such link; links are wan"#),
        ("at = \"5s\"\nlink = \"wan\"", r#"event.0.set: expected the changes, like { rate = "5Mbit/s" }"#),
        (
            "at = \"5s\"\nlink = \"wan\"\nset = { rate = 5 }",
            r#"event.0.set.rate = 5: expected a rate like "200Mbit/s" or "1Gbit/s""#,
        ),
        (
            "at = \"5s\"\nlink = \"wan\"\nset = { count = \"l2\" }",
            "event.0.set.count: cannot change in an event; set the key in the link",
        ),
    ] {
        assert_eq!(link_errors(&format!("[[event]]\n{event}")), expected, "{event}");
    }
}

#[test]
fn unreachable_hosts_are_reported() {
    let chain = |router: &str| {
        format!(
            "lab = 1\nname = \"x\"\n[host.a]\n[host.b]\n[host.r1]\n{router}\n[host.alone]\n\
             [link.one]\nends = [\"a\", \"r1\"]\n[link.two]\nends = [\"r1\", \"b\"]"
        )
    };
    assert_eq!(
        lab(&chain("")).unwrap_err(),
        "host \"a\" cannot reach \"alone\": no links connect these hosts\n\
         host \"a\" cannot reach \"b\": \"r1\" needs forward = true\n\
         host \"alone\" cannot reach \"b\": no links connect these hosts\n\
         host \"alone\" cannot reach \"r1\": no links connect these hosts"
    );
    assert!(!lab(&chain("forward = true")).unwrap_err().contains("forward"));
}

#[test]
fn rto_min_and_recovery_are_set_per_host() {
    let text =
        |keys: &str| format!("lab = 1\nname = \"x\"\n[host.a]\n{keys}\n[host.b]\n[link.c]\nends = [\"a\", \"b\"]");
    let read = lab(&text("rto_min = \"1.5s\"\nrecovery = \"old\"")).unwrap();
    assert_eq!(
        (read.hosts["a"].rto_min, read.hosts["a"].recovery),
        (Some(Span(Duration::from_millis(1500))), LossRecovery::Old)
    );
    assert_eq!((read.hosts["b"].rto_min, read.hosts["b"].recovery), (None, LossRecovery::New));
    assert_eq!(lab(&read.to_toml()).unwrap(), read);
    for wrong in ["0s", "1.5ms", "121s"] {
        assert_eq!(
            lab(&text(&format!("rto_min = \"{wrong}\""))).unwrap_err(),
            "host.a.rto_min: expected 1ms to 2min, in whole milliseconds",
            "{wrong}"
        );
    }
    assert_eq!(
        lab(&text("recovery = \"slow\"")).unwrap_err(),
        "host.a.recovery = \"slow\": expected \"new\" or \"old\""
    );
}

/// The parser reports the path of the key; `load_lab` adds the line number.
#[test]
fn mistakes_of_a_file_have_line_numbers() {
    let folder = crate::temp_dir::TempDir::for_test();
    let path = folder.path().join("lab.toml");
    fs::write(&path, "lab = 1\nname = 5\n[host.a]\noffload = 3\n[host.b]\n").unwrap();
    let errors = load_lab(&path).unwrap_err().to_string();
    let expected = format!(
        "errors in {}:\nline 2: name = 5: expected the name of the lab\n\
         line 4: host.a.offload = 3: expected \"gso\" or \"off\"",
        path.display()
    );
    assert_eq!(errors, expected);
}

#[test]
fn auto_queue_mistakes_are_explained() {
    for (keys, expected) in [
        (r#"limit = "0pkt""#, r#"link.wan.queue.limit = "0pkt": expected room for at least one packet"#.to_owned()),
        (
            r#"limit = "9pkt", target = 5"#,
            format!(
                r#"link.wan.queue = {{ kind = "auto", limit = "9pkt", target = 5 }}: expected a text in quotes, not 5; {KEY_QUEUE}"#
            ),
        ),
        (
            r#"limit = "9pkt", min = "1pkt""#,
            format!(
                r#"link.wan.queue = {{ kind = "auto", limit = "9pkt", min = "1pkt" }}: min is not a key; expected one of limit, target, ecn; {KEY_QUEUE}"#
            ),
        ),
    ] {
        assert_eq!(link_errors(&format!(r#"queue = {{ kind = "auto", {keys} }}"#)), expected);
    }
}

/// Covers a value out of range for every key.
#[test]
fn priority_drop_mistakes_are_explained() {
    let errors = |kind: &str, keys: &str, key: &str, value: &str| {
        let right =
            format!("kind = \"{kind}\"\nlimit = \"60pkt\"\nmin = \"5pkt\"\nmax = \"15pkt\"\np = 0.1\nn = 2\n{keys}");
        let [mut queue, wrong] = [right, format!("{key} = {value}")].map(|text| text.parse::<Table>().unwrap());
        queue.extend(wrong);
        link_errors(&format!("queue = {}", Value::Table(queue)))
    };
    for (key, value, expected) in [
        ("n", "0.5", "expected a number from 1 to 10000"),
        ("n", "inf", "expected a number from 1 to 10000"),
        ("p", "1.1", "expected a probability between 0 and 1"),
        ("wq", "0.0", "expected a weight from 0.0000001 to 1"),
        ("min", "\"15pkt\"", "expected less than max, 15pkt"),
        ("limit", "\"0pkt\"", "expected room for at least one packet"),
    ] {
        let expected = format!("link.wan.queue.{key} = {value}: {expected}");
        assert_eq!(errors("static-priority", "heavy = [\"a\"]", key, value), expected);
        assert_eq!(errors("dynamic-priority", "rec_int = 10\nsta_int = 100\nhist_len = 50", key, value), expected);
    }
    for (key, value, expected) in [
        ("rec_int", "0", "expected at least 1"),
        ("sta_int", "0", "expected at least 1"),
        ("hist_len", "0", "expected from 1 to 1024"),
        ("hist_len", "1025", "expected from 1 to 1024"),
    ] {
        let got = errors("dynamic-priority", "rec_int = 10\nsta_int = 100\nhist_len = 50", key, value);
        assert_eq!(got, format!("link.wan.queue.{key} = {value}: {expected}"));
    }
    assert_eq!(
        errors("static-priority", "", "heavy", "[\"x\", \"a\"]"),
        r#"link.wan.queue.heavy = ["x", "a"]: there is no host "x"; hosts are a, b"#
    );
    assert_eq!(
        errors("static-priority", "", "heavy", "[]"),
        r#"link.wan.queue.heavy = []: expected at least one host, like ["client"]"#
    );
}

/// The queues of links and events have all addresses of a heavy host, also after the lab is written and parsed again.
#[test]
fn heavy_hosts_are_resolved_to_addresses() {
    let text = r#"
        lab = 1
        name = "x"
        [host.pc1]
        [host.pc2]
        [host.router]
        forward = true
        [link.one]
        ends = ["pc1", "router"]
        rate = "1Gbit/s"
        queue = { kind = "static-priority", limit = "60pkt", min = "5pkt", max = "15pkt", p = 0.1, n = 2, heavy = ["router", "pc2"] }
        [link.two]
        ends = ["router", "pc2"]
        [[event]]
        at = "1s"
        link = "two"
        set = { queue = { kind = "static-priority", limit = "60pkt", min = "5pkt", max = "15pkt", p = 0.1, n = 2, heavy = ["pc1"] } }
    "#;
    let lab = lab(text).unwrap();
    let sources = |conditions: &Conditions| match &conditions.queue {
        Some(QueueKind::StaticPriority(settings)) => settings.heavy.sources.clone(),
        other => panic!("{other:?}"),
    };
    let subnet = |link: u32| u32::from_be_bytes([10, 100, 0, 0]) + (link << 8);
    let one = &lab.links["one"];
    assert_eq!(sources(&one.forward), [subnet(0) + 2, subnet(1) + 1, subnet(1) + 2]);
    assert_eq!(sources(&one.forward), sources(&one.reverse));
    assert_eq!(sources(&lab.events[0].reverse), [subnet(0) + 1]);
    assert_eq!(parse_lab(lab.to_toml().parse().unwrap()).unwrap(), lab);
}

fn merge(base: &str, over: &str) -> Table {
    merge_tables(base.parse().unwrap(), &over.parse().unwrap())
}

#[test]
fn tables_merge_key_by_key() {
    let expected: Table = r#"a = 1
        loss = { model = "bernoulli", p = 0, at = "ingress" }"#
        .parse()
        .unwrap();
    assert_eq!(merge(r#"loss = { model = "bernoulli", p = 1, at = "ingress" }"#, "a = 1\nloss = { p = 0 }"), expected);
}

#[test]
fn table_of_another_kind_is_replaced() {
    let codel = r#"queue = { kind = "codel", limit = "9pkt" }"#;
    assert_eq!(merge(r#"queue = { kind = "red", min = "5pkt" }"#, codel), codel.parse().unwrap());
}
