//! Dials on behalf of a client: the paths that the client may take, attempts in order, and feedback to the selector.
//! `path_race` makes attempts in parallel.
//!
//! Each session has a [`DialContext`]. The gate uses a [`DialContext`] without a session while the first packet of a
//! client waits.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::proxy_protocol::ClientTls;
use ekiden_proto::wire::section::TraceId;
use ekiden_proto::wire::section::open::MAX_HOPS;
use ekiden_proto::wire::server_name::ServerName;

use super::path_race::race;
use crate::config::access::AccessPolicy;
use crate::config::{ConnectMode, ListenerKind, Path};
use crate::dial::{DialError, Dialled, Dialler, OpenParams};
use crate::ingress::listener::ListenerContext;
use crate::ingress::section::IncomingOpen;
use crate::ingress::services::Services;
use crate::path::estimates::FirstHop;
use crate::path::selector::Prediction;
use crate::path::{self, PathChoice};
use crate::pool::SessionLoad;

/// The client on whose behalf the relay dials, the rules for that client, and the path taken.
pub struct DialContext {
    /// The listener that accepted the client.
    pub context: Rc<ListenerContext>,
    /// The same listener under the configuration that was in force when the last request arrived.
    in_force: RefCell<Rc<ListenerContext>>,
    /// The address of the client.
    pub client: ClientAddr,
    /// OPEN of the previous relay, if the client is a relay.
    pub incoming_open: Option<Rc<IncomingOpen>>,
    /// The address that the client connected to; `None` if the client names its target.
    destination: Option<Box<SocketAddr>>,
    /// TLS parameters of the client's connection, if PROXY headers may report them.
    tls: Option<Rc<ClientTls>>,
    /// Timeout of all paths together.
    time_limit: Duration,
    /// The trace id in OPEN, which all relays on the path share; `None` without OPEN, in a copy for one attempt, or if
    /// the session passes this relay a second time.
    incoming_trace: Option<TraceId>,
    path_taken: RefCell<PathTaken>,
    /// The server name in the first bytes of an intercepted client.
    server_name: OnceCell<Box<ServerName>>,
    /// Whether sections must be unframed, because the code that reads and writes them, such as that of HTTP, does not
    /// support framing.
    needs_raw_sections: Cell<bool>,
}

/// The path of the last attempt.
#[derive(Debug, Clone, Default)]
pub struct PathTaken {
    /// The path; `None` before the first attempt.
    pub path: Option<NamedPath>,
    /// The TCP profile of the dialled section.
    pub profile: Option<Arc<Profile>>,
    /// The trace id sent to relays.
    pub trace: Option<TraceId>,
    /// This session's part of the load of the first relay.
    pub load: Option<Arc<SessionLoad>>,
    /// The prediction, if the selector has chosen the path.
    pub prediction: Option<Arc<Prediction>>,
    /// The paths that failed before, and why.
    pub failed_paths: Vec<String>,
}

impl PathTaken {
    /// Returns the name of the path.
    pub fn path_name(&self) -> Option<Box<str>> {
        self.path.as_ref().map(|path| path.name().into())
    }
}

/// A path with its name.
#[derive(Debug, Clone)]
pub enum NamedPath {
    /// A path of a route, or the path that the previous relay requested.
    Configured(Arc<Path>),
    /// The name shown for a session for which the relay dials no connection.
    NotDialled(&'static str),
}

impl NamedPath {
    fn name(&self) -> &str {
        match self {
            Self::Configured(path) => &path.name,
            Self::NotDialled(name) => name,
        }
    }

