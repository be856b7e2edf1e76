//! The record of a session, from accept to its closing event.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::direction::Direction;
use ekiden_proto::event::{EndReason, SectionInfo, SessionClosed};
use ekiden_proto::key::PublicKey;
use ekiden_proto::limiting::Diagnosis;
use ekiden_proto::resume::SectionStart;
use ekiden_sys::tcp_info::{tcp_info, tcp_readings};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DialContext;
use super::carrier::CarrierConnection;
use super::flow_telemetry::FlowTelemetry;
use super::telemetry::{LimitState, PathFeedback, SectionSamples};
use crate::accounting::SessionAccounts;
use crate::config::ListenerKind;
use crate::config::users::{AuthError, Users};
use crate::dial::DialError;
use crate::ingress::admission::SessionPermit;
use crate::ingress::gate::{FourTuple, PreDialed};
use crate::ingress::listener::ListenerContext;
use crate::ingress::section::IncomingOpen;
use crate::path::estimates::{FirstHop, PeerId, SectionSampler};
use crate::pump::tls::TlsCipher;
use crate::pump::{self, Endpoint, FlowStats, FramedSection, Framing, IdleTimeouts};
use crate::shaping::autotune::SectionTuning;
use crate::status::{SectionView, SessionView, TlsView};

/// A session and everything that its closing event reports.
pub struct Session {
    /// The listener that accepted it.
    pub context: Rc<ListenerContext>,
    /// The connection to the client.
    pub client: Rc<TcpStream>,
    /// The cipher of this connection, if the listener speaks TLS.
    tls: Option<Box<TlsCipher>>,
    /// The connection of which the session is a stream.
    carrier: Option<Rc<CarrierConnection>>,
    /// Whether the client has a certificate with the name of a user.
    certified: bool,
    /// Exact counters of both directions.
    pub stats: FlowStats,
    telemetry: Rc<FlowTelemetry>,
    /// A number that is unique in this process.
    pub id: u64,
    /// State of dialling on behalf of the client.
    pub dial_context: DialContext,
    /// The four-tuple of an intercepted connection.
    pub caught: Option<Box<FourTuple>>,
    /// The connection that the gate has dialled.
    pre_dialed: RefCell<Option<Box<PreDialed>>>,
    pub(super) opened_at: Instant,
    pub(super) state: RefCell<SessionState>,
    /// Tracks which section limits the session; `None` until bytes have moved.
    pub(super) limiting: RefCell<Option<Box<LimitState>>>,
    /// Reports to the path selector, if it has chosen the path.
    pub(super) feedback: RefCell<Option<Box<PathFeedback>>>,
    /// Samples of the sections of the running session.
    pub(super) samples: RefCell<SectionSamples>,
    slot: Cell<usize>,
    /// The place of the session in the limits; `None` for a rejected connection.
    permit: Cell<Option<SessionPermit>>,
}

/// A connection that is about to become a session.
pub struct IncomingConnection {
    /// The connection, from which nothing of the session has been read.
    pub stream: TcpStream,
    /// The address of the client.
    pub address: ClientAddr,
    /// How the client reached the listener.
    pub origin: Origin,
    /// The cipher, if the listener speaks TLS.
    pub tls: Option<TlsCipher>,
    /// The client's connection, if `stream` is only one of its streams.
    pub carrier: Option<Rc<CarrierConnection>>,
    /// The name in the client's certificate.
    pub user: Option<Box<str>>,
}

impl IncomingConnection {
    /// A connection without TLS.
    pub fn plain(stream: TcpStream, address: ClientAddr, origin: Origin) -> Self {
        Self { stream, address, origin, tls: None, carrier: None, user: None }
    }
}

