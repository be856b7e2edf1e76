//! Manual pages, shell completions, configurations and scripts of packages.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Folder, ekiden, skipped};

const EXAMPLE: &str = include_str!("../ekiden.example.toml");

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names of the subcommands in the output of `ekiden WORDS --help`.
fn subcommands(words: &[&str]) -> Vec<String> {
    let help = stdout(ekiden().args(words).arg("--help"));
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names =
        list.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).filter(|name| name != "help").collect()
}

/// Runs `ekiden man`. Returns the written files: paths below the folder, and texts.
fn pages() -> BTreeMap<String, String> {
    let folder = Folder::new();
    stdout(ekiden().arg("man").arg(&folder.0));
    let files = ["man1", "man5"].map(|section| std::fs::read_dir(folder.0.join(section)).unwrap());
    let read = |path: PathBuf| {
        let name = path.strip_prefix(&folder.0).unwrap().display().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.into_iter().flatten().map(|file| read(file.unwrap().path())).collect()
}

/// Returns the words of a text, in lower case and without the markup of TOML and roff.
fn words(text: &str) -> Vec<String> {
    let plain = text.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-").replace("\\*(Aq", "'");
    let lines = plain.lines().map(|line| line.strip_prefix(".SH ").or(line.strip_prefix(".SS ")).unwrap_or(line));
    let lines = lines.filter(|line| !line.starts_with('.'));
    let words = lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

#[test]
fn every_command_has_a_manual_page_and_every_option_is_explained() {
    let pages = pages();
    let commands = subcommands(&[]);
    assert!(commands.len() > 10 && commands.contains(&"completions".to_owned()), "{commands:?}");
    for command in &commands {
        assert!(pages["man1/ekiden.1"].contains(&format!("ekiden\\-{command}(1)")), "{command} is not in ekiden.1");
        assert!(pages.contains_key(&format!("man1/ekiden-{command}.1")), "{command} has no page");
        for below in subcommands(&[command]) {
            assert!(pages.contains_key(&format!("man1/ekiden-{command}-{below}.1")), "{command} {below} has no page");
        }
    }
    for (name, text) in pages.iter().filter(|(name, _)| name.starts_with("man1")) {
        let lines: Vec<&str> = text.lines().collect();
        for tag in lines.windows(3).filter(|lines| lines[0] == ".TP") {
            assert!(!tag[2].is_empty() && !tag[2].starts_with('.'), "{name}: {} is not explained", tag[1]);
        }
    }
}

#[test]
fn configuration_page_contains_every_word_of_the_example() {
    let page = words(&pages()["man5/ekiden.toml.5"]);
    let mut at = page.iter();
    // The first line of the example is its file name, which the page omits.
    for (number, line) in EXAMPLE.lines().enumerate().skip(1) {
        for word in words(line) {
            assert!(at.any(|found| *found == word), "line {}: {word} is missing or out of order", number + 1);
        }
    }
}

#[test]
fn groff_accepts_the_manual_pages_without_warnings() {
    if Command::new("groff").arg("--version").output().is_err() {
        skipped("groff is not installed (Debian: groff-base)");
        return;
    }
    let folder = Folder::new();
    for (name, text) in pages() {
        let file = folder.write("page", text);
        let output = Command::new("groff").args(["-man", "-ww", "-Tutf8", "-z"]).arg(file).output().unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && complaints.is_empty(), "{name}: {complaints}");
    }
}

#[test]
fn completions_name_every_command_and_bash_completes_them() {
    let commands = subcommands(&[]);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(ekiden().args(["completions", shell]));
        for command in &commands {
            assert!(script.contains(command), "{shell}: {command} is missing");
        }
    }
    let folder = Folder::new();
    let script = folder.write("completions", stdout(ekiden().args(["completions", "bash"])));
    let ask = |typed: &str, word: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({typed} {word}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _ekiden ekiden '{word}' \
             \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        stdout(Command::new("bash").args(["--norc", "-c", &ask])).trim().to_owned()
    };
    assert_eq!(ask("ekiden", "che"), "check");
    assert_eq!(ask("ekiden rules", "pri"), "print");
    assert_eq!(ask("ekiden run", "--conf"), "--config");
}

#[test]
fn packaged_configurations_are_valid_and_bind_to_loopback() {
    for (file, listener_count) in [("packaging/ekiden.toml", 1), ("packaging/openwrt/ekiden/files/ekiden.toml", 2)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let verdict = stdout(ekiden().arg("check").arg(&path));
        assert!(verdict.contains("ok, 1 listener(s)"), "{verdict}");
        let text = std::fs::read_to_string(path).unwrap();
        let binds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("bind = ")).collect();
        assert_eq!(binds.len(), listener_count, "{file}: {binds:?}");
        assert!(binds.iter().all(|at| at.starts_with("\"127.0.0.1:")), "{file}: {binds:?}");
    }
}