    fn first_hop(&self) -> Option<FirstHop> {
        match self {
            Self::Configured(path) => Some(FirstHop::from_path(path)),
            Self::NotDialled(_) => None,
        }
    }
}

impl DialContext {
    /// Creates a context without a path. Registers the trace id of `incoming_open`.
    pub fn new(
        context: Rc<ListenerContext>,
        client: ClientAddr,
        destination: Option<SocketAddr>,
        tls: Option<ClientTls>,
        incoming_open: Option<Rc<IncomingOpen>>,
        time_limit: Duration,
    ) -> Self {
        let services = context.services();
        let incoming_trace = incoming_open
            .as_ref()
            .map(|incoming_open| incoming_open.open.trace)
            .filter(|trace| services.try_begin_trace(*trace));
        let in_force = RefCell::new(Rc::clone(&context));
        Self {
            context,
            in_force,
            client,
            incoming_open,
            destination: destination.map(Box::new),
            tls: tls.map(Rc::new),
            time_limit,
            incoming_trace,
            path_taken: RefCell::default(),
            server_name: OnceCell::new(),
            needs_raw_sections: Cell::new(false),
        }
    }

    /// Returns a copy for one attempt that runs in parallel with others.
    pub fn for_attempt(&self) -> Self {
        Self {
            context: Rc::clone(&self.context),
            in_force: RefCell::new(self.current_listener()),
            client: self.client,
            destination: self.destination.clone(),
            tls: self.tls.clone(),
            incoming_open: self.incoming_open.clone(),
            time_limit: self.time_limit,
            incoming_trace: None,
            path_taken: RefCell::default(),
            server_name: self.server_name.clone(),
            needs_raw_sections: self.needs_raw_sections.clone(),
        }
    }

    /// Sets the server name, once, before the first path is chosen.
    pub fn set_server_name(&self, name: ServerName) {
        self.server_name.set(Box::new(name)).expect("invariant: an intercepted client has one target");
    }

    /// Returns the server name in the first bytes of an intercepted client.
    pub fn server_name(&self) -> Option<&ServerName> {
        self.server_name.get().map(|name| &**name)
    }

    /// Dials sections without framing from now on.
    pub fn require_raw_sections(&self) {
        self.needs_raw_sections.set(true);
    }

    /// Returns the listener under the configuration for dialling.
    pub fn current_listener(&self) -> Rc<ListenerContext> {
        Rc::clone(&self.in_force.borrow())
    }

    /// Switches to the configuration in force. Returns false if that configuration has no such listener.
    pub fn refresh_listener(&self) -> bool {
        match self.context.thread.current_listener(&self.context) {
            Some(now) => self.in_force.replace(now),
            None => return false,
        };
        true
    }

    /// Records an attempt by `path_choice`.
    pub fn on_attempt(&self, path_choice: &PathChoice) {
        let mut path_taken = self.path_taken.borrow_mut();
        path_taken.path = Some(NamedPath::Configured(Arc::clone(&path_choice.path)));
        path_taken.profile =
            Some(Arc::clone(path_choice.path.hops.first().map_or(&path_choice.profile, |hop| &hop.profile)));
        path_taken.prediction = path_choice.prediction.clone();
        path_taken.load = None;
    }

    /// Records a failed path. If a hop is at fault, the selector avoids the path for a while.
    pub fn on_failure(&self, path_choice: &PathChoice, error: &DialError) {
        let Some(prediction) = &path_choice.prediction else { return };
        self.path_taken.borrow_mut().failed_paths.push(format!("{} failed: {}", path_choice.path.name, error.cause));
        // A lack of local resources is not a failure of the path.
        let is_local = error.cause == Cause::Exhausted && error.reported_by.is_none();
        if error.hop.is_some() && !is_local {
            self.context.services().path_selector.on_failure(prediction);
        }
    }

    /// Records an established path, and reports the paths that failed before to the selector: the target was not the
    /// cause.
    pub fn on_success(&self, path_choice: &PathChoice, server: ServerAddr, target: &Target, failed: &[PathChoice]) {
        let selector = &self.context.services().path_selector;
        let Some(prediction) = &path_choice.prediction else { return };
        failed
            .iter()
            .filter_map(|path_choice| path_choice.prediction.as_ref())
            .for_each(|prediction| selector.on_failure(prediction));
        selector.on_connected(prediction);
        if let (Host::Name(name), true) = (&target.host, path_choice.path.is_direct()) {
            selector.record_address(name, server.0.ip());
        }
    }

