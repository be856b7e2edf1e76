//! The process before, as the new one sees it.

use std::env;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::time::Duration;

use ekiden_sys::{init, process};
use tokio::time::{sleep, timeout};

use super::VARIABLE;
use super::channel::Channel;
use super::message::{Inheritance, Message};

/// How long it may take to say something that it has ready.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is looked whether it is gone, once it has said its last.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process before us that wants to hand over.
#[derive(Debug)]
pub struct UpgradeCall {
    pid: u32,
    end: OwnedFd,
}

/// The same, once we have answered.
#[derive(Debug)]
pub struct Predecessor {
    /// Its pid.
    pub pid: u32,
    channel: Channel,
}

impl UpgradeCall {
    /// Whether this process was started by the one before. Then it goes on as nobody's child, so that its manager is told
    /// when it ends, and not the one before. To be called while there is one thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_environment() -> io::Result<Option<Self>> {
        let named = env::var(VARIABLE).ok().and_then(|text| text.parse::<u32>().ok());
        // Whoever has the variable by inheritance has another parent.
        let Some(pid) = named.filter(|pid| *pid == parent_id()) else { return Ok(None) };
        let end = io::stdin().as_fd().try_clone_to_owned()?;
        process::replace_stdin_with_null()?;
        if init::fork()?.is_some() {
            std::process::exit(0);
        }
        Ok(Some(Self { pid, end }))
    }

    /// Says that we are here, and takes what is handed over.
    ///
    /// # Errors
    /// The kernel's, or that the process before ended or said nothing.
    pub async fn answer(self) -> io::Result<(Predecessor, Inheritance)> {
        let predecessor = Predecessor { pid: self.pid, channel: Channel::new(self.end)? };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        predecessor.channel.send(&Message::Here { pid: std::process::id(), version }, None).await?;
        let legacy = timeout(REPLY_TIMEOUT, predecessor.inherit()).await??;
        Ok((predecessor, legacy))
    }
}

impl Predecessor {
    async fn inherit(&self) -> io::Result<Inheritance> {
        let mut legacy = Inheritance::new();
        loop {
            match self.channel.receive().await? {
                Some((Message::Thing { thing }, Some(descriptor))) => legacy.push((thing, descriptor)),
                Some((Message::All, _)) => return Ok(legacy),
                Some(_) => {}
                None => {
                    return Err(io::Error::other("the process before ended while it handed over: start ekiden again"));
                }
            }
        }
    }

    /// Says that we serve, and waits for our turn.
    ///
    /// # Errors
    /// The kernel's, or that it says nothing.
    pub async fn send_serving(&self) -> io::Result<()> {
        match self.channel.send(&Message::Serves, None).await {
            // It is gone, and nobody else is there.
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

    /// Says why we cannot.
    pub async fn send_failure(&self, why: String) {
        // It notices as well when we are gone.
        let _ = timeout(REPLY_TIMEOUT, self.channel.send(&Message::Failed { why }, None)).await;
    }

    /// Completes when it has ended, and the kernel has taken away what was its own.
    pub async fn wait_ended(&self) {
        while let Ok(Some(_)) = self.channel.receive().await {}
        while process::start_time(self.pid).is_some() {
            sleep(POLL_INTERVAL).await;
        }
    }
}
