//! What a worker says of itself to those who look. Sessions come first: it describes a few of them, then lets them move
//! bytes, then describes the next.

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

/// Sessions that are described between two times in which others may run; each costs some 10 us.
const SESSIONS_PER_SLICE: usize = 32;

/// Counters that are read between those; each costs some 0.1 us.
const COUNTERS_PER_SLICE: usize = 1024;

/// How much somebody wants to know.
#[derive(Debug, Clone)]
pub enum StatusQuery {
    /// How far sessions have come.
    Tallies,
    /// Everything of these sessions.
    These(HashSet<u64>),
    /// Everything of all sessions.
    All,
}

/// A worker's answer.
#[derive(Debug, Default)]
pub struct WorkerStatus {
    /// Its sessions, those that were wished.
    pub sessions: Vec<SessionView>,
    /// How far its sessions have come, where that was wished.
    pub tallies: Vec<SessionProgress>,
    /// Its pipes.
    pub pipes: PipeCounts,
    /// The congestion controls that its configuration asks for.
    pub congestion: Vec<CongestionStatus>,
}

/// How far a session has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProgress {
    /// Its number.
    pub session: u64,
    /// Names of its hops, or `direct`; none before it has a path.
    pub path: Option<Box<str>>,
    /// Bytes toward the client so far.
    pub down: u64,
    /// Bytes toward the server so far.
    pub up: u64,
}

impl ThreadContext {
    /// Answers a wish.
    pub(crate) async fn describe(self: Rc<Self>, request: StatusQuery, answer: oneshot::Sender<WorkerStatus>) {
        let mut description = self.without_sessions();
        let slice = if matches!(request, StatusQuery::Tallies) { COUNTERS_PER_SLICE } else { SESSIONS_PER_SLICE };
        for sessions in self.listed().chunks(slice) {
            for session in sessions.iter().filter_map(Weak::upgrade) {
                description.add_session(&request, &session);
            }
            yield_now().await;
        }
        // Whoever asked may have given up.
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
            StatusQuery::These(wanted) if !wanted.contains(&session.id) => {}
            StatusQuery::These(_) | StatusQuery::All => self.sessions.push(session.view()),
        }
    }

    /// Adds that of another worker.
    pub fn add(&mut self, other: Self) {
        let Self { sessions, tallies, pipes, congestion } = other;
        self.sessions.extend(sessions);
        self.tallies.extend(tallies);
        self.pipes.open += pipes.open;
        self.pipes.idle += pipes.idle;
        self.pipes.fallbacks += pipes.fallbacks;
        // All serve the same, but for the gate, which serves nothing by itself.
        if self.congestion.is_empty() {
            self.congestion = congestion;
        }
    }
}
