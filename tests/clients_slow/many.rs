//! Many transfers by one program: a whole site with wget, and 100 downloads at once with curl.

use std::collections::BTreeMap;
use std::path::Path;

use super::curl::{assert_next_closed, curl, proxy_option};
use super::is_skipped;
use super::programs::{client, run_successfully};
use super::servers::Nginx;
use crate::harness::{Folder, Relay, eventually, pattern};

/// Returns every file below a folder: the path relative to the folder, and the bytes.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(tree(&path).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            files.insert(name, std::fs::read(path).expect("a file"));
        }
    }
    files
}

/// Starts a server with 40 pages, each with a link to the next page and a link to a file.
fn site() -> Nginx {
    let mut nginx = Nginx::start();
    for at in 0..40 {
        let next = (at + 1) % 40;
        let page = format!("<html><a href='page{next}.html'>on</a> <a href=\"file{at}\">file</a></html>");
        nginx = nginx.with_file(&format!("page{at}.html"), page.as_bytes());
        nginx = nginx.with_file(&format!("file{at}"), &pattern(at * 12_345));
    }
    nginx
}

#[test]
fn wget_mirrors_a_whole_site() {
    if is_skipped(&["wget", "nginx"]) {
        return;
    }
    let nginx = site();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let mut wget = client("wget", &folder);
    wget.env("http_proxy", format!("http://{}", relay.address())).args(["--no-config", "-nv", "--tries=1"]);
    wget.args(["-r", "-l", "50", "-nH", "-e", "robots=off", "-P"]).arg(folder.0.join("copy"));
    run_successfully(wget.arg(nginx.named_url("page0.html")));
    assert!(tree(&folder.0.join("copy")) == tree(&nginx.path("")), "the copy is not the original");
    // wget sends all requests on one connection.
    let target = format!("localhost:{}", nginx.address.port());
    let event = assert_next_closed(&mut relay, "finished", &target, "direct");
    assert!(event["bytes_down"].as_u64() > Some(12_345 * 780), "{event}");
    for _ in 0..80 {
        let request = relay.next(|event| event["event"] == "request");
        assert_eq!((&request["status"], &request["session"]), (&200.into(), &event["session"]), "{request}");
    }
}

#[test]
fn curl_loads_100_files_at_once() {
    if is_skipped(&["curl", "nginx"]) {
        return;
    }
    const COUNT: usize = 100;
    let mut nginx = Nginx::start();
    for at in 0..COUNT {
        nginx = nginx.with_file(&at.to_string(), &pattern(1_000_000 + at));
    }
    let target = format!("localhost:{}", nginx.address.port());
    let url = nginx.named_url(&format!("[0-{}]", COUNT - 1));
    for (scheme, tunnel) in [("http", "-S"), ("http", "-p"), ("socks5h", "-S"), ("socks4a", "-S")] {
        let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
        let idle = relay.descriptors();
        let folder = Folder::new();
        let output = folder.0.join("#1").display().to_string();
        let most = ["--no-progress-meter", "--parallel", "--parallel-immediate", "--parallel-max", "100"];
        let proxy = proxy_option(scheme, relay.address());
        let arguments = [&[proxy.as_str(), tunnel, "-o", &output], &most[..], &[&url]].concat();
        let fetched = curl(&arguments);
        assert_eq!((fetched.code, fetched.transfers.len()), (0, COUNT), "{}", fetched.err);
        assert!(tree(&folder.0) == tree(&nginx.path("")), "{scheme} {tunnel}: the copies are not the originals");
        let absolute = (scheme, tunnel) == ("http", "-S");
        for _ in 0..COUNT {
            if absolute {
                // curl may request several files on one connection.
                let request = relay.next(|event| event["event"] == "request");
                assert!(request["status"] == 200 && request["bytes_down"].as_u64() > Some(1_000_000), "{request}");
            } else {
                let event = assert_next_closed(&mut relay, "finished", &target, "direct");
                assert!(event["bytes_down"].as_u64() > Some(1_000_000), "{event}");
            }
        }
        // After the sessions, pipes stay open for reuse; after requests in absolute form, connections to the server as
        // well.
        eventually("the end of all sessions", || relay.sessions().is_empty().then_some(()));
        // 10 more: a relay opens a few descriptors once, and keeps them.
        let most_kept = if absolute { COUNT + 10 } else { 10 };
        eventually("the descriptors of ended sessions", || (relay.descriptors() <= idle + most_kept).then_some(()));
    }
}
