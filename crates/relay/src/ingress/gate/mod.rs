//! The gate: verdicts on the first packets (SYNs) of intercepted connections.
//!
//! Each packet waits in a kernel queue for its verdict. Most packets are admitted to the listener: at once or, with
//! `connect = "hold"`, when the server has answered. A refusal by the server is passed to the client, and connections
//! that the relay cannot serve continue without it.

mod pending;

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

use super::admission::SessionPermit;
use super::listener::ListenerContext;
use crate::config::{ConnectMode, ListenerKind};
use crate::dial::{DialError, Dialled};
use crate::ingress::shutdown::StopSignal;
use crate::rules::Marks;
use crate::session::{ConnectedPath, DialContext, connect_end_to_end};

pub use pending::{FourTuple, PendingConnections, PreDialed};

/// Interval of checks for admitted connections that did not arrive at the listener.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which connections to a silent server bypass the relay. A silent server did not answer the dial in time.
const SILENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of silent servers to remember.
const MAX_SILENT: usize = 4096;

/// The gate of one listener.
pub struct Gate {
    context: Rc<ListenerContext>,
    queue: AsyncFd<NfQueue>,
    marks: Marks,
    /// The mark of packets that are admitted to the listener.
    admit_mark: u32,
    /// Admitted connections, the oldest first.
    admitted: RefCell<VecDeque<(Instant, FourTuple)>>,
    /// Closes sockets of earlier sessions in TIME_WAIT; `None` if the kernel does not support that.
    destroyer: Option<SocketDestroyer>,
    /// Silent servers, and the time of the failed dial.
    silent: RefCell<HashMap<SocketAddr, Instant>>,
    /// Why new connections bypass the relay; `None` while they are admitted.
    bypass_reason: Cell<Option<&'static str>>,
}

/// Serves the first packets of listener `number` until the stop signal, then only the connections that are already
/// under way.
///
/// # Errors
/// The queue cannot be polled.
pub async fn run(context: Rc<ListenerContext>, queue: NfQueue, number: usize, mut stop: StopSignal) -> io::Result<()> {
    let marks = context.config.marks();
    #[expect(deprecated, reason = "`register` is unsafe, for types that change their descriptor; a queue never does")]
    let queue = AsyncFd::new(queue)?;
    let gate = Rc::new(Gate {
        admit_mark: marks.let_in(number),
        marks,
        context,
        queue,
        admitted: RefCell::default(),
        destroyer: SocketDestroyer::open().ok(),
        silent: RefCell::default(),
        bypass_reason: Cell::new(None),
    });
    let mut expiry_timer = interval(EXPIRY_INTERVAL);
    loop {
        tokio::select! {
            _ = expiry_timer.tick() => gate.expire(),
            readable = stop.stop_first(gate.queue.readable()) => {
                let Some(readable) = readable else { break };
                // An error concerns one datagram; the loop continues with the next.
                let _ = readable?.try_io(|queue| queue.get_ref().receive(|packet| gate.on_packet(packet.id, packet.payload)));
            }
        }
    }
    while Rc::strong_count(&gate) > 1 || !gate.admitted.borrow().is_empty() {
        expiry_timer.tick().await;
        gate.expire();
    }
    Ok(())
}

impl Gate {
    fn on_packet(self: &Rc<Self>, id: u32, packet: &[u8]) {
        // The rules queue only SYN packets, so this is not expected.
        let Ok(syn) = Syn::parse(packet) else { return self.mark(id, self.marks.pass()) };
        let four_tuple = FourTuple { client: syn.client, server: syn.server };
        let pending = &self.context.services().pending_connections;
        match pending.on_first_packet(four_tuple) {
            pending::FirstPacket::New => {}
            pending::FirstPacket::Again => return self.set_verdict(id, Verdict::Drop),
            pending::FirstPacket::LetIn => return self.mark(id, self.admit_mark),
        }
        let permit = match self.try_admit(&four_tuple) {
            Ok(permit) => permit,
            Err(reason) => {
                pending.remove(&four_tuple);
                return self.pass_through(id, &four_tuple, reason);
            }
        };
        if self.context.listener.connect == ConnectMode::Hold {
            tokio::task::spawn_local(dial_held(Rc::clone(self), four_tuple, id, permit));
        } else {
            self.admit(id, four_tuple, permit, None);
        }
    }

