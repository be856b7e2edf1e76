//! The gate: what becomes of the first packets (SYNs) that the rules have caught.
//!
//! Each waits in a queue of the kernel's until its verdict. Most are let in, to the listener: at once, or, where clients
//! are to notice nothing (`connect = "hold"`), when the server has answered. What the server refuses is refused, and what
//! we cannot serve goes on without us, as if there were no relay.

mod held;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::{EndReason, Event, SessionClosed};
use ekiden_proto::wire::syn::Syn;
use ekiden_sys::nfqueue::{NfQueue, Verdict};
use ekiden_sys::sock_diag::SocketDestroyer;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, interval, timeout};

use crate::admission::SessionPermit;
use crate::config::{ConnectMode, ListenerKind};
use crate::dial::{DialError, Dialled};
use crate::entrance::ListenerContext;
use crate::rules::Marks;
use crate::session::{ConnectedPath, DialContext, connect_end_to_end};
use crate::worker::StopSignal;

pub use held::{FourTuple, PendingConnections, PreDialed};

/// How often is looked for what was let in and never came.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a server that said nothing is left alone.
const SILENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Most servers that are remembered for it.
const MAX_SILENT: usize = 4096;

/// The first packets for one listener.
pub struct Gate {
    entrance: Rc<ListenerContext>,
    queue: AsyncFd<NfQueue>,
    marks: Marks,
    /// The mark of packets that may go to the listener.
    welcome: u32,
    /// Those that were let in, the oldest first.
    let_in: RefCell<VecDeque<(Instant, FourTuple)>>,
    /// Ends sockets in TIME_WAIT; none where the kernel has no such thing.
    destroyer: Option<SocketDestroyer>,
    /// Servers that said nothing, and since when.
    silent: RefCell<HashMap<SocketAddr, Instant>>,
    /// Why packets are let pass that could be ours, while that is so.
    passing: Cell<Option<&'static str>>,
}

/// Serves the first packets for listener number `number` until told to stop, and after that only what has begun.
///
/// # Errors
/// The kernel's, when the queue cannot be watched.
pub async fn run(entrance: Rc<ListenerContext>, queue: NfQueue, number: usize, mut stop: StopSignal) -> io::Result<()> {
    let marks = entrance.config.marks();
    #[expect(deprecated, reason = "`register` is unsafe, for types that change their descriptor; a queue never does")]
    let queue = AsyncFd::new(queue)?;
    let gate = Rc::new(Gate {
        // TPROXY finds out by itself whether the listener is there; address translation would lead to nowhere.
        welcome: match entrance.listener.kind {
            ListenerKind::Redirect => marks.let_in(number),
            _ => marks.caught(number),
        },
        marks,
        entrance,
        queue,
        let_in: RefCell::default(),
        destroyer: SocketDestroyer::open().ok(),
        silent: RefCell::default(),
        passing: Cell::new(None),
    });
    let mut look = interval(EXPIRY_INTERVAL);
    loop {
        tokio::select! {
            _ = look.tick() => gate.expire(),
            readable = stop.stop_first(gate.queue.readable()) => {
                let Some(readable) = readable else { break };
                // An error is about one datagram; the next one may be better.
                let _ = readable?.try_io(|queue| queue.get_ref().receive(|packet| gate.on_packet(packet.id, packet.payload)));
            }
        }
    }
    while Rc::strong_count(&gate) > 1 || !gate.let_in.borrow().is_empty() {
        look.tick().await;
        gate.expire();
    }
    Ok(())
}

