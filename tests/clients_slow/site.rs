//! The page that browsers load: it has sub-resources and a large file, and its script sends a result with a checksum to
//! the server. The relay must report sessions for the page.

use super::servers::Nginx;
use crate::harness::{Relay, pattern};

/// Size in bytes of the file that the page's script fetches: more than the relay forwards without a pipe.
const SIZE: usize = 3_000_000;

/// Number of sub-resources of each kind: more than a browser has connections to one server.
const EACH: usize = 8;

const LARGE: &str = "
const request = new XMLHttpRequest();
request.open('GET', 'data', false);
request.overrideMimeType('text/plain; charset=x-user-defined');
request.send();
const data = request.responseText;
let sum = 0x811c9dc5;
for (let at = 0; at < data.length; at++) sum = Math.imul(sum ^ (data.charCodeAt(at) & 255), 0x01000193) >>> 0;
window.addEventListener('load', () => {
    const images = [...document.images].filter(image => image.naturalWidth === 7).length;
    const width = getComputedStyle(document.body).maxWidth;
    const put = new XMLHttpRequest();
    put.open('PUT', 'put/result', false);
    put.send(`bytes ${data.length} sum ${sum} scripts ${window.scripts} images ${images} styles ${width}`);
});
";

/// The parameters of a page load.
pub struct Visit<'a> {
    /// The scheme of the proxy.
    pub proxy: &'a str,
    /// Whether the page was an https page.
    pub secure: bool,
    /// The host of the server in the browser's request to the proxy.
    pub host: &'a str,
    pub user: Option<&'a str>,
}

/// A server with the page.
pub struct Site {
    pub nginx: Nginx,
    data: Vec<u8>,
}

impl Site {
    pub fn start() -> Self {
        let scripts: String = (0..EACH).map(|at| format!("<script src='{at}.js'></script>")).collect();
        let images: String = (0..EACH).map(|at| format!("<img src='{at}.svg'>")).collect();
        let page = format!(
            "<!DOCTYPE html><html><head><link rel=stylesheet href=style.css><link rel=icon href=0.svg>{scripts}</head>\
             <body>{images}<script src=large.js></script></body></html>"
        );
        let data = pattern(SIZE);
        let svg = "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'/>";
        let mut nginx = Nginx::with_tls().with_file("page.html", page.as_bytes()).with_file("data", &data);
        nginx = nginx.with_file("style.css", b"body { max-width: 777px }").with_file("large.js", LARGE.as_bytes());
        for at in 0..EACH {
            nginx = nginx.with_file(&format!("{at}.js"), b"window.scripts = (window.scripts || 0) + 1;");
            nginx = nginx.with_file(&format!("{at}.svg"), svg.as_bytes());
        }
        Self { nginx, data }
    }

    /// Returns the URL of the page, with the host name localhost.
    pub fn url(&self, secure: bool) -> String {
        if secure { self.nginx.secure_url("page.html") } else { self.nginx.named_url("page.html") }
    }

    /// Returns the result that the page has sent.
    pub fn result(&self) -> Option<String> {
        std::fs::read_to_string(self.nginx.path("put/result")).ok()
    }

    /// Returns the result of a page whose resources have all arrived.
    pub fn expected(&self) -> String {
        let hash = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let sum = self.data.iter().fold(0x811c_9dc5, hash);
        format!("bytes {SIZE} sum {sum} scripts {EACH} images {EACH} styles 777px")
    }

    /// Asserts that the relay has reported sessions with the resources of the page. The browser must have ended. The
    /// browser decides the number of connections, and may reset some of them when it ends.
    pub fn check_sessions(&self, relay: &mut Relay, visit: &Visit<'_>) {
        let server = if visit.secure { self.nginx.secure.expect("TLS") } else { self.nginx.address };
        let target = format!("{}:{}", visit.host, server.port());
        let by_tls = visit.proxy == "https";
        let mut down = 0;
        while down < SIZE as u64 {
            let event = relay.next(|event| event["event"] == "closed" && event["target"] == target.as_str());
            assert_eq!((&event["path"], event["user"].as_str()), (&"direct".into(), visit.user), "{event}");
            assert!(event["end"] == "finished" || event["end"] == "reset_by_client", "{event}");
            assert_eq!((event["http"] == 2, event["tls"] == "1.3"), (by_tls, by_tls), "{event}");
            down += event["bytes_down"].as_u64().expect("a count");
        }
        if matches!(visit.proxy, "http" | "https") && !visit.secure {
            let request = relay.next(|event| event["event"] == "request" && event["method"] == "PUT");
            assert_eq!(request["status"], 201, "{request}");
        }
    }
}