/// How a session reached the listener.
pub enum Origin {
    /// The client connected to the listener.
    Itself,
    /// A load balancer connected for the client.
    Proxied {
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// A relay has opened it.
    ByRelay(Rc<IncomingOpen>),
    /// The rules have redirected it.
    Caught {
        /// The four-tuple; `None` if the client addressed the listener itself.
        ends: Option<FourTuple>,
        /// The connection that the gate has dialled while the first packet waited.
        pre_dialed: Option<Box<PreDialed>>,
    },
}

/// The mutable part of a session.
#[derive(Default)]
pub(super) struct SessionState {
    user: Option<Box<str>>,
    target: Option<Target>,
    server: Option<ServerAddr>,
    pub(super) stream: Option<Rc<TcpStream>>,
    /// When the first request was complete.
    requested_at: Option<Instant>,
    connect: Option<Duration>,
    hops: Box<[Duration]>,
    up: Option<Box<SectionInfo>>,
    /// The counters of the sections at the start of the session, if they have carried sessions before: of the client's and of the
    /// server's.
    starts: [Option<Box<SectionInfo>>; 2],
    /// Whether careful resume was requested for them.
    resumes: [bool; 2],
    /// Samplers of the client's section, if the client is a relay, and of the server's section.
    samplers: [Option<Box<SectionSampler>>; 2],
    end: Option<EndReason>,
    detail: Option<Box<str>>,
}

impl SessionState {
    /// The counters of a section since the start of the session. `side` is the direction of the bytes that this relay sends there.
    fn since_start(&self, side: Direction, info: SectionInfo) -> SectionInfo {
        self.starts[side as usize].as_deref().map_or(info, |start| info.since(start))
    }
}

impl Session {
    /// Begins a session for an accepted connection. The thread lists the session until it is dropped.
    pub fn open(
        context: Rc<ListenerContext>,
        connection: IncomingConnection,
        permit: Option<SessionPermit>,
    ) -> Rc<Self> {
        let IncomingConnection { stream: client, address, origin, tls, carrier, user } = connection;
        let services = context.services();
        services.events.metrics.record_accepted(&context.listener.name);
        let destination = match origin {
            _ if context.listener.kind != ListenerKind::Tcp || !context.config.has_send_proxy() => None,
            Origin::Proxied { destination } => Some(destination),
            _ => client.local_addr().ok(),
        };
        let (incoming_open, caught, pre_dialed) = match origin {
            Origin::Itself | Origin::Proxied { .. } => (None, None, None),
            Origin::ByRelay(incoming_open) => (Some(incoming_open), None, None),
            Origin::Caught { ends, pre_dialed } => (None, ends.map(Box::new), pre_dialed),
        };
        let cipher = cipher_of(carrier.as_deref(), tls.as_ref());
        let reported_tls = cipher.filter(|_| context.config.has_send_proxy()).map(TlsCipher::client_tls);
        let patience = context.config.timeouts.connect;
        let dial_context =
            DialContext::new(Rc::clone(&context), address, destination, reported_tls, incoming_open, patience);
        let client = Rc::new(client);
        let telemetry = client_telemetry(&context, &client, carrier.as_deref());
        let stats = FlowStats::new(Rc::<FlowTelemetry>::clone(&telemetry));
        let session = Rc::new(Self {
            id: services.next_session_id(),
            stats,
            telemetry,
            client,
            tls: tls.map(Box::new),
            carrier,
            certified: user.is_some(),
            dial_context,
            caught,
            pre_dialed: RefCell::new(pre_dialed),
            opened_at: Instant::now(),
            state: RefCell::new(SessionState { user, ..SessionState::default() }),
            limiting: RefCell::default(),
            feedback: RefCell::default(),
            samples: RefCell::new(SectionSamples::new()),
            slot: Cell::new(0),
            permit: Cell::new(permit),
            context,
        });
        let earlier =
            session.dial_context.incoming_open.as_ref().map_or(0, |incoming_open| incoming_open.earlier_sessions);
        let earlier = session.carrier.as_ref().map_or(earlier, |carrier| carrier.count_session());
        session.start_section(Direction::Down, session.client_connection(), earlier);
        session.slot.set(session.context.thread.register(&session));
        session.watch_client();
        if session.certified {
            session.on_authenticated();
        }
        session
    }

    /// Sets the target of the session.
    pub fn set_target(&self, target: &Target) {
        let mut state = self.state.borrow_mut();
        state.target = Some(target.clone());
        state.requested_at.get_or_insert_with(Instant::now);
    }

    /// Takes the connection that the gate has dialled.
    pub fn take_pre_dialed(&self) -> Option<PreDialed> {
        self.pre_dialed.take().map(|pre_dialed| *pre_dialed)
    }

