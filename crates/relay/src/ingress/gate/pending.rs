//! Intercepted connections of all threads, by four-tuple: the gate admits them, and workers accept them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, ServerAddr};
use socket2::SockRef;
use tokio::time::Instant;

use crate::dial::link::SectionReuse;
use crate::ingress::admission::SessionPermit;
use crate::pump::FramedSection;
use crate::session::PathTaken;

/// The client's and the server's address of an intercepted connection, as both ends see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// The address of the client.
    pub client: ClientAddr,
    /// The address of the server.
    pub server: ServerAddr,
}

/// A connection that was dialled while the client's first packet waited.
#[derive(Debug)]
pub struct PreDialed {
    /// The section to the server or to the first hop.
    pub stream: TcpStream,
    /// The address of the server or of the first hop.
    pub server: ServerAddr,
    /// The section to a relay, if its bytes are framed.
    pub section: Option<FramedSection>,
    /// The pool that receives the section after the session, if the section can carry another session.
    pub reuse: Option<SectionReuse>,
    /// The path that was taken.
    pub taken: PathTaken,
    /// Setup time of each relay.
    pub times: Vec<Duration>,
    /// Time from the first packet to the established path.
    pub took: Duration,
}

impl PreDialed {
    /// Closes the connection with a reset, as if the client had aborted.
    pub fn abandon(self) {
        // Fails only when the socket is already dead.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// The stage of an intercepted connection.
#[derive(Debug)]
enum PendingStage {
    /// The first packet waits for its verdict.
    Waits,
    /// The first packet has been admitted, and the listener has not accepted the connection yet.
    LetIn {
        /// Time of the verdict, which distinguishes this connection from a later one with the same four-tuple.
        since: Instant,
        permit: SessionPermit,
        pre_dialed: Option<Box<PreDialed>>,
    },
    /// The session of the connection runs.
    Runs,
}

/// Classification of a first packet.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstPacket {
    /// The first packet of a new connection, which is recorded as waiting.
    New,
    /// A retransmission of a waiting packet.
    Again,
    /// A retransmission of an admitted packet.
    LetIn,
}

/// The place of an admitted connection, and the connection dialled for it.
type Admitted = (SessionPermit, Option<Box<PreDialed>>);

/// The intercepted connections of all threads.
#[derive(Debug, Default)]
pub struct PendingConnections {
    stages: Mutex<HashMap<FourTuple, PendingStage>>,
}

impl PendingConnections {
    /// Classifies a first packet, and records a new connection as waiting.
    pub fn on_first_packet(&self, four_tuple: FourTuple) -> FirstPacket {
        match self.lock().entry(four_tuple) {
            Entry::Vacant(vacant) => {
                vacant.insert(PendingStage::Waits);
                FirstPacket::New
            }
            Entry::Occupied(occupied) => match occupied.get() {
                PendingStage::Waits => FirstPacket::Again,
                PendingStage::LetIn { .. } | PendingStage::Runs => FirstPacket::LetIn,
            },
        }
    }

    /// Marks a connection as admitted, with its place and the connection dialled for it.
    pub fn admit(
        &self,
        four_tuple: FourTuple,
        since: Instant,
        permit: SessionPermit,
        pre_dialed: Option<Box<PreDialed>>,
    ) {
        self.lock().insert(four_tuple, PendingStage::LetIn { since, permit, pre_dialed });
    }

    /// Removes the entry of a connection.
    pub fn remove(&self, four_tuple: &FourTuple) {
        self.lock().remove(four_tuple);
    }

    /// Turns an admitted connection into a session. Returns its place and the connection dialled for it.
    pub fn accept(&self, four_tuple: FourTuple) -> Option<Admitted> {
        match self.lock().insert(four_tuple, PendingStage::Runs) {
            Some(PendingStage::LetIn { permit, pre_dialed, .. }) => Some((permit, pre_dialed)),
            _ => None,
        }
    }

    /// Removes a connection that was admitted at `admitted_at` and has no session. Returns its place and the connection
    /// dialled for it.
    pub fn expire(&self, four_tuple: &FourTuple, admitted_at: Instant) -> Option<Admitted> {
        let mut stages = self.lock();
        match stages.remove(four_tuple) {
            Some(PendingStage::LetIn { since, permit, pre_dialed }) if since == admitted_at => {
                Some((permit, pre_dialed))
            }
            Some(stage) => {
                stages.insert(*four_tuple, stage);
                None
            }
            None => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FourTuple, PendingStage>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
