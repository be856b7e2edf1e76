//! The dashboard in a headless Chromium: contents, keys, themes, sizes; and pages of other origins.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use super::chromium::Chromium;
use super::is_skipped;
use crate::harness::{Folder, Key, Relay, accept, connect, ekiden, pattern, serve, server, unused_address};

const LIVE: &str = "document.getElementById('state').dataset.state === 'live'";
const TOKEN: &str = "correct-horse-battery-staple";

/// A relay with the dashboard at a loopback port, and a listener for clients.
struct Home {
    relay: Relay,
    _folder: Folder,
}

impl Home {
    fn start(listener: &str, more: &str) -> Self {
        let folder = Folder::new();
        Self { relay: Self::run(&folder, "127.0.0.1:0", listener, more), _folder: folder }
    }

    fn run(folder: &Folder, admin: &str, listener: &str, more: &str) -> Relay {
        let listener = format!("[[listener]]\nbind = \"127.0.0.1:0\"\n{listener}\n");
        let file = folder.write("ekiden.toml", format!("version = 1\n{listener}[admin]\nbind = \"{admin}\"\n{more}"));
        Relay::start_with_admin(ekiden().args(["run", "-c"]).arg(&file), 2, folder.0.join("none"))
    }

    fn admin(&self) -> SocketAddr {
        self.relay.address_of(0)
    }

    fn clients(&self) -> SocketAddr {
        self.relay.address_of(1)
    }

    fn url(&self) -> String {
        format!("http://{}/", self.admin())
    }
}

/// Starts a server that sends 40 kB every 20 ms, without end.
fn streaming_server() -> SocketAddr {
    serve(|mut stream| {
        let bytes = pattern(40_000);
        while stream.write_all(&bytes).is_ok() {
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    })
}

/// Connects, and discards the received bytes in a thread until the connection ends.
fn reader(address: SocketAddr) -> TcpStream {
    let stream = connect(address);
    let mut reading = stream.try_clone().expect("a descriptor");
    std::thread::spawn(move || while reading.read(&mut [0; 65_536]).is_ok_and(|count| count > 0) {});
    stream
}

/// Starts two relays in a chain, with three sessions that transfer data.
fn chain() -> (Relay, Home, Vec<TcpStream>) {
    let key = Key::new();
    let far = Relay::listen(&[&format!("section://127.0.0.1:0?key={}", key.file.display())]);
    let target = streaming_server();
    let relay = format!(
        "[[relay]]\nname = \"osaka\"\naddress = \"{}\"\nkey = \"{}\"\nprofile = \"longhaul\"\n",
        far.address(),
        key.public
    );
    let way = "[[path]]\nname = \"via-osaka\"\nrelays = [\"osaka\"]\n[[route]]\nto = [\"*\"]\npath = [\"via-osaka\"]\n";
    let listener = format!("kind = \"tcp\"\ntarget = \"{target}\"\nname = \"door\"");
    let home = Home::start(&listener, &format!("{relay}{way}"));
    let clients = (0..3).map(|_| reader(home.clients())).collect();
    (far, home, clients)
}

#[test]
fn dashboard_shows_the_relay_and_handles_keys_and_themes() {
    if is_skipped(&["chromium"]) {
        return;
    }
    let (_far, home, _clients) = chain();
    let browser = Chromium::start(&[]);
    browser.set_viewport(1280, 1000);
    browser.set_colour_scheme("light");
    browser.navigate(&home.url());
    browser.wait_until(LIVE);
    browser.wait_until("document.querySelectorAll('#rows tbody tr[data-key]').length === 3");
    browser.wait_until("/[0-9.]+\\u202f[kM]bit\\/s/.test(document.querySelector('.diagram').innerText)");
    let diagram = browser.text(".diagram");
    for stop in ["clients", "3 sessions", "this relay", "osaka", "servers"] {
        assert!(diagram.contains(stop), "no {stop} in {diagram}");
    }
    assert!(browser.text("#diagrams").contains("via-osaka") && browser.text("#pools").contains("osaka"));
    browser.wait_until("document.querySelector('#profiles').innerText.includes('longhaul')");
    browser.wait_until("document.querySelectorAll('#events time').length > 0");
    // Repeated rendering must not put chips into the headings of profiles. The next rendering fills the emptied heading.
    browser.wait_until("document.querySelectorAll('#profiles .chips .chip').length > 0");
    browser.evaluate("document.querySelector('#profiles h3').textContent = ''");
    browser.wait_until("document.querySelector('#profiles h3').textContent !== ''");
    assert_eq!(browser.evaluate("document.querySelectorAll('#profiles h3 .chip').length"), 0);
    assert!(browser.text("#events").contains("listening listener=admin"), "{}", browser.text("#events"));

    check_keys(&browser);
    let light = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    browser.save_screenshot("light");
    browser.set_colour_scheme("dark");
    let dark = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    assert_ne!(light, dark, "the theme follows the system");
    browser.save_screenshot("dark");
    browser.press("t");
    assert_eq!(browser.evaluate("getComputedStyle(document.body).backgroundColor"), light, "the switch has precedence");
    browser.set_viewport(390, 844);
    browser.wait_until("innerWidth === 390 && document.documentElement.scrollWidth <= 390");
    browser.save_screenshot("phone");
    assert_eq!(browser.take_errors(), [""; 0]);
}

fn check_keys(browser: &Chromium) {
    browser.press("/");
    assert_eq!(browser.evaluate("document.activeElement.id"), "filter");
    browser.insert_text("no such session");
    browser.wait_until("document.querySelector('tr.nothing') !== null");
    browser.press("Escape");
    browser.wait_until("document.querySelectorAll('#rows tbody tr[data-key]').length === 3");
    assert_eq!(browser.evaluate("document.activeElement.id"), "window");
    browser.press("j");
    browser.press("j");
    let chosen = browser.evaluate("document.querySelector('tr.chosen').dataset.key");
    browser.press("Enter");
    browser.wait_until("document.getElementById('detail').open");
    let title = browser.text("#detail-title");
    assert_eq!(title, format!("Session {}", chosen.as_str().expect("a text")));
    browser.wait_until("document.getElementById('detail-facts').innerText.includes('client\\'s section')");
    browser.save_screenshot("detail");
    browser.press("Escape");
    browser.wait_until("!document.getElementById('detail').open");
}

#[test]
fn dashboard_asks_for_the_token_and_keeps_it_after_a_reload() {
    if is_skipped(&["chromium"]) {
        return;
    }
    let secret = Folder::new();
    let file = secret.write_with_mode("token", TOKEN, 0o600);
    let home = Home::start("kind = \"auto\"", &format!("token_file = \"{}\"\n", file.display()));
    let browser = Chromium::start(&[]);
    browser.navigate(&home.url());
    browser.wait_until("!document.getElementById('door').hidden && document.activeElement.id === 'token'");
    assert_eq!(browser.take_errors(), [""; 0]);
    browser.save_screenshot("token");
    browser.insert_text("not-the-token-at-all");
    browser.press("Enter");
    browser.wait_until("document.getElementById('door-trouble').innerText.includes('wrong token')");
    browser.insert_text(TOKEN);
    browser.press("Enter");
    browser.wait_until(LIVE);
    browser.wait_until("document.getElementById('door').hidden && !document.getElementById('main').hidden");
    browser.navigate(&home.url());
    browser.wait_until(LIVE);
    assert_eq!(browser.evaluate("document.cookie"), "", "every port of this host would get a cookie");
}

#[test]
fn dashboard_reports_a_lost_relay_and_reconnects() {
    if is_skipped(&["chromium"]) {
        return;
    }
    let (folder, admin) = (Folder::new(), unused_address().to_string());
    let relay = Home::run(&folder, &admin, "kind = \"auto\"", "");
    let browser = Chromium::start(&[]);
    browser.navigate(&format!("http://{admin}/"));
    browser.wait_until(LIVE);
    drop(relay);
    browser.wait_until("document.getElementById('state').dataset.state === 'lost'");
    assert!(browser.text("#banner").contains("trying again in"), "{}", browser.text("#banner"));
    let _relay = Home::run(&folder, &admin, "kind = \"auto\"", "");
    browser.wait_until(LIVE);
    assert_eq!(browser.text("#banner"), "");
}

/// Neither a page of another origin can read the API, nor a page of a foreign host name that resolves to the address of
/// the dashboard (DNS rebinding).
#[test]
fn pages_of_other_origins_cannot_read_the_api() {
    if is_skipped(&["chromium"]) {
        return;
    }
    let home = Home::start("kind = \"auto\"", "");
    let elsewhere = serve(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello");
    });
    let browser = Chromium::start(&["--host-resolver-rules=MAP evil.example 127.0.0.1"]);
    browser.navigate(&format!("http://{elsewhere}/"));
    browser.wait_until("document.body?.innerText === 'hello'");
    let fetch =
        |path: &str| format!("fetch('{}{path}').then(answer => answer.text(), error => error.name)", home.url());
    for path in ["api/sessions", "metrics", "api/stream", ""] {
        assert_eq!(browser.evaluate(&fetch(path)), "TypeError", "{path}");
    }
    browser.navigate(&format!("http://evil.example:{}/", home.admin().port()));
    browser.wait_until("document.body?.innerText.includes('unknown host name')");
}

