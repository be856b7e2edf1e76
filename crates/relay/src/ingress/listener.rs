//! The context of a listener: what its sessions need, and the admission of its connections.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::ClientAddr;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::{EndReason, Event};
use ekiden_proto::profile::Profile;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::admission::{Client, SessionPermit, UnprovenPermit};
use super::handoff::HandedConnection;
use super::services::Services;
use super::thread::ThreadContext;
use super::{preface, section, transparent};
use crate::accounting::Account;
use crate::config::budget::Budget;
use crate::config::{Config, Listener, ListenerKind};
use crate::dial::Resolver;
use crate::events::metrics::listeners::ListenerTotals;
use crate::pump::{PipePool, abort};
use crate::session::{self, IncomingConnection, Origin, Session};
use crate::shaping::autotune::{SectionTuning, Tuner};
use crate::shaping::fair_share::PacedSocket;

/// Pause before the next accept(2) after one has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener on one thread, under one configuration.
pub struct ListenerContext {
    /// The thread on which the listener accepts.
    pub thread: Rc<ThreadContext>,
    /// The configuration in force when the session began.
    pub config: Arc<Config>,
    /// The listener's part of the configuration.
    pub listener: Arc<Listener>,
    names: Rc<Resolver>,
    totals: Arc<ListenerTotals>,
    account: Arc<Account>,
    budget: Budget,
    /// Whether the gate enforces the session limit, so that the accept loop does not.
    gated: bool,
}

impl ListenerContext {
    /// Creates the context of `listener` on `thread`. `gated` is ignored unless the listener is transparent.
    pub fn new(
        thread: &Rc<ThreadContext>,
        config: &Arc<Config>,
        listener: Arc<Listener>,
        names: &Rc<Resolver>,
        budget: Budget,
        gated: bool,
    ) -> Self {
        Self {
            thread: Rc::clone(thread),
            config: Arc::clone(config),
            names: Rc::clone(names),
            totals: thread.services.events.metrics.totals(&listener.name),
            account: thread.services.accounts.listener(&listener.name),
            budget,
            gated: gated && listener.kind.is_transparent(),
            listener,
        }
    }

    /// Returns a connection of this listener in the form in which another worker can admit it.
    pub fn handed_connection(&self, stream: std::net::TcpStream, address: SocketAddr) -> HandedConnection {
        let (config, listener) = (Arc::clone(&self.config), Arc::clone(&self.listener));
        HandedConnection { stream, address, config, listener, budget: self.budget, gated: self.gated }
    }

    /// Returns the services that all threads share.
    pub fn services(&self) -> &Arc<Services> {
        &self.thread.services
    }

    /// Returns the pipes of the thread.
    pub fn pipes(&self) -> &PipePool {
        &self.thread.pipes
    }

    /// Returns the byte counters of the listener.
    pub fn totals(&self) -> &ListenerTotals {
        &self.totals
    }

    /// Returns the account of the listener.
    pub fn account(&self) -> Arc<Account> {
        Arc::clone(&self.account)
    }

    /// Returns the resolver of the thread.
    pub fn resolver(&self) -> &Resolver {
        &self.names
    }

    /// Creates a tuner for a section; `None` if the profile leaves nothing to tune.
    pub fn tuner(&self, section: &Rc<TcpStream>, profile: &Profile) -> Option<Rc<Tuner>> {
        self.thread.tuning.tuner(section, profile, &self.config.congestion, self.config.timeouts.idle)
    }

    /// Creates the tuning of a session's section, which may start a tuner later.
    pub fn section_tuning(&self, section: &Rc<TcpStream>, profile: &Profile) -> SectionTuning {
        self.thread.tuning.section_tuning(section, profile, &self.config.congestion, self.config.timeouts.idle)
    }

    /// Registers a client's section for pacing; `None` if its interface is not shared.
    pub fn pace_client_section(&self, client: &Rc<TcpStream>) -> Option<Rc<PacedSocket>> {
        self.thread.shaper.register(client, self.listener.weight)
    }

    /// Emits a warning event.
    pub fn warn(&self, message: String) {
        self.services().events.emit(&Event::Warning { message });
    }

    /// Waits until the relay is below its session limit. Returns at once if the gate enforces the limit.
    pub async fn wait_for_place(&self) {
        let (admission, limit) = (&self.services().admission, self.budget.sessions);
        if !self.gated && admission.sessions() >= limit {
            let _paused = self.paused("session_limit");
            admission.wait_below(limit).await;
        }
    }

    /// Waits for 100 ms before the next attempt to accept, and reports the pause with its reason.
    pub async fn pause(&self, reason: &'static str) {
        let _paused = self.paused(reason);
        sleep(ACCEPT_PAUSE).await;
    }

