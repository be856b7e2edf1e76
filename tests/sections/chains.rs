//! Chains of relays and other proxies with each client protocol, and early mode, which turns a failure into a reset.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use ekiden_sys::outq::unacknowledged;

use super::harness::*;
use super::relays::*;
use super::streams::*;

/// Starts a home relay with this listener, and one relay behind it.
fn chain_with_listener(listener_keys: &str, encrypt: bool) -> Chain {
    Layout { listener_keys: listener_keys.to_owned(), encrypt, ..Layout::default() }.start()
}

#[test]
fn all_client_protocols_cross_a_section() {
    for encrypt in [false, true] {
        let target = echo_server();
        let socks = chain_with_listener("kind = \"socks\"\n", encrypt);
        assert_echo(&mut socks5(socks.home.address(), target).unwrap());

        let fixed = chain_with_listener(&format!("kind = \"tcp\"\ntarget = \"{target}\"\n"), encrypt);
        assert_echo(&mut fixed.home.connect());

        for kind in ["http", "auto"] {
            let chain = chain_with_listener(&format!("kind = \"{kind}\"\n"), encrypt);
            let mut client = chain.home.connect();
            write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
            assert_echo(&mut client);
            request_pages(&chain);
        }
    }
}

/// Sends two requests in absolute form over one client connection, which must reach the server over one connection.
fn request_pages(chain: &Chain) {
    let (listener, target) = server();
    let mut client = chain.home.connect();
    let mut accepted: Option<TcpStream> = None;
    for path in ["/first", "/second"] {
        write!(client, "GET http://{target}{path} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let server = accepted.get_or_insert_with(|| accept(&listener));
        assert!(read_head(server).starts_with(&format!("GET {path} HTTP/1.1\r\n")));
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
        assert_eq!(read_exactly(&mut client, 2), b"ok");
    }
}

#[test]
fn chains_of_one_to_four_relays_carry_both_directions() {
    for routing in [Routing::Path, Routing::Forward] {
        for encrypt in [false, true] {
            for relays in 1..=4 {
                let mut chain = Layout { relays, routing, encrypt, ..Layout::default() }.start();
                let (client, server) = chain.pair();
                transfer_both_ways(client, server, 100_000, 300_000);
                for relay in [&mut chain.home].into_iter().chain(&mut chain.relays) {
                    let closed = session_closed(relay);
                    let bytes = (&closed["bytes_up"], &closed["bytes_down"]);
                    assert_eq!(bytes, (&100_000.into(), &300_000.into()), "{relays} relays by {routing:?}: {closed}");
                    assert_eq!(closed["end"], "finished", "{relays} relays by {routing:?}: {closed}");
                }
            }
        }
    }
}

#[test]
fn server_first_protocols_work_through_chains() {
    for encrypt in [false, true] {
        for mode in ["strict", "early"] {
            let listener_keys = format!("kind = \"auto\"\nconnect = \"{mode}\"\n");
            let chain = Layout { relays: 3, encrypt, listener_keys, ..Layout::default() }.start();
            let (mut client, mut server) = chain.pair();
            server.write_all(b"220 hello\r\n").unwrap();
            assert_eq!(read_exactly(&mut client, 11), b"220 hello\r\n", "{mode}, encrypt = {encrypt}");
            exchange_messages(&mut client, &mut server);
        }
    }
}

/// HTTP requests on all threads use the section that the first request has opened. The thread that dialled the section
/// makes its records, also for clients of other threads, and every session reports the counters of that section.
#[test]
fn requests_of_all_threads_share_an_encrypted_section() {
    let (far, home) = (Site::new(), Site::new());
    let peers = far.admit(&[(&home.key.public, "home")]);
    let _far = far.relay("", &format!("peers = {peers:?}\nencrypt = true\n"));
    let profile = "[profile.far]\ncongestion = \"reno\"\n";
    let table = far.table("far", "encrypt = true\nprofile = \"far\"\n");
    let file = home.write_home(&format!("{profile}{table}{}", route_all_through("way", &["far".to_owned()])), AUTO);
    let text = std::fs::read_to_string(&file).unwrap().replacen("threads = 1", "threads = 4", 1);
    std::fs::write(&file, text).unwrap();
    let mut relay = start(&file);
    let (listener, address) = server();
    let mut kept = None;
    for number in 0..12 {
        let mut client = relay.connect();
        write!(client, "GET http://{address}/{number} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let server = kept.get_or_insert_with(|| accept(&listener));
        assert!(read_head(server).starts_with(&format!("GET /{number} ")));
        let up = &relay.sessions()[0]["up"];
        assert_eq!(up["congestion"], "reno", "request {number} observes another connection: {up}");
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").unwrap();
        server.write_all(&pattern(100_000)).unwrap();
        read_head(&mut client);
        assert!(read_exactly(&mut client, 100_000) == pattern(100_000));
        drop(client);
        assert_eq!(session_closed(&mut relay)["end"], "finished");
    }
}

/// Sections and other proxies in one chain: each hop is addressed in its own protocol.
#[test]
fn foreign_proxies_work_before_between_and_after_sections() {
    let proxy = Relay::listen(&["auto://127.0.0.1:0"]);
    let (socks, http) = (format!("socks5://{}", proxy.address()), format!("http://{}", proxy.address()));
    let (near, far) = (Site::new(), Site::new());
    let peers = |site: &Site, key: &Key| format!("peers = {:?}\n", site.admit(&[(&key.public, "home")]));
    let home = Site::new();
    let _far = far.relay("", &peers(&far, &home.key));
    let _near = near.relay("", &peers(&near, &home.key));
    for encrypt in [false, true] {
        let section = |site: &Site| format!("{}&encrypt={encrypt}", site.url());
        for hops in [
            vec![socks.clone(), section(&near)],
            vec![http.clone(), section(&near)],
            vec![section(&near), socks.clone()],
            vec![section(&near), http.clone()],
            vec![section(&near), socks.clone(), section(&far)],
            vec![socks.clone(), section(&near), http.clone(), section(&far), http.clone()],
        ] {
            let relay = home.home(&format!("forward = {hops:?}\n"), AUTO);
            let (mut client, mut server) = pair(&relay);
            server.write_all(b"hello").unwrap();
            assert_eq!(read_exactly(&mut client, 5), b"hello", "{hops:?}");
            transfer_both_ways(client, server, 70_000, 200_000);
        }
    }
}

#[test]
fn large_transfers_arrive_unchanged_and_are_spliced_if_plain() {
    const SIZE: usize = 20_000_000;
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(2, encrypt);
        let (client, server) = chain.pair();
        transfer_both_ways(client, server, SIZE, SIZE);
        for relay in [&mut chain.home].into_iter().chain(&mut chain.relays) {
            let closed = session_closed(relay);
            assert_eq!((&closed["bytes_up"], &closed["bytes_down"]), (&SIZE.into(), &SIZE.into()), "{closed}");
            let spliced = closed["bytes_spliced"].as_u64().unwrap();
            assert_eq!(spliced > SIZE as u64, !encrypt, "{spliced} bytes were spliced, encrypt = {encrypt}");
        }
    }
}

/// Sizes around the capacity of a record, and around the switch from copy to splice.
#[test]
fn transfers_of_boundary_sizes_arrive_unchanged() {
    for encrypt in [false, true] {
        let chain = Chain::start_with(1, encrypt);
        for size in [0, 1, 16_383, 16_384, 65_518, 65_519, 65_520, 65_535, 65_536, 131_038, 131_039, 300_001] {
            let (client, server) = chain.pair();
            transfer_both_ways(client, server, size, size);
        }
    }
}

#[test]
fn data_before_confirmation_arrives_once_and_in_order() {
    for encrypt in [false, true] {
        for size in [1, 1_000, 60_000, 200_000] {
            let (listener, address) = server();
            let listener_keys = format!("kind = \"tcp\"\ntarget = \"{address}\"\n");
            let chain = Layout { relays: 2, encrypt, listener_keys, ..Layout::default() }.start();
            // A stopped relay does not confirm the path.
            chain.relays[0].stop();
            let mut client = chain.home.connect();
            client.write_all(&pattern(size)[..1]).unwrap();
            let at_home = || (unacknowledged(client.as_fd()).unwrap() == 0).then_some(());
            eventually("the first byte at the home relay", at_home);
            chain.relays[0].signal("CONT");
            let writer = send(&client, pattern(size)[1..].to_vec());
            let mut server = accept(&listener);
            assert!(read_all(&mut server) == pattern(size), "{size} bytes, encrypt = {encrypt}");
            server.write_all(b"thanks").unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&mut client), b"thanks");
            join(writer);
        }
    }
}