    /// Takes a place for a session.
    ///
    /// # Errors
    /// Why the connection bypasses the relay, as in the metrics.
    fn try_admit(&self, four_tuple: &FourTuple) -> Result<SessionPermit, &'static str> {
        if self.context.thread.drain_state.is_draining() {
            return Err("draining");
        }
        if self.silent.borrow().get(&four_tuple.server.0).is_some_and(|since| since.elapsed() < SILENT_TIMEOUT) {
            return Err("silent");
        }
        let server = four_tuple.server.0;
        if !self.context.listener.access.permits(&server.ip().into(), Some(server.ip()), server.port()) {
            return Err("denied");
        }
        self.context.try_admit(four_tuple.client.0.ip())
    }

    fn admit(&self, id: u32, four_tuple: FourTuple, permit: SessionPermit, pre_dialed: Option<Box<PreDialed>>) {
        let now = Instant::now();
        self.context.services().pending_connections.admit(four_tuple, now, permit, pre_dialed);
        self.admitted.borrow_mut().push_back((now, four_tuple));
        self.mark(id, self.admit_mark);
        if let Some(reason) = self.bypass_reason.take() {
            self.context.services().events.emit(&Event::BypassEnded { listener: self.name(), reason });
        }
    }

    /// Lets a packet continue to the server without the relay. Sockets of an earlier session with the same ports would
    /// receive the packets of the connection, so they are closed.
    fn pass_through(&self, id: u32, four_tuple: &FourTuple, reason: &'static str) {
        let (client, server) = (four_tuple.client.0, four_tuple.server.0);
        // In a tunnel the client's end may be a socket of a program on this host, which must stay open.
        let theirs = (self.context.listener.kind != ListenerKind::Tun).then_some((client, server));
        for (local, remote) in [(server, client)].into_iter().chain(theirs) {
            // Normally there is no such socket.
            let _ = self.destroyer.as_ref().map(|destroyer| destroyer.destroy(local, remote));
        }
        let services = self.context.services();
        services.events.metrics.record_passed(&self.name(), reason);
        // These reasons concern a single server, not the relay.
        if !matches!(reason, "silent" | "denied" | "reset") && self.bypass_reason.replace(Some(reason)).is_none() {
            services.events.emit(&Event::BypassBegan { listener: self.name(), reason });
        }
        self.mark(id, self.marks.pass());
    }

    fn mark(&self, id: u32, mark: u32) {
        self.set_verdict(id, Verdict::Accept { mark });
    }

    fn set_verdict(&self, id: u32, verdict: Verdict) {
        // Fails only if the kernel is out of memory; then the packet is dropped and retransmitted by its sender.
        let _ = self.queue.get_ref().set_verdict(id, verdict);
    }

    fn name(&self) -> String {
        self.context.listener.name.clone()
    }

    /// Passes the server's refusal to the client; after other failures lets the packet continue without the relay.
    fn reject(&self, id: u32, four_tuple: &FourTuple, error: &DialError) {
        self.context.services().pending_connections.remove(four_tuple);
        match error.cause_for_client() {
            Cause::Refused => self.mark(id, self.marks.refused()),
            Cause::Unreachable => self.mark(id, self.marks.unreachable()),
            Cause::TimedOut => {
                let mut silent = self.silent.borrow_mut();
                if silent.len() < MAX_SILENT {
                    silent.insert(four_tuple.server.0, Instant::now());
                }
                self.pass_through(id, four_tuple, "silent");
            }
            // The server has answered with a reset; without the relay the client receives the server's answer directly.
            Cause::Reset if error.hop.is_none() => self.pass_through(id, four_tuple, "reset"),
            _ => self.pass_through(id, four_tuple, "failed"),
        }
    }

    /// Removes admitted connections that did not arrive in time, and expired entries of silent servers.
    fn expire(&self) {
        let time_limit = self.context.config.timeouts.handshake;
        while let Some((since, four_tuple)) = self.next_older_than(time_limit) {
            if let Some((permit, pre_dialed)) = self.context.services().pending_connections.expire(&four_tuple, since) {
                let (server, path) = pre_dialed
                    .as_ref()
                    .map_or((None, None), |connection| (Some(connection.server), connection.taken.path_name()));
                pre_dialed.into_iter().for_each(|pre_dialed| pre_dialed.abandon());
                self.emit_closed(
                    permit,
                    EndReason::LeftEarly,
                    SessionClosed { server, ..self.closed(&four_tuple, path) },
                );
            }
        }
        self.silent.borrow_mut().retain(|_, since| since.elapsed() < SILENT_TIMEOUT);
    }

    fn next_older_than(&self, time_limit: Duration) -> Option<(Instant, FourTuple)> {
        let mut admitted = self.admitted.borrow_mut();
        let is_expired = admitted.front().is_some_and(|(since, _)| since.elapsed() > time_limit);
        if is_expired { admitted.pop_front() } else { None }
    }

    /// Emits the closing event of a connection that did not become a session.
    fn emit_closed(&self, permit: SessionPermit, end: EndReason, closed: SessionClosed) {
        let services = self.context.services();
        services.events.metrics.record_accepted(&self.name());
        // Release the place first: readers of the closing event may expect the place to be free.
        drop(permit);
        services.events.emit(&Event::Closed(Box::new(SessionClosed { end, ..closed })));
    }

    fn closed(&self, four_tuple: &FourTuple, path: Option<Box<str>>) -> SessionClosed {
        let target = Some(Target::from(four_tuple.server.0));
        let session = self.context.services().next_session_id();
        let path = path.map_or_else(|| "-".to_owned(), String::from);
        SessionClosed { target, path, ..SessionClosed::new(session, self.name(), four_tuple.client) }
    }
}

