//! Paths that lead back: refused at once, by the trace or by the count of hops, and nobody hangs.

use std::time::{Duration, Instant};

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A loop that nobody notices ends at the deadline of the first relay, 15 s; this is well before.
const AT_ONCE: Duration = Duration::from_secs(5);

fn peers(site: &Site, callers: &[&Site]) -> String {
    let names = ["first-caller", "second-caller"];
    let lines: Vec<(&str, &str)> = callers.iter().map(|caller| caller.key.public.as_str()).zip(names).collect();
    format!("peers = {:?}\n", site.admit(&lines))
}

#[test]
fn two_relays_that_forward_to_each_other_notice() {
    for encrypt in [false, true] {
        let [home, one, two] = [Site::new(), Site::new(), Site::new()];
        let forward = |site: &Site| format!("forward = [\"{}&encrypt={encrypt}\"]\n", site.url());
        let mut first = one.relay(&forward(&two), &peers(&one, &[&home, &two]));
        let _second = two.relay(&forward(&one), &peers(&two, &[&one]));
        let mut relay = home.home(&forward(&one), AUTO);
        let asked = Instant::now();
        assert_eq!(socks5(relay.address(), parrot()).map(|_| ()), Err(1));
        assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
        assert_eq!(session_closed(&mut relay)["end"], "loop");
        // Its first session was on the way when the second one came.
        let ends = [session_closed(&mut first), session_closed(&mut first)]
            .map(|closed| closed["end"].as_str().unwrap().to_owned());
        assert!(ends.iter().all(|end| end == "loop"), "{ends:?}");
        // It knew the session when it came back, and did not wait until its hops were used up.
        first.signal("TERM");
        let more = first.rest().iter().filter(|event| event["target"].is_string()).count();
        assert_eq!(more, 0, "it went round and round");
    }
}

/// A ring of three, and clients at one of the relays in it: it has a listener of each kind.
#[test]
fn a_ring_is_noticed_by_the_relay_it_comes_back_to() {
    let ring = [Site::new(), Site::new(), Site::new()];
    let settings = |at: usize| format!("forward = [\"{}\"]\n", ring[(at + 1) % 3].url());
    let door = "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n";
    let entrance = |at: usize| peers(&ring[at], &[&ring[(at + 2) % 3]]);
    let mut first = ring[0].relay(&(settings(0) + door), &entrance(0));
    let _others = [1, 2].map(|at| ring[at].relay(&settings(at), &entrance(at)));
    let asked = Instant::now();
    assert_eq!(socks5(first.address(), parrot()).map(|_| ()), Err(1));
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_eq!(first.next(|event| event["event"] == "closed" && event["listener"] == "door")["end"], "loop");
}

/// The HTTP client of a loop is told so, too.
#[test]
fn a_loop_has_a_word_in_proxy_status() {
    use std::io::Write;
    let [home, one] = [Site::new(), Site::new()];
    let forward = format!("forward = [\"{}\"]\n", one.url());
    let two = Site::new();
    let _one = one.relay(&format!("forward = [\"{}\"]\n", two.url()), &peers(&one, &[&home, &two]));
    let _two = two.relay(&forward, &peers(&two, &[&one]));
    let home = home.home(&forward, AUTO);
    let mut client = home.connect();
    write!(client, "CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("error=proxy_loop_detected"), "{head}");
}

/// A relay is known by its key, so it cannot be on a path twice, neither by its name nor by another one.
#[test]
fn a_path_that_leads_back_is_a_mistake() {
    let [home, one, two] = [Site::new(), Site::new(), Site::new()];
    let tables = one.table("one", "") + &two.table("two", "");
    let again = one.table("again", "");
    for (tables, names, key) in [
        (tables.clone(), ["one", "two", "one"], "path[1].relays"),
        (tables + &again, ["one", "two", "again"], "relay[3].key"),
    ] {
        let file = home.write_home(&(tables + &everything_by("way", &names.map(str::to_owned))), AUTO);
        let checked = ekiden().arg("check").arg(&file).output().unwrap();
        let said = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(checked.status.code(), Some(2), "{names:?}: {said}");
        assert!(said.contains(key), "no word of {key} in:\n{said}");
    }
}

/// What is no loop is none: the same relays, one after the other, for many sessions at once.
#[test]
fn many_sessions_by_one_way_are_no_loop() {
    let chain = Chain::of(2);
    let mut pairs: Vec<_> = (0..20).map(|_| chain.pair()).collect();
    for (client, server) in &mut pairs {
        talk(client, server);
    }
}

#[test]
fn a_relay_that_is_its_own_next_hop_is_refused_at_the_start() {
    let site = Site::new();
    let file = site.write(&format!("forward = [\"{}\"]\n", site.url()), "");
    let output = ekiden().args(["run", "--admin", "off", "-c"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
