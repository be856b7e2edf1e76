//! The end of a relay: sessions that run are let finish.

use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use tokio::time::{Instant, sleep};

use super::reload::Relay;
use super::signals::Signals;
use crate::config::Config;
use crate::worker::Command;

/// Interval of checks for the end of all sessions.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Relay {
    /// Drains while no other process accepts.
    pub async fn drain(&mut self, config: &Config, signals: &mut Signals) {
        self.notify_manager(Notifier::stopping);
        // Others stop choosing us before we stop accepting.
        self.shared.fleet.drain().await;
        self.rules.release(&self.shared);
        self.workers.send_all(|| Command::Drain).await;
        self.wait_sessions(config.timeouts.drain, signals).await;
        self.shared.fleet.leave().await;
        self.stop().await;
    }

    /// Drains while another process accepts new connections.
    pub async fn retire(&mut self, config: &Config, signals: &mut Signals) {
        self.wait_sessions(config.timeouts.upgrade_drain, signals).await;
        self.stop().await;
    }

    /// Lets running sessions finish until the deadline or a signal to end.
    async fn wait_sessions(&mut self, deadline: Duration, signals: &mut Signals) {
        self.shared.events.emit(&Event::Draining { open: self.shared.admission.sessions(), deadline });
        self.shared.reports.close();
        self.shared.pools.close();
        self.shared.path_selector.close();
        self.sockets.close();
        tokio::select! {
            () = self.wait_empty(deadline) => {}
            () = signals.wait_end() => {}
            () = self.keep_watchdog_alive() => {}
        }
    }

    async fn wait_empty(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        // Connections that relays have ready here stay usable after an upgrade.
        while self.shared.admission.connections() > 0 && Instant::now() < until {
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn stop(&mut self) {
        let aborted = self.shared.admission.sessions();
        self.workers.send_all(|| Command::End).await;
        self.workers.join();
        self.shared.history.close();
        self.shared.events.traces.close();
        self.rules.remove(&self.shared);
        self.shared.events.emit(&Event::Stopped { aborted });
    }
}
