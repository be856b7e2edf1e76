//! A headless Chromium loads a page with sub-resources.

use super::chromium::OPTIONS;
use super::is_skipped;
use super::programs::{client, run_successfully};
use super::servers::Nginx;
use super::site::{Site, Visit};
use crate::harness::{Folder, Relay};

/// Returns the DOM of the page at `url`, loaded by Chromium with the option `proxy`.
fn dump_page(proxy: &str, url: &str) -> String {
    let folder = Folder::new();
    let mut chromium = client("chromium", &folder);
    chromium.args(OPTIONS).args(["--ignore-certificate-errors", "--proxy-bypass-list=<-loopback>"]);
    chromium.arg(format!("--user-data-dir={}", folder.0.join("data").display()));
    let out = run_successfully(chromium.arg(proxy).args(["--dump-dom", url]));
    String::from_utf8_lossy(&out).into_owned()
}

fn browse(scheme: &str, secure: bool) {
    if is_skipped(&["chromium", "nginx", "openssl"]) {
        return;
    }
    let site = Site::start();
    let tls = if scheme == "https" { format!("?{}", site.nginx.tls_keys()) } else { String::new() };
    let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0{tls}")]);
    let page = dump_page(&format!("--proxy-server={scheme}://{}", relay.address()), &site.url(secure));
    assert_eq!(site.result(), Some(site.expected()), "{page}");
    // Chromium resolves the name itself only for SOCKS4 proxies.
    let host = if scheme == "socks4" { "127.0.0.1" } else { "localhost" };
    site.check_sessions(&mut relay, &Visit { proxy: scheme, secure, host, user: None });
}

#[test]
fn chromium_loads_http_through_an_http_proxy() {
    browse("http", false);
}

#[test]
fn chromium_loads_https_over_connect() {
    browse("http", true);
}

#[test]
fn chromium_loads_http_over_socks5() {
    browse("socks5", false);
}

#[test]
fn chromium_loads_https_over_socks5() {
    browse("socks5", true);
}

#[test]
fn chromium_loads_http_over_socks4() {
    browse("socks4", false);
}

/// The connection to the proxy uses TLS.
#[test]
fn chromium_loads_http_through_an_https_proxy() {
    browse("https", false);
}

#[test]
fn chromium_loads_https_through_an_https_proxy() {
    browse("https", true);
}

/// Chromium fetches the PAC script from the relay without a proxy, and then uses the proxy that the script selects.
/// With a PAC script Chromium never uses a proxy for localhost, so the target is an address that the relay denies.
#[test]
fn chromium_uses_the_pac_script() {
    if is_skipped(&["chromium", "nginx", "openssl"]) {
        return;
    }
    // This nginx provides only the certificate.
    let nginx = Nginx::with_tls();
    let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0?{}&deny=192.0.2.0%2F24", nginx.tls_keys())]);
    let page = dump_page(&format!("--proxy-pac-url=https://{}/proxy.pac", relay.address()), "http://192.0.2.1/");
    let closed = relay.next(|event| event["event"] == "closed" && event["target"] == "192.0.2.1:80");
    assert_eq!((&closed["end"], &closed["tls"]), (&"denied".into(), &"1.3".into()), "{page}");
}
