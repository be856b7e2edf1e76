//! Reload and drain of keep-alive connections: requests use the new configuration, the relay closes connections of the
//! old configuration, and SIGTERM ends idle sessions at once and busy sessions after their response.

use std::net::{SocketAddr, TcpListener, TcpStream};

use super::exchange::*;
use super::harness::*;

/// A relay whose configuration file can be changed, and a server (or an HTTP hop) of the test.
struct ReloadFixture {
    relay: Relay,
    listener: TcpListener,
    address: SocketAddr,
    folder: Folder,
}

impl ReloadFixture {
    /// Starts the relay. `settings` returns top-level keys and then tables, given the address of the server.
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

    /// Reloads this complete configuration.
    fn reload_text(&mut self, text: String) {
        self.folder.write("ekiden.toml", text);
        self.relay.signal("HUP");
        self.relay.next(|event| event["event"] == "reloaded");
        // The response shows that all workers have the new configuration.
        self.relay.sessions();
    }

    /// Sends a request for which the relay must dial. Returns the head of the request and the server's new connection.
    fn request_on_new_connection(&mut self, client: &mut TcpStream) -> (Head, TcpStream) {
        send(client, get(self.address, "/"));
        let mut server = accept(&self.listener);
        let head = Head::read(&mut server);
        send(&mut server, OK);
        expect_ok(client);
        // After this event, other threads can use the connection.
        self.relay.next(|event| event["event"] == "request");
        (head, server)
    }
}

/// Asserts that a reload replaces a kept connection if it changes a `property` of the connection: new and connected
/// clients get a new connection, and the old connection is closed.
fn check_replaced(
    case: &str,
    settings: impl Fn(SocketAddr, bool) -> String,
    property: impl Fn(&Head, &TcpStream) -> String,
) {
    let mut fixture = ReloadFixture::with(|address| settings(address, false));
    let mut connected = fixture.relay.connect();
    let (head, mut before) = fixture.request_on_new_connection(&mut connected);
    let old_property = property(&head, &before);
    fixture.reload(|address| settings(address, true));
    assert_closed(&mut before);
    let (head, mut now) = fixture.request_on_new_connection(&mut connected);
    assert_ne!(property(&head, &now), old_property, "{case}: the connected client uses the old configuration");
    // The connection of the new configuration is kept for other clients.
    let mut other = fixture.relay.connect();
    send(&mut other, get(fixture.address, "/other"));
    assert_eq!(Head::read(&mut now).line().split(' ').nth(1).unwrap().rsplit('/').next(), Some("other"), "{case}");
    send(&mut now, OK);
    expect_ok(&mut other);
}

#[test]
fn changed_hop_credentials_replace_kept_connections() {
    check_replaced(
        "credentials",
        |hop, changed| format!("forward = [\"http://me:{}@{hop}\"]\n", if changed { "new" } else { "old" }),
        |head, _| head.get("Proxy-Authorization").unwrap().to_owned(),
    );
}

