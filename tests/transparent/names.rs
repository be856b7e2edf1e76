//! Routes by the server name in the first bytes of intercepted connections.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::programs::is_any_missing;
use crate::relays::*;

/// Records of the name server: `exit.example` has the address of the server.
const ADDRESSES: [(&str, &str); 1] = [("exit.example", "10.0.1.2")];

/// An address that no host has, so that connections to it get no further than the near relay.
const UNUSED_ADDRESS: &str = "203.0.113.9";

/// A client, a relay that intercepts its connections, a SOCKS proxy on the same host as the relay, and a server.
struct Fixture {
    row: Row,
    near: RunningRelay,
    proxy: Relay,
    server: TcpListener,
    /// The address of the server.
    address: SocketAddr,
    folder: Folder,
}

impl Fixture {
    /// `route` has the keys of a `[[route]]` to the proxy; other targets are direct.
    fn new(route: &str) -> Option<Self> {
        Self::with(route, "")
    }

    /// `more` are further lines of the listener.
    fn with(route: &str, more: &str) -> Option<Self> {
        let row = Row::of(&["client", "near", "server"], &[Family::V4])?;
        let folder = Folder::new();
        let (server, address) = row.server(Family::V4);
        let near = &row["near"];
        let names = near.inside(|| name_server(answer_from(&ADDRESSES)));
        let text = format!(
            "version = 1\nthreads = 1\n[[listener]]\nkind = \"socks\"\nbind = \"127.0.0.1:0\"\nallow_private = true\n\
             [dns]\nservers = [\"{names}\"]\n"
        );
        let proxy_file = folder.write("proxy.toml", text);
        let proxy = near.inside(|| Relay::run(&["-c", proxy_file.to_str().unwrap()], 1));
        let names = "connect = \"strict\"\nserver_names = true\nkeep_client_address = false\n";
        let listener = intercepting_listener(&format!("{names}{more}"));
        let list = folder.write("list", "listed.example\n");
        let route = route.replace("LIST", list.to_str().unwrap());
        let text = format!(
            "{listener}[[relay]]\nname = \"proxy\"\nurl = \"socks5://{}\"\n[[route]]\npath = [\"proxy\"]\n{route}\n",
            proxy.address()
        );
        let near = RunningRelay::start(near, &text);
        Some(Self { near, proxy, server, address, folder, row })
    }

    fn connect(&self) -> TcpStream {
        self.row["client"].connect(self.address)
    }

    /// Sends `bytes`, which the server must receive, and returns the closing event of the relay.
    fn closed_after(&mut self, mut client: TcpStream, bytes: &[u8]) -> Value {
        client.write_all(bytes).unwrap();
        let mut server = accept(&self.server);
        assert_eq!(read_exactly(&mut server, bytes.len()), bytes);
        server.write_all(b"answer").unwrap();
        assert_eq!(read_exactly(&mut client, 6), b"answer");
        drop((client, server));
        self.near.relay.closed()
    }

    /// The path and the server name of a connection whose client sends `bytes`.
    fn path_of(&mut self, bytes: &[u8]) -> (Value, Value) {
        let client = self.connect();
        let mut closed = self.closed_after(client, bytes);
        assert_eq!(closed["target"], self.address.to_string(), "{closed}");
        (closed["path"].take(), closed["server_name"].take())
    }
}

