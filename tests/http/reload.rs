//! Reload and drain of keep-alive connections: requests use the new configuration, connections of the old one close,
//! and SIGTERM closes idle sessions at once and busy ones after their response.

use std::net::{SocketAddr, TcpListener, TcpStream};

use super::harness::*;
use super::talk::*;

/// A relay whose configuration file changes, and a server (or an HTTP hop) of the test.
struct Changing {
    relay: Relay,
    listener: TcpListener,
    address: SocketAddr,
    folder: Folder,
}

impl Changing {
    /// `settings` returns top-level keys and tables for the address of the server.
    fn with(settings: impl Fn(SocketAddr) -> String) -> Self {
        let (folder, (listener, address)) = (Folder::new(), server());
        let file = folder.write("ekiden.toml", Self::text(&settings(address)));
        Self { relay: Relay::run(&["-c", file.to_str().unwrap()], 1), listener, address, folder }
    }

    fn text(settings: &str) -> String {
        format!("version = 1\nthreads = 4\n{settings}\n[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n")
    }

    fn reload(&mut self, settings: impl Fn(SocketAddr) -> String) {
        self.reload_text(Self::text(&settings(self.address)));
    }

    /// Reloads with this complete text.
    fn reload_text(&mut self, text: String) {
        self.folder.write("ekiden.toml", text);
        self.relay.signal("HUP");
        self.relay.next(|event| event["event"] == "reloaded");
        // The response shows that all workers have the new configuration.
        self.relay.sessions();
    }

    /// Sends a request for which the relay must dial. Returns the head of the request and the dialled connection.
    fn asks_anew(&mut self, client: &mut TcpStream) -> (Head, TcpStream) {
        say(client, get(self.address, "/"));
        let mut server = accept(&self.listener);
        let head = Head::read(&mut server);
        say(&mut server, OK);
        answered_ok(client);
        // The event shows that other threads can take the connection.
        self.relay.next(|event| event["event"] == "request");
        (head, server)
    }
}

/// Checks that a reload which changes a property of a kept connection replaces it: new clients, and those that stay, get a new
/// connection, and the old one is closed.
fn check_replaced(
    what: &str,
    settings: impl Fn(SocketAddr, bool) -> String,
    differs: impl Fn(&Head, &TcpStream) -> String,
) {
    let mut scene = Changing::with(|address| settings(address, false));
    let mut stays = scene.relay.connect();
    let (head, mut before) = scene.asks_anew(&mut stays);
    let then = differs(&head, &before);
    scene.reload(|address| settings(address, true));
    assert_closed(&mut before);
    let (head, mut now) = scene.asks_anew(&mut stays);
    assert_ne!(differs(&head, &now), then, "{what}: the client that stays goes by the old configuration");
    // The connection of the new configuration is kept for other clients.
    let mut other = scene.relay.connect();
    say(&mut other, get(scene.address, "/other"));
    assert_eq!(Head::read(&mut now).line().split(' ').nth(1).unwrap().rsplit('/').next(), Some("other"), "{what}");
    say(&mut now, OK);
    answered_ok(&mut other);
}

#[test]
fn other_credentials_for_a_hop_need_another_connection() {
    check_replaced(
        "credentials",
        |hop, changed| format!("forward = [\"http://me:{}@{hop}\"]\n", if changed { "new" } else { "old" }),
        |head, _| head.get("Proxy-Authorization").unwrap().to_owned(),
    );
}

#[test]
fn another_profile_of_a_hop_needs_another_connection() {
    check_replaced(
        "profile of a hop",
        |hop, changed| {
            let from = if changed { "127.0.0.3" } else { "127.0.0.2" };
            format!("forward = [\"http://{hop}?profile=bound\"]\n[profile.bound]\nbind = \"{from}\"\n")
        },
        |_, server| server.peer_addr().unwrap().ip().to_string(),
    );
}

#[test]
fn another_profile_of_targets_needs_another_connection() {
    check_replaced(
        "profile of targets",
        |_, changed| {
            let from = if changed { "127.0.0.3" } else { "127.0.0.2" };
            format!("target_profile = \"bound\"\n[profile.bound]\nbind = \"{from}\"\n")
        },
        |_, server| server.peer_addr().unwrap().ip().to_string(),
    );
}

