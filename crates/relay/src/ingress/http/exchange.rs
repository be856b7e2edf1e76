//! One request and its response on one connection, and the log line of the request.

use std::borrow::Cow;
use std::io;
use std::mem::take;
use std::pin::{Pin, pin};
use std::time::Instant;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::{EndReason, Event, RequestCompleted};
use ekiden_proto::wire::http::{BodyFraming, RequestHead, ResponseHead, Version, rewrite};
use tokio::net::TcpStream;

use super::body::{BodyCoding, BodyFlow};
use super::forward::ExchangeError;
use super::rewriting::{self, OutgoingRequest};
use super::upstream::Upstream;
use crate::dial::DialError;
use crate::ingress::HandshakeReader;
use crate::ingress::ReadError;
use crate::pump::{self, Endpoint, FlowError, StreamEnd};
use crate::session::Session;

/// The state of both connections after a response.
pub struct DeliveredResponse {
    /// The server's connection can carry another request.
    pub server_keep_alive: bool,
    /// The client's connection can carry another request.
    pub client_keep_alive: bool,
    /// Client and server have switched to another protocol.
    pub upgraded: bool,
}

/// Sends the request and delivers the response, both at the same time.
///
/// # Errors
/// Why there is no complete response.
pub async fn exchange(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    outgoing: &mut OutgoingRequest,
    upstream: &mut Upstream,
    log: &mut RequestLog<'_>,
) -> Result<DeliveredResponse, ExchangeError> {
    // The request is repeated only after a failure of a reused connection, so on a new connection the head is not kept.
    let head = if upstream.exchanges == 0 { take(&mut outgoing.head).into() } else { Cow::from(&outgoing.head) };
    let outgoing = &*outgoing;
    let (server, relay_answer) = (&*upstream.stream, upstream.answer.take());
    let mut response_reader = HandshakeReader::from_stream(server);
    let mut sent = None;
    // Both bodies are boxed, so that they need no memory while a slow response is awaited.
    let mut sending = Some(Box::pin(async {
        let up = BodyFlow::new(session, session.client_end(), Endpoint::plain(server), Direction::Up);
        up.relay(head.into_owned(), reader, outgoing.body, BodyCoding::Chunks).await
    }));
    let response = {
        let mut heading = pin!(async {
            if let Some(relay_answer) = relay_answer {
                session.on_relay_answer(relay_answer.answer.await?, relay_answer.started_at);
            }
            final_head(session, &mut response_reader, outgoing, &log.method).await
        });
        loop {
            // Biased: whether the request has been sent must be known when the response arrives.
            tokio::select! {
                biased;
                result = finish(&mut sending), if sent.is_none() => sent = Some(check_sent(result)?),
                response = &mut heading => break response?,
            }
        }
    };
    if response.status == 407 {
        return Err(blame(outgoing, Cause::DeniedByHop, Cause::BadAnswer));
    }
    log.status = response.status;
    // "A client cannot begin using an upgraded protocol on the connection until it has completely sent the request
    // message" (RFC 9110, 7.8).
    if response.status == 101 && sent != Some(SendOutcome::Complete) {
        return Err(blame(outgoing, Cause::HopProtocol, Cause::BadAnswer));
    }
    // The relay may have begun to drain since the request arrived.
    let is_reusable = sent == Some(SendOutcome::Complete) && !session.context.thread.drain_state.is_draining();
    let mut response = rewriting::rewrite_response(outgoing, response, is_reusable);
    let delivered = {
        let mut delivering = Box::pin(deliver(session, server, &mut response_reader, &mut response));
        loop {
            tokio::select! {
                biased;
                result = finish(&mut sending), if sent.is_none() => sent = Some(check_sent(result)?),
                delivered = &mut delivering => break delivered,
            }
        }
    };
    delivered.map_err(|broken| pump::end_reason(&broken, Direction::Down))?;
    // If only the end of the stream marks the end of the body, an unnoticed reset would make a partial response look
    // complete.
    if response.body == BodyFraming::UntilClose && pump::stream_end(server) == StreamEnd::Reset {
        return Err(EndReason::ResetByServer.into());
    }
    if response.framing == BodyFraming::UntilClose {
        pump::cancel_abort(&session.client);
    }
    let is_request_complete = sent == Some(SendOutcome::Complete);
    Ok(DeliveredResponse {
        server_keep_alive: response.server_keep_alive && is_request_complete && response_reader.is_empty(),
        client_keep_alive: response.client_keep_alive && is_request_complete,
        upgraded: response.upgraded,
    })
}

/// Waits for `future`, and frees it.
async fn finish<F: Future>(future: &mut Option<Pin<Box<F>>>) -> F::Output {
    let output = future.as_mut().expect("invariant: the future has not completed").await;
    *future = None;
    output
}

