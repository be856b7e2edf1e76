//! Files of a release: the RPM and the archive, checksums and signatures, and the examples for containers and Ansible.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Folder, Key, PYTHON, Relay, ekiden, skipped};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns whether the programs are installed. If not, prints that the test is skipped, with the missing programs.
fn has_programs(programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    let missing: Vec<_> = programs.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        skipped(format_args!("these programs are missing: {missing:?}"));
    }
    missing.is_empty()
}

/// Fields of Cargo.toml that a fork replaces with its own.
const AUTHORS: &str = env!("CARGO_PKG_AUTHORS");
const HOMEPAGE: &str = env!("CARGO_PKG_HOMEPAGE");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Builds a Debian package with [`FILES`] and the control fields that cargo-deb writes.
fn debian_package(folder: &Folder) -> PathBuf {
    let tree = folder.0.join("tree");
    for file in FILES {
        std::fs::create_dir_all(tree.join(file).parent().unwrap()).unwrap();
        let text = if file.ends_with(".service") { include_str!("../systemd/ekiden.service") } else { "" };
        std::fs::write(tree.join(file), text).unwrap();
    }
    std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    let control = format!(
        "Package: ekiden\nVersion: 1.2.3-4\nArchitecture: arm64\nMaintainer: {AUTHORS}\n\
         Homepage: {HOMEPAGE}\nDescription: A summary\n The first paragraph.\n .\n The second paragraph.\n"
    );
    std::fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let package = folder.0.join("ekiden.deb");
    stdout(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(tree).arg(&package));
    package
}

const FILES: &[&str] = &[
    "etc/ekiden/ekiden.toml",
    "usr/bin/ekiden",
    "usr/lib/systemd/system/ekiden.service",
    "usr/share/doc/ekiden/LICENSES.txt.gz",
    "usr/share/man/man1/ekiden.1.gz",
    "usr/share/zsh/vendor-completions/_ekiden",
];

fn names(list: &str) -> BTreeSet<String> {
    list.lines()
        .filter(|name| !name.ends_with('/'))
        .map(|name| name.trim_start_matches(['.', '/']).to_owned())
        .collect()
}

#[test]
fn the_rpm_has_the_files_and_the_texts_of_the_debian_package() {
    if !has_programs(&["dpkg-deb", "rpmbuild"]) {
        return;
    }
    let folder = Folder::new();
    let package = debian_package(&folder);
    let rpm = stdout(Command::new(root().join("packaging/build-rpm")).arg(package).arg(&folder.0));
    let rpm = rpm.trim();
    assert!(rpm.ends_with("/ekiden-1.2.3-4.aarch64.rpm"), "{rpm}");
    let ask = |arguments: &[&str]| stdout(Command::new("rpm").arg("-qp").args(arguments).arg(rpm));
    let expected: BTreeSet<String> =
        FILES.iter().map(|file| file.replace("zsh/vendor-completions", "zsh/site-functions")).collect();
    let folders = ["etc/ekiden", "usr/share/doc/ekiden"].map(str::to_owned);
    let expected = expected.union(&folders.clone().into()).cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&ask(&["--list"])), expected);
    assert_eq!(ask(&["--configfiles"]).trim(), "/etc/ekiden/ekiden.toml");
    let texts = ask(&["--queryformat", "%{SUMMARY}|%{URL}|%{PACKAGER}|%{DESCRIPTION}"]);
    let expected = ["A summary", HOMEPAGE, AUTHORS, "The first paragraph.\n\nThe second paragraph."];
    assert_eq!(texts, expected.join("|"));
}

