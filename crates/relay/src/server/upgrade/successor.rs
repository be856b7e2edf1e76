//! The new process, as the one before sees it.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ekiden_sys::{along, signal};
use tokio::time::timeout;

use super::VARIABLE;
use super::channel::Channel;
use super::message::{Inheritance, Message};

/// How long a killed process may take.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The environment of a process that a manager started may be about that process only (sd_watchdog_enabled(3)).
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// A process that serves, and waits for its turn. It is killed if this is dropped before.
#[derive(Debug)]
pub struct Successor {
    /// The program itself, until it has let go of us.
    child: Child,
    channel: Channel,
    /// Who it is, and of which version.
    is: Option<(u32, String)>,
    /// Whether it has gone its own way, or is gone.
    is_done: bool,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// As the first process of a container, whose end would be the end of all.
    #[error(
        "process 1 cannot hand over, its container would end with it: start a container of the new version instead"
    )]
    First,
    /// The program cannot be started.
    #[error("{program} cannot be started: {cause}: put the program back")]
    Start {
        /// Its path.
        program: String,
        /// Part of the message, so that nobody says it twice.
        cause: io::Error,
    },
    /// It ended before it said anything.
    #[error("{program} exited at once ({how}): see its log; is it an ekiden version that supports upgrades?")]
    Ended {
        /// Its path.
        program: String,
        /// How, in words.
        how: String,
    },
    /// It ended later.
    #[error("the new process exited before it served: see its log")]
    Died,
    /// It said why it cannot.
    #[error("{0}")]
    Told(String),
    /// It took too long.
    #[error("the new process does not serve after {}s and was ended: is timeouts.upgrade too short?", .0.as_secs_f64())]
    Late(Duration),
    /// We could not talk with it.
    #[error("cannot hand over: {0}")]
    System(#[from] io::Error),
}

/// An upgrade that came to nothing.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub why: UpgradeError,
    /// The process that may have begun to change things.
    pub pid: Option<u32>,
}

impl Successor {
    /// Starts the program of this process once more, with the same arguments, and hands it `legacy`. It serves when this
    /// returns.
    ///
    /// # Errors
    /// Why it does not; then it is gone.
    pub async fn start(legacy: &Inheritance, patience: Duration) -> Result<Self, Failure> {
        let mut successor = Self::spawn().map_err(|why| Failure { why, pid: None })?;
        let brought_up = timeout(patience, successor.hand_over(legacy)).await;
        match brought_up.unwrap_or(Err(UpgradeError::Late(patience))) {
            Ok(()) => Ok(successor),
            Err(why) => {
                let pid = successor.pid();
                successor.end().await;
                Err(Failure { why, pid })
            }
        }
    }

    /// Kills it, and waits until it changes nothing any more.
    async fn end(mut self) {
        self.kill();
        let gone = async { while let Ok(Some(_)) = self.channel.receive().await {} };
        // What a killed process still waits for is in the kernel's hands.
        let _ = timeout(KILL_TIMEOUT, gone).await;
    }

    fn spawn() -> Result<Self, UpgradeError> {
        if std::process::id() == 1 {
            return Err(UpgradeError::First);
        }
        let (ours, its) = along::seqpacket_pair()?;
        let channel = Channel::new(ours)?;
        let mut arguments = env::args_os();
        // As it was called, so that a link or a search path leads to the new program.
        let program = arguments.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(arguments).env(VARIABLE, std::process::id().to_string()).env_remove(WATCHDOG_PID);
        let child = command.stdin(Stdio::from(its)).spawn();
        let child = child.map_err(|cause| UpgradeError::Start { program: program_args(), cause })?;
        Ok(Self { child, channel, is: None, is_done: false })
    }

    async fn hand_over(&mut self, legacy: &Inheritance) -> Result<(), UpgradeError> {
        match self.channel.receive().await? {
            Some((Message::Here { pid, version }, _)) => self.is = Some((pid, version)),
            _ => return Err(self.exit_error()?),
        }
        // It has said that as nobody's child, and what we have started ends with that.
        self.child.wait()?;
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe => UpgradeError::Died,
            _ => UpgradeError::System(error),
        };
        for (thing, descriptor) in legacy {
            let message = Message::Thing { thing: thing.clone() };
            self.channel.send(&message, Some(descriptor.as_fd())).await.map_err(gone)?;
        }
        self.channel.send(&Message::All, None).await.map_err(gone)?;
        loop {
            match self.channel.receive().await? {
                Some((Message::Serves, _)) => return Ok(()),
                Some((Message::Failed { why }, _)) => return Err(UpgradeError::Told(why)),
                Some(_) => {}
                None => return Err(UpgradeError::Died),
            }
        }
    }

    /// Why a program did not begin to speak; one that goes on all the same is ended.
    fn exit_error(&mut self) -> io::Result<UpgradeError> {
        // One that has ended keeps its status.
        self.child.kill()?;
        let how = self.child.wait()?;
        // That is what it does when another process goes on for it.
        let has_begun = how.success();
        Ok(if has_begun {
            UpgradeError::Died
        } else {
            UpgradeError::Ended { program: program_args(), how: how.to_string() }
        })
    }

    /// Its pid, once it has begun.
    fn pid(&self) -> Option<u32> {
        self.is.as_ref().map(|(pid, _)| *pid)
    }

    fn kill(&mut self) {
        if !std::mem::replace(&mut self.is_done, true) {
            // Whatever has ended already cannot be ended again.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = self.pid().map(signal::send_kill);
        }
    }

    /// Who it is, and of which version.
    #[must_use]
    pub fn identity(&self) -> (u32, String) {
        self.is.clone().expect("invariant: the new process sends its identity before it serves")
    }

    /// From now on it is the relay. It hears of the end of this process by the channel, which is closed when this is dropped.
    pub async fn release(&mut self) {
        self.is_done = true;
        // One that has died since is its manager's business, as any relay is that dies.
        let _ = self.channel.send(&Message::Go, None).await;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// As this program was called.
fn program_args() -> String {
    env::args_os().next().unwrap_or_default().to_string_lossy().into_owned()
}