    fn paused(&self, reason: &'static str) -> AcceptPause<'_> {
        self.services().events.emit(&Event::AcceptPaused { listener: self.listener.name.clone(), reason });
        AcceptPause { context: self }
    }

    /// Admits a connection: a client's connection becomes a session at once, a relay's connection when OPEN arrives, and
    /// a connection with a PROXY header or a TLS handshake when these are complete.
    pub fn admit(self: &Rc<Self>, client: TcpStream, address: SocketAddr) {
        let address = ClientAddr(canonical(address));
        if self.listener.kind.is_transparent() {
            return self.admit_intercepted(client, address);
        }
        if self.listener.kind == ListenerKind::Section {
            self.admit_relay(client, address);
        } else if self.listener.tls.is_some() || self.listener.is_load_balancer(address.0.ip()) {
            self.admit_with_preface(client, address);
        } else {
            self.admit_client(IncomingConnection::plain(client, address, Origin::Itself));
        }
    }

    /// Serves a connection of a relay, which has no session yet.
    fn admit_relay(self: &Rc<Self>, relay: TcpStream, address: ClientAddr) {
        if let Some(permit) = self.enter_pending(address) {
            tokio::task::spawn_local(section::serve_connection(Rc::clone(self), relay, address, permit));
        }
    }

    /// Serves a connection that becomes a session when its PROXY header and its TLS handshake are complete.
    fn admit_with_preface(self: &Rc<Self>, client: TcpStream, peer: ClientAddr) {
        if let Some(permit) = self.enter_pending(peer) {
            tokio::task::spawn_local(preface::admit_client(Rc::clone(self), client, peer, permit));
        }
    }

    /// Takes a place for a connection without a session. A `None` result is counted as an eviction.
    pub fn enter_pending(&self, source: ClientAddr) -> Option<UnprovenPermit> {
        let permit = self.services().admission.enter_pending(source.0.ip(), self.budget.pending);
        if permit.is_none() {
            self.record_evicted();
        }
        permit
    }

    /// Counts a connection without a session that was refused a place, or was evicted.
    pub fn record_evicted(&self) {
        self.services().events.metrics.record_section_evicted(&self.listener.name);
    }

    /// Admits the connection of a client, unless the client has used up its places.
    fn admit_client(self: &Rc<Self>, client: IncomingConnection) {
        let limit = self.config.limits.sessions_per_client;
        match self.services().admission.enter_client(Client::Address(client.address.0.ip()), limit) {
            Some(permit) => self.start_session(client, permit.enter()),
            None => {
                abort(&client.stream);
                self.reject(client, EndReason::ClientLimit, None);
            }
        }
    }

    /// Admits an intercepted connection. If the gate has admitted its first packet, the connection already has a place.
    fn admit_intercepted(self: &Rc<Self>, client: TcpStream, address: ClientAddr) {
        let ends = transparent::four_tuple(self, &client, address);
        match ends.and_then(|ends| self.services().pending_connections.accept(ends)) {
            Some((permit, pre_dialed)) => {
                let origin = Origin::Caught { ends, pre_dialed };
                self.start_session(IncomingConnection::plain(client, address, origin), permit);
            }
            None => {
                let origin = Origin::Caught { ends, pre_dialed: None };
                self.admit_client(IncomingConnection::plain(client, address, origin));
            }
        }
    }

    /// Takes a place for a session of `client` that has no connection yet.
    ///
    /// # Errors
    /// The limit that is reached: `session_limit` or `client_limit`.
    pub fn try_admit(&self, client: IpAddr) -> Result<SessionPermit, &'static str> {
        let admission = &self.services().admission;
        if admission.sessions() >= self.budget.sessions {
            return Err("session_limit");
        }
        let permit = admission.enter_client(Client::Address(client), self.config.limits.sessions_per_client);
        permit.ok_or("client_limit")?.try_enter(self.budget.sessions).map_err(|_| "session_limit")
    }

    /// Takes a place for a session whose connection was accepted earlier, and waits while all places are taken.
    ///
    /// # Errors
    /// The client has used up its places, or no place became free within `timeouts.connect` or before the relay drains.
    pub async fn admit_later(&self, client: Client) -> Result<SessionPermit, EndReason> {
        let limit = self.config.limits.sessions_per_client;
        let permit = self.services().admission.enter_client(client, limit).ok_or(EndReason::ClientLimit)?;
        let entering = timeout(self.config.timeouts.connect, permit.enter_below(self.budget.sessions));
        match self.thread.drain_state.work_first(entering).await {
            Some(Ok(permit)) => Ok(permit),
            _ => Err(EndReason::ConnectFailed(Cause::Exhausted)),
        }
    }

    /// Starts a session on this thread.
    pub fn start_session(self: &Rc<Self>, client: IncomingConnection, permit: SessionPermit) {
        let session = Session::open(Rc::clone(self), client, Some(permit));
        tokio::task::spawn_local(session::run(session));
    }

    /// Ends a connection that is not admitted, with the closing event of a session.
    pub fn reject(self: &Rc<Self>, client: IncomingConnection, end: EndReason, detail: Option<String>) {
        let session = Session::open(Rc::clone(self), client, None);
        session.set_detail(detail);
        session.set_end(end);
    }
}

/// A pause of the accept loop. Emits an event when it ends, also if the wait is cancelled.
struct AcceptPause<'a> {
    context: &'a ListenerContext,
}

impl Drop for AcceptPause<'_> {
    fn drop(&mut self) {
        self.context.services().events.emit(&Event::AcceptResumed { listener: self.context.listener.name.clone() });
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4: a dual-stack socket reports IPv4 addresses as `::ffff:a.b.c.d`.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