#[test]
fn archive_has_one_top_folder_and_a_unit_for_the_unpacked_program() {
    if !has_programs(&["dpkg-deb"]) {
        return;
    }
    let folder = Folder::new();
    let package = debian_package(&folder);
    let archive = stdout(Command::new(root().join("packaging/build-tar")).arg(package).arg(&folder.0));
    let archive = archive.trim();
    assert!(archive.ends_with("/ekiden-1.2.3-aarch64.tar.gz"), "{archive}");
    let expected: BTreeSet<String> = [
        "bin/ekiden",
        "lib/systemd/system/ekiden.service",
        "share/doc/ekiden/LICENSES.txt.gz",
        "share/doc/ekiden/ekiden.toml",
        "share/man/man1/ekiden.1.gz",
        "share/zsh/site-functions/_ekiden",
    ]
    .map(|name| format!("ekiden-1.2.3-aarch64/{name}"))
    .into();
    assert_eq!(names(&stdout(Command::new("tar").args(["-tzf", archive]))), expected);
    let unit =
        stdout(Command::new("tar").args(["-xzOf", archive, "ekiden-1.2.3-aarch64/lib/systemd/system/ekiden.service"]));
    assert!(unit.contains("ExecStart=/usr/local/bin/ekiden ") && !unit.contains("/usr/bin/"), "{unit}");
}

/// Returns the first block of shell commands below this heading of docs/install.md.
fn documented(heading: &str) -> String {
    let page = include_str!("../docs/install.md");
    let section = page.split(&format!("\n## {heading}\n")).nth(1).expect("the heading").split("\n## ").next().unwrap();
    section.split("```sh\n").nth(1).expect("a block").split("```").next().unwrap().to_owned()
}

/// Creates a stub of a clone: the script packaging/sign, and Cargo.toml with this `signer`.
fn clone(folder: &Folder, signer: &str) -> PathBuf {
    let clone = folder.0.join("clone");
    std::fs::create_dir_all(clone.join("packaging")).unwrap();
    std::fs::copy(root().join("packaging/sign"), clone.join("packaging/sign")).unwrap();
    let manifest = include_str!("../Cargo.toml");
    let empty = "signer = \"\"\n";
    assert_eq!(manifest.matches(empty).count(), 1, "Cargo.toml has one empty `signer`");
    std::fs::write(clone.join("Cargo.toml"), manifest.replace(empty, &format!("signer = \"{signer}\"\n"))).unwrap();
    clone
}

#[test]
fn documented_verification_accepts_only_signed_files() {
    if Command::new("ssh-keygen").arg("-?").output().is_err() {
        skipped("ssh-keygen is not installed (Debian: openssh-client)");
        return;
    }
    let folder = Folder::new();
    let key = |name: &str| {
        let file = folder.0.join(name);
        stdout(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&file));
        (file.clone(), std::fs::read_to_string(file.with_extension("pub")).unwrap().trim().to_owned())
    };
    let ((ours, public), (other, _)) = (key("ours"), key("other"));
    let clone = clone(&folder, &format!("ekiden {public}"));
    let sign = |key: &Path| {
        let mut command = Command::new(clone.join("packaging/sign"));
        command.arg(folder.0.join("release")).env("SIGN_KEY", key).output().unwrap()
    };
    let file = |name: &str| folder.0.join("release").join(name);
    std::fs::create_dir(folder.0.join("release")).unwrap();
    std::fs::write(file("ekiden.deb"), "a package").unwrap();
    // The documented commands read `signer` from the Cargo.toml of a clone, here in the parent folder.
    std::fs::copy(clone.join("Cargo.toml"), folder.0.join("Cargo.toml")).unwrap();
    let verify = || {
        let script = documented("Verify").replace("ekiden/Cargo.toml", "../Cargo.toml");
        Command::new("sh").args(["-euc", &script]).current_dir(folder.0.join("release")).output().unwrap()
    };

    let unsigned = sign(Path::new(""));
    assert!(unsigned.status.success() && String::from_utf8_lossy(&unsigned.stderr).contains("NOT signed"));
    assert!(file("SHA256SUMS").exists() && !file("SHA256SUMS.sig").exists());
    assert!(!verify().status.success(), "a missing signature was accepted");

    assert!(!sign(&other).status.success() && !file("SHA256SUMS.sig").exists(), "another key was accepted");

    assert!(sign(&ours).status.success());
    let verified = verify();
    assert!(verified.status.success(), "{verified:?}");
    std::fs::write(file("ekiden.deb"), "another package").unwrap();
    assert!(!verify().status.success(), "a changed file was accepted");
    std::fs::write(file("ekiden.deb"), "a package").unwrap();
    let sums = std::fs::read_to_string(file("SHA256SUMS")).unwrap();
    std::fs::write(file("SHA256SUMS"), format!("{sums}\n")).unwrap();
    assert!(!verify().status.success(), "a changed list was accepted");
}

