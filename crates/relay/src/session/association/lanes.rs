//! The lanes of an association to other relays: one for each path, opened on demand.
//!
//! Without a lane datagrams are dropped. A lane that has ended is opened again by a later datagram.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::section::Purpose;
use ekiden_proto::wire::section::datagram::read_source;
use ekiden_proto::wire::section::record::MAX_PLAINTEXT;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::{Association, SOCKS_PREFIX};
use crate::dial::{DialError, Dialled, OpenParams, OpenedSession};
use crate::events::metrics::tunnels::DropReason;
use crate::path::PathChoice;
use crate::pump::FlowStats;
use crate::tunnel::{Lane, LaneError, LaneRemote, LaneTransport, dial_and_run};

/// Largest number of paths that one association uses at a time.
const MAX_LANES: usize = 16;

/// Shortest time between two attempts to open a lane.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The answer of the relays to the OPEN of a lane.
pub type LaneAnswer = oneshot::Receiver<Result<(), LaneError>>;

/// The lanes of one association.
pub struct Lanes {
    association: Rc<Association>,
    /// The lanes by the name of their path.
    slots: RefCell<HashMap<Box<str>, AssociationLane>>,
    /// Number of datagrams dropped by lanes that have been replaced.
    dropped: Cell<u64>,
}

/// A lane, open or ended.
struct AssociationLane {
    lane: Arc<Lane>,
    task: AbortHandle,
    /// Ends the lane when this sender is dropped.
    _close: oneshot::Sender<()>,
    opened_at: Instant,
}

impl Lanes {
    /// Creates the lanes of an association, none of them open.
    pub fn new(association: &Rc<Association>) -> Self {
        Self { association: Rc::clone(association), slots: RefCell::default(), dropped: Cell::new(0) }
    }

    /// Opens the first lane, whose section the session reports as its server's section.
    pub fn open_first(&self, path_choice: &PathChoice) -> LaneAnswer {
        let (sender, answer) = oneshot::channel();
        let slot = self.open(path_choice, Some(sender));
        self.slots.borrow_mut().insert(path_choice.path.name.clone(), slot);
        answer
    }

    /// Returns the lane of a path, and opens it if there is none. Returns `None` within `RETRY_DELAY` after an attempt
    /// that has ended, or if there are already `MAX_LANES` lanes.
    pub fn lane(&self, path_choice: &PathChoice) -> Option<Arc<Lane>> {
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get(&path_choice.path.name) {
            if !slot.lane.is_retired() {
                return Some(Arc::clone(&slot.lane));
            }
            if slot.opened_at.elapsed() < RETRY_DELAY {
                return None;
            }
            self.dropped.set(self.dropped.get() + slot.lane.dropped());
        } else if slots.len() >= MAX_LANES {
            return None;
        }
        let slot = self.open(path_choice, None);
        let lane = Arc::clone(&slot.lane);
        slots.insert(path_choice.path.name.clone(), slot);
        Some(lane)
    }

    /// Returns the number of datagrams that the queues of lanes have dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.get() + self.slots.borrow().values().map(|slot| slot.lane.dropped()).sum::<u64>()
    }

    fn open(
        &self,
        path_choice: &PathChoice,
        answer: Option<oneshot::Sender<Result<(), LaneError>>>,
    ) -> AssociationLane {
        let counters = Arc::new(self.association.counters.for_drops());
        let lane = Lane::new(&counters, LaneRemote::from_path(&path_choice.path), Direction::Up);
        let is_first = answer.is_some();
        let (close, closed) = oneshot::channel();
        let task = AssociationTask {
            association: Rc::clone(&self.association),
            path_choice: path_choice.clone(),
            lane: Arc::clone(&lane),
            is_first,
            answer: Cell::new(answer),
        };
        let task = tokio::task::spawn_local(task.run(closed)).abort_handle();
        AssociationLane { lane, task, _close: close, opened_at: Instant::now() }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.slots.borrow().values().filter(|slot| !slot.lane.is_established()).for_each(|slot| slot.task.abort());
    }
}