    /// Records the section to the server and starts to sample it.
    pub fn on_connected(&self, server: ServerAddr, stream: Rc<TcpStream>, requested_at: Instant) {
        self.telemetry.set_paced_by(Direction::Up, self.context.thread.shaper.register(&stream, self.weight()));
        let profile = self.dial_context.profile();
        let tuning = profile.map(|profile| self.context.section_tuning(&stream, &profile)).unwrap_or_default();
        self.telemetry.set_tuning(Direction::Up, tuning);
        let mut state = self.state.borrow_mut();
        state.requested_at.get_or_insert(requested_at);
        state.connect = Some(requested_at.elapsed());
        state.server = Some(server);
        let peer_id = self
            .dial_context
            .first_hop()
            .map(|hop| hop.peer_id(server))
            .filter(|_| self.context.config.needs_estimates());
        let new_sampler = peer_id.map(|peer_id| {
            let sampler = SectionSampler::start(&stream, Direction::Up, peer_id, &self.stats);
            Box::new(sampler.with_origin_relay(self.previous_relay()))
        });
        if let Some(mut previous) = std::mem::replace(&mut state.samplers[1], new_sampler) {
            previous.sample(&self.stats, &self.context.services().estimates);
        }
        state.stream = Some(stream);
        drop(state);
        self.on_path_ready(requested_at.elapsed());
    }

    /// Starts the session on a section that has carried `earlier` sessions: its counters and, if possible, its window. `side` is
    /// the direction of the bytes that this relay sends there.
    pub fn start_section(&self, side: Direction, section: &TcpStream, earlier: u32) {
        let start = (earlier > 0).then(|| {
            let (info, counters) = tcp_readings(section.as_fd()).unwrap_or_default();
            self.start_limits(side, counters, info.cwnd);
            SectionInfo { start: SectionStart { earlier_sessions: earlier, jump: None }, ..info }
        });
        self.samples.borrow_mut().restart(side, start);
        self.state.borrow_mut().starts[side as usize] = start.map(Box::new);
        self.request_resume(side, section, earlier > 0);
    }

    /// The relay at the other end of the section that sends the session's bytes of this direction.
    fn relay_of(&self, side: Direction) -> Option<PublicKey> {
        match side {
            Direction::Down => self.previous_relay(),
            Direction::Up => self.dial_context.first_hop().and_then(FirstHop::relay),
        }
    }

    /// Has a section begin with the window that its relay is known for, if its congestion control can.
    fn request_resume(&self, side: Direction, section: &TcpStream, is_used: bool) {
        let Some(relay) = self.relay_of(side) else { return };
        let resume = &self.context.services().resume;
        let requested = resume.request(relay, section, is_used, &self.context.config.congestion);
        self.state.borrow_mut().resumes[side as usize] = requested;
    }

    /// The kernel's counters of a section since the start of the session, which is over or leaves the section.
    fn section_info(&self, side: Direction, section: &TcpStream, state: &SessionState) -> Option<SectionInfo> {
        let mut info = state.since_start(side, tcp_info(section.as_fd()).ok()?);
        let resume = &self.context.services().resume;
        let (bytes, congestion) = (self.stats.bytes(side), &self.context.config.congestion);
        let end = |relay| resume.on_session_end(relay, section, &info, bytes, state.resumes[side as usize], congestion);
        info.start.jump = self.relay_of(side).and_then(end);
        Some(info)
    }

    /// The counters of the server's section, which the session gives up, and of those before it: HTTP requests of one session use
    /// one connection after another.
    fn server_section_info(&self, state: &mut SessionState) -> Option<SectionInfo> {
        let (stream, earlier) = (state.stream.take(), state.up.take());
        let last = stream.and_then(|stream| self.section_info(Direction::Up, &stream, state));
        match (last, earlier) {
            (Some(last), Some(earlier)) => Some(last.after(&earlier)),
            (last, earlier) => last.or(earlier.map(|info| *info)),
        }
    }

