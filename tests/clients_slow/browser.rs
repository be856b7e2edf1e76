//! A headless Chromium loads a page with sub-resources, and computes a checksum of the received bytes.

use super::left_out;
use super::programs::{client, succeeds};
use super::servers::Nginx;
use crate::harness::{Folder, Relay, pattern};

/// Size of the file that the page's script fetches, more than the relay moves without a pipe.
const SIZE: usize = 3_000_000;

/// How many sub-resources of each kind the page has: more than a browser has connections to one server.
const EACH: usize = 8;

const LARGE: &str = "
const request = new XMLHttpRequest();
request.open('GET', 'data', false);
request.overrideMimeType('text/plain; charset=x-user-defined');
request.send();
const data = request.responseText;
let sum = 0x811c9dc5;
for (let at = 0; at < data.length; at++) sum = Math.imul(sum ^ (data.charCodeAt(at) & 255), 0x01000193) >>> 0;
const put = new XMLHttpRequest();
put.open('PUT', 'put/from-the-browser', false);
put.send('sent by the browser');
window.addEventListener('load', () => {
    const images = [...document.images].filter(image => image.naturalWidth === 7).length;
    const width = getComputedStyle(document.body).maxWidth;
    document.getElementById('result').textContent =
        `bytes ${data.length} sum ${sum} scripts ${window.scripts} images ${images} styles ${width} put ${put.status}`;
});
";

/// The result of the script above when all resources have arrived.
fn expected(data: &[u8]) -> String {
    let sum = data.iter().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("bytes {SIZE} sum {sum} scripts {EACH} images {EACH} styles 777px put 201")
}

/// A server with a page, its scripts, images and styles.
fn site(data: &[u8]) -> Nginx {
    let scripts: String = (0..EACH).map(|at| format!("<script src='{at}.js'></script>")).collect();
    let images: String = (0..EACH).map(|at| format!("<img src='{at}.svg'>")).collect();
    let page = format!(
        "<!DOCTYPE html><html><head><link rel=stylesheet href=style.css><link rel=icon href=0.svg>{scripts}</head>\
         <body><p id=result>nothing</p>{images}<script src=large.js></script></body></html>"
    );
    let svg = "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'/>";
    let mut nginx = Nginx::with_tls().serves("page.html", page.as_bytes()).serves("data", data);
    nginx = nginx.serves("style.css", b"body { max-width: 777px }").serves("large.js", LARGE.as_bytes());
    for at in 0..EACH {
        nginx = nginx.serves(&format!("{at}.js"), b"window.scripts = (window.scripts || 0) + 1;");
        nginx = nginx.serves(&format!("{at}.svg"), svg.as_bytes());
    }
    nginx
}

/// The keys of a listener with the certificate of this server.
fn tls(nginx: &Nginx) -> String {
    let certificate = nginx.certificate();
    format!("?tls_certificate={certificate}&tls_key={}", certificate.replace("certificate.pem", "key.pem"))
}

/// The page behind the proxy that this option of the browser names.
fn page_as_seen(proxy: &str, url: &str) -> String {
    let folder = Folder::new();
    let mut chromium = client("chromium", &folder);
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    chromium.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    chromium.args(["--disable-dev-shm-usage", "--ignore-certificate-errors", "--proxy-bypass-list=<-loopback>"]);
    chromium.arg(format!("--user-data-dir={}", folder.0.join("data").display()));
    let out = succeeds(chromium.arg(proxy).args(["--dump-dom", url]));
    String::from_utf8_lossy(&out).into_owned()
}

fn browse(scheme: &str, secure: bool) {
    if left_out(&["chromium", "nginx", "openssl"]) {
        return;
    }
    let data = pattern(SIZE);
    let nginx = site(&data);
    let tls = if scheme == "https" { tls(&nginx) } else { String::new() };
    let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0{tls}")]);
    let url = if secure { nginx.secure_url("page.html") } else { nginx.named_url("page.html") };
    let page = page_as_seen(&format!("--proxy-server={scheme}://{}", relay.address()), &url);
    assert!(page.contains(&expected(&data)), "{page}");
    let sent = std::fs::read(nginx.path("put/from-the-browser")).expect("it was put there");
    assert_eq!(sent, b"sent by the browser");

    // The browser decides the number of connections, and the connections that it cuts off at the end.
    let mut target = url.split('/').nth(2).expect("a URL").to_owned();
    if scheme == "socks4" {
        // SOCKS4 cannot carry names.
        target = target.replace("localhost", "127.0.0.1");
    }
    let mut down = 0;
    while down < SIZE as u64 {
        let event = relay.next(|event| event["event"] == "closed" && event["target"] == target.as_str());
        assert_eq!(event["path"], "direct", "{event}");
        assert!(event["end"] == "finished" || event["end"] == "reset_by_client", "{event}");
        assert_eq!(event["http"] == 2, scheme == "https", "{event}");
        down += event["bytes_down"].as_u64().expect("a count");
    }
    if matches!(scheme, "http" | "https") && !secure {
        let request = relay.next(|event| event["event"] == "request" && event["method"] == "PUT");
        assert_eq!(request["status"], 201, "{request}");
    }
}

#[test]
fn chromium_by_http() {
    browse("http", false);
}

#[test]
fn chromium_by_https_over_connect() {
    browse("http", true);
}

#[test]
fn chromium_by_socks5() {
    browse("socks5", false);
}

#[test]
fn chromium_by_https_over_socks5() {
    browse("socks5", true);
}

#[test]
fn chromium_by_socks4() {
    browse("socks4", false);
}

/// The proxy is reached by TLS.
#[test]
fn chromium_by_an_https_proxy() {
    browse("https", false);
}

#[test]
fn chromium_by_https_over_an_https_proxy() {
    browse("https", true);
}

/// The browser fetches the PAC script from the relay, without a proxy, and then uses the relay as the script says. Chromium never
/// uses a proxy for localhost, so the target is an address that the relay refuses.
#[test]
fn chromium_by_the_pac_script() {
    if left_out(&["chromium", "nginx", "openssl"]) {
        return;
    }
    // It only has a certificate.
    let nginx = Nginx::with_tls();
    let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0{}&deny=192.0.2.0%2F24", tls(&nginx))]);
    let page = page_as_seen(&format!("--proxy-pac-url=https://{}/proxy.pac", relay.address()), "http://192.0.2.1/");
    let closed = relay.next(|event| event["event"] == "closed" && event["target"] == "192.0.2.1:80");
    assert_eq!((&closed["end"], &closed["tls"]), (&"denied".into(), &"1.3".into()), "{page}");
}