impl Gate {
    fn on_packet(self: &Rc<Self>, id: u32, packet: &[u8]) {
        // The rules catch nothing else.
        let Ok(syn) = Syn::parse(packet) else { return self.mark(id, self.marks.pass()) };
        let ends = FourTuple { client: syn.client, server: syn.server };
        let held = &self.entrance.shared().held;
        match held.on_first_packet(ends) {
            held::FirstPacket::New => {}
            held::FirstPacket::Again => return self.set_verdict(id, Verdict::Drop),
            held::FirstPacket::LetIn => return self.mark(id, self.welcome),
        }
        let permit = match self.try_admit(&ends) {
            Ok(permit) => permit,
            Err(reason) => {
                held.remove(&ends);
                return self.pass_through(id, &ends, reason);
            }
        };
        if self.entrance.listener.connect == ConnectMode::Hold {
            tokio::task::spawn_local(dial_held(Rc::clone(self), ends, id, permit));
        } else {
            self.admit(id, ends, permit, None);
        }
    }

    /// Takes a place for a session, or says why there is none.
    fn try_admit(&self, ends: &FourTuple) -> Result<SessionPermit, &'static str> {
        if self.entrance.worker.leaving.is_draining() {
            return Err("draining");
        }
        if self.silent.borrow().get(&ends.server.0).is_some_and(|since| since.elapsed() < SILENT_TIMEOUT) {
            return Err("silent");
        }
        let server = ends.server.0;
        if !self.entrance.listener.access.permits(&server.ip().into(), Some(server.ip()), server.port()) {
            return Err("denied");
        }
        self.entrance.try_admit(ends.client.0.ip())
    }

    fn admit(&self, id: u32, ends: FourTuple, permit: SessionPermit, ahead: Option<Box<PreDialed>>) {
        let now = Instant::now();
        self.entrance.shared().held.admit(ends, now, permit, ahead);
        self.let_in.borrow_mut().push_back((now, ends));
        self.mark(id, self.welcome);
        if let Some(reason) = self.passing.take() {
            self.entrance.shared().emit(&Event::BypassEnded { listener: self.name(), reason });
        }
    }

    /// Lets a packet go on without us. Ends of ours from a session before, with the same ports, would meet its answers.
    fn pass_through(&self, id: u32, ends: &FourTuple, reason: &'static str) {
        let (client, server) = (ends.client.0, ends.server.0);
        // Through a tunnel this host's own programs come too: at the client's end is one of their sockets then.
        let theirs = (self.entrance.listener.kind != ListenerKind::Tun).then_some((client, server));
        for (local, remote) in [(server, client)].into_iter().chain(theirs) {
            // Nearly always there is none.
            let _ = self.destroyer.as_ref().map(|destroyer| destroyer.destroy(local, remote));
        }
        let shared = self.entrance.shared();
        shared.metrics.record_passed(&self.name(), reason);
        // What one server is or does is nothing to tell the operator.
        if !matches!(reason, "silent" | "denied" | "reset") && self.passing.replace(Some(reason)).is_none() {
            shared.emit(&Event::BypassBegan { listener: self.name(), reason });
        }
        self.mark(id, self.marks.pass());
    }

    fn mark(&self, id: u32, mark: u32) {
        self.set_verdict(id, Verdict::Accept { mark });
    }

    fn set_verdict(&self, id: u32, verdict: Verdict) {
        // Fails only when the kernel has no memory; then the packet is dropped with the queue, and sent again by its sender.
        let _ = self.queue.get_ref().set_verdict(id, verdict);
    }

    fn name(&self) -> String {
        self.entrance.listener.name.clone()
    }

    /// What the server answered, or that it did not, is what the client sees.
    fn reject(&self, id: u32, ends: &FourTuple, error: &DialError) {
        self.entrance.shared().held.remove(ends);
        match error.cause_for_client() {
            Cause::Refused => self.mark(id, self.marks.refused()),
            Cause::Unreachable => self.mark(id, self.marks.unreachable()),
            Cause::TimedOut => {
                let mut silent = self.silent.borrow_mut();
                if silent.len() < MAX_SILENT {
                    silent.insert(ends.server.0, Instant::now());
                }
                self.pass_through(id, ends, "silent");
            }
            // It has answered, and may do so again.
            Cause::Reset if error.hop.is_none() => self.pass_through(id, ends, "reset"),
            _ => self.pass_through(id, ends, "failed"),
        }
    }

    /// Gives up what was let in and did not come, and forgets silences that are over.
    fn expire(&self) {
        let patience = self.entrance.config.timeouts.handshake;
        while let Some((since, ends)) = self.next_older_than(patience) {
            if let Some((permit, ahead)) = self.entrance.shared().held.expire(&ends, since) {
                let (server, path) = ahead.as_ref().map_or((None, None), |a| (Some(a.server), a.taken.path.clone()));
                ahead.into_iter().for_each(|ahead| ahead.abandon());
                self.emit_closed(permit, EndReason::LeftEarly, SessionClosed { server, ..self.closed(&ends, path) });
            }
        }
        self.silent.borrow_mut().retain(|_, since| since.elapsed() < SILENT_TIMEOUT);
    }

    fn next_older_than(&self, patience: Duration) -> Option<(Instant, FourTuple)> {
        let mut let_in = self.let_in.borrow_mut();
        let old = let_in.front().is_some_and(|(since, _)| since.elapsed() > patience);
        if old { let_in.pop_front() } else { None }
    }

    /// The end of what has not become a session, with the closing event of one.
    fn emit_closed(&self, permit: SessionPermit, end: EndReason, closed: SessionClosed) {
        let shared = self.entrance.shared();
        shared.metrics.record_accepted(&self.name());
        // The reader of the closing event finds the place free.
        drop(permit);
        shared.emit(&Event::Closed(Box::new(SessionClosed { end, ..closed })));
    }

    fn closed(&self, ends: &FourTuple, path: Option<Box<str>>) -> SessionClosed {
        let target = Some(Target::from(ends.server.0));
        let session = self.entrance.shared().next_session_id();
        let path = path.map_or_else(|| "-".to_owned(), String::from);
        SessionClosed { target, path, ..SessionClosed::new(session, self.name(), ends.client) }
    }
}

