//! A machine of a page: a shell in its own network, PID and mount namespaces, with its own /run and overlays over /etc,
//! /usr/bin and /var/lib. All of this is removed at the end of the test, even after a crash.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use ekiden_sys::netns;

use crate::code_blocks::root;
use crate::harness::{Folder, ekiden, eventually, skipped};

/// Script of the machine's shell: reads paths of scripts, one on each line, runs them, and writes their exit statuses.
const SHELL: &str = r#"
set -eu
mount -t tmpfs none "$PLACE"
mkdir "$PLACE/home"
for folder in /etc /usr/bin /var/lib; do
    own="$PLACE/overlay/$folder"
    mkdir -p "$own/upper" "$own/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$own/upper,workdir=$own/work" "$folder"
done
mount -t tmpfs -o mode=755 none /run
printf '%s\n' "$NAMES" > /etc/hosts
rm -rf /etc/ekiden /etc/sysctl.d/90-ekiden.conf /etc/systemd/system/ekiden.service* /etc/systemd/system/*/ekiden.service
cd "$PLACE/home"
ip link set lo up
echo ready
while read -r script; do
    status=0
    sh -eu "$script" > "$script.said" 2>&1 < /dev/null || status=$?
    echo "$status"
done
"#;

/// Script that installs ekiden as a package does, with the user and the unit. The program is mounted at
/// /usr/bin/ekiden, because the service's user may not have access to the folder of the build.
const INSTALL: &str = r#"
grep -q ^ekiden: /etc/group || echo 'ekiden:x:64990:' >> /etc/group
grep -q ^ekiden: /etc/passwd || echo 'ekiden:x:64990:64990::/var/lib/ekiden:/usr/sbin/nologin' >> /etc/passwd
touch /usr/bin/ekiden
mount --bind "$EKIDEN_BINARY" /usr/bin/ekiden
mkdir -p /etc/systemd/system
cp "$REPOSITORY/systemd/ekiden.service" /etc/systemd/system
"#;

/// Script that starts the service with the configuration of the package, as the installation does.
const START: &str = r#"
mkdir /etc/ekiden
cp "$REPOSITORY/packaging/ekiden.toml" /etc/ekiden
systemctl enable --now ekiden
"#;

/// Script that prints the state that a relay or a page may change: rules, routes, settings of the kernel, files,
/// processes. The script omits the IPv6 routes that the kernel adds to links, and the empty table `raw` that iptables
/// leaves behind.
const STATE: &str = r#"
nft list tables | grep ekiden || true
nft -s list table inet filter 2> /dev/null || true
iptables-save 2> /dev/null | grep -i ekiden || true
ip rule
ip -6 rule
ip route show table all | grep -v 'fe80\|ff00'
sysctl net.ipv4.ip_forward net.ipv4.tcp_rmem net.ipv4.tcp_wmem
ls /etc/sysctl.d
find /etc/ekiden /etc/systemd/system/*ekiden* /etc/systemd/system/*/*ekiden* /run/ekiden 2> /dev/null || true
ps -C ekiden -o pid=,stat=,user=,args= | grep -v ' Z' || true
"#;

/// The files that all machines share.
pub struct SharedFiles {
    folder: Folder,
    names: String,
}

impl SharedFiles {
    /// Creates the files. `names` are the lines of /etc/hosts after the line of localhost.
    pub fn new(names: &str) -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.0.join("bin")).unwrap();
        folder.program("bin/ekiden", include_str!("ekiden.py"));
        folder.program("bin/systemctl", include_str!("systemctl.py"));
        folder.write("bin/notify.py", include_str!("notify.py"));
        let names = format!("127.0.0.1 localhost\n{names}");
        Self { folder, names }
    }

    /// Returns the path of a file that all machines can read.
    pub fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }
}

/// A running machine of a page.
pub struct Machine {
    pub name: String,
    network: Arc<OwnedFd>,
    path_prefix: String,
    scripts: usize,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Machine {
    /// Starts a machine; `None`, with a message that the test is skipped, without the permission.
    pub fn start(name: &str, shared: &SharedFiles) -> Option<Self> {
        let network = match netns::new_network_namespace() {
            Ok(network) => Arc::new(network),
            Err(error) => {
                skipped(format_args!("no network namespaces: {error}"));
                return None;
            }
        };
        let own = shared.path(name);
        std::fs::create_dir(&own).unwrap();
        // The end of each process kills the next process, even after SIGKILL: the test, `unshare`, the shell.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", SHELL]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("PLACE", &own).env("NAMES", &shared.names).env("EKIDEN_BINARY", ekiden().get_program());
        command.env("REPOSITORY", root());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", shared.path("bin")));
        command.env("CURL_CA_BUNDLE", shared.path("certificate")).env("SSL_CERT_FILE", shared.path("certificate"));
        for (variable, _) in std::env::vars().filter(|(name, _)| name.to_lowercase().ends_with("_proxy")) {
            command.env_remove(variable);
        }
        // Without this variable the admin socket is in /run.
        command.env_remove("XDG_RUNTIME_DIR");
        netns::start_in_network_namespace(&mut command, Arc::clone(&network));
        let mut shell = command.spawn().expect("setpriv and unshare");
        let (input, output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let mut machine =
            Self { name: name.to_owned(), network, path_prefix: shared.path(""), scripts: 0, shell, input, output };
        assert_eq!(machine.read_output_line(), "ready", "{name} does not start");
        Some(machine)
    }

    fn read_output_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Runs a script to its end. Returns its output, and whether it succeeded.
    pub fn try_run(&mut self, script: &str) -> (bool, String) {
        self.scripts += 1;
        let path = format!("{}{}-{}.sh", self.path_prefix, self.name, self.scripts);
        std::fs::write(&path, script).unwrap();
        writeln!(self.input, "{path}").expect("the shell runs");
        let status = self.read_output_line();
        let output = std::fs::read(format!("{path}.said")).unwrap_or_default();
        (status == "0", String::from_utf8_lossy(&output).into_owned())
    }

    /// Runs a script, which must succeed. Returns its output.
    pub fn run(&mut self, script: &str) -> String {
        let (succeeded, output) = self.try_run(script);
        assert!(succeeded, "on {}: {script}\noutput: {output}", self.name);
        output
    }

    /// Repeats a script until it succeeds, for states that no event reports.
    pub fn run_until(&mut self, script: &str) {
        eventually(&format!("{script} on {}", self.name), || self.try_run(script).0.then_some(()));
    }

    /// Installs ekiden, and starts its service with the configuration of the package. Returns the state before the
    /// start; `None`, with a message that the test is skipped, without the permission to change the user.
    pub fn install(&mut self) -> Option<String> {
        self.run(INSTALL);
        let (is_permitted, output) = self.try_run("setpriv --reuid ekiden --regid ekiden --init-groups true");
        if !is_permitted {
            skipped(format_args!("no process of another user: {output}"));
            return None;
        }
        let before = self.state();
        self.run(START);
        Some(before)
    }

    /// Returns the output of [`STATE`].
    pub fn state(&mut self) -> String {
        self.run(STATE)
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
