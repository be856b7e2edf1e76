//! A headless Firefox loads a page with sub-resources, in a network namespace with loopback only. Firefox has no option
//! that prints the page, so the test waits for the result that the page sends, and then ends Firefox.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ekiden_sys::netns;

use super::is_skipped;
use super::programs::{program, run_successfully};
use super::site::{Site, Visit};
use crate::harness::{Folder, HTPASSWD, Relay, eventually_within, skipped};

/// Debian's name of the program.
const FIREFOX: &str = "firefox-esr";

const PAGE: &str = include_str!("../../docs/clients.md");

/// Timeout of a wait for a page: Firefox runs many processes, perhaps on one busy core.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(60);

/// Script of the first process in the PID namespace of Firefox. The process ends when its standard input ends, even if
/// the test is killed; the kernel then kills all other processes of the namespace (pid_namespaces(7)).
const FIRST: &str = r#""$@" </dev/null & read -r end"#;

/// Settings of the profile except those of the proxy: requests to localhost use the proxy, and Firefox sends no
/// background requests, which would fail in the namespace.
const SETTINGS: &str = r#"
user_pref("network.proxy.allow_hijacking_localhost", true);
user_pref("signon.autologin.proxy", true);
user_pref("app.normandy.enabled", false);
user_pref("browser.region.network.url", "");
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("browser.topsites.contile.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("dom.push.connection.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("media.gmp-manager.updateEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,");
user_pref("toolkit.telemetry.server", "");
"#;

/// Python script that saves a login as Firefox does: encrypted with the key in the NSS database of the profile.
const SAVE_LOGIN: &str = r#"
import base64, ctypes, json, sys
profile, origin, user, password = sys.argv[1:]
nss = ctypes.CDLL("libnss3.so")
class Item(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint), ("data", ctypes.c_void_p), ("len", ctypes.c_uint)]
def encrypt(text):
    data = text.encode()
    source = Item(0, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))
    key, result = Item(0, None, 0), Item(0, None, 0)
    assert nss.PK11SDR_Encrypt(ctypes.byref(key), ctypes.byref(source), ctypes.byref(result), None) == 0
    return base64.b64encode(ctypes.string_at(result.data, result.len)).decode()
assert nss.NSS_InitReadWrite(f"sql:{profile}".encode()) == 0
login = {"id": 1, "hostname": origin, "httpRealm": "ekiden", "formSubmitURL": None, "usernameField": "", "passwordField": "",
         "encryptedUsername": encrypt(user), "encryptedPassword": encrypt(password), "encType": 1,
         "guid": "{00000000-0000-0000-0000-000000000001}", "timeCreated": 1, "timeLastUsed": 1, "timePasswordChanged": 1,
         "timesUsed": 1}
nss.NSS_Shutdown()
with open(f"{profile}/logins.json", "w") as file:
    json.dump({"nextId": 2, "logins": [login], "version": 3}, file)
"#;

/// A running Firefox, whose processes all end when the value is dropped.
struct Firefox {
    child: Child,
    profile: Folder,
}

impl Firefox {
    fn start(profile: Folder, url: &str) -> Self {
        let output = File::create(profile.0.join("said")).expect("a file for the output");
        let mut firefox = program("unshare", &profile);
        firefox.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", FIRST, "sh", FIREFOX]);
        firefox.args(["--headless", "--no-remote", "--profile"]).arg(&profile.0).arg(url);
        // Without this variable Firefox ignores `services.settings.server`.
        firefox.env("MOZ_REMOTE_SETTINGS_DEVTOOLS", "1").env("MOZ_CRASHREPORTER_DISABLE", "1");
        firefox.stdin(Stdio::piped()).stdout(output.try_clone().expect("a descriptor")).stderr(output);
        Self { child: firefox.spawn().expect("unshare runs"), profile }
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "output of Firefox: {}",
                std::fs::read_to_string(self.profile.0.join("said")).unwrap_or_default()
            );
        }
    }
}

