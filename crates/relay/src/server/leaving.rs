//! The end of a relay: sessions that run are let finish.

use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::notify::Notifier;
use tokio::time::{Instant, sleep};

use super::relay::Relay;
use crate::config::Config;
use crate::signals::Signals;
use crate::worker::Command;

/// How often a draining relay looks whether it is empty.
const LOOK: Duration = Duration::from_millis(20);

impl Relay {
    /// Accepts nothing more, and nobody else does.
    pub async fn drain(&mut self, config: &Config, signals: &mut Signals) {
        self.tell_manager(Notifier::stopping);
        // Others stop choosing us before we stop accepting.
        self.shared.fleet.drain().await;
        self.rules.release(&self.shared);
        self.workers.tell_all(|| Command::Drain).await;
        self.let_finish(config.timeouts.drain, signals).await;
        self.shared.fleet.leave().await;
        self.end().await;
    }

    /// Another process accepts what is new.
    pub async fn retire(&mut self, config: &Config, signals: &mut Signals) {
        self.let_finish(config.timeouts.upgrade_drain, signals).await;
        self.end().await;
    }

    /// Lets running sessions finish until the deadline or a signal to end.
    async fn let_finish(&mut self, deadline: Duration, signals: &mut Signals) {
        self.shared.emit(&Event::Draining { open: self.shared.admission.sessions(), deadline });
        self.shared.reports.close();
        self.shared.pools.close();
        self.shared.path_selector.close();
        self.sockets.close();
        tokio::select! {
            () = self.is_empty(deadline) => {}
            () = signals.end() => {}
            () = self.show_life() => {}
        }
    }

    async fn is_empty(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        // Connections that relays have ready here stay usable after an upgrade.
        while self.shared.admission.connections() > 0 && Instant::now() < until {
            sleep(LOOK).await;
        }
    }

    async fn end(&mut self) {
        let aborted = self.shared.admission.sessions();
        self.workers.tell_all(|| Command::End).await;
        self.workers.join();
        self.shared.history.close();
        self.shared.traces.close();
        self.rules.remove(&self.shared);
        self.shared.emit(&Event::Stopped { aborted });
    }
}
