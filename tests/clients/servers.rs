//! The servers of the tests: nginx as the origin, dante and squid as proxies, haproxy as a load balancer, and sshd.
//! Each server has its own folder and port.
#![allow(dead_code, reason = "the quick and the slow clients use their own parts of it")]

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::{Daemon, client, is_root, program, run_successfully};
use crate::harness::{Folder, eventually, unused_address};

/// squid's helper that reads htpasswd files.
pub const AUTHENTICATION_OF_SQUID: &str = "/usr/lib/squid/basic_ncsa_auth";

/// nginx with a folder of files, over HTTP and optionally HTTPS.
pub struct Nginx {
    pub address: SocketAddr,
    pub secure: Option<SocketAddr>,
    folder: Folder,
    daemon: Option<Daemon>,
}

impl Nginx {
    pub fn start() -> Self {
        let folder = Folder::new();
        std::fs::create_dir_all(folder.0.join("www/put")).expect("a folder");
        let mut nginx = Self { address: unused_address(), secure: None, folder, daemon: None };
        nginx.restart();
        nginx
    }

    /// Like `start`, with a second port for HTTPS and a self-signed certificate for localhost.
    pub fn with_tls() -> Self {
        let mut nginx = Self::start();
        let mut openssl = program("openssl", &nginx.folder);
        openssl.current_dir(&nginx.folder.0).args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        // Firefox refuses the certificate of an authority as that of a server.
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        run_successfully(openssl.args(["-keyout", "key.pem", "-out", "certificate.pem"]));
        nginx.secure = Some(unused_address());
        nginx.restart();
        nginx
    }

    /// Kills nginx with all its connections, and starts it again at the same address.
    pub fn restart(&mut self) {
        self.daemon = None;
        let address = self.secure.unwrap_or(self.address);
        self.daemon = Some(start_nginx(&self.folder, &self.configuration(), address));
    }

