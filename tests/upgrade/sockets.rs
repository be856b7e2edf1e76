//! What waits in the queues of listening sockets, and how many of these there are.

use std::net::TcpStream;

use crate::harness::*;
use crate::scene::*;

/// One session is all it takes, so that everybody else waits in the kernel.
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
