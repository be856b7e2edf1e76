//! Signals of the operator (signal(7)).

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that we obey.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    user: Signal,
}

impl Signals {
    /// Watches them from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. A pending request to end comes first.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.hangup.recv() => SignalRequest::Reload,
            _ = self.user.recv() => SignalRequest::Upgrade,
        }
    }

    /// Waits until the end is asked for.
    pub async fn wait_end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The request of a signal.
#[derive(PartialEq, Eq)]
pub enum SignalRequest {
    /// Read the configuration again.
    Reload,
    /// Start the program again and hand over to it: SIGUSR2, as for nginx.
    Upgrade,
    /// End the process.
    End,
}