/// Sends a response to the client: the head, and the body as it arrives from the server.
async fn deliver(
    session: &Session,
    server: &TcpStream,
    response_reader: &mut HandshakeReader<'_>,
    response: &mut rewriting::OutgoingResponse,
) -> Result<(), FlowError> {
    let down = BodyFlow::new(session, Endpoint::plain(server), session.client_end(), Direction::Down);
    if response.framing == BodyFraming::UntilClose {
        // Set before the head is sent, because the head alone looks like a complete response: if this relay is killed,
        // only a reset shows the client that the response is incomplete.
        pump::abort(&session.client);
    }
    let mut head = take(&mut response.head);
    if response.upgraded {
        // Bytes of the new protocol that the server sent after its head.
        head.append(&mut response_reader.take_all());
    }
    down.relay(head, response_reader, response.body, response.coding).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SendOutcome {
    Complete,
    /// The server does not read the rest of the request; its response may still arrive.
    Partial,
}

fn check_sent(result: Result<(), FlowError>) -> Result<SendOutcome, ExchangeError> {
    match result {
        Ok(()) => Ok(SendOutcome::Complete),
        Err(FlowError::Writing(_)) => Ok(SendOutcome::Partial),
        Err(FlowError::Reading(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(ExchangeError::Ended(EndReason::BadHandshake("malformed chunked body")))
        }
        Err(broken @ FlowError::Reading(_)) => Err(ExchangeError::Ended(pump::end_reason(&broken, Direction::Up))),
    }
}

/// Returns the head of the final response. Interim responses (RFC 9110, 15.2) are forwarded to clients with HTTP/1.1.
fn final_head(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    outgoing: &OutgoingRequest,
    method: &str,
) -> impl Future<Output = Result<ResponseHead, ExchangeError>> {
    // Not an async function, whose future would store its arguments twice.
    let mut is_first = true;
    async move {
        loop {
            let parse = |bytes: &[u8]| ResponseHead::parse(bytes, session.context.config.limits.head, method);
            let head = match reader.next(parse).await {
                Ok(head) => head,
                Err(ReadError::Gone(_)) if is_first && reader.is_empty() => {
                    return Err(ExchangeError::NoAnswer(outgoing.hop.clone()));
                }
                Err(ReadError::Gone(_) | ReadError::Late) => return Err(blame(outgoing, Cause::Reset, Cause::Reset)),
                Err(ReadError::Wire(_)) => return Err(blame(outgoing, Cause::HopProtocol, Cause::BadAnswer)),
            };
            is_first = false;
            let switches = head.status == 101;
            let may_switch = |protocols: &String| rewrite::can_switch(protocols, &head.headers);
            if switches && !outgoing.upgrade.as_ref().is_some_and(may_switch) {
                return Err(blame(outgoing, Cause::HopProtocol, Cause::BadAnswer));
            }
            if switches || head.status >= 200 {
                return Ok(head);
            }
            if outgoing.version == Version::Http11 {
                Box::pin(deliver_interim(session, reader.source(), head)).await?;
            }
        }
    }
}

async fn deliver_interim(session: &Session, server: Endpoint<'_>, head: ResponseHead) -> Result<(), EndReason> {
    let down = BodyFlow::new(session, server, session.client_end(), Direction::Down);
    let interim = rewriting::rewrite_interim(head);
    down.write(&interim).await.map_err(|broken| pump::end_reason(&broken, Direction::Down))
}

/// Returns the error of a request that went to an `http` hop (`hop_cause`) or to the server (`server_cause`).
fn blame(outgoing: &OutgoingRequest, hop_cause: Cause, server_cause: Cause) -> ExchangeError {
    match &outgoing.hop {
        Some(hop) => DialError::at_hop(hop_cause, hop).into(),
        None => server_cause.into(),
    }
}

/// The log record of a request, emitted as an event on drop.
pub struct RequestLog<'a> {
    session: &'a Session,
    /// The method of the request.
    pub method: String,
    url: String,
    began: Instant,
    bytes_before: (u64, u64),
    /// The status that was sent to the client; 0 if none.
    pub status: u16,
    /// Whether an idle connection was reused.
    pub reused: bool,
}

impl<'a> RequestLog<'a> {
    /// Starts the record of a request.
    pub fn new(session: &'a Session, head: &RequestHead) -> Self {
        Self::of(session, head.method.clone(), rewriting::log_url(head))
    }

    /// Starts the record of a request with this method and URL.
    pub fn of(session: &'a Session, method: String, url: String) -> Self {
        let bytes_before = (session.stats.bytes(Direction::Up), session.stats.bytes(Direction::Down));
        Self { session, method, url, began: Instant::now(), bytes_before, status: 0, reused: false }
    }
}

impl Drop for RequestLog<'_> {
    fn drop(&mut self) {
        let stats = &self.session.stats;
        let request = RequestCompleted {
            session: self.session.id,
            method: take(&mut self.method),
            url: take(&mut self.url),
            status: self.status,
            reused: self.reused,
            bytes_up: stats.bytes(Direction::Up) - self.bytes_before.0,
            bytes_down: stats.bytes(Direction::Down) - self.bytes_before.1,
            duration: self.began.elapsed(),
        };
        self.session.context.services().events.emit(&Event::Request(Box::new(request)));
    }
}
