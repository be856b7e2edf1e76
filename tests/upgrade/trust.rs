//! Which process `ekiden upgrade` and `ekiden status` trust, and which process gets the signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::fixture::*;
use crate::harness::*;

/// Signal number of SIGKILL (signal(7)).
const SIGKILL: i32 = 9;

/// A user id that no other test and no account has.
fn user(number: u32) -> String {
    (3_100_000_000_u32 - std::process::id() * 4 - number).to_string()
}

/// A command that runs as a user without any privilege.
fn as_user(user: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), "--regid=65534", "--clear-groups"]).arg(program.as_ref());
    for name in ["EKIDEN_ADMIN", "EKIDEN_CONFIG", "EKIDEN_TOKEN_FILE", "EKIDEN_LOG", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    // The folders of programs that every user may run.
    command.env("PATH", "/usr/bin:/bin");
    command
}

fn is_root() -> bool {
    let is_root = ekiden_sys::process::effective_uid() == 0;
    if !is_root {
        skipped("only root can become two users");
    }
    is_root
}

/// A process that `ekiden upgrade` must not signal.
struct Process(KillOnDrop);

impl Process {
    /// Starts `command`, which is sleep(1). SIGUSR2, the signal of an upgrade, would end the process.
    fn start(mut command: Command) -> Self {
        Self(KillOnDrop(command.arg("1000").stdin(Stdio::null()).spawn().expect("sleep runs")))
    }

    fn id(&self) -> u32 {
        self.0.0.id()
    }

    /// The answer of a relay with this pid to `/api/upgrade`.
    fn answer(&self) -> String {
        let started = ekiden_sys::process::start_time(self.id()).expect("the process runs");
        let view = format!(
            "{{\"pid\":{},\"started\":{started},\"version\":\"0\",\"failed\":0,\"why\":null,\"patience_seconds\":0}}",
            self.id()
        );
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{view}", view.len())
    }

    /// Kills the process, and checks that it got no other fatal signal before. The exit status names the first fatal
    /// signal of a process, even if the process has not yet run since that signal.
    fn assert_not_signalled(&mut self) {
        let Self(KillOnDrop(child)) = self;
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "the reported process got a signal: {status}");
    }
}

fn answer_once(stream: &mut (impl Read + Write), answer: &str) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(answer.as_bytes());
}

fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Answers every request with its first argument, at the sockets that its further arguments name, and prints `listens`
/// when it is ready.
const IMPOSTOR: &str = "
import os, socket, sys, threading
def serve(listener):
    while True:
        stream = listener.accept()[0]
        try:
            stream.recv(4096)
            stream.sendall(sys.argv[1].encode())
        except OSError:
            pass
        stream.close()
for path in sys.argv[2:]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.chmod(os.path.dirname(path), 0o777) if os.stat(os.path.dirname(path)).st_uid == os.geteuid() else None
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o777)
    listener.listen(9)
    threading.Thread(target=serve, args=(listener,)).start()
print('listens', flush=True)
";

/// A folder in which every user may create files, like /tmp, with the program in it.
fn shared_folder() -> Folder {
    let folder = Folder::new();
    std::fs::copy(env!("CARGO_BIN_EXE_ekiden"), folder.0.join("ekiden")).unwrap();
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

/// Regression: another user creates the default socket first, and answers with the PID of a process of this user. The
/// command sent its signal to that process.
#[test]
fn socket_of_another_user_is_not_trusted() {
    if !is_root() {
        return;
    }
    let (own, other, folder) = (user(0), user(1), shared_folder());
    let mut other_process = Process::start(as_user(&own, "sleep"));
    eventually("the exec of the other process", || {
        let status = std::fs::read_to_string(format!("/proc/{}/comm", other_process.id())).ok()?;
        (status.trim() == "sleep").then_some(())
    });
    let mut impostor = as_user(&other, "python3");
    impostor.args(["-c", IMPOSTOR, &other_process.answer()]);
    impostor.arg(folder.0.join(format!("ekiden-{own}.sock")));
    impostor.arg(folder.0.join(format!("ekiden-{own}/ekiden.sock")));
    let mut impostor = KillOnDrop(impostor.stdout(Stdio::piped()).spawn().expect("python3 runs"));
    let mut line = String::new();
    BufReader::new(impostor.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listens\n");
    for command in ["upgrade", "status"] {
        let output = as_user(&own, folder.0.join("ekiden")).arg(command).env("TMPDIR", &folder.0).output().unwrap();
        let text = text_of(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("belongs to user {other}")), "{text}");
    }
    other_process.assert_not_signalled();
}

/// The PID of the listening process differs from the reported PID, so the upgrade fails.
#[test]
fn reported_process_that_does_not_listen_is_not_signalled() {
    let folder = Folder::new();
    let socket = folder.0.join("ekiden.sock");
    let mut other_process = Process::start(Command::new("sleep"));
    let (listener, answer) = (UnixListener::bind(&socket).unwrap(), other_process.answer());
    std::thread::spawn(move || {
        listener.incoming().map_while(Result::ok).for_each(|mut stream| answer_once(&mut stream, &answer));
    });
    let output = ekiden().args(["upgrade", "--admin", &format!("unix:{}", socket.display())]).output().unwrap();
    let text = text_of(&output);
    other_process.assert_not_signalled();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let (reported, listening) = (format!("pid {}", other_process.id()), format!("process {}", std::process::id()));
    assert!(text.contains(&reported) && text.contains(&listening), "{text}");
}

/// Over TCP, the kernel does not report the process at the other end of the connection.
#[test]
fn a_process_without_the_listening_socket_gets_no_signal() {
    let mut other_process = Process::start(Command::new("sleep"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answer) = (listener.local_addr().unwrap(), other_process.answer());
    std::thread::spawn(move || {
        listener.incoming().map_while(Result::ok).for_each(|mut stream| answer_once(&mut stream, &answer));
    });
    let output = ekiden().args(["upgrade", "--admin", &address.to_string()]).output().unwrap();
    let text = text_of(&output);
    other_process.assert_not_signalled();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("process {} does not listen", other_process.id())), "{text}");
}