/// Dials while the client's first packet waits for its verdict.
async fn dial_held(gate: Rc<Gate>, four_tuple: FourTuple, id: u32, permit: SessionPermit) {
    let started_at = Instant::now();
    let time_limit = gate.context.config.timeouts.hold;
    let dial_context = DialContext::new(Rc::clone(&gate.context), four_tuple.client, None, None, None, time_limit);
    let connected = timeout(time_limit, connect_end_to_end(&dial_context, &Target::from(four_tuple.server.0))).await;
    let connected = connected.unwrap_or(Err(Cause::TimedOut.into()));
    match connected.and_then(|connected| pre_dialed(connected, &dial_context, started_at)) {
        Ok(pre_dialed) => gate.admit(id, four_tuple, permit, Some(Box::new(pre_dialed))),
        Err(error) => {
            gate.reject(id, &four_tuple, &error);
            let closed = gate.closed(&four_tuple, dial_context.path_name());
            let (detail, trace, duration) = (error.detail(), dial_context.trace(), started_at.elapsed());
            let chosen = dial_context
                .prediction()
                .map(|(prediction, failed)| Box::new(prediction.to_choice_record(&failed, None, None)));
            gate.emit_closed(
                permit,
                EndReason::ConnectFailed(error.cause),
                SessionClosed { detail, trace, duration, chosen, ..closed },
            );
        }
    }
}

/// Detaches an established path from the runtime of this thread, for the worker that will accept the connection.
fn pre_dialed(
    connected: ConnectedPath,
    dial_context: &DialContext,
    started_at: Instant,
) -> Result<PreDialed, DialError> {
    let Dialled { stream, server, opened } = connected.dialled;
    let reuse = opened.as_ref().and_then(|opened| opened.reuse.clone());
    let section = opened.and_then(|opened| opened.section.if_framed());
    Ok(PreDialed {
        stream: stream.into_std().map_err(|_| Cause::Exhausted)?,
        server,
        section: section.map(|section| Rc::into_inner(section).expect("invariant: there is no other owner")),
        reuse,
        taken: dial_context.path_taken(),
        times: connected.times.unwrap_or_default(),
        took: started_at.elapsed(),
    })
}
