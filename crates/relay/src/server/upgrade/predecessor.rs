//! The old process of an upgrade, from the view of the new process.

use std::env;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::time::Duration;

use ekiden_sys::{init, process};
use tokio::time::{sleep, timeout};

use super::VARIABLE;
use super::message::Channel;
use super::message::{Inheritance, Message};

/// Timeout for messages that the old process sends without further work.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of checks for the end of the old process after its last message.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The request of an old process to take over from it.
#[derive(Debug)]
pub struct UpgradeCall {
    pid: u32,
    end: OwnedFd,
}

/// The old process, after this process has announced itself.
#[derive(Debug)]
pub struct Predecessor {
    /// The pid of the old process.
    pub pid: u32,
    channel: Channel,
}

impl UpgradeCall {
    /// Detects whether the old process started this one. If so, this process forks and continues as an orphan, so that
    /// the service manager is notified of its end. Must be called while the process has a single thread.
    ///
    /// # Errors
    /// As fork(2).
    pub fn from_environment() -> io::Result<Option<Self>> {
        let named = env::var(VARIABLE).ok().and_then(|text| text.parse::<u32>().ok());
        // Any other process that inherited the variable has a different parent.
        let Some(pid) = named.filter(|pid| *pid == parent_id()) else { return Ok(None) };
        let end = io::stdin().as_fd().try_clone_to_owned()?;
        process::replace_stdin_with_null()?;
        if init::fork()?.is_some() {
            std::process::exit(0);
        }
        Ok(Some(Self { pid, end }))
    }

    /// Announces this process and receives the inherited objects.
    ///
    /// # Errors
    /// The old process ended, or sent no answer in time.
    pub async fn answer(self) -> io::Result<(Predecessor, Inheritance)> {
        let predecessor = Predecessor { pid: self.pid, channel: Channel::new(self.end)? };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        predecessor.channel.send(&Message::Here { pid: std::process::id(), version }, None).await?;
        let inheritance = timeout(REPLY_TIMEOUT, predecessor.inherit()).await??;
        Ok((predecessor, inheritance))
    }
}

impl Predecessor {
    async fn inherit(&self) -> io::Result<Inheritance> {
        let mut inheritance = Inheritance::new();
        loop {
            match self.channel.receive().await? {
                Some((Message::Thing { thing }, Some(descriptor))) => inheritance.push((thing, descriptor)),
                Some((Message::All, _)) => return Ok(inheritance),
                Some(_) => {}
                None => {
                    return Err(io::Error::other("the old process ended during the handover: start ekiden again"));
                }
            }
        }
    }

    /// Announces that this process serves, and waits for the permission to take over.
    ///
    /// # Errors
    /// The old process sent no answer in time.
    pub async fn send_serving(&self) -> io::Result<()> {
        match self.channel.send(&Message::Serves, None).await {
            // The old process has ended, so this process is the relay.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            sent => sent?,
        }
        let turn = async {
            loop {
                match self.channel.receive().await? {
                    Some((Message::Go, _)) | None => return Ok(()),
                    Some(_) => {}
                }
            }
        };
        timeout(REPLY_TIMEOUT, turn).await?
    }

    /// Sends the old process the reason why this process cannot serve.
    pub async fn send_failure(&self, why: String) {
        // If this fails, the old process still detects the end of this one.
        let _ = timeout(REPLY_TIMEOUT, self.channel.send(&Message::Failed { why }, None)).await;
    }

    /// Completes when the old process has ended and the kernel has removed its objects.
    pub async fn wait_ended(&self) {
        while let Ok(Some(_)) = self.channel.receive().await {}
        while process::start_time(self.pid).is_some() {
            sleep(POLL_INTERVAL).await;
        }
    }
}
