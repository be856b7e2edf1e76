//! Connections of relays: the handshake, the wait for OPEN, and the answers to the previous relay.
//!
//! A connection becomes a session when OPEN arrives. Before that the connection is unproven: its hello may be a replay.
//! An unproven connection takes a place among the unproven connections instead of a place for a session. It lives no
//! longer than a ready connection is kept, and is evicted when there are too many.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::ClientAddr;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use ekiden_proto::key::PublicKey;
use ekiden_proto::wire::section::noise::write_refusal;
use ekiden_proto::wire::section::{Hello, NoiseResponder, Open, OpenAnswer, OpenFailure, Purpose, Refusal, Versions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Responder;
use super::admission::{Client, SessionPermit, UnprovenPermit};
use super::listener::{ListenerContext, canonical};
use crate::config::{Peer, SectionListener};
use crate::dial::link::{ASSOCIATIONS_SINCE, REUSABLE_SINCE};
use crate::dial::section::{PeerHandshakeError, read_hello};
use crate::path::PathChoice;
use crate::path::estimates::report_server;
use crate::pump::{Endpoint, FramedSection, RecordCipher, has_held_end};
use crate::session::{IncomingConnection, Origin, Session};

/// An OPEN from the previous relay.
#[derive(Debug)]
pub struct IncomingOpen {
    /// The OPEN message of the session.
    pub open: Open,
    /// The relay that sent OPEN; `None` if the listener has no `peers`.
    pub peer: Option<Arc<Peer>>,
    key: PublicKey,
    /// The section. It stays here if the session's bytes are framed; otherwise it is taken when the answer is sent.
    section: RefCell<Option<Rc<FramedSection>>>,
    /// Number of sessions that the section has carried before.
    pub earlier_sessions: u32,
    version: u8,
    at: Instant,
}

/// A connection of a relay on which no session runs.
struct IdleSection {
    stream: TcpStream,
    address: ClientAddr,
    cipher: RecordCipher,
    key: PublicKey,
    version: u8,
    /// Whether the sessions so far were encrypted; `None` before the first.
    encrypt: Option<bool>,
    /// Number of sessions so far.
    sessions: u32,
}

/// Serves a connection from its first byte to the start of a session, or to its end.
pub async fn serve_connection(
    context: Rc<ListenerContext>,
    mut stream: TcpStream,
    address: ClientAddr,
    permit: UnprovenPermit,
) {
    let result = tokio::select! {
        biased;
        () = permit.evicted() => return context.record_evicted(),
        result = timeout(context.config.timeouts.handshake, shake_hands(&context, &mut stream)) => result,
    };
    match result.unwrap_or(Err((EndReason::HandshakeTimeout, None))) {
        Ok((cipher, key, version)) => {
            let idle = IdleSection { stream, address, cipher, key, version, encrypt: None, sessions: 0 };
            wait_session(context, idle, permit).await;
        }
        Err((end, detail)) => context.reject(IncomingConnection::plain(stream, address, Origin::Itself), end, detail),
    }
}

/// Waits for the next session on the section of `session`, which has ended with `end`. Without a next session, the drop
/// of `session` closes the section.
pub fn wait_next_session(session: Rc<Session>, end: EndReason) {
    let Some(incoming) = session.dial_context.incoming_open.clone() else { return };
    let is_last = session.context.thread.drain_state.is_draining() && has_held_end(&session.client);
    if end != EndReason::Finished || !incoming.open.reusable || is_last {
        return;
    }
    let (context, client) = (Rc::clone(&session.context), Rc::clone(&session.client));
    session.release_client_section();
    // Emits the closing event.
    drop(session);
    let context = context.thread.current_listener(&context).unwrap_or(context);
    // An attempt that has lost a race of paths may hold `incoming` until its timeout.
    let IncomingOpen { key, earlier_sessions, version, .. } = *incoming;
    let section = incoming.section.take();
    let (Some(stream), Some(section)) = (Rc::into_inner(client), section.and_then(Rc::into_inner)) else { return };
    let Ok(address) = stream.peer_addr().map(|address| ClientAddr(canonical(address))) else { return };
    let Some(permit) = context.enter_pending(address) else { return };
    let FramedSection { cipher, encrypt, .. } = section;
    cipher.expect_record(Open::MAX_LENGTH);
    let idle =
        IdleSection { stream, address, cipher, key, version, encrypt: Some(encrypt), sessions: earlier_sessions + 1 };
    tokio::task::spawn_local(wait_session(context, idle, permit));
}

/// Waits for OPEN, which proves that the relay has its private key, and starts the session.
async fn wait_session(context: Rc<ListenerContext>, section: IdleSection, permit: UnprovenPermit) {
    let opened = tokio::select! {
        biased;
        () = permit.evicted() => None,
        opened = wait_open(&context, &section, &permit) => Some(opened),
    };
    match opened {
        Some(Ok(Some(open))) => match permit.prove() {
            Some(_permit) => start_session(&context, section, open).await,
            None => context.record_evicted(),
        },
        // The relay closed the connection before a session needed it.
        Some(Ok(None)) => {}
        Some(Err(reason)) => {
            let relay = IncomingConnection::plain(section.stream, section.address, Origin::Itself);
            context.reject(relay, EndReason::BadHandshake(reason), None);
        }
        None => context.record_evicted(),
    }
}

/// Why a handshake failed, and the detail for the log.
type HandshakeEnd = (EndReason, Option<String>);

async fn shake_hands(
    context: &ListenerContext,
    stream: &mut TcpStream,
) -> Result<(RecordCipher, PublicKey, u8), HandshakeEnd> {
    let hello = read_hello(stream).await.map_err(|error| match error {
        PeerHandshakeError::Io(_) => (EndReason::LeftEarly, None),
        _ => (EndReason::BadHandshake("not the section protocol"), None),
    })?;
    let now = context.services().started_at.elapsed();
    let (responder, key, own_key) = match identify(context, &hello, now) {
        Ok(identity) => identity,
        Err((refusal, detail)) => {
            // The refusal is best effort: the connection ends in any case.
            let _ = stream.write_all(&write_refusal(Versions::SUPPORTED, refusal)).await;
            return Err((refusal_reason(refusal), detail));
        }
    };
    let ticket = (!hello.is_resumption).then(|| context.services().tickets.issue(&own_key, &key, now));
    let (transport, answer) = responder.accept(ticket.as_ref());
    stream.write_all(&answer).await.map_err(|_| (EndReason::LeftEarly, None))?;
    let version = transport.version;
    Ok((RecordCipher::new(transport, Open::MAX_LENGTH), key, version))
}

/// Reads the hello. Returns the responder, the key of the relay that dials, and the key of this listener.
///
/// # Errors
/// The refusal to send if the relay is not admitted, and the detail for the log.
fn identify(
    context: &ListenerContext,
    hello: &Hello,
    now: Duration,
) -> Result<(NoiseResponder, PublicKey, PublicKey), (Refusal, Option<String>)> {
    // Use the configuration in force: a reload may have admitted the relay since the connection was accepted.
    let successor = context.thread.current_listener(context);
    let section = section_listener(successor.as_deref().unwrap_or(context));
    let result = if hello.is_resumption {
        NoiseResponder::read_resumption(
            &context.services().tickets,
            &section.public_key,
            hello,
            Versions::SUPPORTED,
            now,
        )
    } else {
        NoiseResponder::read(&section.private_key, hello, Versions::SUPPORTED)
    };
    let (responder, key) = result.map_err(|refusal| (refusal, None))?;
    if section.admits(&key) {
        Ok((responder, key, section.public_key))
    } else {
        Err((Refusal::UnknownPeer, unknown_key_hint(&key)))
    }
}

/// Returns the detail for the log, which names the key of an unknown relay.
fn unknown_key_hint(key: &PublicKey) -> Option<String> {
    Some(format!("key {key} is not among the peers"))
}

fn section_listener(context: &ListenerContext) -> &SectionListener {
    context.listener.section.as_ref().expect("invariant: a section listener has keys")
}

fn refusal_reason(refusal: Refusal) -> EndReason {
    match refusal {
        Refusal::UnknownPeer => EndReason::Unauthenticated,
        Refusal::WrongKey => EndReason::BadHandshake("a handshake for another key"),
        Refusal::Version(_) => EndReason::BadHandshake("no version in common"),
        Refusal::UnknownTicket => EndReason::BadHandshake("an unknown or expired ticket"),
    }
}

/// Waits for OPEN. Returns `None` if the connection is closed before OPEN arrives, or if OPEN does not arrive in time.
async fn wait_open(
    context: &ListenerContext,
    section: &IdleSection,
    permit: &UnprovenPermit,
) -> Result<Option<Open>, &'static str> {
    let _waiting = context.services().events.metrics.track_waiting_section(&context.listener.name);
    let (timeouts, IdleSection { stream, cipher, .. }) = (&context.config.timeouts, section);
    let first = async {
        // The read that returned the last record of the previous session may have returned OPEN as well.
        if cipher.has_record() {
            return Some(1);
        }
        let mut byte = [0];
        // After the handshake the runtime may still report the socket as readable, so only a peek shows whether bytes
        // wait.
        if let Ok(first) = timeout(timeouts.handshake, stream.peek(&mut byte)).await {
            return first.ok();
        }
        permit.idle(context.config.limits.sessions_per_client);
        // The previous relay normally closes the connection before this timeout.
        let time_limit = if section.encrypt.is_some() { timeouts.section_idle } else { timeouts.ready_age };
        timeout(time_limit, stream.peek(&mut byte)).await.ok()?.ok()
    };
    if context.thread.drain_state.work_first(first).await.flatten() != Some(1) {
        return Ok(None);
    }
    match timeout(timeouts.handshake, cipher.next_record(stream)).await {
        Ok(Ok(opened)) => {
            let open =
                Open::read(&opened.record[opened.plaintext]).map_err(|_| "the first record is not a valid OPEN")?;
            section.check_framing(&open).map(|()| Some(open))
        }
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => Err("a record that was altered"),
        Ok(Err(_)) => Ok(None),
        Err(_) => Err("an unfinished record"),
    }
}

