//! The end of the old process, its listening sockets, and the connections in their accept queues.

use std::net::TcpStream;

use super::fixture::*;
use super::harness::*;

#[test]
fn sigterm_to_the_old_process_ends_only_that_process() {
    let mut service = Service::start(&config_for(greeter("hello"), ""));
    let mut running = connect_greeted(service.relay.address());
    let before = service.upgrade();
    // The old process may have accepted the first connections before it stopped accepting.
    let mut later = eventually("a session of the new process", || {
        let stream = connect_greeted(service.relay.address());
        (!service.relay.sessions().is_empty()).then_some(stream)
    });
    assert_echo(&mut running);
    signal(before, "TERM");
    wait_process_end(before);
    assert!(is_reset(&mut running), "a session that was cut off must not look finished");
    assert_echo(&mut later);
    assert!(service.relay.next(|event| event["event"] == "stopped")["aborted"].as_u64().unwrap() >= 1);
    connect_greeted(service.relay.address());
}

#[test]
fn sessions_of_the_old_process_end_at_the_drain_deadline() {
    for (timeouts, text) in [("drain = \"300ms\"", "0.3"), ("upgrade_drain = \"400ms\"", "0.4")] {
        let mut service = Service::start(&config_for(greeter("hello"), &format!("[timeouts]\n{timeouts}")));
        let mut running = connect_greeted(service.relay.address());
        let before = service.upgrade();
        let draining = service.relay.next(|event| event["event"] == "draining");
        assert_eq!(draining["deadline"].to_string(), text);
        wait_process_end(before);
        assert!(is_reset(&mut running));
        connect_greeted(service.relay.address());
    }
}

/// On a persistent connection, the old process answers one more request and then closes the connection. The client's
/// next connection reaches the new process.
#[test]
fn idle_http_client_is_served_once_more_and_closed() {
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
    let ask = |client: &mut TcpStream| {
        std::io::Write::write_all(
            client,
            format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes(),
        )
        .unwrap();
        let head = read_head(client);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(read_exactly(client, 2), b"ok");
        head.to_lowercase()
    };
    assert!(!ask(&mut client).contains("connection: close"));
    let before = service.upgrade();
    service.relay.next(|event| event["event"] == "draining");
    assert!(ask(&mut client).contains("connection: close"));
    assert_eq!(read_all(&mut client), b"");
    wait_process_end(before);
    assert!(!ask(&mut service.relay.connect()).contains("connection: close"));
}

/// One session reaches the limit, so that the connections of all other clients stay in the kernel's accept queues.
const FULL: &str = "[limits]\nsessions = 1";

fn with_threads(target: std::net::SocketAddr, threads: usize) -> String {
    config_for(target, FULL).replace("threads = 2", &format!("threads = {threads}"))
}

/// The queued connections are in the accept queues of all listening sockets of the old process, and the new process has
/// another number of threads.
#[test]
fn queued_connections_are_served_with_any_thread_count() {
    let target = greeter("hello");
    let mut service = Service::start(&with_threads(target, 4));
    let address = service.relay.address();
    let mut before = None;
    for threads in [1, 3, 6] {
        let mut first = connect_greeted(address);
        let mut waiting: Vec<TcpStream> = (0..40).map(|_| connect(address)).collect();
        service.configure(&with_threads(target, threads).replace(FULL, ""));
        before = Some(service.upgrade());
        for client in &mut waiting {
            assert_eq!(read_exactly(client, 5), b"hello");
        }
        assert_echo(&mut first);
        // The next round starts with the limit.
        service.configure(&with_threads(target, threads));
        signal(service.serving, "HUP");
        service.relay.next(|event| event["event"] == "reloaded");
        drop((first, waiting));
        eventually("the end of both sessions", || service.relay.sessions().is_empty().then_some(()));
    }
    wait_process_end(before.unwrap());
}

/// A listener that was removed from the configuration is closed, and a new listener is bound.
#[test]
fn new_process_closes_and_binds_configured_listeners() {
    let target = greeter("hello");
    let other = |name: &str| {
        format!("[[listener]]\nname = \"{name}\"\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n")
    };
    let mut service = Service::start(&(config_for(target, "") + &other("goes")));
    let removed = service.relay.address_of(1);
    service.configure(&(config_for(target, "") + &other("comes")));
    let before = service.upgrade();
    let listening = service.relay.next(|event| event["event"] == "listening" && event["listener"] == "comes");
    connect_greeted(listening["address"].as_str().unwrap().parse().unwrap());
    let door = service.relay.next(|event| event["event"] == "listening" && event["listener"] == "door");
    assert_eq!(door["address"], service.relay.address().to_string());
    connect_greeted(service.relay.address());
    wait_process_end(before);
    assert!(TcpStream::connect(removed).is_err());
}
