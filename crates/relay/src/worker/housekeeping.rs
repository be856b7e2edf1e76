//! Periodic work of a worker: releases unused resources, samples sessions, and measures the lag of the event loop.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval};

use crate::ingress::thread::ThreadContext;

/// Interval at which unneeded pipes are closed and unused memory is returned to the system.
pub(super) const TIDY_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of lag measurements. It does not divide `TIDY_INTERVAL`; otherwise the measurements would coincide with
/// that work.
const LAG_SAMPLE_INTERVAL: Duration = Duration::from_millis(613);

/// Maximum number of sessions sampled in one round; the next round continues with the others. A sample takes some 5 us.
const MAX_SAMPLED_SESSIONS: usize = 500;

/// Periodically records the lag of the event loop: the time after which a ready task of this thread is polled.
pub(super) async fn measure_loop_lag(worker: Rc<ThreadContext>) {
    let mut samples = interval(LAG_SAMPLE_INTERVAL);
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        samples.tick().await;
        let ready = Instant::now();
        yield_now().await;
        worker.services.events.metrics.record_event_loop_lag(ready.elapsed());
    }
}

impl ThreadContext {
    /// Samples the sections of running sessions, starting after the last session of the previous round.
    pub(super) fn sample_sessions(&self) {
        self.load.sample();
        if let Some(slot) = &self.slot {
            slot.publish(self.load.demand());
        }
        let sessions: Vec<_> = {
            let sessions = self.sessions.borrow();
            let from = self.next_sample.get();
            let turns = sessions.iter().filter(|(index, _)| *index >= from).take(MAX_SAMPLED_SESSIONS);
            turns.map(|(index, session)| (index, session.clone())).collect()
        };
        self.next_sample.set(match sessions.last() {
            Some((index, _)) if sessions.len() == MAX_SAMPLED_SESSIONS => index + 1,
            _ => 0,
        });
        sessions.iter().filter_map(|(_, session)| session.upgrade()).for_each(|session| session.sample_sections());
    }

    /// Closes resources that were idle since the last call, and returns memory to the system after a peak of sessions.
    pub(super) fn tidy(&self, most_sessions_seen: &mut usize) {
        self.pipes.trim();
        self.services.upstream_pool.expire(Instant::now());
        let session_count = self.sessions.borrow().len();
        *most_sessions_seen = session_count.max(*most_sessions_seen);
        if *most_sessions_seen >= 64 && session_count < *most_sessions_seen / 4 {
            self.sessions.borrow_mut().shrink_to_fit();
            ekiden_sys::process::trim_heap();
            *most_sessions_seen = session_count;
        }
    }
}
