//! Status of the sessions of a worker. The sessions are processed in small slices, so that data transfer continues in
//! between.

use std::collections::HashSet;
use std::rc::{Rc, Weak};

use ekiden_proto::direction::Direction;
use ekiden_proto::event::CongestionStatus;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::ingress::thread::ThreadContext;
use crate::pump::PipeCounts;
use crate::session::Session;
use crate::status::SessionView;

/// Number of sessions to describe between two yields; a session takes some 10 us.
const SESSIONS_PER_SLICE: usize = 32;

/// Number of sessions whose counters are read between two yields; a session takes some 0.1 us.
const COUNTERS_PER_SLICE: usize = 1024;

/// The scope of a status request.
#[derive(Debug, Clone)]
pub enum StatusQuery {
    /// Progress of all sessions: path and byte counters.
    Tallies,
    /// Details of the sessions with these ids.
    These(HashSet<u64>),
    /// Details of all sessions.
    All,
}

/// Status of one worker, or the sum over several workers.
#[derive(Debug, Default)]
pub struct WorkerStatus {
    /// The sessions in the scope of the request.
    pub sessions: Vec<SessionView>,
    /// The progress of all sessions, if requested.
    pub tallies: Vec<SessionProgress>,
    /// Counts of the thread's pipes.
    pub pipes: PipeCounts,
    /// The congestion controls of the configuration.
    pub congestion: Vec<CongestionStatus>,
}

/// Progress of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProgress {
    /// Id of the session.
    pub session: u64,
    /// Names of the hops, or `direct`; `None` before the session has a path.
    pub path: Option<Box<str>>,
    /// Bytes sent toward the client so far.
    pub down: u64,
    /// Bytes sent toward the server so far.
    pub up: u64,
}

impl ThreadContext {
    /// Sends the status of this worker to `answer`.
    pub(super) async fn describe(self: Rc<Self>, request: StatusQuery, answer: oneshot::Sender<WorkerStatus>) {
        let mut description = self.without_sessions();
        let slice = if matches!(request, StatusQuery::Tallies) { COUNTERS_PER_SLICE } else { SESSIONS_PER_SLICE };
        for sessions in self.listed().chunks(slice) {
            for session in sessions.iter().filter_map(Weak::upgrade) {
                description.add_session(&request, &session);
            }
            yield_now().await;
        }
        // The requester may have given up.
        let _ = answer.send(description);
    }

    fn without_sessions(&self) -> WorkerStatus {
        let contexts = self.listeners.borrow();
        let congestion = contexts.first().map(|context| context.config.congestion.describe());
        WorkerStatus {
            pipes: self.pipes.counts(),
            congestion: congestion.unwrap_or_default(),
            ..WorkerStatus::default()
        }
    }

    fn listed(&self) -> Vec<Weak<Session>> {
        self.sessions.borrow().iter().map(|(_, session)| Weak::clone(session)).collect()
    }
}

impl WorkerStatus {
    fn add_session(&mut self, request: &StatusQuery, session: &Session) {
        match request {
            StatusQuery::Tallies => self.tallies.push(SessionProgress {
                session: session.id,
                path: session.dial_context.path_name(),
                down: session.stats.bytes(Direction::Down),
                up: session.stats.bytes(Direction::Up),
            }),
            StatusQuery::These(ids) if !ids.contains(&session.id) => {}
            StatusQuery::These(_) | StatusQuery::All => self.sessions.push(session.view()),
        }
    }

    /// Adds the status of another worker.
    pub fn add(&mut self, other: Self) {
        let Self { sessions, tallies, pipes, congestion } = other;
        self.sessions.extend(sessions);
        self.tallies.extend(tallies);
        self.pipes.open += pipes.open;
        self.pipes.idle += pipes.idle;
        self.pipes.fallbacks += pipes.fallbacks;
        // All workers have the same configuration; the thread of the gates has no listeners and reports none.
        if self.congestion.is_empty() {
            self.congestion = congestion;
        }
    }
}