/// All relays of the chain log the same client and the same trace ID.
#[test]
fn every_relay_logs_target_client_and_trace() {
    let mut chain = Chain::start(3);
    let (client, server) = chain.pair();
    let (own, target) = (client.local_addr().unwrap().to_string(), server.local_addr().unwrap().to_string());
    drop((client, server));
    let at_home = chain.home.closed();
    assert_eq!(at_home["trace"].as_str().map(str::len), Some(32), "{at_home}");
    assert_eq!(at_home["hops_seconds"].as_array().map(Vec::len), Some(3), "{at_home}");
    for relay in &mut chain.relays {
        let closed = session_closed(relay);
        assert_eq!((&closed["target"], &closed["client"]), (&target.as_str().into(), &own.as_str().into()), "{closed}");
        assert_eq!((&closed["trace"], &closed["peer"]), (&at_home["trace"], &"caller".into()), "{closed}");
    }
}

#[test]
fn listeners_and_hops_work_on_the_command_line() {
    let (relay, home) = (Site::new(), Site::new());
    let peers = relay.admit(&[(&home.key.public, "home")]);
    let listen = format!("section://{}?key={}&peers={}", relay.address, relay.key.file.display(), peers.display());
    let _relay = Relay::listen(&[&listen]);
    let key = home.key.file.to_str().unwrap();
    for hop in [relay.url(), relay.url() + "&encrypt=true&profile=longhaul"] {
        let by_flag = Relay::run(&["--key", key, "-L", "auto://127.0.0.1:0", "-F", &hop], 1);
        assert_echo(&mut socks5(by_flag.address(), echo_server()).unwrap());
        let mut command = ekiden();
        let by_environment =
            Relay::start(command.env("EKIDEN_KEY", key).args(["run", "-L", "auto://127.0.0.1:0", "-F", &hop]), 1);
        assert_echo(&mut socks5(by_environment.address(), echo_server()).unwrap());
        // Without a configured key the home relay uses a temporary key, which is not in the peers file.
        let without_key = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", &hop], 1);
        assert!(socks5(without_key.address(), echo_server()).is_err());
    }
}

