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

/// A session, with all data of its closing event.
pub struct Session {
    /// The listener that accepted the session.
    pub context: Rc<ListenerContext>,
    /// The connection to the client.
    pub client: Rc<TcpStream>,
    /// The cipher of `client`, if the listener speaks TLS.
    tls: Option<Box<TlsCipher>>,
    /// The client's HTTP/2 connection, if the session is a stream of it.
    carrier: Option<Rc<CarrierConnection>>,
    /// Whether the client has authenticated with a certificate that contains a user name.
    certified: bool,
    /// Byte counters and times of both directions.
    pub stats: FlowStats,
    telemetry: Rc<FlowTelemetry>,
    /// A number that is unique in this process.
    pub id: u64,
    /// The context of dialling on behalf of the client.
    pub dial_context: DialContext,
    /// The four-tuple of an intercepted connection.
    pub caught: Option<Box<FourTuple>>,
    /// The connection that the gate has dialled, until it is taken.
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
    /// The session's place in the limits; `None` for a rejected connection.
    permit: Cell<Option<SessionPermit>>,
}

/// A connection that is about to become a session.
pub struct IncomingConnection {
    /// The connection. No byte of the session has been read from it.
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
    /// Creates a connection without TLS, carrier and user.
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
    /// A relay has opened the session.
    ByRelay(Rc<IncomingOpen>),
    /// The interception rules have redirected the connection.
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
    /// Time at which the first request was complete.
    requested_at: Option<Instant>,
    connect: Option<Duration>,
    hops: Box<[Duration]>,
    up: Option<Box<SectionInfo>>,
    /// The counters of the client's and the server's section at the start of the session, for sections that have
    /// carried sessions before.
    starts: [Option<Box<SectionInfo>>; 2],
    /// Whether careful resume was requested for the client's and the server's section.
    resumes: [bool; 2],
    /// Samplers of the client's section, if the client is a relay, and of the server's section.
    samplers: [Option<Box<SectionSampler>>; 2],
    end: Option<EndReason>,
    detail: Option<Box<str>>,
}

impl SessionState {
    /// Returns the counters of a section since the start of the session. `side` is the direction of the bytes that this
    /// relay sends on the section.
    fn since_start(&self, side: Direction, info: SectionInfo) -> SectionInfo {
        self.starts[side as usize].as_deref().map_or(info, |start| info.since(start))
    }
}

impl Session {
    /// Opens a session for an accepted connection. The session is registered with its thread until it is dropped.
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
        let time_limit = context.config.timeouts.connect;
        let dial_context =
            DialContext::new(Rc::clone(&context), address, destination, reported_tls, incoming_open, time_limit);
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
        self.restart_limits();
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

    /// Starts the session on a section that has carried `earlier` sessions: records its counters and, if possible,
    /// requests the remembered window. `side` is the direction of the bytes that this relay sends on the section.
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

    /// Returns the key of the relay at the other end of the section that sends the bytes of direction `side`, if there
    /// is one.
    fn relay_of(&self, side: Direction) -> Option<PublicKey> {
        match side {
            Direction::Down => self.previous_relay(),
            Direction::Up => self.dial_context.first_hop().and_then(FirstHop::relay),
        }
    }

    /// Requests that a section begins with the window remembered for its relay, if its congestion control supports
    /// that.
    fn request_resume(&self, side: Direction, section: &TcpStream, is_used: bool) {
        let Some(relay) = self.relay_of(side) else { return };
        let resume = &self.context.services().resume;
        let requested = resume.request(relay, section, is_used, &self.context.config.congestion);
        self.state.borrow_mut().resumes[side as usize] = requested;
    }

    /// Returns the kernel's counters of a section since the start of the session, and reports them to the ledger of
    /// windows. The session is over or gives up the section.
    fn section_info(&self, side: Direction, section: &TcpStream, state: &SessionState) -> Option<SectionInfo> {
        let mut info = state.since_start(side, tcp_info(section.as_fd()).ok()?);
        let resume = &self.context.services().resume;
        let (bytes, congestion) = (self.stats.bytes(side), &self.context.config.congestion);
        let end = |relay| resume.on_session_end(relay, section, &info, bytes, state.resumes[side as usize], congestion);
        info.start.jump = self.relay_of(side).and_then(end);
        Some(info)
    }

