//! One client connection, from accept to its closing event.
//!
//! [`run`] serves a connection: it reads the request, selects a path, dials, answers and pumps. The state is kept in
//! [`Session`], whose drop emits the closing event, so that every session has exactly one, also after a panic.

mod association;
mod bind;
mod carrier;
mod connect;
mod flow_telemetry;
mod path_race;
mod record;
mod telemetry;

use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::section::Purpose;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::config::ConnectMode;
use crate::dial::link::{SectionReuse, earlier_sessions};
use crate::dial::{DialError, Dialled, OpenedSession};
use crate::ingress::gate::PreDialed;
use crate::ingress::{self, ClientRequest, Responder, TunnelRequest};
use crate::pump::{self, Endpoint, FramedSection, Framing, PendingAnswer, PumpParams};
use crate::tunnel;

pub use carrier::CarrierConnection;
pub use connect::{ConnectedPath, DialContext, NamedPath, PathTaken, connect_by_paths, connect_end_to_end, dial};
pub use flow_telemetry::FlowTelemetry;
pub use record::{ClientEnd, IncomingConnection, Origin, Session, wait_client_end};

/// Serves one client to the end of its session.
pub async fn run(session: Rc<Session>) {
    let incoming_open = session.dial_context.incoming_open.as_ref();
    let end = match incoming_open.map(|incoming_open| (&incoming_open.open.purpose, incoming_open)) {
        Some((Purpose::Datagrams, incoming_open)) => Box::pin(tunnel::serve(&session, incoming_open)).await,
        Some((Purpose::Association, incoming_open)) => {
            Box::pin(association::serve_relay(&session, incoming_open)).await
        }
        _ => match connect(&session).await {
            Ok(connected) => relay_bytes(&session, connected).await,
            Err(end) => end,
        },
    };
    session.set_end(end);
    ingress::section::wait_next_session(session, end);
}

/// A session's established section to the server or to the first hop.
struct Connected {
    server: Rc<TcpStream>,
    /// The section to a relay, if its bytes are framed.
    section: Option<Rc<FramedSection>>,
    /// The pool that receives the section after the session, if the section can carry another session.
    reuse: Option<Box<SectionReuse>>,
    /// The answer of the relays, while it is outstanding.
    pending_answer: Option<Box<AwaitedAnswer>>,
    early: Vec<u8>,
}

impl Connected {
    /// Moves the connection out of its box, which is freed at once.
    #[expect(clippy::boxed_local, reason = "a move out of a box in an async function frees the box only at its end")]
    fn unbox(self: Box<Self>) -> Self {
        *self
    }
}

/// An outstanding answer of a relay, the responder for the client, and the time at which dialling started.
type AwaitedAnswer = (OpenedSession, Responder, Instant);

/// Reads requests of the client until one leads to a connection, and establishes it. The futures of the handshake, of
/// HTTP exchanges, of associations and of dialling are boxed: they are larger than the pump, and most sessions spend
/// most of their time in the pump.
async fn connect(session: &Rc<Session>) -> Result<Box<Connected>, EndReason> {
    let mut reader = ingress::HandshakeReader::new(session);
    let mut request = Box::pin(ingress::accept(session, &mut reader)).await?;
    let tunnel = loop {
        if let Err(refusal) = session.accounts().enter() {
            return Err(Box::pin(refuse_request(session, &request, &refusal.into())).await);
        }
        match request {
            ClientRequest::Tunnel(tunnel) => break tunnel,
            ClientRequest::Upgraded { server, early } => {
                return Ok(Box::new(Connected { server, section: None, reuse: None, pending_answer: None, early }));
            }
            // No other bytes follow an association on its TCP connection.
            ClientRequest::Associate(announced) => return Err(Box::pin(association::serve(session, announced)).await),
            ClientRequest::Bind(request) => return Box::pin(bind::accept(session, request)).await.map(Box::new),
            ClientRequest::Dialled(pre_dialed) => return use_pre_dialed(session, *pre_dialed).map(Box::new),
            ClientRequest::Http(http) => {
                request = ingress::http::serve(session, &mut reader, http).await?;
            }
        }
    };
    Box::pin(open_tunnel(session, tunnel)).await.map(Box::new)
}

/// Answers a request that the limits of the listener or of the user do not allow.
async fn refuse_request(session: &Session, request: &ClientRequest, error: &DialError) -> EndReason {
    match request {
        ClientRequest::Tunnel(tunnel) => {
            session.set_target(&tunnel.target);
            refuse(session, &tunnel.responder, error).await
        }
        ClientRequest::Http(http) => ingress::http::refuse_request(session, http, error).await,
        ClientRequest::Associate(_) | ClientRequest::Bind(_) => refuse(session, &Responder::Socks5, error).await,
        // These clients cannot be answered: they were intercepted, or speak another protocol with the server.
        ClientRequest::Dialled(_) | ClientRequest::Upgraded { .. } => session.record_dial_error(error),
    }
}

/// Takes over the connection that the gate has dialled.
fn use_pre_dialed(session: &Session, pre_dialed: PreDialed) -> Result<Connected, EndReason> {
    let PreDialed { stream, server, section, reuse, taken, times, took } = pre_dialed;
    session.dial_context.set_path(taken);
    let stream = TcpStream::from_std(stream).map_err(|_| EndReason::ConnectFailed(Cause::Exhausted))?;
    let requested_at = Instant::now().checked_sub(took).unwrap_or_else(Instant::now);
    let stream = Rc::new(stream);
    session.on_connected(server, Rc::clone(&stream), requested_at);
    session.start_section(Direction::Up, &stream, earlier_sessions(reuse.as_ref()));
    session.on_relay_answer(times, requested_at);
    let (section, reuse) = (section.map(Rc::new), reuse.map(Box::new));
    Ok(Connected { server: stream, section, reuse, pending_answer: None, early: Vec::new() })
}