/// Returns the names and texts of all text files of the repository, or `None` outside of a clone.
fn files() -> Option<BTreeMap<String, String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        skipped("this is no clone, or git is not installed");
        return None;
    };
    let read = |name: &str| String::from_utf8(std::fs::read(root().join(name)).ok()?).ok();
    let list = String::from_utf8(output.stdout).unwrap();
    Some(list.split('\0').filter_map(|name| Some((name.to_owned(), read(name)?))).collect())
}

#[test]
fn project_metadata_is_defined_only_in_cargo_toml() {
    let Some(files) = files() else { return };
    assert!(files.len() > 100, "{}", files.len());
    let (holder, address) = AUTHORS.strip_suffix('>').and_then(|author| author.split_once(" <")).unwrap();
    for value in [address, HOMEPAGE, REPOSITORY] {
        assert!(!value.contains("localhost"), "{value}");
        let found: Vec<&String> = files.iter().filter(|(_, text)| text.contains(value)).map(|(name, _)| name).collect();
        assert_eq!(found, ["Cargo.toml"], "{value}");
    }
    // The license also contains the name of the original authors, in forks as well.
    let found: Vec<&String> = files.iter().filter(|(_, text)| text.contains(holder)).map(|(name, _)| name).collect();
    assert_eq!(found, ["Cargo.toml", "LICENSE-MIT"]);
}

#[test]
fn file_names_in_the_documentation_have_this_version() {
    for page in [include_str!("../README.md"), include_str!("../docs/install.md")] {
        let names = page
            .split(['`', '/', ' ', '\n'])
            .filter_map(|word| word.strip_prefix("ekiden")?.strip_prefix(['_', '-', ':']));
        let names: Vec<&str> = names.filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit())).collect();
        assert!(!names.is_empty());
        assert!(names.iter().all(|rest| rest.starts_with(env!("CARGO_PKG_VERSION"))), "{names:?}");
    }
}

