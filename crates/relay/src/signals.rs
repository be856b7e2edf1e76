//! What an operator asks for by signals (signal(7)).

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that we obey.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
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
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Wanted {
        tokio::select! {
            _ = self.terminate.recv() => Wanted::End,
            _ = self.interrupt.recv() => Wanted::End,
            _ = self.hangup.recv() => Wanted::Reload,
        }
    }

    /// Waits until the end is asked for.
    pub async fn end(&mut self) {
        while self.next().await != Wanted::End {}
    }
}

/// What a signal asks for.
#[derive(PartialEq, Eq)]
pub enum Wanted {
    /// Read the configuration again.
    Reload,
    /// End.
    End,
}