#[test]
fn commented_examples_in_the_packaged_configuration_are_valid() {
    let text = include_str!("../packaging/ekiden.toml");
    let key = stdout(ekiden().arg("keygen"));
    let public = key.lines().find_map(|line| line.strip_prefix("public-key: ")).unwrap();
    let used = text.replace("\n#[[", "\n[[").replace("PUBLIC", public);
    let used: String = used
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| rest.starts_with(char::is_alphabetic)).unwrap_or(line))
        .fold(String::new(), |all, line| all + line + "\n");
    let folder = Folder::new();
    let verdict = stdout(ekiden().arg("check").arg(folder.write("ekiden.toml", used)));
    assert!(verdict.contains("ok, 1 listener(s), 1 relay(s)"), "{verdict}");
}

/// A stub of OpenWrt's rc.common for the init script, which prints the parameters of procd.
const PROCD: &str = "
config_load() { :; }
config_get() { eval \"$1=\\${OPTION_$3:-$4}\"; }
config_get_bool() { config_get \"$@\"; }
procd_open_instance() { :; }
procd_close_instance() { echo closed; }
procd_set_param() { echo \"$@\"; }
procd_add_reload_trigger() { echo trigger \"$@\"; }
start() { echo start; }
";

/// The init script for OpenWrt with [`PROCD`], and two configurations.
struct InitScript {
    folder: Folder,
    valid: PathBuf,
    invalid: PathBuf,
}

impl InitScript {
    fn new() -> Self {
        let folder = Folder::new();
        let script = include_str!("../packaging/openwrt/ekiden/files/ekiden.init");
        folder.write("ekiden.init", script.replace("/usr/bin/ekiden", env!("CARGO_BIN_EXE_ekiden")));
        let valid = folder.write("valid.toml", "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n");
        let invalid = folder.write("invalid.toml", "version = 1\n[[listener]]\nbind = \"0.0.0.0:1080\"\n");
        Self { folder, valid, invalid }
    }

    /// Runs `commands` after the definitions of the script. Returns whether they succeeded, and their output.
    fn run(&self, commands: &str, enabled: &str, config: &Path) -> (bool, String) {
        let commands = format!("{PROCD} . {}; {commands}", self.folder.0.join("ekiden.init").display());
        let mut shell = Command::new("sh");
        shell.args(["-euc", &commands]).env("OPTION_enabled", enabled).env("OPTION_config", config);
        let output = shell.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }
}

#[test]
fn init_script_starts_the_relay_only_if_enabled_and_valid() {
    let script = InitScript::new();
    let start = |enabled: &str, config: &Path| script.run("start_service", enabled, config);
    let (started, printed) = start("1", &script.valid);
    let command = format!("command {} run -c {}\n", env!("CARGO_BIN_EXE_ekiden"), script.valid.display());
    assert!(started && printed.contains(&command) && printed.ends_with("closed\n"), "{printed}");
    assert!(printed.contains("user ekiden\n"), "{printed}");
    assert!(matches!(start("0", &script.valid), (true, printed) if printed.is_empty()));
    assert!(matches!(start("1", &script.invalid), (false, printed) if !printed.contains("command")));
}

/// Bug: procd returns before the relay has ended, and the rules were removed while its sessions continued.
#[test]
fn init_script_removes_the_rules_only_if_no_relay_drains() {
    let script = InitScript::new();
    let stop = |pids: &str| {
        // The script discards the output of the command.
        let record = "exec 3>&1; EKIDEN=record; record() { echo \"$@\" >&3; }";
        script.run(&format!("{record}; pidof() {{ echo {pids}; }}; service_stopped"), "1", &script.valid)
    };
    assert_eq!(stop("7"), (true, String::new()));
    assert_eq!(stop(""), (true, format!("rules remove -c {}\n", script.valid.display())));
}

/// Bug: `reload` called `start_service`, which declared no instance for an invalid configuration, so procd ended the
/// running relay.
#[test]
fn init_script_ignores_a_reload_of_an_invalid_configuration() {
    let script = InitScript::new();
    let reload = |enabled: &str, config: &Path| script.run("reload_service", enabled, config);
    assert_eq!(reload("1", &script.valid), (true, "start\n".to_owned()));
    assert_eq!(reload("1", &script.invalid), (false, String::new()));
    // `start` declares no instance of a disabled service, so procd ends it.
    assert_eq!(reload("0", &script.invalid), (true, "start\n".to_owned()));
}

#[test]
fn packaging_scripts_have_valid_shell_syntax() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let scripts = [
        "build-deb",
        "build-dist",
        "build-documents",
        "build-image",
        "build-kernel-deb",
        "build-rpm",
        "build-static",
        "build-tar",
        "debian/postinst",
        "debian/postrm",
        "debian/prerm",
        "sign",
        "try-dist",
    ];
    for script in scripts {
        stdout(Command::new("sh").arg("-n").arg(root.join(script)));
    }
}

/// A stub of ekiden-lab: `list` prints the path of the kernel `cached`, and `build` prints that of the kernel `built`.
const FAKE_LAB: &str = r#"#!/bin/sh
case "$2" in
    list) echo "7.2.12-ekiden        $XDG_CACHE_HOME/ekiden-lab/kernels/cached/linux" ;;
    build) echo "$XDG_CACHE_HOME/ekiden-lab/kernels/built/linux" ;;
esac
"#;

/// Builds the kernel package with packaging/build-kernel-deb from the kernels in `folder`. Returns the list of its
/// files and its field `Built-Using`.
fn kernel_package(folder: &Path) -> (String, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/build-kernel-deb");
    let mut command = Command::new("sh");
    command.arg(script).arg(folder.join("lab")).arg("1.2-3").env("XDG_CACHE_HOME", folder);
    let package = stdout(command.env("CARGO_TARGET_DIR", folder.join("target")));
    let ask = |option: &str, more: &[&str]| stdout(Command::new("dpkg-deb").arg(option).arg(package.trim()).args(more));
    (ask("--contents", &[]), ask("--field", &["Built-Using"]))
}

#[test]
fn the_package_of_the_kernel_has_its_recipe_and_no_outdated_kernel() {
    use std::os::unix::fs::PermissionsExt;
    let architecture = Command::new("dpkg").arg("--print-architecture").output();
    if !architecture.is_ok_and(|output| output.stdout == b"amd64\n") {
        skipped("this is no Debian for amd64");
        return;
    }
    let folder = Folder::new();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/lab/kernel");
    std::fs::write(folder.0.join("lab"), FAKE_LAB).unwrap();
    std::fs::set_permissions(folder.0.join("lab"), std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["cached", "built"] {
        let kernel = folder.0.join("ekiden-lab/kernels").join(name);
        std::fs::create_dir_all(kernel.join("recipe/ekiden")).unwrap();
        std::fs::write(kernel.join("linux"), "kernel").unwrap();
        let description = r#"{"release": "7.2.12-ekiden", "built_using": ["linux (= 7.2.12-1)", "glibc (= 2.36-9)"]}"#;
        std::fs::write(kernel.join("kernel.json"), description).unwrap();
        for file in ["config", "edits.toml", "LICENSE", "ekiden/clock.c"] {
            std::fs::copy(tree.join(file), kernel.join("recipe").join(file)).unwrap();
        }
    }
    let (files, sources) = kernel_package(&folder.0);
    assert_eq!(sources.trim(), "linux (= 7.2.12-1), glibc (= 2.36-9)");
    for file in ["lib/ekiden-lab/kernels/cached/linux", "lib/ekiden-lab/kernels/cached/kernel.json"] {
        assert!(files.contains(file), "{file}: {files}");
    }
    for file in ["README", "copyright", "recipe/LICENSE", "recipe/config", "recipe/edits.toml", "recipe/ekiden/clock.c"]
    {
        assert!(files.contains(&format!("doc/ekiden-lab-kernel/{file}\n")), "{file}: {files}");
    }
    // A cached kernel whose recipe differs from this tree is outdated.
    std::fs::write(folder.0.join("ekiden-lab/kernels/cached/recipe/ekiden/clock.c"), "older").unwrap();
    let (files, _) = kernel_package(&folder.0);
    assert!(files.contains("kernels/built/linux") && !files.contains("kernels/cached"), "{files}");
}

/// A stub of OpenWrt's build system (rules.mk), with the definitions that the Makefile of the package uses.
const RULES: &str = "
CP := cp -a
INSTALL_DIR := install -d
INSTALL_BIN := install -m 755
INSTALL_CONF := install -m 600
INSTALL_DATA := install -m 644
INCLUDE_DIR := $(TOPDIR)/include
PKG_BUILD_DIR := $(TOPDIR)/build
PKG_INSTALL_DIR := $(TOPDIR)/built
";
const PACKAGE: &str = "
define BuildPackage
$(eval $(Package/$(1)))
prepare:
	$$(call Build/Prepare)
install:
	$$(call Package/$(1)/install,$(TOPDIR)/root)
version:
	@echo $(PKG_VERSION)
maintainer:
	@echo '$(PKG_MAINTAINER)'
depends:
	@echo '$$(DEPENDS)'
endef
";

#[test]
fn openwrt_recipe_packages_all_required_files() {
    let folder = Folder::new();
    for below in ["include", "feeds/packages/lang/rust", "built/bin"] {
        std::fs::create_dir_all(folder.0.join(below)).unwrap();
    }
    folder.write("rules.mk", RULES);
    folder.write("include/package.mk", PACKAGE);
    folder.write("feeds/packages/lang/rust/rust-package.mk", "");
    folder.write("built/bin/ekiden", "");
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/openwrt/ekiden");
    let make = |goal: &str| {
        let mut make = Command::new("make");
        make.args(["-s", "--no-print-directory", "-C"]).arg(&recipe).arg(format!("TOPDIR={}", folder.0.display()));
        stdout(make.env_remove("MAKEFLAGS").arg(goal))
    };
    assert_eq!(make("version").trim(), env!("CARGO_PKG_VERSION"));
    assert_eq!(make("maintainer").trim(), env!("CARGO_PKG_AUTHORS"));
    // Bug: the busybox `ip` and the kernel of a router lack features that transparent listeners need.
    assert_eq!(make("depends").trim(), "+nftables +ip-full +kmod-nft-tproxy +kmod-nft-socket +kmod-nft-queue");
    make("prepare");
    let manifest = folder.0.join("build/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    stdout(cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"]).arg(manifest));
    // The build needs the lock file, files that the binary embeds, and files that the manifest names.
    for file in ["Cargo.lock", "ekiden.example.toml", "tests/congestion/main.rs", "LICENSE-MIT"] {
        assert!(folder.0.join("build").join(file).exists(), "{file} is not copied to the build directory");
    }
    make("install");
    for file in ["usr/bin/ekiden", "etc/init.d/ekiden", "etc/config/ekiden", "etc/ekiden/ekiden.toml"] {
        assert!(folder.0.join("root").join(file).exists(), "{file} is not installed");
    }
}
