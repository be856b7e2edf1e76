//! Downloads and uploads by wget, Python's requests and git.

use std::path::Path;
use std::process::Command;

use super::curl::assert_next_closed;
use super::programs::{client, is_any_missing, run_successfully, run_to_end};
use super::servers::Nginx;
use crate::harness::{Folder, PYTHON, Relay, pattern, skipped};

#[test]
fn wget_uses_the_proxy_of_its_environment() {
    if is_any_missing(&["wget", "nginx", "openssl"]) {
        return;
    }
    let bytes = pattern(7_000_000);
    let nginx = Nginx::with_tls().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let proxy = format!("http://{}", relay.address());
    for url in [nginx.named_url("file"), nginx.secure_url("file")] {
        let mut wget = client("wget", &folder);
        wget.env("http_proxy", &proxy).env("https_proxy", &proxy).args(["--no-config", "-nv", "--tries=1", "-O", "-"]);
        let out = run_successfully(wget.arg(format!("--ca-certificate={}", nginx.certificate())).arg(&url));
        assert!(out == bytes, "{} bytes of {url}", out.len());
        let event = assert_next_closed(&mut relay, "finished", url.split('/').nth(2).expect("a host"), "direct");
        assert!(event["bytes_down"].as_u64() > Some(7_000_000), "{event}");
    }
}

#[test]
fn wget_resumes_an_interrupted_download() {
    if is_any_missing(&["wget", "nginx"]) {
        return;
    }
    let bytes = pattern(500_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let file = folder.write("file", &bytes[..123_456]);
    let mut wget = client("wget", &folder);
    wget.env("http_proxy", format!("http://{}", relay.address())).current_dir(&folder.0);
    run_successfully(wget.args(["--no-config", "-nv", "--tries=1", "-c", &nginx.url("file")]));
    assert!(std::fs::read(file).expect("the file is there") == bytes);
    let event = assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    assert!(event["bytes_down"].as_u64() < Some(400_000), "only the missing part is fetched: {event}");
}

/// Two GETs and one PUT in one session. The script compares each response immediately.
const SCRIPT: &str = r#"
import sys, requests
proxy, url, put, path = sys.argv[1:]
expected = open(path, "rb").read()
session = requests.Session()
session.trust_env = False
session.proxies = {"http": proxy}
for _ in range(2):
    answer = session.get(url, timeout=50)
    assert answer.status_code == 200, answer.status_code
    assert answer.content == expected, len(answer.content)
answer = session.put(put, data=(expected[at:at + 9999] for at in range(0, len(expected), 9999)), timeout=50)
assert answer.status_code == 201, answer.status_code
print("compared", end="")
"#;

#[test]
fn python_requests_uses_http_and_socks_proxies() {
    if is_any_missing(&["nginx"]) {
        return;
    }
    let imports =
        Path::new(PYTHON).exists().then(|| run_to_end(Command::new(PYTHON).args(["-c", "import requests, socks"])));
    if imports.is_none_or(|output| output.code != 0) {
        return skipped(format_args!("{PYTHON} has no requests or no socks"));
    }
    let bytes = pattern(1_000_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let script = folder.write("client.py", SCRIPT);
    for scheme in ["http", "socks5h", "socks4"] {
        let host = if scheme == "socks4" { "127.0.0.1" } else { "localhost" };
        let target = format!("{host}:{}", nginx.address.port());
        let put = format!("put/{scheme}");
        let mut python = client(PYTHON, &folder);
        python.arg(&script).arg(format!("{scheme}://{}", relay.address()));
        python.args([format!("http://{target}/file"), format!("http://{target}/{put}")]).arg(nginx.path("file"));
        assert_eq!(run_successfully(&mut python), b"compared");
        assert!(std::fs::read(nginx.path(&put)).expect("the uploaded file is there") == bytes);
        let event = assert_next_closed(&mut relay, "finished", &target, "direct");
        assert!(event["bytes_down"].as_u64() > Some(2_000_000), "{event}");
        assert!(event["bytes_up"].as_u64() > Some(1_000_000), "{event}");
    }
}

/// Runs `git ARGUMENTS` in `folder`, without the user's settings. Returns the standard output.
fn git(folder: &Folder, arguments: &[&str]) -> Vec<u8> {
    let mut git = client("git", folder);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0").current_dir(&folder.0);
    run_successfully(git.args(["-c", "user.name=a", "-c", "user.email=a@localhost"]).args(arguments))
}

/// Creates the repository `work` with these files in `folder`, and a bare clone that nginx serves as `/name`.
pub fn publish_repository(folder: &Folder, nginx: &Nginx, name: &str, files: &[(&str, &[u8])]) {
    git(folder, &["init", "-q", "work"]);
    for (file, bytes) in files {
        folder.write(&format!("work/{file}"), bytes);
    }
    git(folder, &["-C", "work", "add", "."]);
    git(folder, &["-C", "work", "commit", "-q", "-m", "first"]);
    let bare = nginx.path(name).display().to_string();
    git(folder, &["clone", "-q", "--bare", "work", &bare]);
    // git's protocol for plain web servers ("dumb HTTP") requires a file with the list of references.
    git(folder, &["-C", &bare, "update-server-info"]);
}

#[test]
fn git_clones_through_http_and_socks_proxies() {
    if is_any_missing(&["git", "nginx"]) {
        return;
    }
    let nginx = Nginx::start();
    let folder = Folder::new();
    let bytes = pattern(2_000_000);
    publish_repository(&folder, &nginx, "bare.git", &[("file", &bytes), ("other", b"text\n")]);
    let commit = git(&folder, &["-C", "work", "rev-parse", "HEAD"]);
    for scheme in ["http", "socks5h"] {
        let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
        let proxy = format!("http.proxy={scheme}://{}", relay.address());
        git(&folder, &["-c", &proxy, "clone", "-q", &nginx.named_url("bare.git"), scheme]);
        assert!(std::fs::read(folder.0.join(scheme).join("file")).expect("the cloned file is there") == bytes);
        assert_eq!(git(&folder, &["-C", scheme, "rev-parse", "HEAD"]), commit);
        // git may use several connections.
        let target = format!("localhost:{}", nginx.address.port());
        let mut down = 0;
        while down < 100_000 {
            down +=
                assert_next_closed(&mut relay, "finished", &target, "direct")["bytes_down"].as_u64().expect("a count");
        }
    }
}