    /// A section of the running session, with the counters since its start and the present outcome of its jump.
    fn section_view(&self, side: Direction, section: &TcpStream, state: &SessionState) -> Option<SectionView> {
        let congestion = &self.context.config.congestion;
        let mut view = SectionView::from_socket(section, congestion, self.telemetry.tuner(side))?;
        view.info = state.since_start(side, view.info);
        let resuming = congestion.resuming(section.as_fd()).filter(|_| state.resumes[side as usize]);
        view.info.start.jump = resuming.and_then(|control| control.resume_outcome(section.as_fd()));
        Some(view)
    }

    /// Samples the client's section if the client is a relay: estimates of other clients' sections serve no decision.
    fn watch_client(&self) {
        let sampler =
            |key| Box::new(SectionSampler::start(&self.client, Direction::Down, PeerId::Relay(key), &self.stats));
        self.state.borrow_mut().samplers[0] = self.previous_relay().map(sampler);
    }

    /// The key of the relay that has opened the session.
    fn previous_relay(&self) -> Option<PublicKey> {
        self.dial_context.incoming_open.as_ref().map(|incoming_open| incoming_open.previous_relay())
    }

    /// Samples the sections of the running session.
    pub fn sample_sections(&self) {
        let estimates = &self.context.services().estimates;
        self.state
            .borrow_mut()
            .samplers
            .iter_mut()
            .flatten()
            .for_each(|watch| watch.sample_if_due(&self.stats, estimates));
        self.report_progress();
        self.sample_limits();
        self.emit_samples();
    }

    /// The server's section, if it is connected.
    pub(super) fn server_section(&self) -> Option<Rc<TcpStream>> {
        self.state.borrow().stream.clone()
    }

    /// The setup time of each relay, the nearest first.
    pub fn hop_times(&self) -> Vec<Duration> {
        self.state.borrow().hops.to_vec()
    }

    /// Records the answer of the relays with the setup time of each.
    pub fn on_relay_answer(&self, times: Vec<Duration>, requested_at: Instant) {
        let mut state = self.state.borrow_mut();
        state.connect = Some(requested_at.elapsed());
        state.hops = times.into();
    }

