//! An etcd of the test's own, and what an operator, or somebody who should not, does with it.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crate::harness::*;

/// A server of etcd. Its process ends with it.
pub struct Etcd {
    child: Option<Child>,
    /// Where clients ask.
    pub port: u16,
    peers: u16,
    data: PathBuf,
    options: Vec<String>,
    /// Who etcdctl is there, `NAME:PASSWORD`, once there are users.
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

    /// Starts it where it was, with what it has.
    pub fn run(&mut self) {
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peers));
        let path = self.folder.0.join("log");
        let log = std::fs::File::create(&path).unwrap();
        // It ends with the test's thread, also where that was killed.
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
        eventually("etcd", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("etcd ended: {status}: {}", std::fs::read_to_string(&path).unwrap());
            }
            TcpStream::connect(("127.0.0.1", self.port)).ok()
        });
        eventually("etcd to be well", || self.ctl(&["endpoint", "health"]).status.success().then_some(()));
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id();
        assert!(Command::new("kill").args(["-s", name, &id.to_string()]).status().unwrap().success());
    }

    /// Has users from now on: root, who may everything, and these, who may `permission` under `prefix`.
    pub fn let_in_only(&mut self, users: &[(&str, &str)], permission: &str, prefix: &str) {
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

    /// Gives a user another password; what it was called by so far is forgotten.
    pub fn set_password(&self, name: &str, password: &str) {
        let mut command = self.etcdctl();
        command.args(["user", "passwd", name, "--interactive=false"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Forgets everything that was before now.
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

    /// Runs etcdctl.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        self.etcdctl().args(arguments).output().expect("etcdctl runs (Debian: etcd-client)")
    }

    /// The same, where it has to succeed; what it says.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        let text = self.ask(&["get", "", "--prefix", "--keys-only"]);
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// The leases that run.
    pub fn leases(&self) -> Vec<String> {
        self.ask(&["lease", "list"]).lines().skip(1).map(str::to_owned).collect()
    }

    /// What stands at `key`; nothing when nothing does.
    pub fn value(&self, key: &str) -> Option<String> {
        let text = self.ask(&["get", key, "--print-value-only"]);
        // etcdctl ends it with a line break of its own.
        text.strip_suffix('\n').map(str::to_owned)
    }

    /// The revision since which something stands at `key` without a break.
    pub fn stands_since(&self, key: &str) -> u64 {
        let answer: serde_json::Value = serde_json::from_str(&self.ask(&["get", key, "--write-out", "json"])).unwrap();
        answer["kvs"][0]["create_revision"].as_u64().expect("it stands there")
    }

    pub fn put(&self, key: &str, value: &str) {
        // By a file: a huge one is too long for a command line.
        let file = self.folder.write("value", value);
        let output = self.etcdctl().args(["put", key]).stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{key}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Puts many at once; `puts` is what etcdctl calls them, one in a line.
    pub fn puts(&self, puts: &str) {
        let file = self.folder.write("puts", format!("\n{puts}\n\n"));
        let output = self.etcdctl().arg("txn").stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Copies everything, as an operator makes a backup.
    pub fn backup(&self) -> PathBuf {
        let file = self.folder.0.join("backup");
        self.ask(&["snapshot", "save", &file.display().to_string()]);
        file
    }

    /// Goes back to the copy: its revisions are those of then.
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