fn early(relays: usize, encrypt: bool) -> Chain {
    let listener_keys = "kind = \"auto\"\nconnect = \"early\"\n".to_owned();
    Layout { relays, encrypt, listener_keys, ..Layout::default() }.start()
}

#[test]
fn early_mode_reports_success_and_turns_failure_into_reset() {
    for (relays, encrypt) in [(1, false), (3, false), (3, true)] {
        let mut chain = early(relays, encrypt);
        let target = unused_address();
        let mut client = socks5(chain.home.address(), target).expect("success at once");
        assert!(is_reset(&mut client));
        assert_eq!(chain.home.closed()["end"], "refused");

        let mut client = chain.home.connect();
        write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nhello").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert!(is_reset(&mut client));
        assert_eq!(chain.home.closed()["end"], "refused");
    }
}

#[test]
fn early_mode_applies_to_direct_paths() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0?connect=early"]);
    let mut client = socks5(relay.address(), unused_address()).expect("success at once");
    assert!(is_reset(&mut client));
    assert_eq!(relay.closed()["end"], "refused");
    assert_echo(&mut socks5(relay.address(), echo_server()).unwrap());
}

/// The only relay behind the home relay is stopped, so it has not answered when the client receives success.
#[test]
fn early_success_does_not_wait_for_the_next_relay() {
    let mut chain = early(1, false);
    chain.relays[0].stop();
    let (listener, address) = server();
    let mut client = socks5(chain.home.address(), address).expect("success at once");
    client.write_all(b"question").unwrap();
    chain.relays[0].signal("CONT");
    let mut server = accept(&listener);
    assert_eq!(read_exactly(&mut server, 8), b"question");
    server.write_all(b"answer").unwrap();
    assert_eq!(read_exactly(&mut client, 6), b"answer");
    drop((client, server));
    assert_eq!(chain.home.closed()["bytes_up"], 8);
}

#[test]
fn early_mode_data_arrives_once_and_in_order() {
    for encrypt in [false, true] {
        let chain = early(2, encrypt);
        for size in [1, 5_000, 500_000] {
            let (client, server) = chain.pair();
            transfer_both_ways(client, server, size, 10);
        }
    }
}

/// One relay with an early and a strict listener.
#[test]
fn connect_mode_applies_per_listener() {
    let settings = "[[listener]]\nbind = \"127.0.0.1:0\"\nconnect = \"early\"\n".to_owned();
    let chain = Layout { home: settings, ..Layout::default() }.start();
    let doors = [chain.home.address_of(0), chain.home.address_of(1)];
    let outcomes = doors.map(|door| socks5(door, unused_address()).map(|mut client| is_reset(&mut client)));
    assert_eq!(outcomes, [Ok(true), Err(5)]);
}
