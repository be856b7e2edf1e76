//! `ekiden check` accepts each configuration of the pages, in a folder with the files that the configuration names.

use std::process::Output;

use crate::code_blocks::{Kind, pages};
use crate::harness::{Folder, Key, ekiden, self_signed};

/// A users file; its password is never used.
const USERS: &str = "alice:$2b$04$viMzP/EMi/LpemU8Fzw1qeBk.G4z/ZJbDd71mBZVhESZ9/hS5tBz2\n";

/// A folder that replaces /etc/ekiden, /var/lib/ekiden and the working directory of ekiden.
struct Workspace {
    folder: Folder,
    fleet: String,
}

impl Workspace {
    fn new() -> Self {
        let (folder, key) = (Folder::new(), Key::new());
        folder.write("users", USERS);
        folder.write("peers", format!("{} home\n", Key::new().public));
        folder.write_with_mode("token", "7".repeat(48), 0o600);
        for name in ["key", "etcd"] {
            folder.write_with_mode(name, std::fs::read(&key.file).unwrap(), 0o600);
        }
        self_signed(&folder.0.join("tls.key"), &folder.0.join("certificate.pem"), "relay");
        std::fs::copy(folder.0.join("certificate.pem"), folder.0.join("clients.pem")).unwrap();
        let mut workspace = Self { folder, fleet: String::new() };
        let keys = workspace.run(&["fleet", "keygen"]);
        workspace.folder.write_with_mode("fleet.key", &keys, 0o600);
        workspace.fleet = keys.lines().find_map(|line| line.split_once("public-key: ")).expect("a key").1.to_owned();
        let request = workspace.run(&["fleet", "request", "--key", "key"]);
        let sign = "fleet sign --key fleet.key --name osaka --address osaka.example:4000 --days 365";
        let sign: Vec<&str> = sign.split(' ').chain([request.trim()]).collect();
        workspace.folder.write("osaka.cert", workspace.run(&sign));
        workspace
    }

    fn ekiden(&self, arguments: &[&str]) -> Output {
        let mut command = ekiden();
        // Variables that the configurations of the pages use.
        command.envs([("PROXY_USER", "me"), ("PROXY_PASSWORD", "word")]);
        command.args(arguments).current_dir(&self.folder.0).output().expect("ekiden runs")
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.ekiden(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Completes a configuration: paths in the folder, keys in place of their placeholders, a version and a listener.
    fn complete_configuration(&self, text: &str) -> String {
        let place = format!("{}/", self.folder.0.display());
        let text = text.replace("/etc/ekiden/", &place).replace("/var/lib/ekiden/", &place);
        let mut lines: Vec<String> = text.lines().map(|line| self.with_key(line)).collect();
        if !text.lines().any(|line| line.starts_with("version = ")) {
            lines.insert(0, "version = 1".to_owned());
        }
        if !text.contains("[[listener]]") {
            lines.push("[[listener]]\nbind = \"127.0.0.1:0\"".to_owned());
        }
        lines.join("\n")
    }

    /// Replaces the placeholder in `key = "PLACEHOLDER"` by a public key. A value with a slash is a path, and is kept.
    fn with_key(&self, line: &str) -> String {
        let Some((value, rest)) = line.strip_prefix("key = \"").and_then(|rest| rest.split_once('"')) else {
            return line.to_owned();
        };
        match value {
            "FLEET-PUBLIC-KEY" => format!("key = {:?}{rest}", self.fleet),
            file if file.contains('/') => line.to_owned(),
            _ => format!("key = {:?}{rest}", Key::new().public),
        }
    }
}

#[test]
fn every_configuration_passes_its_check() {
    let workspace = Workspace::new();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for block in page.blocks() {
            let (command, text) = match block.kind() {
                Some(Kind::Checked) => ("check", workspace.complete_configuration(&block.text)),
                Some(Kind::Plan) => ("plan", block.text.clone()),
                _ => continue,
            };
            count += 1;
            workspace.folder.write("page.toml", text);
            let output = workspace.ekiden(&[command, "page.toml"]);
            if output.status.code() != Some(0) {
                wrong.push(format!("{}: {}", block.place(), String::from_utf8_lossy(&output.stderr)));
            }
        }
    }
    eprintln!("{count} configurations");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 5, "only {count} configurations were found");
}

#[test]
fn invalid_configurations_fail_check() {
    let workspace = Workspace::new();
    for wrong in [
        "[[listener]]\nbnid = \"127.0.0.1:0\"",
        "[profile.p]\nrto_min = \"4ms\"\ncolour = 1",
        "[timeouts]\nhold = \"3\"",
    ] {
        workspace.folder.write("page.toml", workspace.complete_configuration(wrong));
        assert_eq!(workspace.ekiden(&["check", "page.toml"]).status.code(), Some(2), "{wrong}");
    }
}