/// No session can ask for a connection by a hop that the configuration has no more, so it is closed at the reload.
#[test]
fn a_hop_that_is_gone_takes_its_connections_along() {
    let mut scene = Changing::with(|hop| format!("forward = [\"http://{hop}\"]\n"));
    let mut client = scene.relay.connect();
    let (_, mut kept) = scene.asks_anew(&mut client);
    scene.reload(|_| String::new());
    assert_closed(&mut kept);
}

/// A session that began under the old configuration does not bring a connection back that this reload has ruled out.
#[test]
fn a_request_across_a_reload_leaves_no_connection_of_a_hop_that_is_gone() {
    let mut scene = Changing::with(|hop| format!("forward = [\"http://{hop}\"]\n"));
    let mut client = scene.relay.connect();
    say(&mut client, get(scene.address, "/"));
    let mut server = accept(&scene.listener);
    Head::read(&mut server);
    scene.reload(|_| String::new());
    say(&mut server, OK);
    answered_ok(&mut client);
    assert_closed(&mut server);
}

/// A reload that does not change the profile keeps the connection.
#[test]
fn a_reload_that_changes_nothing_closes_nothing() {
    let mut scene = Changing::with(|_| "[profile.other]\nbind = \"127.0.0.2\"\n".to_owned());
    let mut client = scene.relay.connect();
    let (_, mut server) = scene.asks_anew(&mut client);
    scene.reload(|_| "[profile.other]\nbind = \"127.0.0.3\"\n".to_owned());
    say(&mut client, get(scene.address, "/again"));
    assert_eq!(Head::read(&mut server).line(), "GET /again HTTP/1.1");
    say(&mut server, OK);
    answered_ok(&mut client);
}

/// A target that a reload denies is denied to connected clients as well.
#[test]
fn a_client_that_stays_is_judged_by_the_new_rules() {
    let mut scene = Changing::with(|_| String::new());
    let mut client = scene.relay.connect();
    let (_, _server) = scene.asks_anew(&mut client);
    scene.reload_text(Changing::text("") + "deny = [\"127.0.0.0/8\"]\n");
    say(&mut client, get(scene.address, "/forbidden"));
    refused(&mut client, 403, "a target that is forbidden now");
}

/// The reload removes the listener of the client.
#[test]
fn a_client_of_a_listener_that_is_gone_is_turned_away() {
    let mut scene = Changing::with(|_| String::new());
    let mut client = scene.relay.connect();
    let (_, _server) = scene.asks_anew(&mut client);
    scene.reload_text(Changing::text("").replace("door", "gate"));
    say(&mut client, get(scene.address, "/again"));
    refused(&mut client, 503, "its listener is gone");
    drop(client);
    assert_eq!(scene.relay.closed()["end"], "finished");
}

/// The drain deadline is 30 seconds, longer than any test waits.
#[test]
fn an_idle_session_ends_at_once() {
    let mut scene = Scene::new();
    let (mut client, mut server) = scene.acquainted();
    scene.relay.signal("TERM");
    assert_closed(&mut client);
    assert_closed(&mut server);
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "finished");
    assert_eq!(scene.relay.next(|event| event["event"] == "stopped")["aborted"], 0);
}

#[test]
fn a_session_in_the_middle_of_an_answer_finishes_it() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin");
    Head::read(&mut client);
    scene.relay.signal("TERM");
    let draining = scene.relay.next(|event| event["event"] == "draining");
    assert_eq!(draining["open"], 1);
    let body = pattern(999_995);
    say(&mut server, &body);
    assert_eq!(read_exactly(&mut client, 5), b"begin");
    assert!(read_exactly(&mut client, body.len()) == body);
    assert_closed(&mut client);
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "finished");
    assert_eq!(scene.request()["status"], 200);
}

/// The relay has sent the request to the server, and waits for the response.
#[test]
fn a_session_that_waits_for_its_answer_gets_it() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    scene.relay.signal("TERM");
    scene.relay.next(|event| event["event"] == "draining");
    say(&mut server, OK);
    answered_ok(&mut client);
    assert_closed(&mut client);
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "finished");
}

/// At the deadline unfinished responses are cut off, in a way that does not look like their end.
#[test]
fn the_deadline_cuts_off() {
    let mut scene = Scene::with("[timeouts]\ndrain = \"300ms\"\n");
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\r\n\r\nbegin");
    Head::read(&mut client);
    assert_eq!(read_exactly(&mut client, 5), b"begin");
    scene.relay.signal("TERM");
    assert_eq!(hear_out(&mut client), (Vec::new(), Ending::Reset));
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "drained");
    assert_eq!(scene.relay.next(|event| event["event"] == "stopped")["aborted"], 1);
}