#[test]
fn changed_hop_profile_replaces_kept_connections() {
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
fn changed_target_profile_replaces_kept_connections() {
    check_replaced(
        "profile of targets",
        |_, changed| {
            let from = if changed { "127.0.0.3" } else { "127.0.0.2" };
            format!("target_profile = \"bound\"\n[profile.bound]\nbind = \"{from}\"\n")
        },
        |_, server| server.peer_addr().unwrap().ip().to_string(),
    );
}

/// No session can use a connection of a removed hop, so the reload closes the connection.
#[test]
fn connections_of_a_removed_hop_are_closed() {
    let mut fixture = ReloadFixture::with(|hop| format!("forward = [\"http://{hop}\"]\n"));
    let mut client = fixture.relay.connect();
    let (_, mut kept) = fixture.request_on_new_connection(&mut client);
    fixture.reload(|_| String::new());
    assert_closed(&mut kept);
}

/// A session that began under the old configuration does not return a connection of the removed hop to the pool.
#[test]
fn request_during_a_reload_keeps_no_connection_of_a_removed_hop() {
    let mut fixture = ReloadFixture::with(|hop| format!("forward = [\"http://{hop}\"]\n"));
    let mut client = fixture.relay.connect();
    send(&mut client, get(fixture.address, "/"));
    let mut server = accept(&fixture.listener);
    Head::read(&mut server);
    fixture.reload(|_| String::new());
    send(&mut server, OK);
    expect_ok(&mut client);
    assert_closed(&mut server);
}

/// A reload that does not change the profile of a connection keeps the connection.
#[test]
fn unrelated_reload_keeps_connections() {
    let mut fixture = ReloadFixture::with(|_| "[profile.other]\nbind = \"127.0.0.2\"\n".to_owned());
    let mut client = fixture.relay.connect();
    let (_, mut server) = fixture.request_on_new_connection(&mut client);
    fixture.reload(|_| "[profile.other]\nbind = \"127.0.0.3\"\n".to_owned());
    send(&mut client, get(fixture.address, "/again"));
    assert_eq!(Head::read(&mut server).line(), "GET /again HTTP/1.1");
    send(&mut server, OK);
    expect_ok(&mut client);
}

/// A target that a reload denies is also denied to connected clients.
#[test]
fn new_rules_apply_to_connected_clients() {
    let mut fixture = ReloadFixture::with(|_| String::new());
    let mut client = fixture.relay.connect();
    let (_, _server) = fixture.request_on_new_connection(&mut client);
    fixture.reload_text(ReloadFixture::text("") + "deny = [\"127.0.0.0/8\"]\n");
    send(&mut client, get(fixture.address, "/forbidden"));
    expect_refusal(&mut client, 403, "a target that is forbidden now");
}

/// The reload removes the listener of the client.
#[test]
fn client_of_a_removed_listener_gets_503() {
    let mut fixture = ReloadFixture::with(|_| String::new());
    let mut client = fixture.relay.connect();
    let (_, _server) = fixture.request_on_new_connection(&mut client);
    fixture.reload_text(ReloadFixture::text("").replace("door", "gate"));
    send(&mut client, get(fixture.address, "/again"));
    expect_refusal(&mut client, 503, "its listener is gone");
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "finished");
}

/// The drain deadline of 30 s is longer than the timeouts of the test, so the session must end before it.
#[test]
fn sigterm_ends_an_idle_session_at_once() {
    let mut fixture = Fixture::new();
    let (mut client, mut server) = fixture.keep_alive_pair();
    fixture.relay.signal("TERM");
    assert_closed(&mut client);
    assert_closed(&mut server);
    assert_eq!(fixture.relay.exit_code(), Some(0));
    assert_eq!(fixture.relay.closed()["end"], "finished");
    assert_eq!(fixture.relay.next(|event| event["event"] == "stopped")["aborted"], 0);
}

#[test]
fn sigterm_lets_a_running_response_finish() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin");
    Head::read(&mut client);
    fixture.relay.signal("TERM");
    let draining = fixture.relay.next(|event| event["event"] == "draining");
    assert_eq!(draining["open"], 1);
    let body = pattern(999_995);
    send(&mut server, &body);
    assert_eq!(read_exactly(&mut client, 5), b"begin");
    assert!(read_exactly(&mut client, body.len()) == body);
    assert_closed(&mut client);
    assert_eq!(fixture.relay.exit_code(), Some(0));
    assert_eq!(fixture.relay.closed()["end"], "finished");
    assert_eq!(fixture.request()["status"], 200);
}

/// The relay has sent the request to the server, and waits for the response.
#[test]
fn sigterm_lets_a_pending_response_arrive() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    fixture.relay.signal("TERM");
    fixture.relay.next(|event| event["event"] == "draining");
    send(&mut server, OK);
    let (head, body) = read_response(&mut client);
    // Regression: the field was missing, and the client's next request on the connection was lost.
    assert_eq!((head.status(), head.get("Connection"), body.as_slice()), (200, Some("close"), b"ok".as_slice()));
    assert_closed(&mut client);
    assert_eq!(fixture.relay.exit_code(), Some(0));
    assert_eq!(fixture.relay.closed()["end"], "finished");
}

/// At the deadline the relay resets unfinished responses, so that no client treats them as complete.
#[test]
fn drain_deadline_resets_unfinished_responses() {
    let mut fixture = Fixture::with("[timeouts]\ndrain = \"300ms\"\n");
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 200 OK\r\n\r\nbegin");
    Head::read(&mut client);
    assert_eq!(read_exactly(&mut client, 5), b"begin");
    fixture.relay.signal("TERM");
    assert_eq!(read_remaining(&mut client), (Vec::new(), Ending::Reset));
    assert_eq!(fixture.relay.exit_code(), Some(0));
    assert_eq!(fixture.relay.closed()["end"], "drained");
    assert_eq!(fixture.relay.next(|event| event["event"] == "stopped")["aborted"], 1);
}