/// Runs a test in its own network namespace, which has loopback only.
fn run_isolated(test: impl FnOnce() + Send) {
    let namespace = match netns::new_network_namespace() {
        Ok(namespace) => namespace,
        Err(error) => return skipped(format_args!("no network namespaces: {error}; this test needs root")),
    };
    let entered = || {
        netns::enter_network_namespace(namespace.as_fd()).expect("the namespace is open");
        run_successfully(Command::new("ip").args(["link", "set", "lo", "up"]));
        test();
    };
    std::thread::scope(|scope| scope.spawn(entered).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Returns the settings of docs/clients.md for this proxy method, with the address of the relay.
fn proxy_settings(method: &str, relay: &Relay) -> String {
    let section = PAGE.split("\n## Firefox\n").nth(1).expect("a section");
    let block = section.split("```").nth(1).expect("a block");
    let settings = block.split("# ").find_map(|part| part.strip_prefix(&format!("{method}\n"))).expect("settings");
    let port = relay.address().port();
    settings.replace("1080", &port.to_string()).replace("relay.example:443", &format!("localhost:{port}"))
}

/// Creates a profile that trusts the certificate of the site.
fn make_profile(site: &Site, settings: &str) -> Folder {
    let profile = Folder::new();
    profile.write("user.js", settings);
    let database = format!("sql:{}", profile.0.display());
    run_successfully(program("certutil", &profile).args(["-N", "--empty-password", "-d", &database]));
    let mut trust = program("certutil", &profile);
    run_successfully(trust.args(["-A", "-d", &database, "-n", "test", "-t", "C,,", "-i", &site.nginx.certificate()]));
    profile
}

/// Loads the page through the relay by this proxy method of docs/clients.md. With `user`, the relay requires the saved
/// password.
fn browse(method: &str, secure: bool, user: Option<&str>) {
    if is_skipped(&[FIREFOX, "certutil", "ip", "nginx", "openssl", "python3", "unshare"]) {
        return;
    }
    let (proxy, host) = match method {
        "SOCKS4" => ("socks4", "127.0.0.1"),
        "SOCKS5" => ("socks5", "127.0.0.1"),
        "HTTPS proxy" => ("https", "localhost"),
        _ => ("http", "127.0.0.1"),
    };
    run_isolated(|| {
        let (site, folder) = (Site::start(), Folder::new());
        let users = folder.write_with_mode("users", HTPASSWD, 0o600);
        let users = user.map(|_| format!("users={}&pac=true", users.display()));
        let tls = (proxy == "https").then(|| site.nginx.tls_keys());
        let keys: Vec<_> = users.into_iter().chain(tls).collect();
        let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0?{}", keys.join("&"))]);
        let profile = make_profile(&site, &format!("{SETTINGS}{}", proxy_settings(method, &relay)));
        if let Some(user) = user {
            let origin = format!("moz-proxy://{host}:{}", relay.address().port());
            let mut python = program("python3", &profile);
            run_successfully(python.args(["-c", SAVE_LOGIN]).arg(&profile.0).args([&origin, user, "correct horse"]));
        }
        let firefox = Firefox::start(profile, &site.url(secure));
        let result = eventually_within(BROWSER_TIMEOUT, "the result of the page", || site.result());
        drop(firefox);
        assert_eq!(result, site.expected());
        // Even with SOCKS4, Firefox sends the name to the relay (as SOCKS4a).
        site.check_sessions(&mut relay, &Visit { proxy, secure, host: "localhost", user });
    });
}

#[test]
fn firefox_loads_http_through_an_http_proxy() {
    browse("HTTP", false, None);
}

#[test]
fn firefox_loads_https_over_connect() {
    browse("CONNECT", true, None);
}

#[test]
fn firefox_loads_http_over_socks5() {
    browse("SOCKS5", false, None);
}

#[test]
fn firefox_loads_https_over_socks5() {
    browse("SOCKS5", true, None);
}

#[test]
fn firefox_loads_http_over_socks4() {
    browse("SOCKS4", false, None);
}

/// Firefox uses an HTTPS proxy only with a PAC script, here the relay's.
#[test]
fn firefox_loads_http_through_an_https_proxy() {
    browse("HTTPS proxy", false, None);
}

#[test]
fn firefox_loads_https_through_an_https_proxy() {
    browse("HTTPS proxy", true, None);
}

#[test]
fn firefox_uses_a_saved_password_for_an_http_proxy() {
    browse("HTTP", false, Some("ann"));
}

#[test]
fn firefox_uses_a_saved_password_for_an_https_proxy() {
    browse("HTTPS proxy", true, Some("ann"));
}