fn request(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

#[test]
fn host_of_an_http_request_selects_the_route() {
    let Some(mut fixture) = Fixture::new("to = [\"*.example\"]") else { return };
    assert_eq!(fixture.path_of(&request("a.example")), ("proxy".into(), "a.example".into()));
    assert_eq!(fixture.path_of(&request("a.other")), ("direct".into(), "a.other".into()));
    assert_eq!(fixture.path_of(&request("10.0.1.2")), ("direct".into(), Value::Null));
    assert_eq!(fixture.path_of(b"SSH-2.0-client\r\n"), ("direct".into(), Value::Null));
}

/// The client sends the name after the server's greeting, so the relay has dialled without the name.
#[test]
fn connection_with_a_late_name_is_routed_by_its_address() {
    let Some(mut fixture) = Fixture::new("to = [\"*.example\"]") else { return };
    let (mut client, mut server) = (fixture.connect(), accept(&fixture.server));
    server.write_all(b"220 ready\r\n").unwrap();
    assert_eq!(read_exactly(&mut client, 11), b"220 ready\r\n");
    client.write_all(&request("late.example")).unwrap();
    assert_eq!(read_exactly(&mut server, request("late.example").len()), request("late.example"));
    drop((client, server));
    let closed = fixture.near.relay.closed();
    assert_eq!((&closed["path"], &closed["server_name"]), (&"direct".into(), &Value::Null), "{closed}");
}

/// The rest of the name arrives after the relay's wait for it has ended. All bytes must reach the server.
#[test]
fn connection_with_an_incomplete_name_is_routed_by_its_address() {
    let Some(mut fixture) = Fixture::new("to = [\"*.example\"]") else { return };
    let (bytes, mut client) = (request("pieces.example"), fixture.connect());
    client.write_all(&bytes[..20]).unwrap();
    let mut server = accept(&fixture.server);
    assert_eq!(read_exactly(&mut server, 20), bytes[..20]);
    client.write_all(&bytes[20..]).unwrap();
    assert_eq!(read_exactly(&mut server, bytes.len() - 20), bytes[20..]);
    drop((client, server));
    assert_eq!(fixture.near.relay.closed()["path"], "direct");
}

#[test]
fn the_name_in_a_client_hello_selects_the_route() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let Some(mut fixture) = Fixture::new("to = [\"tls.example\"]") else { return };
    let connect_to = format!("tls.example:443:{}", fixture.address);
    let mut curl = fixture.row["client"].inside(|| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "--max-time", "20", "--connect-to", &connect_to, "https://tls.example/"]).spawn().unwrap()
    });
    let mut server = accept(&fixture.server);
    assert_eq!(read_exactly(&mut server, 2), [22, 3], "a TLS record");
    drop(server);
    curl.wait().unwrap();
    let closed = fixture.near.relay.closed();
    assert_eq!((&closed["path"], &closed["server_name"]), (&"proxy".into(), &"tls.example".into()), "{closed}");
}

/// The proxy receives the name, and connects to the address to which it resolves the name.
#[test]
fn resolve_exit_sends_the_name_to_the_proxy() {
    let Some(mut fixture) = Fixture::new("to = [\"exit.example\"]\nresolve = \"exit\"") else { return };
    let nowhere = SocketAddr::new(UNUSED_ADDRESS.parse().unwrap(), fixture.address.port());
    let client = fixture.row["client"].connect(nowhere);
    let closed = fixture.closed_after(client, &request("exit.example"));
    assert_eq!((&closed["path"], &closed["target"]), (&"proxy".into(), &nowhere.to_string().into()), "{closed}");
    let expected = format!("exit.example:{}", fixture.address.port());
    assert_eq!(fixture.proxy.closed()["target"], expected);
}

/// The rules of a transparent listener match addresses; a name would match none of them.
#[test]
fn access_rules_apply_to_the_address_not_to_the_name() {
    let route = "to = [\"exit.example\"]\nresolve = \"exit\"";
    let Some(mut fixture) = Fixture::with(route, "allow = [\"10.0.1.0/24\"]") else { return };
    assert_eq!(fixture.path_of(&request("exit.example")), ("proxy".into(), "exit.example".into()));
    assert_eq!(fixture.proxy.closed()["target"], format!("exit.example:{}", fixture.address.port()));
}

#[test]
fn changed_list_file_is_reloaded_unless_invalid() {
    let Some(mut fixture) = Fixture::new("to_files = [\"LIST\"]") else { return };
    assert_eq!(fixture.path_of(&request("listed.example")).0, "proxy");
    assert_eq!(fixture.path_of(&request("other.example")).0, "direct");
    fixture.folder.write("list", "# others\nother.example\n");
    eventually("the new target list", || (fixture.path_of(&request("other.example")).0 == "proxy").then_some(()));
    assert_eq!(fixture.path_of(&request("listed.example")).0, "direct");
    fixture.folder.write("list", "other.example\nno name\n");
    let warning = fixture.near.relay.next(|event| event["event"] == "warning");
    let message = warning["message"].as_str().unwrap();
    assert!(message.starts_with("the previous list remains in force: ") && message.contains("/list:2: "), "{message}");
    fixture.folder.write("list", "");
    let warning = fixture.near.relay.next(|event| event["event"] == "warning");
    assert!(warning["message"].as_str().unwrap().ends_with("this file is empty"), "{warning}");
    assert_eq!(fixture.path_of(&request("other.example")).0, "proxy");
}