    /// Takes the server's section from the state, and returns its counters added to those of the sections before it:
    /// the HTTP requests of one session use one connection after another.
    fn server_section_info(&self, state: &mut SessionState) -> Option<SectionInfo> {
        let (stream, earlier) = (state.stream.take(), state.up.take());
        let last = stream.and_then(|stream| self.section_info(Direction::Up, &stream, state));
        match (last, earlier) {
            (Some(last), Some(earlier)) => Some(last.after(&earlier)),
            (last, earlier) => last.or(earlier.map(|info| *info)),
        }
    }

    /// Returns the view of a section of the running session, with the counters since its start and the current outcome
    /// of its jump.
    fn section_view(&self, side: Direction, section: &TcpStream, state: &SessionState) -> Option<SectionView> {
        let congestion = &self.context.config.congestion;
        let mut view = SectionView::from_socket(section, congestion, self.telemetry.tuner(side))?;
        view.info = state.since_start(side, view.info);
        let resuming = congestion.resuming(section.as_fd()).filter(|_| state.resumes[side as usize]);
        view.info.start.jump = resuming.and_then(|control| control.resume_outcome(section.as_fd()));
        Some(view)
    }

    /// Starts to sample the client's section if the client is a relay: estimates of other clients' sections are not
    /// used.
    fn watch_client(&self) {
        let sampler =
            |key| Box::new(SectionSampler::start(&self.client, Direction::Down, PeerId::Relay(key), &self.stats));
        self.state.borrow_mut().samplers[0] = self.previous_relay().map(sampler);
    }

    /// Returns the key of the relay that has opened the session.
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

    /// Returns the server's section, if it is connected.
    pub(super) fn server_section(&self) -> Option<Rc<TcpStream>> {
        self.state.borrow().stream.clone()
    }

    /// Returns the setup time of each relay, the nearest first.
    pub fn hop_times(&self) -> Vec<Duration> {
        self.state.borrow().hops.to_vec()
    }

    /// Records the answer of the relays, with the setup time of each relay.
    pub fn on_relay_answer(&self, times: Vec<Duration>, requested_at: Instant) {
        let mut state = self.state.borrow_mut();
        state.connect = Some(requested_at.elapsed());
        state.hops = times.into();
    }

    /// Returns the users of the listener if the client must send a password; `None` if no password is needed.
    pub fn users_to_ask<'a>(&self, context: &'a ListenerContext) -> Option<&'a Arc<Users>> {
        context.listener.users.as_ref().filter(|_| !self.certified)
    }

    /// Returns the client's endpoint, for code that does not support the framing of relays.
    pub fn client_end(&self) -> Endpoint<'_> {
        let framing = self.tls.as_deref().map_or(Framing::Raw, TlsCipher::framing);
        Endpoint { stream: &self.client, framing }
    }

    /// Moves the client's TLS into the kernel (kTLS), if possible. Afterwards only the pump reads from the client.
    ///
    /// # Errors
    /// As [`TlsCipher::try_enter_kernel`].
    pub fn try_kernel_tls(&self) -> io::Result<()> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.try_enter_kernel(&self.client))
    }

    /// Returns the TCP connection to the client. With HTTP/2 it carries other sessions as well.
    pub(super) fn client_connection(&self) -> &Rc<TcpStream> {
        self.carrier.as_ref().map_or(&self.client, |carrier| &carrier.connection.stream)
    }

    /// Returns the cipher of the client's TCP connection.
    fn client_cipher(&self) -> Option<&TlsCipher> {
        cipher_of(self.carrier.as_deref(), self.tls.as_deref())
    }

    /// Returns the HTTP version toward the client if that version has streams: 2, or `None`.
    fn http_version(&self) -> Option<u8> {
        self.carrier.is_some().then_some(2)
    }

    /// Returns the section from the previous relay, if its bytes are framed.
    pub fn client_section(&self) -> Option<Rc<FramedSection>> {
        self.dial_context.incoming_open.as_ref().and_then(|incoming_open| incoming_open.framed_section())
    }

    /// Releases the server's section, for reuse or after a failure, and keeps its `TCP_INFO`.
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

    /// Ends the pacing of the client's section, which may carry further sessions.
    pub fn release_client_section(&self) {
        self.telemetry.set_paced_by(Direction::Down, None);
    }

    /// Records the detail of a dial error, and returns the reason for the end.
    pub fn record_dial_error(&self, error: &DialError) -> EndReason {
        self.set_detail(error.detail());
        EndReason::ConnectFailed(error.cause)
    }

    /// Sets the detail of the closing event.
    pub fn set_detail(&self, detail: Option<String>) {
        self.state.borrow_mut().detail = detail.map(Into::into);
    }

    /// Sets the reason for the end of the session.
    pub fn set_end(&self, end: EndReason) {
        self.state.borrow_mut().end = Some(end);
    }

    /// Returns the accounts of the listener and of the user.
    pub fn accounts(&self) -> &SessionAccounts {
        &self.telemetry.accounts
    }

    /// Returns the idle timeouts of the session.
    pub fn idle_timeouts(&self) -> IdleTimeouts {
        let timeouts = &self.context.config.timeouts;
        IdleTimeouts { idle: timeouts.idle, half_closed: timeouts.half_close_idle }
    }

    /// Returns the session as `ekiden status` shows it.
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

    /// Returns the weight of the session in the shares of an interface.
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