/// Starts the session under the configuration in force: a reload may have removed the relay from `peers` meanwhile.
async fn start_session(context: &Rc<ListenerContext>, section: IdleSection, open: Open) {
    let IdleSection { stream, address, cipher, key, version, sessions: earlier_sessions, .. } = section;
    let section = FramedSection { cipher, encrypt: open.encrypt, reusable: open.reusable };
    section.on_opened();
    let section = RefCell::new(Some(Rc::new(section)));
    let mut incoming_open =
        IncomingOpen { open, peer: None, key, section, earlier_sessions, version, at: Instant::now() };
    let client = match incoming_open.open.purpose {
        Purpose::Stream(_) | Purpose::Association => incoming_open.open.client,
        // A tunnel carries packets of many hosts, and a report concerns no host, so the relay itself is the client.
        Purpose::Datagrams | Purpose::Report => address,
    };
    let Some(context) = context.thread.current_listener(context) else { return };
    // The client address in OPEN is unverified. Without `peers` a relay can use any number of keys, so the session
    // counts for the source address of the connection.
    let mut counted_for = Client::Address(address.0.ip());
    if let Some(peers) = &section_listener(&context).peers {
        let Some(peer) = peers.0.get(&incoming_open.key) else {
            let detail = unknown_key_hint(&incoming_open.key);
            let relay = IncomingConnection::plain(stream, client, Origin::Itself);
            return context.reject(relay, EndReason::Unauthenticated, detail);
        };
        (incoming_open.peer, counted_for) = (Some(Arc::clone(peer)), Client::Peer(incoming_open.key));
    }
    match (context.admit_later(counted_for).await, &incoming_open.open.purpose) {
        (Ok(permit), Purpose::Report) => {
            tokio::task::spawn_local(serve_reports(context, incoming_open, stream, permit));
        }
        (Ok(permit), _) => {
            let origin = Origin::ByRelay(Rc::new(incoming_open));
            context.start_session(IncomingConnection::plain(stream, client, origin), permit);
        }
        (Err(_), Purpose::Report) => {
            // Without an answer, the relay would assume that this version does not support reports.
            let responder = Responder::Section(Rc::new(incoming_open));
            responder.send_failure(Endpoint::plain(&stream), &Cause::Exhausted.into(), false).await;
        }
        (Err(end), _) => refuse(&context, Rc::new(incoming_open), stream, client, end).await,
    }
}

