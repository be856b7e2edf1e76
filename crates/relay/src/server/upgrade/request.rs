//! Client side of `ekiden upgrade`: finds the relay by its admin listener, requests the upgrade with a signal, and
//! waits for the result. The kernel permits the signal to the relay's own user and to root. The signal is sent to the
//! process that owns the listening socket according to the kernel: the pid in the relay's answer alone is not trusted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_sys::{process, signal};
use tokio::time::{Instant, sleep, timeout};

use crate::admin;
use crate::config::{AdminBind, AdminConfig};
use crate::status::UpgradeView;

/// Interval of requests for the result.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout of a request to the admin listener.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to wait beyond the relay's own timeout, in which the relay gives up and reports the failure.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(15);

/// Why an upgrade failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No process answers at the address.
    #[error("no relay answers at {at}: {cause} (is `ekiden run` running, and a version that supports upgrades?)")]
    NoAnswer {
        /// The address of the admin listener.
        at: String,
        /// The cause, which the message already contains.
        cause: io::Error,
    },
    /// The relay is in another pid namespace.
    #[error("process {0} here is not the relay: run this command where the relay runs, for example in its container")]
    Elsewhere(u32),
    /// The pid in the answer is not the pid that the kernel reports.
    #[error("process {actual} listens there and reports pid {reported}: run this command where the relay runs")]
    Contradicts {
        /// The pid of the process that listens, from the kernel.
        actual: u32,
        /// The pid in the answer of the relay.
        reported: u32,
    },
    /// The process has no listening socket with the address of the request.
    #[error("process {pid} does not listen at {address}: not trusted")]
    NoListener {
        /// The pid in the answer of the relay.
        pid: u32,
        /// The address of the admin listener.
        address: SocketAddr,
    },
    /// The relay cannot be signalled.
    #[error("cannot signal process {pid}: {cause} (run as root, or as the user of the relay)")]
    Refused {
        /// The pid of the relay.
        pid: u32,
        /// The cause, which the message already contains.
        cause: io::Error,
    },
    /// The new process did not start to serve.
    #[error("process {pid} continues to serve: {why}")]
    Failed {
        /// The pid of the old process.
        pid: u32,
        /// The reason, as reported by the relay.
        why: String,
    },
    /// No process listens at the address any more. Unless `[admin]` has changed, the old process passes the listening
    /// socket to the new process.
    #[error(
        "no relay answers at {at} any more: if [admin] has changed, ask at the new address; else see the log of \
         process {pid}"
    )]
    Gone {
        /// The pid of the old process.
        pid: u32,
        /// The address of the admin listener.
        at: String,
    },
    /// The upgrade did not complete in time.
    #[error("process {0} has not reported a result: see its log")]
    Late(u32),
}

/// Upgrades the relay that answers at `admin`. Returns the status of the old process and of the process that serves
/// now.
///
/// # Errors
/// Why the upgrade failed.
pub async fn request(admin: &AdminConfig) -> Result<(UpgradeView, UpgradeView), RequestError> {
    let no_answer = |cause| RequestError::NoAnswer { at: admin.to_string(), cause };
    let (before, listener) = fetch_status(admin).await.map_err(no_answer)?;
    let pid = identify(admin, &before, listener)?;
    signal::send_upgrade(pid).map_err(|cause| RequestError::Refused { pid, cause })?;
    let deadline = Instant::now() + Duration::from_secs_f64(before.patience_seconds.clamp(0.0, 1e6)) + TIMEOUT_MARGIN;
    loop {
        match fetch_status(admin).await {
            Ok((now, _)) if (now.pid, now.started) != (before.pid, before.started) => return Ok((before, now)),
            Ok((now, _)) if now.failed > before.failed => {
                return Err(RequestError::Failed { pid, why: now.why.unwrap_or_default() });
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(RequestError::Gone { pid, at: admin.to_string() });
            }
            _ if Instant::now() > deadline => return Err(RequestError::Late(pid)),
            _ => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Returns the pid of the process to signal: the owner of the listening socket. If the pid or start time in the answer
/// differs, the result is an error.
fn identify(admin: &AdminConfig, reported: &UpgradeView, listener: Option<u32>) -> Result<u32, RequestError> {
    let pid = match (&admin.bind, listener) {
        (AdminBind::Tcp(address), _) => {
            let (pid, address) = (reported.pid, *address);
            let has_listener = process::has_listener(pid, address).or_else(|cause| match cause.kind() {
                io::ErrorKind::NotFound => Ok(false),
                _ => Err(RequestError::Refused { pid, cause }),
            });
            if !has_listener? {
                return Err(RequestError::NoListener { pid, address });
            }
            pid
        }
        (_, Some(pid)) => pid,
        (_, None) => return Err(RequestError::Elsewhere(reported.pid)),
    };
    if reported.started.is_some() && process::start_time(pid) == reported.started {
        return Ok(pid);
    }
    let reported = reported.pid;
    Err(if pid == reported {
        RequestError::Elsewhere(reported)
    } else {
        RequestError::Contradicts { actual: pid, reported }
    })
}

async fn fetch_status(admin: &AdminConfig) -> io::Result<(UpgradeView, Option<u32>)> {
    let (text, listener) = timeout(ANSWER_TIMEOUT, admin::fetch_and_identify(admin, "/api/upgrade")).await??;
    Ok((serde_json::from_str(&text)?, listener))
}
