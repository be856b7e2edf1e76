//! The clients of docs/clients.md: each command of the page is run with the addresses of the test.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::others::publish_repository;
use super::programs::{Daemon, client, is_any_missing, program, run_to_end};
use super::servers::{Nginx, Sshd};
use crate::harness::{Folder, PYTHON, Relay, skipped, unused_address};

/// The proxy methods: the columns of the table.
const METHODS: [&str; 5] = ["SOCKS4", "SOCKS5", "HTTP", "CONNECT", "HTTPS proxy"];

/// The clients that `clients_slow/` tests, because their settings are not commands of a shell.
const BROWSERS: [&str; 2] = ["Chromium", "Firefox"];

/// Returns the commands of each client, as pairs of proxy method and command.
fn commands(page: &str) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let sections = page.split("\n## ").skip(1);
    let parsed = sections.map(|section| {
        let (name, text) = section.split_once('\n').unwrap();
        let block = text.split("```").nth(1).unwrap_or_default();
        let commands = block.split("\n# ").skip(1).map(|part| part.split_once('\n').unwrap()).collect();
        (name, commands)
    });
    parsed.collect()
}

/// Returns the proxy methods that each client of the table supports.
fn table(page: &str) -> BTreeMap<&str, Vec<&str>> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| program"));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let supported = |(cell, method): (&&str, &'static str)| (*cell == "yes").then_some(method);
            (cells[0], cells[1..].iter().zip(METHODS).filter_map(supported).collect())
        })
        .collect()
}

/// A relay, and servers that all serve the same text.
struct Fixture {
    relay: Relay,
    text: String,
    nginx: Nginx,
    sshd: Sshd,
    rsync: (u16, Daemon),
    folder: Folder,
}

impl Fixture {
    fn new() -> Self {
        let text: String = (0..4000).map(|number| format!("line {number}\n")).collect();
        let nginx = Nginx::with_tls().with_file("file", text.as_bytes());
        let folder = Folder::new();
        let tls = format!("auto://127.0.0.1:0?{}", nginx.tls_keys());
        let relay = Relay::listen(&["auto://127.0.0.1:0", &tls]);
        let sshd = Sshd::start();
        let fixture = Self { rsync: Self::rsync(&nginx, &folder), relay, text, nginx, sshd, folder };
        publish_repository(&fixture.folder, &fixture.nginx, "repository", &[("file", fixture.text.as_bytes())]);
        fixture.write_settings();
        fixture
    }

    fn rsync(nginx: &Nginx, folder: &Folder) -> (u16, Daemon) {
        let (address, files) = (unused_address(), nginx.path(""));
        let text = format!("use chroot = no\n[files]\npath = {}\n", files.display());
        let file = folder.write("rsyncd.conf", text);
        let mut rsync = program("rsync", folder);
        rsync.args(["--daemon", "--no-detach", "--address=127.0.0.1"]).arg(format!("--port={}", address.port()));
        (address.port(), Daemon::start(rsync.arg("--config").arg(file), &folder.0, address))
    }