/// Refuses a session for which there is no place, with an answer: after a reset the previous relay would treat this
/// relay as down.
async fn refuse(
    context: &Rc<ListenerContext>,
    incoming_open: Rc<IncomingOpen>,
    stream: TcpStream,
    client: ClientAddr,
    end: EndReason,
) {
    let connection = IncomingConnection::plain(stream, client, Origin::ByRelay(Rc::clone(&incoming_open)));
    let session = Session::open(Rc::clone(context), connection, None);
    if let Some(target) = incoming_open.open.purpose.target() {
        session.set_target(target);
    }
    Responder::Section(incoming_open).send_failure(session.client_end(), &Cause::Exhausted.into(), false).await;
    session.set_end(end);
}

/// Reports the estimates of this relay to another relay. The connection is not a session but takes the place of one.
async fn serve_reports(
    context: Rc<ListenerContext>,
    incoming_open: IncomingOpen,
    stream: TcpStream,
    _permit: SessionPermit,
) {
    let services = context.services();
    if let Err(error) = services.reports.on_query(&context.config, &services.estimates, &services.events) {
        context.warn(format!("cannot query other relays for estimates of their sections: {error}"));
    }
    if let Some(section) = incoming_open.framed_section() {
        let (cipher, key, at) = (&section.cipher, incoming_open.key, incoming_open.at);
        // A reload may remove the relay from `peers`.
        let is_peer =
            || context.thread.current_listener(&context).is_some_and(|now| section_listener(&now).admits(&key));
        tokio::select! {
            () = report_server::serve(&services.estimates, stream, cipher, key, at, is_peer) => {}
            () = context.thread.drain_state.wait_begun() => {}
        }
    }
}