    /// Returns the prediction for the last path, and descriptions of the paths that failed before.
    pub fn prediction(&self) -> Option<(Arc<Prediction>, Vec<String>)> {
        let path_taken = self.path_taken.borrow();
        path_taken.prediction.clone().map(|prediction| (prediction, path_taken.failed_paths.clone()))
    }

    /// Records a dialled section: the trace id sent to relays, and the load of the first relay.
    pub fn on_dialled(&self, dialled: &Dialled) {
        let mut path_taken = self.path_taken.borrow_mut();
        let opening = dialled.opened.as_ref().map(|opened| &opened.opening);
        (path_taken.trace, path_taken.load) =
            (opening.map(|opening| opening.trace), opening.and_then(|opening| opening.load.clone()));
    }

    /// Sets the path that the gate has dialled.
    pub fn set_path(&self, path_taken: PathTaken) {
        *self.path_taken.borrow_mut() = path_taken;
    }

    /// Returns the path taken.
    pub fn path_taken(&self) -> PathTaken {
        self.path_taken.borrow().clone()
    }

    /// Returns the name of the last path.
    pub fn path_name(&self) -> Option<Box<str>> {
        self.path_taken.borrow().path_name()
    }

    /// Returns the first hop of the last path.
    pub fn first_hop(&self) -> Option<FirstHop> {
        self.path_taken.borrow().path.as_ref().and_then(NamedPath::first_hop)
    }

    /// Returns the TCP profile of the dialled section.
    pub fn profile(&self) -> Option<Arc<Profile>> {
        self.path_taken.borrow().profile.clone()
    }

    /// Returns the trace id of the session: the id sent to relays, or else the id received in OPEN.
    pub fn trace(&self) -> Option<TraceId> {
        self.path_taken.borrow().trace.or(self.incoming_trace)
    }

    /// Returns the paths to `target`, the best first; at least one.
    ///
    /// # Errors
    /// The session passes this relay a second time, the previous relay is not permitted to open it, or every path would
    /// lead back into the tunnel from which the bytes come.
    pub fn paths(&self, target: &Target) -> Result<Vec<PathChoice>, Cause> {
        let context = self.current_listener();
        let services = context.services();
        let select = || {
            let Services { path_selector, pools, events, .. } = &**services;
            path::select(path_selector, pools, events, &context.config, target, self.server_name())
        };
        let Some(incoming_open) = &self.incoming_open else {
            let path_choices = select();
            return if self.context.listener.kind == ListenerKind::Tun {
                path::relayed(path_choices)
            } else {
                Ok(path_choices)
            };
        };
        let path_choices = match self.requested_path(incoming_open)? {
            Some(path_choice) => vec![path_choice],
            None => select(),
        };
        let permitted: Vec<_> =
            path_choices.into_iter().filter(|path_choice| incoming_open.permits(path_choice)).collect();
        if permitted.is_empty() { Err(Cause::Denied) } else { Ok(permitted) }
    }

    /// Returns the next path of a lane; `None` if the lane ends at this relay.
    ///
    /// # Errors
    /// As [`Self::paths`].
    pub fn next_lane_path(&self, incoming_open: &IncomingOpen) -> Result<Option<PathChoice>, Cause> {
        match self.requested_path(incoming_open)? {
            Some(path_choice) if !incoming_open.permits(&path_choice) => Err(Cause::Denied),
            path_choice => Ok(path_choice),
        }
    }

