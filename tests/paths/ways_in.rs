//! Every kind of listener goes the chosen way.

use std::io::{Read, Write};

use crate::harness::*;
use crate::scene::*;

#[test]
fn clients_of_every_kind_have_their_path_chosen() {
    let Some(mut scene) = Scene::new("[[route]]\npath = \"auto\"\ndefault = \"b\"\n") else { return };
    scene.cut("home");
    let target = scene.target();
    let mut tunnel = scene.row["home"].connect(HOME.parse().unwrap());
    write!(tunnel, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
    assert!(read_head(&mut tunnel).starts_with("HTTP/1.1 200"));
    take(&mut tunnel, 5000);
    let (listener, port) = scene.row["server"].listen();
    let page = std::thread::spawn(move || {
        // A way that comes second asks for nothing.
        for mut stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut first = [0; 1];
            if stream.read_exact(&mut first).is_ok() {
                read_head(&mut stream);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                return;
            }
        }
    });
    let mut client = scene.row["home"].connect(HOME.parse().unwrap());
    write!(client, "GET http://{SERVER}:{port}/ HTTP/1.1\r\nHost: {SERVER}\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(read_exactly(&mut client, 2), b"ok");
    join(page);
    drop((client, tunnel));
    for _ in 0..2 {
        let closed = scene.home.relay.next(|event| event["event"] == "closed" && event["target"].is_string());
        assert!(closed["chosen"]["reason"].is_string() && closed["path"] != "direct", "{closed}");
    }
    let fixed = format!(
        "[[route]]\npath = \"auto\"\n[[listener]]\nname = \"tcp\"\nbind = \"127.0.0.1:2000\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
    );
    scene.reload(&fixed);
    let mut client = scene.row["home"].connect("127.0.0.1:2000".parse().unwrap());
    take(&mut client, 5000);
    drop(client);
    let closed = scene.home.relay.next(|event| event["event"] == "closed" && event["listener"] == "tcp");
    assert!(closed["chosen"]["reason"].is_string() && closed["path"] != "direct", "{closed}");
}
