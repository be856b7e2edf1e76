//! Connections that the rules have caught, by their ends, on all threads: the gate lets them in, workers accept them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, ServerAddr};
use socket2::SockRef;
use tokio::time::Instant;

use crate::ingress::admission::SessionPermit;
use crate::pump::RecordCipher;
use crate::session::PathTaken;

/// The two ends of a connection, as those see them who do not know of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Who connects.
    pub client: ClientAddr,
    /// To whom.
    pub server: ServerAddr,
}

/// What was dialled while the client's first packet waited.
#[derive(Debug)]
pub struct PreDialed {
    /// The section: to the server itself, or to the first hop.
    pub stream: TcpStream,
    /// What it is connected to.
    pub server: ServerAddr,
    /// The keys of the session's bytes, where those are in records.
    pub cipher: Option<RecordCipher>,
    /// The way it went.
    pub taken: PathTaken,
    /// How long each relay took.
    pub times: Vec<Duration>,
    /// How long it all took.
    pub took: Duration,
}

impl PreDialed {
    /// Nobody wants it any more: the server is told as if the client had broken off.
    pub fn abandon(self) {
        // Fails only when the socket is already dead.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// How far a connection is.
#[derive(Debug)]
enum PendingStage {
    /// Its first packet waits for an answer.
    Waits,
    /// Its first packet was let in, and the session is about to begin.
    LetIn {
        /// Since when; another connection may have the same ends later.
        since: Instant,
        permit: SessionPermit,
        pre_dialed: Option<Box<PreDialed>>,
    },
    /// It is a session.
    Runs,
}

/// What a first packet is.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstPacket {
    /// That of a new connection, which is noted as waiting.
    New,
    /// A retransmission of one that waits.
    Again,
    /// A retransmission of one that was let in.
    LetIn,
}

/// The place of a connection that was let in, and what was dialled for it.
type Admitted = (SessionPermit, Option<Box<PreDialed>>);

/// All connections that were caught.
#[derive(Debug, Default)]
pub struct PendingConnections {
    stages: Mutex<HashMap<FourTuple, PendingStage>>,
}

impl PendingConnections {
    /// Notes the first packet of a connection.
    pub fn on_first_packet(&self, four_tuple: FourTuple) -> FirstPacket {
        match self.lock().entry(four_tuple) {
            Entry::Vacant(vacant) => {
                vacant.insert(PendingStage::Waits);
                FirstPacket::New
            }
            Entry::Occupied(known) => match known.get() {
                PendingStage::Waits => FirstPacket::Again,
                PendingStage::LetIn { .. } | PendingStage::Runs => FirstPacket::LetIn,
            },
        }
    }

    /// Notes that the connection is let in, its place among the sessions, and the stream that was dialled for it.
    pub fn admit(
        &self,
        four_tuple: FourTuple,
        since: Instant,
        permit: SessionPermit,
        pre_dialed: Option<Box<PreDialed>>,
    ) {
        self.lock().insert(four_tuple, PendingStage::LetIn { since, permit, pre_dialed });
    }

    /// Forgets it.
    pub fn remove(&self, four_tuple: &FourTuple) {
        self.lock().remove(four_tuple);
    }

    /// Makes it a session: `Some` when it was let in, with its place and what was dialled for it.
    pub fn accept(&self, four_tuple: FourTuple) -> Option<Admitted> {
        match self.lock().insert(four_tuple, PendingStage::Runs) {
            Some(PendingStage::LetIn { permit, pre_dialed, .. }) => Some((permit, pre_dialed)),
            _ => None,
        }
    }

    /// Forgets it if it was let in at that time and is still not a session: `Some` then, with its place and what was dialled
    /// for it.
    pub fn expire(&self, four_tuple: &FourTuple, then: Instant) -> Option<Admitted> {
        let mut stages = self.lock();
        match stages.remove(four_tuple) {
            Some(PendingStage::LetIn { since, permit, pre_dialed }) if since == then => Some((permit, pre_dialed)),
            Some(other) => {
                stages.insert(*four_tuple, other);
                None
            }
            None => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FourTuple, PendingStage>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