    /// Returns the path that the previous relay has chosen, if any.
    fn requested_path(&self, incoming_open: &IncomingOpen) -> Result<Option<PathChoice>, Cause> {
        if self.incoming_trace.is_none() {
            return Err(Cause::Loop);
        }
        let section = self.context.listener.section.as_ref();
        if section.is_some_and(|section| section.encrypt) && !incoming_open.open.encrypt {
            return Err(Cause::Denied);
        }
        path::requested_path(&self.context.config, &incoming_open.open.path)
    }

    /// Returns the parameters of OPEN for the next relay.
    pub fn open_params(&self) -> OpenParams {
        match &self.incoming_open {
            Some(incoming_open) => OpenParams {
                trace: Some(incoming_open.open.trace),
                client: incoming_open.open.client,
                early: incoming_open.open.early,
                encrypt: incoming_open.open.encrypt,
                can_frame: !self.needs_raw_sections.get(),
                hops_left: incoming_open.open.hops_left,
            },
            None => OpenParams {
                trace: None,
                client: self.client,
                early: self.context.listener.connect == ConnectMode::Early,
                encrypt: false,
                can_frame: !self.needs_raw_sections.get(),
                hops_left: MAX_HOPS,
            },
        }
    }

    /// Returns the access rules for targets.
    pub fn access(&self) -> AccessPolicy<'_> {
        self.access_at(&self.context)
    }

    fn access_at<'a>(&'a self, context: &'a ListenerContext) -> AccessPolicy<'a> {
        let peer = self.incoming_open.as_ref().and_then(|incoming_open| incoming_open.peer.as_ref());
        AccessPolicy { listener: &context.listener.access, peer: peer.map(|peer| &peer.access) }
    }

    /// Returns a dialler under the configuration of `context` ([`Self::current_listener`]). Its timeout is the
    /// `attempts`th part of the time for all paths.
    pub fn dialler_for<'a>(&'a self, context: &'a ListenerContext, attempts: usize) -> Dialler<'a> {
        Dialler {
            marks: context.config.needed_marks(),
            source: context.listener.keep_client_address.then_some(self.client),
            names: context.resolver(),
            congestion: &context.config.congestion,
            pools: &context.services().pools,
            rules: self.access_at(context),
            destination: self.destination.as_deref().copied(),
            tls: self.tls.as_deref(),
            server_name: self.server_name(),
            time_limit: self.time_limit / u32::try_from(attempts).unwrap_or(u32::MAX),
        }
    }
}

impl Drop for DialContext {
    fn drop(&mut self) {
        if let Some(trace) = self.incoming_trace {
            self.context.services().end_trace(&trace);
        }
    }
}

/// Largest number of paths among which the time is divided.
const MAX_ATTEMPTS: usize = 4;

/// A path with an established connection.
pub struct ConnectedPath {
    /// The section to the target or to the first hop.
    pub dialled: Dialled,
    /// The path that was chosen.
    pub path_choice: PathChoice,
    /// Setup time of each relay; `None` while the answer is outstanding.
    pub times: Option<Vec<Duration>>,
}

/// Dials `target` by the first path whose first section connects. Answers of relays remain outstanding, unless paths
/// race.
///
/// # Errors
/// The error of the last path.
pub async fn dial(dial_context: &DialContext, target: &Target) -> Result<ConnectedPath, DialError> {
    let path_choices = dial_context.paths(target)?;
    if path::racing_count(&path_choices) > 1 {
        return Box::pin(race(dial_context, target, path_choices)).await;
    }
    try_in_order(dial_context, target, &path_choices, async |path_choice, share| {
        let context = dial_context.current_listener();
        let dialled =
            dial_context.dialler_for(&context, share).connect(path_choice, target, &dial_context.open_params()).await?;
        dial_context.on_dialled(&dialled);
        let times = dialled.opened.is_none().then(Vec::new);
        Ok(ConnectedPath { dialled, path_choice: path_choice.clone(), times })
    })
    .await
}

