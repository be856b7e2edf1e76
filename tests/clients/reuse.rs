//! Connections that serve more than one request, on either side.

use serde_json::Value;

use super::curl::{assert_next_closed, curl, proxy_option};
use super::programs::is_any_missing;
use super::servers::Nginx;
use crate::harness::{Folder, Relay, pattern};

fn request(relay: &mut Relay) -> Value {
    relay.next(|event| event["event"] == "request")
}

/// Starts a relay with one thread: idle connections to servers belong to a thread, and other threads cannot reuse them.
fn relay_with_one_thread(folder: &Folder) -> Relay {
    let text = "version = 1\nthreads = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n";
    let path = folder.write("ekiden.toml", text);
    Relay::run(&["-c", path.to_str().expect("a path in ASCII")], 1)
}

#[test]
fn one_client_connection_reaches_two_servers() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let (one, other) = (pattern(70_000), pattern(2_000_000));
    let servers = [Nginx::start().with_file("file", &one), Nginx::start().with_file("file", &other)];
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let urls = [servers[0].url("file"), servers[1].named_url("file")];
    let fetched = curl(&[&proxy_option("http", relay.address()), &urls[0], &urls[1], &urls[0]]);
    fetched.assert_success(200, &[one.as_slice(), &other, &one].concat());
    let requests = [request(&mut relay), request(&mut relay), request(&mut relay)];
    let asked: Vec<_> = requests.iter().map(|request| request["url"].as_str().expect("a URL")).collect();
    assert_eq!(asked, [&urls[0], &urls[1], &urls[0]]);
    assert!(requests.iter().all(|request| request["session"] == requests[0]["session"]), "{requests:?}");
    let reused: Vec<_> = requests.iter().map(|request| request["reused"] == true).collect();
    assert_eq!(reused, [false, false, true], "the third request reuses the connection of the first");
    let event = assert_next_closed(&mut relay, "finished", &servers[0].address.to_string(), "direct");
    let counted: u64 = fetched.transfers.iter().map(|transfer| transfer.bytes_down).sum();
    assert_eq!(event["bytes_down"], counted);
}

#[test]
fn second_client_reuses_the_server_connection_of_the_first() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(300_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let folder = Folder::new();
    let mut relay = relay_with_one_thread(&folder);
    let proxy = proxy_option("http", relay.address());
    for reused in [false, true, true] {
        curl(&[&proxy, &nginx.url("file")]).assert_success(200, &bytes);
        assert_eq!(request(&mut relay)["reused"], reused);
        assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    }
    let numbers: Vec<_> = nginx.wait_requests(3).iter().map(|line| line.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(numbers, ["1", "2", "3"].map(|number| Some(number.to_owned())), "all on one connection");
    // A tunnel uses a new connection, so its first request has the number 1.
    curl(&[&proxy, "-p", &nginx.url("file")]).assert_success(200, &bytes);
    assert!(nginx.wait_requests(4)[3].starts_with("1 "));
}

#[test]
fn restarted_server_gets_a_new_connection() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(3000);
    let mut nginx = Nginx::start().with_file("file", &bytes);
    let folder = Folder::new();
    let mut relay = relay_with_one_thread(&folder);
    let proxy = proxy_option("http", relay.address());
    for _ in 0..3 {
        curl(&[&proxy, &nginx.url("file")]).assert_success(200, &bytes);
        assert_eq!(request(&mut relay)["reused"], false);
        assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
        nginx.restart();
    }
}
