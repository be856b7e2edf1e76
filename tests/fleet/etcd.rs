//! An etcd of the test's own, and what an operator, or somebody who should not, does with it.

use std::net::TcpListener;
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
    folder: Folder,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let folder = Folder::new();
        let data = folder.0.join("data");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut etcd = Self { child: None, port: free_port(), peers: free_port(), data, options, folder };
        etcd.run();
        etcd
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts it where it was, with what it has.
    pub fn run(&mut self) {
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peers));
        let log = std::fs::File::create(self.folder.0.join("log")).unwrap();
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(&self.data).args(["--listen-client-urls", &client]);
        command.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        command.args(&self.options).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("etcd runs (Debian: etcd-server, etcd-client)"));
        eventually("etcd", || self.ctl(&["endpoint", "health"]).status.success().then_some(()));
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

    /// Runs etcdctl.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url()]).args(["--command-timeout", "5s"]);
        command.args(arguments).output().expect("etcdctl runs (Debian: etcd-client)")
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

    /// What stands at `key`; nothing when nothing does.
    pub fn value(&self, key: &str) -> Option<String> {
        let text = self.ask(&["get", key, "--print-value-only"]);
        // etcdctl ends it with a line break of its own.
        text.strip_suffix('\n').map(str::to_owned)
    }

    pub fn put(&self, key: &str, value: &str) {
        // By a file: a huge one is too long for a command line.
        let file = self.folder.write("value", value);
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(), "put", key]);
        let output = command.stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{key}: {}", String::from_utf8_lossy(&output.stderr));
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