/// Creates the telemetry of a session that has no server section yet.
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

/// Interval of checks for a reset while unread bytes of the client hide the end of its stream.
const CLIENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Session {
    /// Checks a password and records the user name. The check is slow by design and may queue behind other checks. It
    /// is abandoned after half of `timeouts.handshake`, or when the client closes its side.
    ///
    /// # Errors
    /// Why the password was not accepted.
    pub async fn authenticate(&self, users: &Users, user: &[u8], password: &[u8]) -> Result<(), AuthError> {
        self.state.borrow_mut().user = Some(String::from_utf8_lossy(user).into());
        let give_up = async {
            let departed =
                timeout(self.context.config.timeouts.handshake / 2, wait_client_end(self.client_end())).await;
            departed.map_or(AuthError::Overloaded, |_| AuthError::ClientGone)
        };
        // Boxed, so that the futures of handshakes without a password do not reserve space for it.
        Box::pin(users.verify(self.dial_context.client.0.ip(), user, password, give_up)).await?;
        self.on_authenticated();
        Ok(())
    }

    /// Applies the weight and the account of the user to the session.
    fn on_authenticated(&self) {
        self.telemetry.set_weight(self.weight());
        if let Some(user) = &self.state.borrow().user {
            self.accounts().set_user(self.context.services().accounts.user(user));
        }
    }
}

/// Returns the cipher of a client's connection: that of the carrier connection if there is one, else the session's own.
fn cipher_of<'a>(carrier: Option<&'a CarrierConnection>, tls: Option<&'a TlsCipher>) -> Option<&'a TlsCipher> {
    carrier.map(|carrier| &carrier.connection.cipher).or(tls)
}

/// How a client's section has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEnd {
    /// The client has closed the section, or its sending direction.
    Closed,
    /// The client has reset the section.
    Reset,
}

/// Completes when the client has closed or reset its section.
pub async fn wait_client_end(client: Endpoint<'_>) -> ClientEnd {
    loop {
        match client.peek_end().await {
            Ok(true) => return ClientEnd::Closed,
            // Unread bytes hide the end of the stream, so only a reset shows that such a client has left. Boxed, because
            // this future is part of every HTTP exchange.
            Ok(false) => {
                if Box::pin(timeout(CLIENT_POLL_INTERVAL, client.stream.ready(Interest::ERROR))).await.is_ok() {
                    return ClientEnd::Reset;
                }
            }
            // The kernel reports a reset only once, so any error counts as a reset.
            Err(_) => return ClientEnd::Reset,
        }
    }
}

impl Session {
    /// Returns the detail of an end for which no detail was recorded.
    fn end_detail(&self, end: EndReason) -> Option<String> {
        let used_up = || self.accounts().used_up().filter(|_| end == EndReason::OverQuota);
        self.tls_detail(end).or_else(used_up).or_else(|| end.detail().map(str::to_owned))
    }

    /// Returns the TLS fault, if the client's connection ended because of TLS and not of TCP.
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
            // If the send buffer is full, the alert is lost, and the client receives only FIN.
            tls.try_send_end(&self.client);
        }
        if let Some(ends) = &self.caught {
            self.context.services().pending_connections.remove(ends);
        }
        if let Some(pre_dialed) = self.take_pre_dialed() {
            pre_dialed.abandon();
        }
        self.context.thread.unregister(self.slot.get());
        // Release the place first: readers of the closing event may expect the place to be free.
        drop(self.permit.take());
        self.accounts().leave();
        self.context.services().events.emit_closed(closed, self.previous_relay());
    }
}