/// Reads a YAML file below `examples/`. Returns `None`, with a message about the skipped test, without python3-yaml.
fn yaml(name: &str) -> Option<serde_json::Value> {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)";
    let output = Command::new(PYTHON).args(["-c", script]).arg(root().join("examples").join(name)).output();
    let Some(output) =
        output.ok().filter(|output| !String::from_utf8_lossy(&output.stderr).contains("No module named"))
    else {
        skipped("no YAML in python (Debian: python3-yaml)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_compose_file_starts_a_relay_that_passes_its_health_check() {
    let Some(compose) = yaml("compose.yaml") else { return };
    let service = &compose["services"]["ekiden"];
    let words = |value: &serde_json::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(service["image"], format!("localhost/ekiden:{}", env!("CARGO_PKG_VERSION")));
    assert!(words(&service["ports"]).iter().all(|port| port.starts_with("127.0.0.1:")), "{service}");

    let command = words(&service["command"]).join(" ").replace("0.0.0.0:1080", "127.0.0.1:0");
    let arguments: Vec<&str> = command.strip_prefix("run ").unwrap().split(' ').collect();
    let relay = Relay::run(&arguments, 1);

    let health = words(&service["healthcheck"]["test"]);
    assert_eq!(health[..2], ["CMD", "/ekiden"]);
    let image = include_str!("../packaging/Containerfile");
    let of_image = image.lines().find_map(|line| line.split_once("HEALTHCHECK ")?.1.split_once(" CMD ")).unwrap().1;
    assert_eq!(serde_json::from_str::<Vec<String>>(of_image).unwrap(), health[1..]);
    let check = |admin: &str| ekiden().args(&health[2..]).env("EKIDEN_ADMIN", admin).output().unwrap().status;
    assert!(check(&format!("unix:{}", relay.admin.display())).success());
    assert!(!check("unix:/nowhere/ekiden.sock").success());
}

/// Handlers run after all tasks, so the service starts or reloads only after the check has succeeded.
#[test]
fn ansible_role_checks_the_configuration_and_notifies_its_handlers() {
    let role = |name: &str| yaml(&format!("ansible/roles/ekiden/{name}/main.yaml"));
    let (Some(tasks), Some(handlers)) = (role("tasks"), role("handlers")) else { return };
    let (tasks, handlers) = (tasks.as_array().unwrap(), handlers.as_array().unwrap());
    let named: BTreeSet<&str> = handlers.iter().map(|handler| handler["name"].as_str().unwrap()).collect();
    let mut notified = BTreeSet::new();
    for task in tasks {
        match &task["notify"] {
            serde_json::Value::Array(names) => notified.extend(names.iter().map(|name| name.as_str().unwrap())),
            name => notified.extend(name.as_str()),
        }
        // Rules of ansible-lint: names begin with a capital letter, and modules have the name of their collection.
        assert!(task["name"].as_str().unwrap().starts_with(|first: char| first.is_uppercase()), "{task}");
        assert_eq!(
            task.as_object().unwrap().keys().filter(|key| key.starts_with("ansible.builtin.")).count(),
            1,
            "{task}"
        );
    }
    assert_eq!(notified, named);
    let command = |task: &serde_json::Value| task["ansible.builtin.command"]["cmd"].as_str().map(str::to_owned);
    let check = tasks.iter().position(|task| command(task).is_some()).unwrap();
    assert_eq!(command(&tasks[check]).unwrap(), "/usr/bin/ekiden check /etc/ekiden/conf.d");
    for key in ["ignore_errors", "failed_when", "when"] {
        assert!(tasks[check][key].is_null(), "the check runs always, and an error ends the play: {}", tasks[check]);
    }
    // Every file of the configuration is written before the check, and only handlers start or reload the service.
    let writes = |task: &&serde_json::Value| task.to_string().contains("/etc/ekiden/");
    assert_eq!(tasks[check + 1..].iter().find(writes), None);
    for task in tasks {
        assert!(task["ansible.builtin.meta"].is_null(), "handlers must not run before the check: {task}");
        assert!(task["ansible.builtin.systemd_service"]["state"].is_null(), "{task}");
    }
    assert_eq!(yaml("ansible/playbook.yaml").unwrap()[0]["roles"][0]["role"], "ekiden");
}

#[test]
fn fragments_of_the_ansible_role_form_a_valid_configuration() {
    let Some(defaults) = yaml("ansible/roles/ekiden/defaults/main.yaml") else { return };
    let folder = Folder::new();
    let key = Key::new();
    std::fs::create_dir(folder.0.join("conf.d")).unwrap();
    std::fs::copy(&key.file, folder.0.join("key")).unwrap();
    folder.write("peers", format!("{} home\n", Key::new().public));
    let template = include_str!("../examples/ansible/roles/ekiden/templates/10-relay.toml.j2");
    let mut text =
        template.replace("{{ ansible_managed }}", "Ansible").replace("/etc/ekiden", folder.0.to_str().unwrap());
    for (name, value) in defaults.as_object().unwrap() {
        text = text.replace(&format!("{{{{ {name} }}}}"), value.as_str().unwrap_or_default());
    }
    assert!(!text.contains("{{"), "{text}");
    folder.write("conf.d/10-relay.toml", text);
    folder.write("conf.d/20-limits.toml", include_str!("../examples/ansible/fragments/20-limits.toml"));
    let printed = stdout(ekiden().arg("check").arg(folder.0.join("conf.d")));
    assert!(printed.ends_with("conf.d: ok, 1 listener(s), 0 relay(s), 1 path(s)\n"), "{printed}");
}
