//! Signals from the operator (signal(7)), and the end of a relay: running sessions may finish.

use std::io;
use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::reload::Relay;
use crate::config::Config;
use crate::worker::Command;

/// Interval of checks for the end of all sessions.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Relay {
    /// Drains while no other process accepts.
    pub async fn drain(&mut self, config: &Config, signals: &mut Signals) {
        self.notify_manager(Notifier::stopping);
        // Other relays must stop choosing this one before it stops accepting.
        self.services.fleet.drain().await;
        self.rules.release(&self.services);
        self.workers.send_all(|| Command::Drain).await;
        self.wait_sessions(config.timeouts.drain, signals).await;
        self.services.fleet.leave().await;
        self.stop().await;
    }

    /// Drains while another process accepts new connections.
    pub async fn retire(&mut self, config: &Config, signals: &mut Signals) {
        self.wait_sessions(config.timeouts.upgrade_drain, signals).await;
        self.stop().await;
    }

    /// Lets running sessions finish until the deadline or a signal to end.
    async fn wait_sessions(&mut self, deadline: Duration, signals: &mut Signals) {
        self.services.events.emit(&Event::Draining { open: self.services.admission.sessions(), deadline });
        self.services.reports.close();
        self.services.pools.close();
        self.services.path_selector.close();
        self.sockets.close();
        tokio::select! {
            () = self.wait_empty(deadline) => {}
            () = signals.wait_end() => {}
            () = self.keep_watchdog_alive() => {}
        }
    }

    async fn wait_empty(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        // Connections that other relays keep ready to this process stay usable after an upgrade.
        while self.services.admission.connections() > 0 && Instant::now() < until {
            sleep_until(until.min(Instant::now() + POLL_INTERVAL)).await;
        }
    }

    async fn stop(&mut self) {
        let aborted = self.services.admission.sessions();
        self.workers.send_all(|| Command::End).await;
        self.workers.join();
        self.services.upstream_pool.close();
        self.services.history.close();
        self.services.accounts.close();
        self.services.events.traces.close();
        self.rules.remove(&self.services);
        self.services.events.emit(&Event::Stopped { aborted });
    }
}

/// The signals that the relay handles.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    user: Signal,
}

impl Signals {
    /// Starts watching the signals.
    ///
    /// # Errors
    /// A signal handler cannot be installed.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for the next signal. SIGTERM and SIGINT take precedence over other pending signals.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.hangup.recv() => SignalRequest::Reload,
            _ = self.user.recv() => SignalRequest::Upgrade,
        }
    }

    /// Waits for SIGTERM or SIGINT.
    pub async fn wait_end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The action that a signal requests.
#[derive(PartialEq, Eq)]
pub enum SignalRequest {
    /// Reload the configuration: SIGHUP.
    Reload,
    /// Start the program again and hand over to the new process: SIGUSR2, as for nginx.
    Upgrade,
    /// End the process: SIGTERM or SIGINT.
    End,
}
