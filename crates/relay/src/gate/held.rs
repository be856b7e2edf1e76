//! Connections that the rules have caught, by their ends, on all threads: the gate lets them in, workers accept them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, ServerAddr};
use socket2::SockRef;
use tokio::time::Instant;

use crate::admission::SessionPermit;
use crate::pump::Seal;
use crate::session::Taken;

/// The two ends of a connection, as those see them who do not know of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Who connects.
    pub client: ClientAddr,
    /// To whom.
    pub server: ServerAddr,
}

/// What was dialled while the client's first packet waited.
#[derive(Debug)]
pub struct Ahead {
    /// The section: to the server itself, or to the first hop.
    pub stream: TcpStream,
    /// What it is connected to.
    pub server: ServerAddr,
    /// The keys of the session's bytes, where those are in records.
    pub seal: Option<Seal>,
    /// The way it went.
    pub taken: Taken,
    /// How long each relay took.
    pub times: Vec<Duration>,
    /// How long it all took.
    pub took: Duration,
}

impl Ahead {
    /// Nobody wants it any more: the server is told as if the client had broken off.
    pub fn abandon(self) {
        // Fails only when the socket is already dead.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// How far a connection is.
#[derive(Debug)]
enum Stage {
    /// Its first packet waits for an answer.
    Waits,
    /// Its first packet was let in, and the session is about to begin.
    LetIn {
        /// Since when; another connection may have the same ends later.
        since: Instant,
        permit: SessionPermit,
        ahead: Option<Box<Ahead>>,
    },
    /// It is a session.
    Runs,
}

/// What a first packet is.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// That of a new connection, which is noted as waiting.
    New,
    /// A retransmission of one that waits.
    Again,
    /// A retransmission of one that was let in.
    LetIn,
}

/// The place of a connection that was let in, and what was dialled for it.
type LetIn = (SessionPermit, Option<Box<Ahead>>);

/// All connections that were caught.
#[derive(Debug, Default)]
pub struct Held {
    stages: Mutex<HashMap<Ends, Stage>>,
}

impl Held {
    /// Notes the first packet of a connection.
    pub fn first(&self, ends: Ends) -> First {
        match self.stages().entry(ends) {
            Entry::Vacant(vacant) => {
                vacant.insert(Stage::Waits);
                First::New
            }
            Entry::Occupied(known) => match known.get() {
                Stage::Waits => First::Again,
                Stage::LetIn { .. } | Stage::Runs => First::LetIn,
            },
        }
    }

    /// Notes that the connection is let in, its place among the sessions, and the stream that was dialled for it.
    pub fn let_in(&self, ends: Ends, since: Instant, permit: SessionPermit, ahead: Option<Box<Ahead>>) {
        self.stages().insert(ends, Stage::LetIn { since, permit, ahead });
    }

    /// Forgets it.
    pub fn forget(&self, ends: &Ends) {
        self.stages().remove(ends);
    }

    /// Makes it a session: `Some` when it was let in, with its place and what was dialled for it.
    pub fn accept(&self, ends: Ends) -> Option<LetIn> {
        match self.stages().insert(ends, Stage::Runs) {
            Some(Stage::LetIn { permit, ahead, .. }) => Some((permit, ahead)),
            _ => None,
        }
    }

    /// Forgets it if it was let in at that time and is still not a session: `Some` then, with its place and what was dialled
    /// for it.
    pub fn give_up(&self, ends: &Ends, then: Instant) -> Option<LetIn> {
        let mut stages = self.stages();
        match stages.remove(ends) {
            Some(Stage::LetIn { since, permit, ahead }) if since == then => Some((permit, ahead)),
            Some(other) => {
                stages.insert(*ends, other);
                None
            }
            None => None,
        }
    }

    fn stages(&self) -> MutexGuard<'_, HashMap<Ends, Stage>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