impl IdleSection {
    /// Checks that the connection can carry a session with the framing of `open`.
    fn check_framing(&self, open: &Open) -> Result<(), &'static str> {
        if open.reusable && self.version < REUSABLE_SINCE {
            return Err("a reusable section in version 1");
        }
        if open.purpose == Purpose::Association && self.version < ASSOCIATIONS_SINCE {
            return Err("an association in version 1 or 2");
        }
        let is_same = self.encrypt.is_none_or(|before| before == open.encrypt);
        if is_same { Ok(()) } else { Err("a session with another encryption than the previous session") }
    }
}

impl IncomingOpen {
    /// Returns the section, if the session's bytes are framed.
    pub fn framed_section(&self) -> Option<Rc<FramedSection>> {
        self.section.borrow().clone().and_then(FramedSection::if_framed)
    }

    /// Returns the key of the relay that sent OPEN.
    pub const fn previous_relay(&self) -> PublicKey {
        self.key
    }

    /// Returns the name of the relay that sent OPEN; without a name, its key.
    pub fn peer_name(&self) -> String {
        self.peer.as_ref().map_or_else(|| self.key.to_string(), |peer| peer.name.to_string())
    }

    /// Whether the session may take `path_choice`.
    pub fn permits(&self, path_choice: &PathChoice) -> bool {
        let relays = self.peer.as_ref().and_then(|peer| peer.next_hops.as_ref());
        match (relays, path_choice.path.hops.first()) {
            (Some(relays), Some(hop)) => relays.contains(&hop.name),
            _ => true,
        }
    }

    /// Returns the answer after success. `times` are the setup times of the relays behind this relay.
    pub fn success_answer(&self, times: &[Duration]) -> Vec<u8> {
        self.answer(Ok(()), times)
    }

    /// Returns the answer after a failure.
    pub fn failure_answer(&self, failure: OpenFailure) -> Vec<u8> {
        self.answer(Err(failure), &[])
    }

    fn answer(&self, outcome: Result<(), OpenFailure>, times: &[Duration]) -> Vec<u8> {
        let times = [self.at.elapsed()].into_iter().chain(times.iter().copied()).collect();
        let section = self.framed_section().or_else(|| self.section.take()).expect("invariant: there is one answer");
        section.cipher.seal_all(&OpenAnswer { outcome, relay_times: times }.write())
    }
}
