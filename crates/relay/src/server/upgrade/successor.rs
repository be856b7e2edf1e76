//! The new process of an upgrade, from the view of the old process.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ekiden_sys::{fd_passing, signal};
use tokio::time::timeout;

use super::VARIABLE;
use super::message::Channel;
use super::message::{Inheritance, Message};

/// Maximum time to wait for the end of a killed process.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Environment variable of systemd, which is valid only for the process that systemd started (sd_watchdog_enabled(3)).
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// A new process that serves and waits to take over. If dropped before [`Successor::release`], the process is killed.
#[derive(Debug)]
pub struct Successor {
    /// The started program; it exits when its fork continues as an orphan.
    child: Child,
    channel: Channel,
    /// The pid and the version of the new process, after its first message.
    identity: Option<(u32, String)>,
    /// Whether the process was released or has ended.
    is_done: bool,
}

/// Why there is no successor.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// Process 1 of a container cannot be replaced: its end would end the container.
    #[error(
        "process 1 cannot hand over, because the container ends with process 1: start a container of the new version \
         instead"
    )]
    First,
    /// The program cannot be started.
    #[error("cannot start {program}: {cause}: restore the program")]
    Start {
        /// The path of the program.
        program: String,
        /// The cause, which the message already contains.
        cause: io::Error,
    },
    /// The program exited before its first message.
    #[error("{program} exited at once ({how}): see its log; is it an ekiden version that supports upgrades?")]
    Ended {
        /// The path of the program.
        program: String,
        /// The exit status, in words.
        how: String,
    },
    /// The process ended after its first message.
    #[error("the new process exited before it served: see its log")]
    Died,
    /// The process reported why it cannot serve.
    #[error("{0}")]
    Told(String),
    /// The process did not serve in time.
    #[error("the new process did not serve within {}s and was killed: increase timeouts.upgrade if it needs more \
             time", .0.as_secs_f64())]
    Late(Duration),
    /// The channel between the processes failed.
    #[error("cannot hand over: {0}")]
    System(#[from] io::Error),
}

/// A failed upgrade with its reason.
#[derive(Debug)]
pub struct Failure {
    /// The cause of the failure.
    pub why: UpgradeError,
    /// The pid of the new process, which may already have changed kernel state; `None` before its first message.
    pub pid: Option<u32>,
}

impl Successor {
    /// Starts the program of this process again, with the same arguments, and hands over `inheritance`. Returns when
    /// the new process serves.
    ///
    /// # Errors
    /// Why the new process does not serve; it has been killed then.
    pub async fn start(inheritance: &Inheritance, time_limit: Duration) -> Result<Self, Failure> {
        let mut successor = Self::spawn().map_err(|why| Failure { why, pid: None })?;
        let handed_over = timeout(time_limit, successor.hand_over(inheritance)).await;
        match handed_over.unwrap_or(Err(UpgradeError::Late(time_limit))) {
            Ok(()) => Ok(successor),
            Err(why) => {
                let pid = successor.pid();
                successor.end().await;
                Err(Failure { why, pid })
            }
        }
    }

    /// Kills the process and waits for its end.
    async fn end(mut self) {
        self.kill();
        let closed = async { while let Ok(Some(_)) = self.channel.receive().await {} };
        // The kernel may delay the end of a killed process.
        let _ = timeout(KILL_TIMEOUT, closed).await;
    }

    fn spawn() -> Result<Self, UpgradeError> {
        if std::process::id() == 1 {
            return Err(UpgradeError::First);
        }
        let (ours, theirs) = fd_passing::seqpacket_pair()?;
        let channel = Channel::new(ours)?;
        let mut arguments = env::args_os();
        // Use the name of the original call, so that a link or a search path leads to the new program.
        let program = arguments.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(arguments).env(VARIABLE, std::process::id().to_string()).env_remove(WATCHDOG_PID);
        let child = command.stdin(Stdio::from(theirs)).spawn();
        let child = child.map_err(|cause| UpgradeError::Start { program: program_args(), cause })?;
        Ok(Self { child, channel, identity: None, is_done: false })
    }

    async fn hand_over(&mut self, inheritance: &Inheritance) -> Result<(), UpgradeError> {
        match self.channel.receive().await? {
            Some((Message::Here { pid, version }, _)) => self.identity = Some((pid, version)),
            _ => return Err(self.exit_error()?),
        }
        // The first message comes from the orphan; the process that was started here exits after the fork.
        self.child.wait()?;
        let to_upgrade_error = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe => UpgradeError::Died,
            _ => UpgradeError::System(error),
        };
        for (inherited, descriptor) in inheritance {
            let message = Message::Thing { thing: inherited.clone() };
            self.channel.send(&message, Some(descriptor.as_fd())).await.map_err(to_upgrade_error)?;
        }
        self.channel.send(&Message::All, None).await.map_err(to_upgrade_error)?;
        loop {
            match self.channel.receive().await? {
                Some((Message::Serves, _)) => return Ok(()),
                Some((Message::Failed { why }, _)) => return Err(UpgradeError::Told(why)),
                Some(_) => {}
                None => return Err(UpgradeError::Died),
            }
        }
    }

    /// Determines why a program sent no message. A program that is still running is killed.
    fn exit_error(&mut self) -> io::Result<UpgradeError> {
        // The status of a process that has already exited does not change.
        self.child.kill()?;
        let status = self.child.wait()?;
        // The started process exits with success if its orphan has been created.
        let has_begun = status.success();
        Ok(if has_begun {
            UpgradeError::Died
        } else {
            UpgradeError::Ended { program: program_args(), how: status.to_string() }
        })
    }

    /// The pid of the new process, after its first message.
    fn pid(&self) -> Option<u32> {
        self.identity.as_ref().map(|(pid, _)| *pid)
    }

    fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_done, true) {
            // Killing fails if the process has already ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = self.pid().map(signal::send_kill);
        }
    }

    /// Returns the pid and the version of the new process.
    #[must_use]
    pub fn identity(&self) -> (u32, String) {
        self.identity.clone().expect("invariant: the new process sends its identity before it serves")
    }

    /// Allows the new process to take over. The new process detects the end of this one when the channel closes on
    /// drop.
    pub async fn release(&mut self) {
        self.is_done = true;
        // If the new process has ended meanwhile, its service manager handles that.
        let _ = self.channel.send(&Message::Go, None).await;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program name in the command line of this process.
fn program_args() -> String {
    env::args_os().next().unwrap_or_default().to_string_lossy().into_owned()
}
