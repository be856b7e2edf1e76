//! Authentication of clients: user names and passwords in `Proxy-Authorization` (RFC 9110, 11.7).

use crate::exchange::*;
use crate::harness::*;

/// Created once with `htpasswd -nbBC 4 alice "open sesame"`: cost 4 is the lowest, so that tests are fast.
const USERS: &str = "alice:$2b$04$ekidenekidenekidenekieEB0wconlpYz80iymDMyHINbjJSaFPb6\n";

/// `alice:open sesame`; [`WRONG`] is `alice:open barley`.
const RIGHT: &str = "Basic YWxpY2U6b3BlbiBzZXNhbWU=";
const WRONG: &str = "Basic YWxpY2U6b3BlbiBiYXJsZXk=";

fn fixture(folder: &Folder) -> Fixture {
    let users = folder.write("users", USERS);
    Fixture::with_listener("", &format!("kind = \"auto\"\nusers = \"{}\"\n", users.display()))
}

fn with(request: &str, credentials: &str) -> String {
    request.replacen("\r\n", &format!("\r\nProxy-Authorization: {credentials}\r\n"), 1)
}

#[test]
fn requests_without_valid_credentials_return_407() {
    let folder = Folder::new();
    let mut fixture = fixture(&folder);
    let plain = fixture.get("/");
    let connect = format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", fixture.server, fixture.server);
    let own = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", fixture.relay.address());
    for request in [&plain, &connect, &own] {
        for request in [
            request.clone(),
            with(request, WRONG),
            with(request, "Basic YWxpY2U6"),
            with(request, "Basic !"),
            with(request, "Bearer YWxpY2U6b3BlbiBzZXNhbWU="),
            with(request, "Basic bWFsbG9yeTpvcGVuIHNlc2FtZQ=="),
            request.replacen("\r\n", &format!("\r\nAuthorization: {RIGHT}\r\n"), 1),
        ] {
            let mut client = fixture.client();
            send(&mut client, &request);
            let (head, _) = expect_refusal(&mut client, 407, &request);
            let challenge = head.get("Proxy-Authenticate").unwrap();
            assert!(challenge.starts_with("Basic realm=\"ekiden\""), "{challenge}");
            drop(client);
            assert_eq!(fixture.relay.closed()["end"], "unauthenticated", "{request}");
            fixture.assert_not_contacted(&request);
        }
    }
}

#[test]
fn valid_credentials_are_accepted_and_not_forwarded() {
    let folder = Folder::new();
    let mut fixture = fixture(&folder);
    let mut client = fixture.client();
    send(&mut client, with(&fixture.get("/"), RIGHT));
    let mut server = fixture.accept();
    let head = Head::read(&mut server);
    assert!(!head.0.to_lowercase().contains("authorization"), "{}", head.0);
    send(&mut server, OK);
    expect_ok(&mut client);
    // The names of the field and the scheme are case-insensitive. The relay has cached the result of the first check.
    send(
        &mut client,
        with(&fixture.get("/"), RIGHT).replace("Proxy-Authorization: Basic", "proxy-authorization: basic"),
    );
    Head::read(&mut server);
    send(&mut server, OK);
    expect_ok(&mut client);
    // Each request needs the credentials.
    send(&mut client, fixture.get("/"));
    expect_refusal(&mut client, 407, "a later request without credentials");
    drop(client);
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["user"]), (&"unauthenticated".into(), &"alice".into()));
}

#[test]
fn connect_with_valid_credentials_opens_a_tunnel() {
    let folder = Folder::new();
    let mut fixture = fixture(&folder);
    let mut client = fixture.client();
    let head = format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", fixture.server, fixture.server);
    send(&mut client, with(&head, RIGHT) + "first words");
    let mut server = fixture.accept();
    assert_eq!(read_exactly(&mut server, 11), b"first words");
    assert_eq!(Head::read(&mut client).status(), 200);
    send(&mut server, "answer");
    drop(server);
    assert_rest_of_stream(client, b"answer");
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["user"]), (&"finished".into(), &"alice".into()));
}

fn assert_rest_of_stream(mut client: std::net::TcpStream, words: &[u8]) {
    assert_eq!(read_all(&mut client), words);
}

#[test]
fn passwords_are_not_logged() {
    let folder = Folder::new();
    let mut fixture = fixture(&folder);
    for credentials in [WRONG, RIGHT] {
        let mut client = fixture.client();
        send(&mut client, with(&fixture.get("/?token=open-sesame"), credentials));
        if credentials == WRONG {
            expect_refusal(&mut client, 407, "a wrong password");
            continue;
        }
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, OK);
        expect_ok(&mut client);
    }
    fixture.relay.signal("TERM");
    let events = fixture.relay.remaining_events();
    let closed = events.iter().filter(|event| event["event"] == "closed");
    let mut ends: Vec<_> = closed.map(|event| event["end"].as_str().unwrap()).collect();
    // The sessions may run on different workers, whose events have no order.
    ends.sort_unstable();
    assert_eq!(ends, ["finished", "unauthenticated"]);
    let logged = format!("{events:?}{}", fixture.relay.read_stderr());
    for secret in ["open sesame", "open barley", "open-sesame", "YWxpY2U6", "$2b$"] {
        assert!(!logged.contains(secret), "{secret} in {logged}");
    }
}
