//! The end of the old process, its listening sockets, and the connections queued there.

use std::io::Read;
use std::net::TcpStream;

use super::harness::*;
use super::scene::*;

#[test]
fn a_signal_to_it_ends_it_alone() {
    let mut service = Service::start(&to(greeter(), ""));
    let mut running = greeted(service.relay.address());
    let before = service.upgrade();
    // The other process may have accepted the first of them, before it stopped.
    let mut later = eventually("a session of the new process", || {
        let stream = greeted(service.relay.address());
        (!service.relay.sessions().is_empty()).then_some(stream)
    });
    talks(&mut running);
    signal(before, "TERM");
    ended(before);
    assert!(running.read(&mut [0]).is_err(), "a session that was cut off must not look finished");
    talks(&mut later);
    assert!(service.relay.next(|event| event["event"] == "stopped")["aborted"].as_u64().unwrap() >= 1);
    greeted(service.relay.address());
}

#[test]
fn its_sessions_have_until_the_deadline() {
    for (timeouts, text) in [("drain = \"300ms\"", "0.3"), ("upgrade_drain = \"400ms\"", "0.4")] {
        let mut service = Service::start(&to(greeter(), &format!("[timeouts]\n{timeouts}")));
        let mut running = greeted(service.relay.address());
        let before = service.upgrade();
        let draining = service.relay.next(|event| event["event"] == "draining");
        assert_eq!(draining["deadline"].to_string(), text);
        ended(before);
        assert!(running.read(&mut [0]).is_err());
        greeted(service.relay.address());
    }
}

/// A browser keeps its connection: its next request is answered, and the next connection reaches the new process.
#[test]
fn an_idle_http_client_is_not_cut_off() {
    let target = serve(|mut stream| {
        while let Ok(head) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read_head(&mut stream))) {
            assert!(head.starts_with("GET /"), "{head}");
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if std::io::Write::write_all(&mut stream, answer).is_err() {
                return;
            }
        }
    });
    let config = "version = 1\n[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\nkind = \"http\"\n";
    let mut service = Service::start(config);
    let mut client = service.relay.connect();
    let mut ask = || {
        std::io::Write::write_all(
            &mut client,
            format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes(),
        )
        .unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(read_exactly(&mut client, 2), b"ok");
        head.to_lowercase()
    };
    assert!(!ask().contains("connection: close"));
    let before = service.upgrade();
    service.relay.next(|event| event["event"] == "draining");
    assert!(ask().contains("connection: close"));
    assert_eq!(read_all(&mut client), b"");
    ended(before);
}

/// One session fills the limit, so that all other clients wait in the kernel's queue.
const FULL: &str = "[limits]\nsessions = 1";

fn with_threads(target: std::net::SocketAddr, threads: usize) -> String {
    to(target, FULL).replace("threads = 2", &format!("threads = {threads}"))
}

/// The kernel has spread them over all sockets there are.
#[test]
fn who_waits_to_be_accepted_is_served_by_the_new_process_whatever_its_threads() {
    let target = greeter();
    let mut service = Service::start(&with_threads(target, 4));
    let address = service.relay.address();
    let mut before = None;
    for threads in [1, 3, 6] {
        let mut first = greeted(address);
        let mut waiting: Vec<TcpStream> = (0..40).map(|_| connect(address)).collect();
        service.configure(&with_threads(target, threads).replace(FULL, ""));
        before = Some(service.upgrade());
        for client in &mut waiting {
            assert_eq!(read_exactly(client, 5), b"hello");
        }
        talks(&mut first);
        // For the next round.
        service.configure(&with_threads(target, threads));
        signal(service.serves, "HUP");
        service.relay.next(|event| event["event"] == "reloaded");
        drop((first, waiting));
        eventually("their ends", || service.relay.sessions().is_empty().then_some(()));
    }
    ended(before.unwrap());
}

/// A listener that is gone from the configuration is closed, and a new one is bound.
#[test]
fn listeners_come_and_go_with_the_new_process() {
    let target = greeter();
    let other = |name: &str| {
        format!("[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n")
    };
    let mut service = Service::start(&(to(target, "") + &other("goes")));
    let goes = service.relay.address_of(1);
    service.configure(&(to(target, "") + &other("comes")));
    let before = service.upgrade();
    let listening = service.relay.next(|event| event["event"] == "listening" && event["listener"] == "comes");
    greeted(listening["address"].as_str().unwrap().parse().unwrap());
    let door = service.relay.next(|event| event["event"] == "listening" && event["listener"] == "door");
    assert_eq!(door["address"], service.relay.address().to_string());
    greeted(service.relay.address());
    ended(before);
    assert!(TcpStream::connect(goes).is_err());
}
