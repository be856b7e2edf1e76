//! Authentication of clients: user names and passwords in `Proxy-Authorization` (RFC 9110, 11.7).

use crate::harness::*;
use crate::talk::*;

/// Created once with `htpasswd -nbBC 4 alice "open sesame"`: cost 4 is the lowest, so that tests are fast.
const USERS: &str = "alice:$2b$04$ekidenekidenekidenekieEB0wconlpYz80iymDMyHINbjJSaFPb6\n";

/// `alice:open sesame`, and below a wrong password.
const RIGHT: &str = "Basic YWxpY2U6b3BlbiBzZXNhbWU=";
const WRONG: &str = "Basic YWxpY2U6b3BlbiBiYXJsZXk=";

fn scene(folder: &Folder) -> Scene {
    let users = folder.write("users", USERS);
    Scene::listening("", &format!("kind = \"auto\"\nusers = \"{}\"\n", users.display()))
}

fn with(request: &str, credentials: &str) -> String {
    request.replacen("\r\n", &format!("\r\nProxy-Authorization: {credentials}\r\n"), 1)
}

#[test]
fn strangers_are_asked_for_a_password() {
    let folder = Folder::new();
    let mut scene = scene(&folder);
    let plain = scene.get("/");
    let connect = format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", scene.server, scene.server);
    let own = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", scene.relay.address());
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
            let mut client = scene.client();
            say(&mut client, &request);
            let (head, _) = refused(&mut client, 407, &request);
            let challenge = head.get("Proxy-Authenticate").unwrap();
            assert!(challenge.starts_with("Basic realm=\"ekiden\""), "{challenge}");
            drop(client);
            assert_eq!(scene.relay.closed()["end"], "unauthenticated", "{request}");
            scene.assert_untouched(&request);
        }
    }
}

#[test]
fn the_right_password_opens_and_stays_here() {
    let folder = Folder::new();
    let mut scene = scene(&folder);
    let mut client = scene.client();
    say(&mut client, with(&scene.get("/"), RIGHT));
    let mut server = scene.accept();
    let head = Head::read(&mut server);
    assert!(!head.0.to_lowercase().contains("authorization"), "{}", head.0);
    say(&mut server, OK);
    answered_ok(&mut client);
    // The field name in lower case, and a second check, answered from the cache.
    say(&mut client, with(&scene.get("/"), RIGHT).replace("Proxy-Authorization: Basic", "proxy-authorization: basic"));
    Head::read(&mut server);
    say(&mut server, OK);
    answered_ok(&mut client);
    // Each request needs the credentials.
    say(&mut client, scene.get("/"));
    refused(&mut client, 407, "a later request without credentials");
    drop(client);
    let closed = scene.relay.closed();
    assert_eq!((&closed["end"], &closed["user"]), (&"unauthenticated".into(), &"alice".into()));
}

#[test]
fn a_tunnel_is_opened_by_the_right_password() {
    let folder = Folder::new();
    let mut scene = scene(&folder);
    let mut client = scene.client();
    let head = format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", scene.server, scene.server);
    say(&mut client, with(&head, RIGHT) + "first words");
    let mut server = scene.accept();
    assert_eq!(read_exactly(&mut server, 11), b"first words");
    assert_eq!(Head::read(&mut client).status(), 200);
    say(&mut server, "answer");
    drop(server);
    drop_after(client, b"answer");
    let closed = scene.relay.closed();
    assert_eq!((&closed["end"], &closed["user"]), (&"finished".into(), &"alice".into()));
}

fn drop_after(mut client: std::net::TcpStream, words: &[u8]) {
    assert_eq!(read_all(&mut client), words);
}

#[test]
fn passwords_are_not_logged() {
    let folder = Folder::new();
    let mut scene = scene(&folder);
    for credentials in [WRONG, RIGHT] {
        let mut client = scene.client();
        say(&mut client, with(&scene.get("/?token=open-sesame"), credentials));
        if credentials == WRONG {
            refused(&mut client, 407, "a wrong password");
            continue;
        }
        let mut server = scene.accept();
        Head::read(&mut server);
        say(&mut server, OK);
        answered_ok(&mut client);
    }
    scene.relay.signal("TERM");
    let events = scene.relay.rest();
    let closed = events.iter().filter(|event| event["event"] == "closed");
    let mut ends: Vec<_> = closed.map(|event| event["end"].as_str().unwrap()).collect();
    // Of two workers the second may log first.
    ends.sort_unstable();
    assert_eq!(ends, ["finished", "unauthenticated"]);
    let told = format!("{events:?}{}", scene.relay.said_on_stderr());
    for secret in ["open sesame", "open barley", "open-sesame", "YWxpY2U6", "$2b$"] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}