    /// Writes the settings that are independent of the relay: the certificate of the test, and the address of the sshd.
    fn write_settings(&self) {
        let certificate = self.nginx.certificate();
        self.folder.write("wgetrc", format!("ca_certificate = {certificate}\ntries = 1\nquiet = on\n"));
        let apt = format!("Acquire::https::CaInfo \"{certificate}\";\nAPT::Sandbox::User \"root\";\n");
        self.folder.write("apt.conf", apt);
        let file = self.sshd.folder.write("file", &self.text);
        let place = self.sshd.folder.0.display();
        let ssh = format!(
            "Host example.com\nHostName localhost\nPort {}\nIdentityFile {place}/user\nIdentitiesOnly yes\nBatchMode yes\n\
             StrictHostKeyChecking no\nUserKnownHostsFile {place}/known\nLogLevel ERROR\nRemoteCommand cat {}\n",
            self.sshd.address.port(),
            file.display()
        );
        let config = self.folder.write("ssh_config", ssh);
        let ssh = super::programs::find("ssh").unwrap();
        let script = format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", ssh.display(), config.display());
        std::fs::create_dir(self.folder.0.join("bin")).unwrap();
        let script = self.folder.write("bin/ssh", script);
        std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Replaces the addresses in a command of the page by those of the test.
    fn adapt(&self, command: &str) -> String {
        let [relay, tls] = [0, 1].map(|listener| self.relay.address_of(listener).port());
        let (plain, secure) = (self.nginx.address.port(), self.nginx.secure.unwrap().port());
        let mut command = command.to_owned();
        for (page, test) in [
            ("127.0.0.1:1080", format!("127.0.0.1:{relay}")),
            ("127.0.0.1 1080", format!("127.0.0.1 {relay}")),
            ("port=1080", format!("port={relay}")),
            ("relay.example:443", format!("localhost:{tls}")),
            ("http://example.com/", format!("http://localhost:{plain}/")),
            ("https://example.com/", format!("https://localhost:{secure}/")),
            ("rsync://example.com/", format!("rsync://localhost:{}/", self.rsync.0)),
            ("example.com:443", format!("localhost:{secure}")),
            ("example.com:80", format!("localhost:{plain}")),
            ("example.com 80", format!("localhost {plain}")),
            ("127.0.0.1 80", format!("127.0.0.1 {plain}")),
            ("127.0.0.1:80/", format!("127.0.0.1:{plain}/")),
            ("python3 ", format!("{PYTHON} ")),
        ] {
            command = command.replace(page, &test);
        }
        command
    }

    /// Runs a command in its own folder. Asserts that the text is its output or is in a file of the folder, and that
    /// the relay has reported the download.
    fn check(&mut self, name: &str, method: &str, command: &str) {
        let (folder, certificate) = (Folder::new(), self.nginx.certificate());
        let path = format!("{}/bin:{}", self.folder.0.display(), std::env::var("PATH").unwrap());
        let mut shell = client("sh", &folder);
        shell.current_dir(&folder.0).env("PATH", path).env("GIT_CONFIG_NOSYSTEM", "1");
        folder.write(".curlrc", format!("cacert = {certificate}\nproxy-cacert = {certificate}\n"));
        for variable in ["GIT_SSL_CAINFO", "GIT_PROXY_SSL_CAINFO", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"] {
            shell.env(variable, &certificate);
        }
        shell.env("WGETRC", self.folder.0.join("wgetrc")).env("APT_CONFIG", self.folder.0.join("apt.conf"));
        let output = run_to_end(shell.args(["-c", &self.adapt(command)]));
        let read = |file: &str| std::fs::read(Path::new(&folder.0).join(file));
        let file = read("file").or_else(|_| read("repository/file")).unwrap_or_default();
        let arrived = output.out.ends_with(self.text.as_bytes()) || file == self.text.as_bytes();
        assert!(arrived, "{name} by {method}: {command}: {} {}", output.code, output.err);
        let size = self.text.len() as u64;
        let is_download =
            |event: &serde_json::Value| event["event"] == "closed" && event["bytes_down"].as_u64() >= Some(size / 4);
        let closed = self.relay.next(is_download);
        assert_eq!(closed["tls"].is_string(), method == "HTTPS proxy", "{name} by {method}: {closed}");
    }
}

#[test]
fn every_command_of_the_page_downloads_through_the_relay() {
    let page = include_str!("../../docs/clients.md");
    let (commands, table) = (commands(page), table(page));
    assert!(table.len() >= 12 && table.keys().eq(commands.keys()), "{table:?} {:?}", commands.keys());
    for (name, methods) in &table {
        let described: Vec<_> = commands[name].iter().map(|(method, _)| *method).collect();
        assert!(*name == "Chromium" || described == *methods, "{name}: {described:?} {methods:?}");
    }
    if is_any_missing(&["nginx", "openssl", "sshd", "ssh-keygen", "rsync"]) {
        return;
    }
    let mut fixture = Fixture::new();
    for (name, commands) in commands.into_iter().filter(|(name, _)| !BROWSERS.contains(name)) {
        let program = name.split(' ').next().unwrap();
        let program = if program == "apt" || program == "Python" { "sh" } else { program };
        if super::programs::find(program).is_none() {
            skipped(format_args!("{program} is missing, scripts/setup installs it"));
            continue;
        }
        commands.iter().for_each(|(method, command)| fixture.check(name, method, command));
    }
}
