//! Queues that tell senders apart: what is wrong with them, and whom they know.

use super::*;
use crate::conditions::{Conditions, QueueKind};

#[test]
fn mistakes_of_the_queue_that_shares() {
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

/// Each key of priority drop with a value that makes no sense.
#[test]
fn mistakes_of_priority_drop() {
    let mistakes = |kind: &str, keys: &str, key: &str, value: &str| {
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
        assert_eq!(mistakes("static-priority", "heavy = [\"a\"]", key, value), expected);
        assert_eq!(mistakes("dynamic-priority", "rec_int = 10\nsta_int = 100\nhist_len = 50", key, value), expected);
    }
    for (key, value, expected) in [
        ("rec_int", "0", "expected at least 1"),
        ("sta_int", "0", "expected at least 1"),
        ("hist_len", "0", "expected from 1 to 1024"),
        ("hist_len", "1025", "expected from 1 to 1024"),
    ] {
        let got = mistakes("dynamic-priority", "rec_int = 10\nsta_int = 100\nhist_len = 50", key, value);
        assert_eq!(got, format!("link.wan.queue.{key} = {value}: {expected}"));
    }
    assert_eq!(
        mistakes("static-priority", "", "heavy", "[\"x\", \"a\"]"),
        r#"link.wan.queue.heavy = ["x", "a"]: there is no host "x"; hosts are a, b"#
    );
    assert_eq!(
        mistakes("static-priority", "", "heavy", "[]"),
        r#"link.wan.queue.heavy = []: expected at least one host, like ["client"]"#
    );
}

/// The addresses of a host on all of its links, in a link and in an event, also after it was written and read again.
#[test]
fn heavy_hosts_have_addresses() {
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
    assert_eq!(super::parse_lab(lab.to_toml().parse().unwrap()).unwrap(), lab);
}
