//! The options that name a running relay, and the search for it: `ekiden status`, `top`, `upgrade` and `fleet`.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use ekiden_relay::config::{AdminBind, AdminConfig, AdminToken, read};
use ekiden_sys::process;

/// The admin address of a running relay.
#[derive(Args)]
pub struct AdminArgs {
    /// Admin address of the relay: 127.0.0.1:PORT or unix:PATH; default: the relay of this user or of the service, if only one runs
    #[arg(long, value_name = "ADDR", env = "EKIDEN_ADMIN")]
    admin: Option<String>,
    /// Configuration file or directory of the relay, to read the admin address from
    #[arg(short = 'c', long = "config", value_name = "PATH", env = "EKIDEN_CONFIG", value_delimiter = ':')]
    config: Vec<PathBuf>,
    /// File with the admin token, if the relay requires one and -c does not name it
    #[arg(long, value_name = "FILE", env = "EKIDEN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

const PORT_ZERO: &str = "[admin] bind has port 0, so the port is only in the relay's log: look there for \"listening \
    listener=admin\", and pass that address with --admin";

/// The admin socket of a relay started by systemd/ekiden.service.
const SERVICE_SOCKET: &str = "/run/ekiden/ekiden.sock";

impl AdminArgs {
    /// Returns the admin address from the command line, else from the configuration, else the default socket at which a
    /// relay answers, if it is the only one.
    pub fn admin_address(&self) -> anyhow::Result<AdminConfig> {
        let configured = match (&self.admin, self.config.as_slice()) {
            (Some(text), _) => read::parse_admin_address(text)
                .map_err(|expected| anyhow::anyhow!("--admin {text}: expected {expected}"))?,
            (None, []) => read::default_admin(),
            (None, paths) => read::load(paths.iter().map(PathBuf::as_path), &read::Flags::default())?.admin,
        };
        ensure!(!matches!(configured.bind, AdminBind::Tcp(address) if address.port() == 0), PORT_ZERO);
        let is_default = self.admin.is_none() && configured == read::default_admin();
        let mut admin = if is_default { find_relay(&default_sockets())? } else { configured };
        if let Some(file) = &self.token_file {
            admin.token = Some(read_token(file).with_context(|| format!("--token-file {}", file.display()))?);
        }
        Ok(admin)
    }
}

fn read_token(file: &Path) -> anyhow::Result<AdminToken> {
    let text = std::fs::read_to_string(file)?;
    AdminToken::parse(&text).map_err(|expected| anyhow::anyhow!("expected {expected}"))
}

/// Returns the default sockets of relays that this user has started, and the socket of the service.
fn default_sockets() -> Vec<PathBuf> {
    let service = PathBuf::from(SERVICE_SOCKET);
    let own = read::default_sockets().filter(|socket| *socket != service);
    own.chain([service.clone()]).collect()
}

/// Returns the socket at which a relay answers. If no relay answers, returns an existing socket, else the first, so
/// that the error names a socket.
///
/// # Errors
/// Several relays answer.
fn find_relay(sockets: &[PathBuf]) -> anyhow::Result<AdminConfig> {
    let running: Vec<_> = sockets.iter().filter_map(|socket| RunningRelay::at(socket)).collect();
    if running.len() > 1 {
        let line =
            |relay: &RunningRelay<'_>| format!("\n    --admin unix:{}  {}", relay.socket.display(), relay.describe());
        bail!("several relays are running. Select one of them:{}", running.iter().map(line).collect::<String>());
    }
    let found = running.first().map(|relay| relay.socket);
    let found = found.or_else(|| sockets.iter().find(|socket| socket.exists()).map(PathBuf::as_path));
    let first = || sockets.first().map(PathBuf::as_path);
    Ok(AdminBind::Unix(found.or_else(first).context("no default admin socket")?.to_owned()).into())
}

/// A relay that answers at a socket.
struct RunningRelay<'a> {
    socket: &'a Path,
    /// The process, if it is in this PID namespace.
    process: Option<u32>,
}

impl<'a> RunningRelay<'a> {
    fn at(socket: &'a Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        Some(Self { socket, process: process::listening_process(stream.as_fd()) })
    }

    /// Returns the process and the options that identify the relay. Other options are omitted, because they may contain
    /// passwords.
    fn describe(&self) -> String {
        let Some(process) = self.process else { return String::new() };
        let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_telling = |option: &str| matches!(option, "-L" | "--listen" | "-c" | "--config");
        let pairs = words.windows(2).filter(|pair| is_telling(&pair[0]));
        pairs.fold(format!("process {process}"), |text, pair| format!("{text} {}", pair.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_only_relay_is_found_and_several_are_listed() {
        let folder = std::env::temp_dir().join(format!("ekiden-find-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let sockets = ["first", "second", "service"].map(|name| folder.join(name));
        let found = || find_relay(&sockets).map(|admin| admin.bind);
        let at = |index: usize| AdminBind::Unix(sockets[index].clone());
        assert_eq!(found().unwrap(), at(0), "no socket exists");
        std::fs::write(&sockets[2], "").unwrap();
        assert_eq!(found().unwrap(), at(2), "a path at which no relay answers");
        let second = UnixListener::bind(&sockets[1]).unwrap();
        assert_eq!(found().unwrap(), at(1), "the only socket that answers");
        let _first = UnixListener::bind(&sockets[0]).unwrap();
        let error = found().unwrap_err().to_string();
        for socket in &sockets[..2] {
            let line = format!("--admin unix:{}", socket.display());
            assert!(error.contains(&line) && error.contains(&format!("process {}", std::process::id())), "{error}");
        }
        drop(second);
        assert_eq!(found().unwrap(), at(0));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