/// Dials `target` by the first path that is established from end to end.
///
/// # Errors
/// The error of the last path.
pub async fn connect_end_to_end(dial_context: &DialContext, target: &Target) -> Result<ConnectedPath, DialError> {
    connect_by_paths(dial_context, target, dial_context.paths(target)?).await
}

/// Dials `target` by the first of `path_choices` that is established from end to end.
///
/// # Errors
/// The error of the last path.
pub async fn connect_by_paths(
    dial_context: &DialContext,
    target: &Target,
    path_choices: Vec<PathChoice>,
) -> Result<ConnectedPath, DialError> {
    if path::racing_count(&path_choices) > 1 {
        return Box::pin(race(dial_context, target, path_choices)).await;
    }
    connect_in_order(dial_context, target, &path_choices).await
}

/// Dials `target` by `path_choices` one after the other, each until it is established from end to end.
///
/// # Errors
/// The error of the last path.
async fn connect_in_order(
    dial_context: &DialContext,
    target: &Target,
    path_choices: &[PathChoice],
) -> Result<ConnectedPath, DialError> {
    try_in_order(dial_context, target, path_choices, async |path_choice, share| {
        connect_by_path(dial_context, target, path_choice, share).await
    })
    .await
}

/// Dials `target` by `path_choice` until the path is established from end to end, within `1 / share` of the time.
///
/// # Errors
/// Why the path failed.
pub(super) async fn connect_by_path(
    dial_context: &DialContext,
    target: &Target,
    path_choice: &PathChoice,
    share: usize,
) -> Result<ConnectedPath, DialError> {
    let (context, open_params) = (dial_context.current_listener(), dial_context.open_params());
    let dialler = dial_context.dialler_for(&context, share);
    let mut dialled = dialler.connect(path_choice, target, &open_params).await?;
    dial_context.on_dialled(&dialled);
    let mut answer = dialled.wait_answer().await;
    let members = path_choice.path.hops.first().map_or(1, |hop| hop.members().len());
    for _ in 1..members.max(2) {
        // No byte of the session has been delivered, so the same path is safe to dial again: the relay has ended since
        // the connection was made and may have restarted, or it has no room and another member of its group can take
        // the session.
        let can_redial =
            |error: &DialError| dialled.can_redial() && error.is_disconnect() || members > 1 && error.is_refusal();
        if !answer.as_ref().is_err_and(can_redial) {
            break;
        }
        dialled = dialler.connect(path_choice, target, &open_params).await?;
        dial_context.on_dialled(&dialled);
        answer = dialled.wait_answer().await;
    }
    Ok(ConnectedPath { times: Some(answer?), dialled, path_choice: path_choice.clone() })
}

pub(super) async fn try_in_order(
    dial_context: &DialContext,
    target: &Target,
    path_choices: &[PathChoice],
    attempt: impl AsyncFn(&PathChoice, usize) -> Result<ConnectedPath, DialError>,
) -> Result<ConnectedPath, DialError> {
    let mut failure = Cause::HopFailed.into();
    for (index, path_choice) in path_choices.iter().enumerate() {
        dial_context.on_attempt(path_choice);
        match attempt(path_choice, path_choices.len().min(MAX_ATTEMPTS)).await {
            // No byte has been delivered, so another path can be tried safely.
            Err(error) if can_retry(path_choice, &error) => {
                dial_context.on_failure(path_choice, &error);
                failure = error;
            }
            Ok(connected) => {
                dial_context.on_success(path_choice, connected.dialled.server, target, &path_choices[..index]);
                return Ok(connected);
            }
            result => return result,
        }
    }
    Err(failure)
}

/// Whether another path may succeed: a hop failed, a relay has no room or, if the selector has chosen the path, the
/// network to the target failed.
fn can_retry(path_choice: &PathChoice, error: &DialError) -> bool {
    let network = matches!(error.cause, Cause::Unreachable | Cause::TimedOut | Cause::NameServerFailed);
    error.hop.is_some() || error.is_relay_full() || path_choice.prediction.is_some() && network
}
