//! A machine of a page: a shell in its own namespaces. It has its own network, processes, /etc (an overlay) and /run;
//! all of them are removed at the end of the test, even after a crash.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use ekiden_sys::netns;

use crate::harness::{Folder, ekiden, eventually};

/// Reads paths of scripts, one on each line, runs them, and writes their exit statuses.
const SHELL: &str = r#"
set -eu
mount -t tmpfs none "$PLACE"
mkdir "$PLACE/upper" "$PLACE/work" "$PLACE/home"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$PLACE/upper,workdir=$PLACE/work" /etc
mount -t tmpfs none /run
printf '%s\n' "$NAMES" > /etc/hosts
rm -rf /etc/ekiden
cd "$PLACE/home"
ip link set lo up
echo ready
while read -r script; do
    status=0
    sh -eu "$script" > "$script.said" 2>&1 < /dev/null || status=$?
    echo "$status"
done
"#;

/// Starts a relay as systemd does: waits for the message "ready", and leaves the relay running.
const RUN: &str = r#"#!/usr/bin/env python3
import os, socket, subprocess, sys
binary, arguments = os.environ["EKIDEN_BINARY"], sys.argv[1:]
if arguments[:1] != ["run"] or "--help" in arguments:
    os.execv(binary, ["ekiden", *arguments])
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ready.bind(f"/run/ready.{os.getpid()}")
ready.settimeout(0.05)
log, errors = open("/run/ekiden.log", "ab"), open(f"/run/errors.{os.getpid()}", "w+b")
environment = {**os.environ, "NOTIFY_SOCKET": ready.getsockname()}
relay = subprocess.Popen(["ekiden", *arguments], executable=binary, env=environment, stdin=subprocess.DEVNULL,
    stdout=log, stderr=errors, start_new_session=True)
while relay.poll() is None:
    try:
        if b"READY=1" in ready.recv(4096):
            sys.exit(0)
    except TimeoutError:
        pass
errors.seek(0)
sys.exit(f"ekiden run ended with {relay.returncode}: {errors.read().decode()}")
"#;

/// The files that all machines share.
pub struct Place {
    folder: Folder,
    names: String,
}

impl Place {
    /// `names` has the further lines of /etc/hosts.
    pub fn new(names: &str) -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.0.join("bin")).unwrap();
        folder.program("bin/ekiden", RUN);
        let names = format!("127.0.0.1 localhost\n{names}");
        Self { folder, names }
    }

    /// A path for a file that all machines can read.
    pub fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }
}

/// A running machine of a page.
pub struct Machine {
    pub name: String,
    network: Arc<OwnedFd>,
    place: String,
    scripts: usize,
    shell: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Machine {
    /// Starts a machine. Without the permission the test is skipped with a message.
    pub fn start(name: &str, place: &Place) -> Option<Self> {
        let network = match netns::new_network_namespace() {
            Ok(network) => Arc::new(network),
            Err(error) => {
                eprintln!("skipped: no network namespaces: {error}");
                return None;
            }
        };
        let own = place.path(name);
        std::fs::create_dir(&own).unwrap();
        // The death of each process in the chain kills the next process: the test, `unshare`, the shell.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", SHELL]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("PLACE", &own).env("NAMES", &place.names).env("EKIDEN_BINARY", ekiden().get_program());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", place.path("bin")));
        command.env("CURL_CA_BUNDLE", place.path("certificate")).env("SSL_CERT_FILE", place.path("certificate"));
        for (variable, _) in std::env::vars().filter(|(name, _)| name.to_lowercase().ends_with("_proxy")) {
            command.env_remove(variable);
        }
        // Without this variable the admin socket is in /run.
        command.env_remove("XDG_RUNTIME_DIR");
        netns::start_in_network_namespace(&mut command, Arc::clone(&network));
        let mut shell = command.spawn().expect("setpriv and unshare");
        let (orders, answers) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut machine =
            Self { name: name.to_owned(), network, place: place.path(""), scripts: 0, shell, orders, answers };
        assert_eq!(machine.answer(), "ready", "{name} does not start");
        Some(machine)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Runs a script to its end. Returns its output, and whether it succeeded.
    pub fn try_run(&mut self, script: &str) -> (bool, String) {
        self.scripts += 1;
        let path = format!("{}{}-{}.sh", self.place, self.name, self.scripts);
        std::fs::write(&path, script).unwrap();
        writeln!(self.orders, "{path}").expect("the machine lives");
        let status = self.answer();
        let said = std::fs::read(format!("{path}.said")).unwrap_or_default();
        (status == "0", String::from_utf8_lossy(&said).into_owned())
    }

    /// Runs a script, which must succeed. Returns its output.
    pub fn run(&mut self, script: &str) -> String {
        let (well, said) = self.try_run(script);
        assert!(well, "on {}: {script}\nsaid: {said}", self.name);
        said
    }

    /// Runs a script until it succeeds: for states without an event.
    pub fn run_until(&mut self, script: &str) {
        eventually(&format!("{script} on {}", self.name), || self.try_run(script).0.then_some(()));
    }

    /// Creates a link to another machine, with an interface name and an address at each end.
    pub fn link(&mut self, here: (&str, &str), other: &mut Self, there: (&str, &str)) {
        let network = format!("/proc/{}/fd/{}", std::process::id(), other.network.as_raw_fd());
        let mut command = Command::new("ip");
        command.args(["link", "add", here.0, "type", "veth", "peer", "name", there.0, "netns", &network]);
        netns::start_in_network_namespace(&mut command, Arc::clone(&self.network));
        assert!(command.status().expect("ip").success());
        for (machine, (name, address)) in [(self, here), (other, there)] {
            machine.run(&format!("ip address add {address} dev {name}; ip link set {name} up"));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