#[test]
fn dashboard_shows_a_thousand_sessions() {
    if is_skipped(&["chromium"]) {
        return;
    }
    const COUNT: usize = 1000;
    // The test needs three descriptors for each session.
    let files = ekiden_sys::process::raise_open_file_limit().unwrap();
    assert!(files > 3 * COUNT as u64 + 200, "{files} files are too few for this test");
    let (listener, target) = server();
    let home = Home::start(&format!("kind = \"tcp\"\ntarget = \"{target}\""), "");
    let pairs: Vec<_> = (0..COUNT).map(|_| (connect(home.clients()), accept(&listener))).collect();
    let browser = Chromium::start(&[]);
    browser.set_viewport(1280, 1000);
    browser.navigate(&home.url());
    browser.wait_until(LIVE);
    browser.wait_until("document.getElementById('sessions-note').innerText.includes('900 more')");
    let drawn = "document.querySelectorAll('#rows tbody tr[data-key]').length";
    assert!(browser.evaluate(drawn).as_u64().unwrap() < 60, "too many rows are drawn: {}", browser.evaluate(drawn));
    browser.evaluate("document.getElementById('all').click()");
    browser.wait_until("document.getElementById('sessions-note').innerText === '1,000'");
    assert!(browser.evaluate(drawn).as_u64().unwrap() < 60, "too many rows are drawn: {}", browser.evaluate(drawn));
    browser.save_screenshot("thousand");
    // The last row can be scrolled into view, and a search finds one session of all.
    browser.evaluate("document.getElementById('window').scrollTop = 1e9");
    browser.wait_until("[...document.querySelectorAll('#rows tbody tr')].some(row => row.ariaRowIndex === '1001')");
    browser.press("/");
    browser.insert_text(&pairs[COUNT / 2].0.local_addr().unwrap().to_string());
    browser.wait_until(&format!("{drawn} === 1"));
    assert_eq!(browser.take_errors(), [""; 0]);
}

/// The limit is for phones with slow links.
#[test]
fn dashboard_files_stay_below_64_kib() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/relay/dashboard");
    let sizes = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    assert!(sizes.sum::<u64>() < 64 << 10);
}