/// Each upgrade passes the admin socket to the new process, and the kernel has to report that process as the peer
/// (`SO_PEERCRED`).
#[test]
fn each_upgrade_signals_the_serving_process() {
    let mut service = Service::start(&config_for(greeter("hello"), ""));
    for _ in 0..3 {
        let output = service.command();
        assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
        let before = std::mem::replace(&mut service.serving, 0);
        service.serving = service.relay.upgraded();
        assert_ne!(service.serving, before);
        assert_eq!(service.serving_process(), service.serving);
        connect_greeted(service.relay.address());
    }
}

#[test]
fn upgrade_over_a_tcp_admin_address_works() {
    let port = free_port();
    let more = format!("[admin]\nbind = \"127.0.0.1:{port}\"\n");
    let folder = Folder::new();
    let mut command = run_command(&folder, &config_for(greeter("hello"), &more));
    let mut relay = Relay::start_with_admin(&mut command, 2, folder.0.join("none"));
    for _ in 0..2 {
        let output = ekiden().args(["upgrade", "-c"]).arg(folder.0.join("ekiden.toml")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
        relay.upgraded();
    }
}

/// Without XDG_RUNTIME_DIR the socket is in a folder that only this user can enter.
#[test]
fn default_socket_is_in_a_private_folder_of_the_user() {
    if !is_root() {
        return;
    }
    let (own, folder) = (user(2), shared_folder());
    let run = |listener: &str| {
        let mut command = as_user(&own, folder.0.join("ekiden"));
        command.args(["run", "-L", listener]).env("TMPDIR", &folder.0);
        command
    };
    let private = folder.0.join(format!("ekiden-{own}"));
    let relay = Relay::start_with_admin(&mut run("auto://127.0.0.1:0"), 1, private.join("ekiden.sock"));
    let status = || {
        let mut command = as_user(&own, folder.0.join("ekiden"));
        let output = command.arg("status").env("TMPDIR", &folder.0).output().unwrap();
        (output.status.code(), text_of(&output))
    };
    assert_eq!(status().0, Some(0), "{}", status().1);
    let mode = std::fs::symlink_metadata(&private).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    drop(relay);
    // A killed relay leaves its socket file, and the next relay replaces the file.
    drop(Relay::start_with_admin(&mut run("auto://127.0.0.1:0"), 1, private.join("ekiden.sock")));

    for spoil in [create_writable, create_link, create_owned_by_root] {
        std::fs::remove_dir_all(&private).unwrap();
        spoil(&private);
        let mut relay = Relay::start_with_admin(&mut run("auto://127.0.0.1:0"), 1, private.join("ekiden.sock"));
        let warning = relay.next(|event| event["event"] == "warning")["message"].as_str().unwrap().to_owned();
        assert!(warning.contains("no admin listener") && warning.contains("XDG_RUNTIME_DIR"), "{warning}");
        assert!(warning.contains(private.to_str().unwrap()), "{warning}");
        if private.is_symlink() {
            std::fs::remove_file(&private).unwrap();
            std::fs::create_dir(&private).unwrap();
        }
    }
}

fn give_to_user(folder: &Path) {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let user: u32 = name.strip_prefix("ekiden-").unwrap().parse().unwrap();
    std::os::unix::fs::lchown(folder, Some(user), Some(65534)).unwrap();
}

/// A folder in which the group may replace the socket.
fn create_writable(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    give_to_user(folder);
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o770)).unwrap();
}

/// A symbolic link whose target another user may control.
fn create_link(folder: &Path) {
    symlink("/tmp", folder).unwrap();
    give_to_user(folder);
}

fn create_owned_by_root(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}
