//! An etcd server of the test, and the changes that an operator or an attacker makes in it.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::*;

/// An etcd server, killed when the value is dropped.
pub struct Etcd {
    child: Option<Child>,
    /// The port for clients.
    pub port: u16,
    peers: u16,
    data: PathBuf,
    options: Vec<String>,
    /// The user of etcdctl, `NAME:PASSWORD`, once authentication is enabled.
    user: Option<&'static str>,
    folder: Folder,
}

impl Etcd {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let folder = Folder::new();
        let data = folder.0.join("data");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut etcd = Self { child: None, port: free_port(), peers: free_port(), data, options, user: None, folder };
        etcd.run();
        etcd
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts the server at its port, with its existing data.
    pub fn run(&mut self) {
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peers));
        let path = self.folder.0.join("log");
        let log = std::fs::File::create(&path).unwrap();
        // The kernel kills the server when the thread of the test ends, even if the test is killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "etcd", "--data-dir"])
            .arg(&self.data)
            .args(["--listen-client-urls", &client]);
        command.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        command.args(&self.options).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("etcd runs (Debian: etcd-server, etcd-client, util-linux)");
        let child = self.child.insert(child);
        eventually("the port of etcd", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("etcd ended: {status}: {}", std::fs::read_to_string(&path).unwrap());
            }
            TcpStream::connect(("127.0.0.1", self.port)).ok()
        });
        eventually("a healthy etcd", || self.ctl(&["endpoint", "health"]).status.success().then_some(()));
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("etcd runs").id();
        assert!(Command::new("kill").args(["-s", name, &id.to_string()]).status().unwrap().success());
    }

    /// Enables authentication: user root with all permissions, and these users with `permission` under `prefix`.
    pub fn enable_authentication(&mut self, users: &[(&str, &str)], permission: &str, prefix: &str) {
        self.ask(&["role", "add", "fleet"]);
        self.ask(&["role", "grant-permission", "fleet", "--prefix=true", permission, prefix]);
        for (name, password) in users {
            self.ask(&["user", "add", &format!("{name}:{password}")]);
            self.ask(&["user", "grant-role", name, "fleet"]);
        }
        self.ask(&["user", "add", "root:root"]);
        self.ask(&["user", "grant-role", "root", "root"]);
        self.ask(&["auth", "enable"]);
        self.user = Some("root:root");
    }

    /// Gives a user another password; etcd then invalidates the user's tokens.
    pub fn set_password(&self, name: &str, password: &str) {
        let mut command = self.etcdctl();
        command.args(["user", "passwd", name, "--interactive=false"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Compacts all revisions before the current one.
    pub fn compact(&self) {
        let answer: serde_json::Value = serde_json::from_str(&self.ask(&["get", "x", "--write-out", "json"])).unwrap();
        self.ask(&["compaction", "--physical", &answer["header"]["revision"].to_string()]);
    }

    fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(), "--command-timeout", "5s"]);
        command.envs(self.user.map(|user| ("ETCDCTL_USER", user)));
        command
    }

    /// Runs `etcdctl ARGUMENTS`, and returns its result.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        self.etcdctl().args(arguments).output().expect("etcdctl runs (Debian: etcd-client)")
    }

    /// Runs `etcdctl ARGUMENTS`, which must succeed. Returns its output.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns all keys in etcd, with their values.
    pub fn entries(&self) -> Vec<(String, String)> {
        let answer: serde_json::Value =
            serde_json::from_str(&self.ask(&["get", "", "--prefix", "--write-out", "json"])).unwrap();
        let text = |field: &serde_json::Value| {
            let bytes = STANDARD.decode(field.as_str().unwrap_or_default()).expect("base64");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let entries = answer["kvs"].as_array().into_iter().flatten();
        entries.map(|entry| (text(&entry["key"]), text(&entry["value"]))).collect()
    }

    /// Returns the leases that have not expired.
    pub fn leases(&self) -> Vec<String> {
        self.ask(&["lease", "list"]).lines().skip(1).map(str::to_owned).collect()
    }

    /// Returns the value of `key`; `None` if the key does not exist.
    pub fn value(&self, key: &str) -> Option<String> {
        let text = self.ask(&["get", key, "--print-value-only"]);
        // etcdctl appends a line break.
        text.strip_suffix('\n').map(str::to_owned)
    }

    /// Returns the revision at which `key` was created.
    pub fn create_revision(&self, key: &str) -> u64 {
        let answer: serde_json::Value = serde_json::from_str(&self.ask(&["get", key, "--write-out", "json"])).unwrap();
        answer["kvs"][0]["create_revision"].as_u64().expect("the key exists")
    }

    pub fn put(&self, key: &str, value: &str) {
        // From a file: a large value exceeds the limit of a command line.
        let file = self.folder.write("value", value);
        let output = self.etcdctl().args(["put", key]).stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{key}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Puts many keys in one transaction; `puts` has one `put` command of etcdctl on each line.
    pub fn puts(&self, puts: &str) {
        let file = self.folder.write("puts", format!("\n{puts}\n\n"));
        let output = self.etcdctl().arg("txn").stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Saves a snapshot, as an operator does for a backup. Returns its path.
    pub fn backup(&self) -> PathBuf {
        let file = self.folder.0.join("backup");
        self.ask(&["snapshot", "save", &file.display().to_string()]);
        file
    }

    /// Kills the server, replaces its data and revisions by those of the snapshot, and starts the server again.
    pub fn restore(&mut self, backup: &PathBuf) {
        self.kill();
        std::fs::remove_dir_all(&self.data).unwrap();
        let peer = format!("http://127.0.0.1:{}", self.peers);
        let restored = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(backup)
            .arg("--data-dir")
            .arg(&self.data)
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            .output()
            .unwrap();
        assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        self.run();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