    /// The users whose passwords are asked for; `None` where none is needed.
    pub fn users_to_ask<'a>(&self, context: &'a ListenerContext) -> Option<&'a Arc<Users>> {
        context.listener.users.as_ref().filter(|_| !self.certified)
    }

    /// The client's end of the session, for code that knows no framing of relays.
    pub fn client_end(&self) -> Endpoint<'_> {
        let framing = self.tls.as_deref().map_or(Framing::Raw, TlsCipher::framing);
        Endpoint { stream: &self.client, framing }
    }

    /// Moves TLS of the client into the kernel, where that is possible. From then on only the pump reads from the client.
    ///
    /// # Errors
    /// As [`TlsCipher::try_enter_kernel`].
    pub fn try_kernel_tls(&self) -> io::Result<()> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.try_enter_kernel(&self.client))
    }

    /// The TCP connection to the client, which carries other sessions as well with HTTP/2.
    pub(super) fn client_connection(&self) -> &Rc<TcpStream> {
        self.carrier.as_ref().map_or(&self.client, |carrier| &carrier.connection.stream)
    }

    /// The cipher of this connection.
    fn client_cipher(&self) -> Option<&TlsCipher> {
        cipher_of(self.carrier.as_deref(), self.tls.as_deref())
    }

    /// The version of HTTP toward the client, if that is a version with streams.
    fn http_version(&self) -> Option<u8> {
        self.carrier.is_some().then_some(2)
    }

    /// The section from the previous relay, if its bytes are framed.
    pub fn client_section(&self) -> Option<Rc<FramedSection>> {
        self.dial_context.incoming_open.as_ref().and_then(|incoming_open| incoming_open.framed_section())
    }

    /// Gives up the server's section, for reuse or after a failure, and keeps its `TCP_INFO`.
    pub fn release_upstream(&self) {
        self.sample_limits_at_end();
        self.telemetry.set_paced_by(Direction::Up, None);
        self.telemetry.set_tuning(Direction::Up, SectionTuning::None);
        let mut state = self.state.borrow_mut();
        if let Some(mut sampler) = state.samplers[1].take() {
            sampler.sample(&self.stats, &self.context.services().estimates);
        }
        state.up = self.server_section_info(&mut state).map(Box::new);
    }

    /// Records why the target could not be reached.
    pub fn record_dial_error(&self, error: &DialError) -> EndReason {
        self.set_detail(error.detail());
        EndReason::ConnectFailed(error.cause)
    }

    /// Sets the detail of the closing event.
    pub fn set_detail(&self, detail: Option<String>) {
        self.state.borrow_mut().detail = detail.map(Into::into);
    }

    /// Sets the reason for the end.
    pub fn set_end(&self, end: EndReason) {
        self.state.borrow_mut().end = Some(end);
    }

    /// The accounts of the listener and of the user.
    pub fn accounts(&self) -> &SessionAccounts {
        &self.telemetry.accounts
    }

    /// The idle timeouts in force for the session.
    pub fn idle_timeouts(&self) -> IdleTimeouts {
        let timeouts = &self.context.config.timeouts;
        IdleTimeouts { idle: timeouts.idle, half_closed: timeouts.half_close_idle }
    }

    /// The session as `ekiden status` shows it.
    pub fn view(&self) -> SessionView {
        let state = self.state.borrow();
        SessionView {
            session: self.id,
            listener: self.context.listener.name.clone(),
            client: self.dial_context.client,
            tls: self.client_cipher().map(TlsView::new),
            http: self.http_version(),
            user: state.user.as_deref().map(str::to_owned),
            peer: self.peer_name(),
            trace: self.dial_context.trace(),
            target: state.target.clone(),
            server_name: self.dial_context.server_name().map(|name| name.host.clone()),
            server: state.server,
            path: self.path_name(),
            chosen: self.choice(),
            seconds: self.opened_at.elapsed().as_secs_f64(),
            bytes_up: self.stats.bytes(Direction::Up),
            bytes_down: self.stats.bytes(Direction::Down),
            down: self.section_view(Direction::Down, self.client_connection(), &state),
            up: state.stream.as_ref().and_then(|stream| self.section_view(Direction::Up, stream, &state)),
            limits: self.limits(),
        }
    }

    /// Its weight in the shares of an interface.
    fn weight(&self) -> u32 {
        let user = self.context.config.users.weight_of(self.state.borrow().user.as_deref());
        self.context.listener.weight * user
    }

    fn peer_name(&self) -> Option<String> {
        self.dial_context.incoming_open.as_ref().map(|incoming_open| incoming_open.peer_name())
    }

    fn path_name(&self) -> String {
        self.dial_context.path_name().map_or_else(|| "-".to_owned(), String::from)
    }
}

/// Telemetry of a session whose only section is that of the client.
fn client_telemetry(
    context: &Rc<ListenerContext>,
    client: &Rc<TcpStream>,
    carrier: Option<&CarrierConnection>,
) -> Rc<FlowTelemetry> {
    let (paced, tuning) = match carrier {
        Some(carrier) => (carrier.paced.clone(), carrier.tuner.clone().into()),
        None => (context.pace_client_section(client), context.section_tuning(client, &context.listener.profile)),
    };
    let telemetry = FlowTelemetry::new(Rc::clone(context));
    telemetry.set_paced_by(Direction::Down, paced);
    telemetry.set_tuning(Direction::Down, tuning);
    telemetry
}

/// Interval of checks for a reset by a client that has sent bytes after its password.
const CLIENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Session {
    /// Checks a password and records the user name. The check is slow by design and may queue behind other checks: for at
    /// most half of `timeouts.handshake`, and until the client closes its side.
    ///
    /// # Errors
    /// Why the password was not accepted.
    pub async fn authenticate(&self, users: &Users, user: &[u8], password: &[u8]) -> Result<(), AuthError> {
        self.state.borrow_mut().user = Some(String::from_utf8_lossy(user).into());
        let give_up = async {
            let departed =
                timeout(self.context.config.timeouts.handshake / 2, wait_client_gone(self.client_end())).await;
            departed.map_or(AuthError::Overloaded, |()| AuthError::ClientGone)
        };
        // Boxed, so that handshakes without a password have no room for it.
        Box::pin(users.verify(self.dial_context.client.0.ip(), user, password, give_up)).await?;
        self.on_authenticated();
        Ok(())
    }

    /// Gives the session the weight and the account of its user.
    fn on_authenticated(&self) {
        self.telemetry.set_weight(self.weight());
        if let Some(user) = &self.state.borrow().user {
            self.accounts().set_user(self.context.services().accounts.user(user));
        }
    }
}

