//! `/proxy.pac`, fetched by curl and run by node.

use crate::certificate::Certificate;
use crate::curl::curl;
use crate::harness::{Relay, unused_address};
use crate::programs::{is_any_missing, program, run_successfully};

/// Starts a relay with a route for each kind of pattern. `keys` are further keys of its listener.
fn relay(certificate: &Certificate, keys: &str) -> Relay {
    let text = format!(
        "version = 1\n[[relay]]\nname = \"hop\"\nurl = \"socks5://{}\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\nallow_private = false\n{}{keys}\n\
         [[route]]\nto = [\"relayed.direct.example\"]\npath = [\"hop\"]\n\
         [[route]]\nto = [\"header.direct.example\"]\npath = [\"direct\"]\nsend_proxy = \"v2\"\n\
         [[route]]\nto = [\"*.direct.example\", \"name.example:8443\", \"203.0.113.0/24\", \"2001:db8::/32\"]\n\
         path = [\"direct\"]\n\
         [[route]]\nto = [\"[2001:db8:1::/48]:26\"]\npath = [\"hop\"]\n\
         [[route]]\nto = [\"*:25\", \"*:26\"]\npath = [\"direct\"]\n\
         [[route]]\npath = [\"direct\"]\n",
        unused_address(),
        certificate.keys(),
    );
    let file = certificate.folder.write("ekiden.toml", text);
    Relay::run(&["-c", file.to_str().unwrap()], 1)
}

/// Fetches the script with `host` in the URL. Returns the status code and the script.
fn script(certificate: &Certificate, relay: &Relay, host: &str) -> (u16, String) {
    let authority = certificate.file().display().to_string();
    let url = format!("https://{host}:{}/proxy.pac", relay.address().port());
    let fetched = curl(&["--cacert", &authority, &url]);
    assert_eq!(fetched.code, 0, "{}", fetched.err);
    (fetched.transfers[0].status, fetched.text())
}

#[test]
fn the_script_follows_the_routes() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl", "node"]) {
        return;
    }
    let mut relay = relay(&certificate, "");
    let (status, script) = script(&certificate, &relay, "localhost");
    assert_eq!((status, relay.closed()["end"].as_str()), (200, Some("finished")));
    let proxy = format!("HTTPS localhost:{}", relay.address().port());
    let cases = [
        ("https://www.example.com/", "www.example.com", proxy.as_str()),
        ("http://a.direct.example/", "a.direct.example", "DIRECT"),
        // The first matching route applies, and `*.` matches subdomains only.
        ("http://relayed.direct.example/", "relayed.direct.example", &proxy),
        ("http://direct.example/", "direct.example", &proxy),
        // Its server requires the PROXY header, which only the relay sends.
        ("http://header.direct.example/", "header.direct.example", &proxy),
        ("https://name.example:8443/", "name.example", "DIRECT"),
        ("https://name.example/", "name.example", &proxy),
        ("https://user@name.example:8443/", "name.example", "DIRECT"),
        ("http://203.0.113.255/", "203.0.113.255", "DIRECT"),
        ("http://203.0.114.0/", "203.0.114.0", &proxy),
        ("http://mail.example:25/", "mail.example", "DIRECT"),
        ("http://[2001:db8::1]:25/", "2001:db8::1", "DIRECT"),
        ("http://[2001:db8::1]/", "2001:db8::1", &proxy),
        // The script does not compare IPv6 networks: the relay finds the first matching route.
        ("http://[2001:db8:1::1]:26/", "2001:db8:1::1", &proxy),
        ("http://mail.example:26/", "mail.example", "DIRECT"),
        // The listener refuses private addresses.
        ("http://printer/", "printer", "DIRECT"),
        ("http://172.31.255.255/", "172.31.255.255", "DIRECT"),
        ("http://172.32.0.0/", "172.32.0.0", &proxy),
        ("http://192.168.1.1/", "192.168.1.1", "DIRECT"),
    ];
    let calls = cases.iter().map(|(url, host, _)| format!("console.log(FindProxyForURL({url:?}, {host:?}));"));
    let file = certificate.folder.write("pac.js", script + &calls.collect::<String>());
    let output = String::from_utf8(run_successfully(program("node", &certificate.folder).arg(file))).unwrap();
    for (answer, (url, _, expected)) in output.lines().zip(cases) {
        assert_eq!(answer, expected, "{url}");
    }
    assert_eq!(output.lines().count(), cases.len());
}

#[test]
fn script_names_the_relay_by_the_requested_host() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let relay = relay(&certificate, "");
    let (_, text) = script(&certificate, &relay, "127.0.0.1");
    assert!(text.contains(&format!("\"HTTPS {}\"", relay.address())), "{text}");
    let plain = Relay::listen(&["http://127.0.0.1:0"]);
    let fetched = curl(&[&format!("http://{}/proxy.pac?version=2", plain.address())]);
    assert!(fetched.text().contains(&format!("\"PROXY {}\"", plain.address())), "{}", fetched.text());
}

/// The script discloses names of targets, so with `users` it also requires `pac = true`.
#[test]
fn users_and_pac_key_control_access_to_the_script() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let users = certificate.folder.write("users", "");
    let users = format!("users = \"{}\"\n", users.display());
    for (keys, status) in [(users.clone(), 407), (users + "pac = true", 200), ("pac = false".to_owned(), 400)] {
        let relay = relay(&certificate, &keys);
        assert_eq!(script(&certificate, &relay, "localhost").0, status, "{keys}");
    }
}