async fn open_tunnel(session: &Session, tunnel: TunnelRequest) -> Result<Connected, EndReason> {
    let TunnelRequest { target, early, responder } = tunnel;
    session.set_target(&target);
    let responder = if session.context.listener.connect == ConnectMode::Early {
        responder.send_early_success(session.client_end()).await?
    } else {
        responder
    };
    let (dial_context, requested_at) = (&session.dial_context, Instant::now());
    let connecting = async {
        if responder.is_client_waiting() {
            connect_end_to_end(dial_context, &target).await
        } else {
            dial(dial_context, &target).await
        }
    };
    let connected = tokio::select! {
        biased;
        connected = connecting => connected,
        _ = session.client.ready(Interest::ERROR) => return Err(EndReason::ResetByClient),
    };
    let ConnectedPath { dialled: Dialled { stream, server, opened }, times, .. } = match connected {
        Ok(connected) => connected,
        Err(error) => return Err(refuse(session, &responder, &error).await),
    };
    let stream = Rc::new(stream);
    session.on_connected(server, Rc::clone(&stream), requested_at);
    let section = opened.as_ref().and_then(|opened| Rc::clone(&opened.section).if_framed());
    let reuse = opened.as_ref().and_then(|opened| opened.reuse.clone()).map(Box::new);
    session.start_section(Direction::Up, &stream, earlier_sessions(reuse.as_deref()));
    let Some(times) = times else {
        let pending_answer = opened.map(|opened| Box::new((opened, responder, requested_at)));
        return Ok(Connected { server: stream, section, reuse, pending_answer, early });
    };
    session.on_relay_answer(times, requested_at);
    let granted = responder.send_success(session.client_end(), Some(&stream), &session.hop_times()).await;
    granted.map_err(|_| EndReason::ResetByClient)?;
    Ok(Connected { server: stream, section, reuse, pending_answer: None, early })
}

/// Answers the client with the cause of `error`, closes its connection and returns the end of the session.
async fn refuse(session: &Session, responder: &Responder, error: &DialError) -> EndReason {
    let names_hops = !session.context.listener.admits_unauthenticated();
    responder.send_failure(session.client_end(), error, names_hops).await;
    session.record_dial_error(error)
}

/// Pumps both directions. An outstanding answer of a relay is passed to the client when it arrives.
async fn relay_bytes(session: &Session, connected: Box<Connected>) -> EndReason {
    let Connected { server, section, reuse, pending_answer, early } = connected.unbox();
    let server_framing = section.as_deref().map_or(Framing::Raw, FramedSection::framing);
    // Bytes that this process encrypts for the server's section are copied anyway.
    if !server_framing.is_encrypted()
        && let Err(error) = session.try_kernel_tls()
    {
        session.set_detail(Some(format!("kernel TLS: {error}")));
        pump::abort(&session.client);
        pump::abort(&server);
        return EndReason::ClientLost;
    }
    let client_section = session.client_section();
    let client = match &client_section {
        Some(section) => Endpoint { stream: &session.client, framing: section.framing() },
        None => session.client_end(),
    };
    let opening = pending_answer.map(|awaited| -> PendingAnswer<'_, Box<(Responder, DialError)>> {
        let (opened, responder, requested_at) = *awaited;
        let server = &server;
        Box::pin(async move {
            let times = match opened.opening.wait_answer(server, &opened.section.cipher).await {
                Ok(times) => times,
                Err(error) => return Err(Box::new((responder, error))),
            };
            session.on_relay_answer(times, requested_at);
            // If the client is gone, the next read of the pump fails.
            let _ = responder.send_success(session.client_end(), None, &session.hop_times()).await;
            Ok(())
        })
    });
    let params = PumpParams {
        client,
        server: Endpoint { stream: &server, framing: server_framing },
        early,
        stats: &session.stats,
        pipes: session.context.pipes(),
        idle_timeouts: session.idle_timeouts(),
    };
    let end = match pump::run(params, opening).await {
        Ok(end) => end,
        Err(failure) => return Box::pin(refuse(session, &failure.0, &failure.1)).await,
    };
    if end == EndReason::Finished
        && let (Some(section), Some(reuse)) = (section, reuse)
    {
        keep_section(session, server, section, *reuse);
    }
    end
}

/// Puts a section that can carry another session back into its pool. Its congestion window is that of the transfers so
/// far.
fn keep_section(session: &Session, server: Rc<TcpStream>, section: Rc<FramedSection>, reuse: SectionReuse) {
    session.release_upstream();
    if let (Some(stream), Some(section)) = (Rc::into_inner(server), Rc::into_inner(section)) {
        reuse.put_back(stream, section, session.stats.moved());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of the future that `task` makes, in bytes.
    const fn future_size<A, F: Future>(_task: &impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    /// An idle session consists of its task, its record and two sockets. A large future that is not boxed, for example
    /// of a handshake, would enlarge every task by its size.
    #[test]
    fn idle_sessions_are_small() {
        let (task, record) = (future_size(&run), size_of::<Session>());
        assert!(task <= 792 && record <= 984, "a task of {task} and a record of {record} bytes");
    }
}