/// Dials while the first packet waits.
async fn dial_held(gate: Rc<Gate>, ends: FourTuple, id: u32, permit: SessionPermit) {
    let asked = Instant::now();
    let patience = gate.entrance.config.timeouts.hold;
    let errand = DialContext::new(Rc::clone(&gate.entrance), ends.client, None, patience);
    let reached = timeout(patience, connect_end_to_end(&errand, &Target::from(ends.server.0))).await;
    let reached = reached.unwrap_or(Err(Cause::TimedOut.into()));
    match reached.and_then(|reached| pre_dialed(reached, &errand, asked)) {
        Ok(ahead) => gate.admit(id, ends, permit, Some(Box::new(ahead))),
        Err(error) => {
            gate.reject(id, &ends, &error);
            let closed = gate.closed(&ends, errand.path_name());
            let (detail, trace, duration) = (error.detail(), errand.trace(), asked.elapsed());
            let chosen =
                errand.prediction().map(|(expected, left)| Box::new(expected.to_choice_record(&left, None, None)));
            gate.emit_closed(
                permit,
                EndReason::ConnectFailed(error.cause),
                SessionClosed { detail, trace, duration, chosen, ..closed },
            );
        }
    }
}

/// What was reached, for another thread.
fn pre_dialed(reached: ConnectedPath, errand: &DialContext, asked: Instant) -> Result<PreDialed, DialError> {
    let Dialled { stream, server, opened } = reached.dialled;
    let seal = opened.and_then(|opened| opened.encrypt.then_some(opened.seal));
    Ok(PreDialed {
        stream: stream.into_std().map_err(|_| Cause::Exhausted)?,
        server,
        seal: seal.map(|seal| Rc::into_inner(seal).expect("invariant: nobody else has it")),
        taken: errand.path_taken(),
        times: reached.times.unwrap_or_default(),
        took: asked.elapsed(),
    })
}