/// Queues a record for the next relay.
///
/// # Errors
/// Why the datagram is dropped; `None` if the lane has already counted the drop.
pub fn push(lane: &Lane, record: &[u8]) -> Result<(), Option<DropReason>> {
    if record.len() > MAX_PLAINTEXT {
        return Err(Some(DropReason::Malformed));
    }
    if lane.push(record) { Ok(()) } else { Err(None) }
}

/// One lane, from dialling to its end.
struct AssociationTask {
    association: Rc<Association>,
    path_choice: PathChoice,
    lane: Arc<Lane>,
    /// Whether the session reports the section of this lane as its server's section.
    is_first: bool,
    answer: Cell<Option<oneshot::Sender<Result<(), LaneError>>>>,
}

impl AssociationTask {
    /// Runs the lane until `closed` completes, or the next relay ends it.
    async fn run(self, mut closed: oneshot::Receiver<()>) {
        let carry = async |dialled| self.carry(dialled, &mut closed).await;
        let ended = dial_and_run(async || self.dial().await, carry).await;
        self.lane.retire();
        let Err(error) = ended else { return };
        let unsent = match self.answer.take() {
            Some(answer) => answer.send(Err(error)).err(),
            None => Some(Err(error)),
        };
        if let Some(Err(error)) = unsent {
            let context = &self.association.session.context;
            let (listener, path) = (&context.listener.name, &self.path_choice.path.name);
            context.warn(format!("{listener}: datagrams of a UDP association are dropped, no lane by {path}: {error}"));
        }
    }

    async fn dial(&self) -> Result<Dialled, DialError> {
        let session = &self.association.session;
        let context = session.dial_context.current_listener();
        let dialler = session.dial_context.dialler_for(&context, 1);
        if self.is_first {
            session.dial_context.on_attempt(&self.path_choice);
        }
        dialler.open_lane(&self.path_choice, &Purpose::Association, &self.open_params()).await
    }

    /// Returns the parameters of OPEN. The first lane continues the session of the previous relay. The other lanes are
    /// sessions of their own on the next relays, which accept a trace id only once.
    fn open_params(&self) -> OpenParams {
        let params = self.association.session.dial_context.open_params();
        OpenParams { encrypt: true, trace: params.trace.filter(|_| self.is_first), ..params }
    }

    async fn carry(&self, dialled: Dialled, closed: &mut oneshot::Receiver<()>) -> Result<(), LaneError> {
        let (session, requested_at) = (&self.association.session, Instant::now());
        if self.is_first {
            session.dial_context.on_dialled(&dialled);
        }
        let Dialled { stream, server, opened } = dialled;
        let OpenedSession { opening, section, .. } = opened.expect("invariant: an association was opened at a relay");
        let stream = Rc::new(stream);
        if self.is_first {
            session.on_connected(server, Rc::clone(&stream), requested_at);
        }
        // Separate counters: the session itself counts payloads when they are queued, not the records of the lane.
        let stats = FlowStats::new(Rc::new(()));
        let transport = LaneTransport { lane: &self.lane, stream: &stream, cipher: &section.cipher, stats: &stats };
        let receiving = async {
            let times = opening.wait_answer(&stream, &section.cipher).await?;
            if self.is_first {
                session.on_relay_answer(times, requested_at);
            }
            self.lane.mark_established();
            if let Some(answer) = self.answer.take() {
                // The client may be gone.
                let _ = answer.send(Ok(()));
            }
            transport.receive(|record| self.on_record(record)).await
        };
        let ended = transport.run(receiving, async { drop(closed.await) }).await;
        if self.is_first {
            // Otherwise the connection would stay open to the end of the association.
            session.release_upstream();
        }
        ended
    }

    fn on_record(&self, record: &[u8]) {
        match read_source(record) {
            Ok((_, payload)) => {
                let datagram = [&SOCKS_PREFIX, record].concat();
                self.association.answer(&datagram, payload.len());
            }
            Err(_) => self.association.drop_datagram(DropReason::Malformed),
        }
    }
}