    /// Returns the contents of the block `http`.
    fn configuration(&self) -> String {
        let folder = self.folder.0.display();
        let address = self.address;
        let secure = self.secure.map_or_else(String::new, |secure| {
            format!("listen {secure} ssl; ssl_certificate certificate.pem; ssl_certificate_key key.pem;")
        });
        format!(
            r#"log_format seen '$connection_requests $request_method $request_uri $status "$http_via"';
            access_log access.log seen;
            types {{ text/html html; text/css css; text/javascript js; image/svg+xml svg; }}
            default_type application/octet-stream;
            gzip_proxied any; gzip_types *; gzip_min_length 1;
            server {{
                listen {address}; {secure}
                root {folder}/www;
                location /gzip/ {{ alias {folder}/www/; gzip on; }}
                location /put/ {{ dav_methods PUT; client_max_body_size 0; }}
                location /small/ {{ dav_methods PUT; client_max_body_size 1k; }}
                location = /moved {{ return 302 http://localhost:$server_port/here; }}
            }}
            "#
        )
    }

    /// Returns the path of the file that nginx serves as `/name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join("www").join(name)
    }

    /// Adds a file with this content.
    pub fn with_file(self, name: &str, bytes: &[u8]) -> Self {
        std::fs::write(self.path(name), bytes).expect("a file to be served");
        self
    }

    /// Returns `http://127.0.0.1:PORT/name`.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Like `url`, with the host name localhost.
    pub fn named_url(&self, name: &str) -> String {
        format!("http://localhost:{}/{name}", self.address.port())
    }

    pub fn secure_url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.secure.expect("started with TLS").port())
    }

    pub fn certificate(&self) -> String {
        self.folder.0.join("certificate.pem").display().to_string()
    }

    /// Returns the keys of a listener URL that set the certificate and the private key of this server.
    pub fn tls_keys(&self) -> String {
        let folder = self.folder.0.display();
        format!("tls_certificate={folder}/certificate.pem&tls_key={folder}/key.pem")
    }

    /// Waits until the access log has `count` lines, and returns all lines. The fields of a line are the number of the
    /// request on its connection, method, path, status and `Via`.
    pub fn wait_requests(&self, count: usize) -> Vec<String> {
        eventually("lines in the access log", || {
            let text = std::fs::read_to_string(self.folder.0.join("access.log")).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
    }
}

/// Starts nginx with `http` as the contents of the block `http`, and waits until `address` accepts connections.
fn start_nginx(folder: &Folder, http: &str, address: SocketAddr) -> Daemon {
    let path = folder.0.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {path}/{kind};\n"))
        .concat();
    // One process, so that one SIGKILL ends all connections.
    let text = format!(
        "daemon off; master_process off; user root; pid nginx.pid; error_log error.log;\n\
         events {{ worker_connections 1024; }}\nhttp {{\n{temporary}{http}}}\n"
    );
    let file = folder.write("nginx.conf", text);
    let mut nginx = program("nginx", folder);
    nginx.args(["-e", "error.log", "-p"]).arg(&folder.0).arg("-c").arg(file);
    Daemon::start(&mut nginx, &folder.0, address)
}

/// Waits until a log has `text`.
fn wait_for_text(log: &Path, text: &str) {
    let read = || std::fs::read_to_string(log).unwrap_or_default();
    eventually(&format!("{text} in {}", log.display()), || read().contains(text).then_some(()));
}

/// dante, a SOCKS server.
pub struct Dante {
    pub address: SocketAddr,
    folder: Folder,
    _daemon: Daemon,
}

impl Dante {
    pub fn start() -> Self {
        Self::with("none", "pass", "")
    }

    /// Starts a dante that forwards to the SOCKS server at `next`.
    pub fn forwarding_to(next: SocketAddr) -> Self {
        let (ip, port) = (next.ip(), next.port());
        let everything = "from: 0.0.0.0/0 to: 0.0.0.0/0";
        let route = format!("route {{\n {everything} via: {ip} port = {port}\n proxyprotocol: socks_v5\n}}\n");
        Self::with("none", "pass", &route)
    }

    /// Starts a dante with this authentication method; `verdict` is `pass` or `block`, for every request.
    pub fn with_authentication(method: &str, verdict: &str) -> Self {
        Self::with(method, verdict, "")
    }

    fn with(method: &str, verdict: &str, route: &str) -> Self {
        let (address, folder) = (unused_address(), Folder::new());
        // Only a process of root can change its user.
        let users = if is_root() { "user.privileged: root\nuser.unprivileged: root\n" } else { "" };
        let text = format!(
            "logoutput: {}/dante.log\ninternal: 127.0.0.1 port = {}\nexternal: lo\nsocksmethod: {method}\n\
             clientmethod: none\n{users}client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}\n\
             socks {verdict} {{ from: 0.0.0.0/0 to: 0.0.0.0/0\n log: connect }}\n{route}",
            folder.0.display(),
            address.port()
        );
        let path = folder.write("dante.conf", text);
        let mut dante = program("danted", &folder);
        let daemon = Daemon::start(dante.arg("-f").arg(path), &folder.0, address);
        Self { address, folder, _daemon: daemon }
    }

    /// Returns the URL of this server for `-F`.
    pub fn hop(&self) -> String {
        format!("socks5://{}", self.address)
    }

    /// Waits until the log has `text`, as proof that the path led through this server.
    pub fn wait_logged(&self, text: &str) {
        wait_for_text(&self.folder.0.join("dante.log"), text);
    }
}

/// squid, an HTTP proxy.
pub struct Squid {
    pub address: SocketAddr,
    folder: Folder,
    /// The service name (`-n`), unique on the host: the names of squid's shared memory begin with it.
    service: String,
    _daemon: Daemon,
}

impl Drop for Squid {
    fn drop(&mut self) {
        for part in ["metadata", "queues", "readers"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{}-cf__{part}.shm", self.service));
        }
    }
}

impl Squid {
    /// Starts a squid that admits every client to every target.
    pub fn start() -> Self {
        Self::with(Folder::new(), "http_access allow all\n")
    }

    /// Starts a squid that admits only the users in this htpasswd text.
    pub fn with_users(htpasswd: &str) -> Self {
        let folder = Folder::new();
        let path = folder.write("users", htpasswd);
        let rules = format!(
            "auth_param basic program {AUTHENTICATION_OF_SQUID} {}\nauth_param basic children 1 startup=1\n\
             acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n",
            path.display()
        );
        Self::with(folder, &rules)
    }

    /// Starts a squid that forwards to the HTTP proxy at `next`, with these credentials.
    pub fn forwarding_to(next: SocketAddr, login: &str) -> Self {
        let (ip, port) = (next.ip(), next.port());
        let rules = format!(
            "http_access allow all\ncache_peer {ip} parent {port} 0 no-query no-digest default login={login}\n\
             never_direct allow all\n"
        );
        Self::with(Folder::new(), &rules)
    }

    fn with(folder: Folder, rules: &str) -> Self {
        let address = unused_address();
        // squid changes from root to its own user, which must be able to write here.
        std::fs::set_permissions(&folder.0, Permissions::from_mode(0o777)).expect("a folder of the test");
        let place = folder.0.display();
        let text = format!(
            "http_port {address}\n{rules}cache deny all\naccess_log stdio:{place}/access.log\n\
             cache_log {place}/cache.log\npid_filename {place}/squid.pid\ncoredump_dir {place}\n\
             visible_hostname squid.test\nshutdown_lifetime 0 seconds\npinger_enable off\nnetdb_filename none\n"
        );
        let path = folder.write("squid.conf", text);
        let service = format!("ekidentest{}x{}", std::process::id(), address.port());
        let mut squid = program("squid", &folder);
        let daemon = Daemon::start(squid.args(["-N", "-n", &service, "-f"]).arg(path), &folder.0, address);
        Self { address, folder, service, _daemon: daemon }
    }

    /// Returns the URL of this server for `-F`.
    pub fn hop(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the access log has `text`, as proof that the path led through this server.
    pub fn wait_logged(&self, text: &str) {
        wait_for_text(&self.folder.0.join("access.log"), text);
    }
}

/// A running haproxy that forwards TCP connections.
pub struct Haproxy {
    pub address: SocketAddr,
    _daemon: Daemon,
    _folder: Folder,
}

impl Haproxy {
    /// Starts haproxy. `bind_options` and `server_options` are the words after the two addresses in the configuration.
    pub fn start(bind_options: &str, server: SocketAddr, server_options: &str) -> Self {
        let (folder, address) = (Folder::new(), unused_address());
        let text = format!(
            "defaults\n mode tcp\n timeout connect 30s\n timeout client 30s\n timeout server 30s\n\
             listen balancer\n bind {address} {bind_options}\n server behind {server} {server_options}\n"
        );
        let file = folder.write("haproxy.cfg", text);
        let mut command = program("haproxy", &folder);
        command.args(["-db", "-f"]).arg(file);
        let daemon = Daemon::start(&mut command, &folder.0, address);
        Self { address, _daemon: daemon, _folder: folder }
    }
}

/// nginx that requires a PROXY header on each connection, and answers each HTTP request with the address in the header
/// and the number of the request on its connection.
pub struct NginxBehindProxy {
    pub address: SocketAddr,
    _daemon: Daemon,
    _folder: Folder,
}

impl NginxBehindProxy {
    pub fn start() -> Self {
        let (folder, address) = (Folder::new(), unused_address());
        let http = format!(
            "access_log off; server {{ listen {address} proxy_protocol;\n\
             return 200 \"$proxy_protocol_addr:$proxy_protocol_port $connection_requests\"; }}\n"
        );
        let daemon = start_nginx(&folder, &http, address);
        Self { address, _daemon: daemon, _folder: folder }
    }
}

/// An sshd with its own keys, settings and authorized users.
pub struct Sshd {
    pub address: SocketAddr,
    pub folder: Folder,
    _daemon: Daemon,
}

impl Sshd {
    pub fn start() -> Self {
        let (address, folder) = (unused_address(), Folder::new());
        for name in ["host", "user"] {
            let mut keygen = program("ssh-keygen", &folder);
            run_successfully(keygen.current_dir(&folder.0).args(["-q", "-t", "ed25519", "-N", "", "-f", name]));
        }
        let place = folder.0.display();
        let text = format!(
            "ListenAddress {address}\nHostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\nStrictModes no\n\
             PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nLogLevel VERBOSE\n"
        );
        let path = folder.write("sshd.conf", text);
        // The folder for sshd's privilege separation; Debian creates it when the service starts.
        let _ = std::fs::create_dir_all("/run/sshd");
        let mut sshd = program("sshd", &folder);
        let daemon = Daemon::start(sshd.args(["-D", "-e", "-f"]).arg(path), &folder.0, address);
        Self { address, folder, _daemon: daemon }
    }

    /// Returns the command `ssh -o ProxyCommand=... COMMAND`, without the user's settings.
    pub fn command(&self, proxy_command: &str, command: &str) -> Command {
        let mut ssh = client("ssh", &self.folder);
        let user = run_successfully(Command::new("id").arg("-un"));
        let user = String::from_utf8(user).expect("a name");
        ssh.current_dir(&self.folder.0).args(["-F", "/dev/null", "-i", "user", "-l", user.trim()]);
        for option in ["IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=known"] {
            ssh.args(["-o", option]);
        }
        ssh.arg("-o").arg(format!("ProxyCommand={proxy_command}"));
        ssh.args(["-p", &self.address.port().to_string(), "127.0.0.1", command]);
        ssh
    }
}
