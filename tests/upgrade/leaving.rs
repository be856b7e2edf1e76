//! The end of the process before.

use std::io::Read;

use crate::harness::*;
use crate::scene::*;

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

/// A browser keeps its connection: what it asks next is answered, and then it comes to the new process.
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