/// The cipher of a client's connection: that of the connection under its streams, or its own.
fn cipher_of<'a>(carrier: Option<&'a CarrierConnection>, tls: Option<&'a TlsCipher>) -> Option<&'a TlsCipher> {
    carrier.map(|carrier| &carrier.connection.cipher).or(tls)
}

/// Completes when the client has closed or reset its section.
pub(super) async fn wait_client_gone(client: Endpoint<'_>) {
    // An end of stream behind unread bytes is not visible, so only a reset shows that such a client has left.
    while client.peek_end().await.is_ok_and(|ended| !ended) {
        if timeout(CLIENT_POLL_INTERVAL, client.stream.ready(Interest::ERROR)).await.is_ok() {
            return;
        }
    }
}

impl Session {
    /// Details of an end that none were recorded for.
    fn end_detail(&self, end: EndReason) -> Option<String> {
        let used_up = || self.accounts().used_up().filter(|_| end == EndReason::OverQuota);
        self.tls_detail(end).or_else(used_up).or_else(|| end.detail().map(str::to_owned))
    }

    /// The cause of an end that is none of TCP.
    fn tls_detail(&self, end: EndReason) -> Option<String> {
        let tls = self.tls.as_ref().filter(|_| matches!(end, EndReason::ResetByClient | EndReason::ClientLost))?;
        tls.fault().map(str::to_owned)
    }

    fn closed_event(&self) -> SessionClosed {
        self.sample_limits_at_end();
        let limit = self.limit();
        let mut state = self.state.take();
        let estimates = &self.context.services().estimates;
        state.samplers.iter_mut().flatten().for_each(|sampler| sampler.sample(&self.stats, estimates));
        let duration = self.opened_at.elapsed();
        let down = self.section_info(Direction::Down, self.client_connection(), &state);
        let up = self.server_section_info(&mut state);
        let cut_off = if std::thread::panicking() { EndReason::Panicked } else { EndReason::Drained };
        let end = state.end.unwrap_or(cut_off);
        SessionClosed {
            tls: self.client_cipher().map(TlsCipher::version),
            http: self.http_version(),
            user: state.user.map(String::from),
            peer: self.peer_name(),
            trace: self.dial_context.trace(),
            target: state.target,
            server_name: self.dial_context.server_name().map(|name| name.host.clone()),
            server: state.server,
            path: self.path_name(),
            chosen: self.final_choice().map(Box::new),
            end,
            detail: state.detail.map(Into::into).or_else(|| self.end_detail(end)),
            duration,
            handshake: state.requested_at.map(|requested_at| requested_at.saturating_duration_since(self.opened_at)),
            first_byte: self
                .stats
                .first_byte_at()
                .zip(state.requested_at)
                .map(|(first, requested_at)| first.saturating_duration_since(requested_at)),
            connect: state.connect,
            hops: state.hops.into(),
            bytes_up: self.stats.bytes(Direction::Up),
            bytes_down: self.stats.bytes(Direction::Down),
            bytes_spliced: self.stats.spliced_bytes(),
            down,
            up,
            limited: limit.as_ref().map(Diagnosis::factor),
            limited_why: limit.map(|limit| limit.why),
            ..SessionClosed::new(self.id, self.context.listener.name.clone(), self.dial_context.client)
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let closed = self.closed_event();
        if matches!(closed.end, EndReason::Drained | EndReason::Panicked | EndReason::OverQuota) {
            pump::abort(&self.client);
        }
        if let (EndReason::Finished | EndReason::Idle, Some(tls)) = (closed.end, &self.tls) {
            // A full socket loses the alert, and gets FIN.
            tls.try_send_end(&self.client);
        }
        if let Some(ends) = &self.caught {
            self.context.services().pending_connections.remove(ends);
        }
        if let Some(pre_dialed) = self.take_pre_dialed() {
            pre_dialed.abandon();
        }
        self.context.thread.unregister(self.slot.get());
        // Release the place first: readers of the closing event may rely on it.
        drop(self.permit.take());
        self.accounts().leave();
        self.context.services().events.emit_closed(closed, self.previous_relay());
    }
}
