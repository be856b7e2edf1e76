//! Hosts without a file, and hops that are no relays.

use serde_json::Value;

use crate::harness::*;
use crate::scene::*;

/// Without a file there is nothing to download: the rate is the model's, and said to be.
#[test]
fn a_bare_host_is_predicted() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\n");
    let address = serve(fast);
    let url = format!("section://{}?key={}", near.address(), key.public);
    let key_file = own.file.to_str().expect("text");
    let output = probe(&[&address.to_string(), "-F", &url, "--key", key_file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("predicted from round trips"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let file = caller(&folder, &own, &table("near", near.address(), &key.public));
    let report = json(&probe(&[&address.to_string(), "-c", &file, "--via", "near", "--json"]));
    let found = candidate(&report, "via near");
    assert_eq!((found["predicted"].as_bool(), found["bytes"].as_u64()), (Some(true), Some(0)), "{found:#}");

    let output = probe(&[&address.to_string(), "-c", &file, "--via", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--via nowhere: expected a relay or a path, one of near"));
}

/// Proxies of other kinds are tried as a session would use them; an HTTP proxy is asked for the file itself.
#[test]
fn proxies_are_tried_too() {
    let proxy = Relay::listen(&["auto://127.0.0.1:0?allow_private=true"]);
    let address = serve(fast);
    for scheme in ["http", "socks5"] {
        let hop = format!("{scheme}://{}", proxy.address());
        let report = json(&probe(&[&format!("http://{address}/file"), "-F", &hop, "--json"]));
        let found = candidate(&report, &format!("via {hop}"));
        assert_eq!(found["error"], Value::Null, "{found:#}");
        assert!(found["bytes"].as_u64().unwrap() >= 1 << 20, "{found:#}");
        // Of a proxy that is asked for the file nobody knows how far it is from the server.
        let sections = found["sections_ms"].as_array().unwrap().len();
        assert_eq!(sections, if scheme == "http" { 0 } else { 2 }, "{found:#}");
    }
}
