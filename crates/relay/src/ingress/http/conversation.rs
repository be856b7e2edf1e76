//! One request on one connection: what is sent, and what comes back.

use std::io;
use std::pin::pin;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{BodyFraming, ResponseHead, Version, rewrite};
use tokio::net::TcpStream;

use super::body::{BodyCoding, Lane};
use super::exchange::Failure;
use super::request_log::RequestLog;
use super::rewriting::{self, Outgoing};
use super::upstream::Upstream;
use crate::dial::DialError;
use crate::ingress::Inbox;
use crate::ingress::inbox::Trouble;
use crate::pump::{self, Broken};
use crate::session::Session;

/// What is left when an answer has been delivered.
pub struct Finished {
    /// The server's connection can carry another request.
    pub server_stays: bool,
    /// The client's can.
    pub client_stays: bool,
    /// Both speak another protocol now.
    pub upgraded: bool,
}

/// Sends the request and delivers the answer, both at once.
///
/// # Errors
/// Why there is no whole answer.
pub async fn converse(
    session: &Session,
    inbox: &mut Inbox<'_>,
    outgoing: &Outgoing,
    upstream: &mut Upstream,
    log: &mut RequestLog<'_>,
) -> Result<Finished, Failure> {
    let (server, relays) = (&*upstream.stream, upstream.answer.take());
    let up = lane(session, &session.client, server, Direction::Up);
    let down = lane(session, server, &session.client, Direction::Down);
    let mut answers = Inbox::of(server);
    let mut sent = None;
    let mut sending = pin!(async {
        up.write(&outgoing.head).await?;
        up.carry(inbox, outgoing.body, BodyCoding::Chunks).await
    });
    let answer = {
        let mut heading = pin!(async {
            if let Some((answer, asked)) = relays {
                session.answered(answer.await.map_err(Failure::Told)?, asked);
            }
            final_head(&mut answers, outgoing, &down).await
        });
        loop {
            // Whether the request has been sent counts when the answer is there.
            tokio::select! {
                biased;
                result = &mut sending, if sent.is_none() => sent = Some(check_sent(result)?),
                answer = &mut heading => break answer?,
            }
        }
    };
    if answer.status == 407 {
        return Err(blame(outgoing, Cause::DeniedByHop, Cause::BadAnswer));
    }
    log.status = answer.status;
    // "A client cannot begin using an upgraded protocol on the connection until it has completely sent the request
    // message" (RFC 9110, 7.8).
    if answer.status == 101 && sent != Some(Sent::Whole) {
        return Err(blame(outgoing, Cause::HopProtocol, Cause::BadAnswer));
    }
    let answer = rewriting::answer(outgoing, answer, sent == Some(Sent::Whole));
    let delivered = {
        let mut delivering = pin!(deliver(session, &down, &mut answers, &answer));
        loop {
            tokio::select! {
                biased;
                result = &mut sending, if sent.is_none() => sent = Some(check_sent(result)?),
                delivered = &mut delivering => break delivered,
            }
        }
    };
    delivered.map_err(|broken| pump::end_of(&broken, Direction::Down))?;
    // Where only the end of the stream ends the body, a hidden reset would make half an answer look whole.
    if answer.body == BodyFraming::UntilClose && pump::is_cut_off(server) {
        return Err(EndReason::ResetByServer.into());
    }
    if answer.framing == BodyFraming::UntilClose {
        pump::settle(&session.client);
    }
    let whole_request_sent = sent == Some(Sent::Whole);
    Ok(Finished {
        server_stays: answer.server_stays && whole_request_sent && answers.is_empty(),
        client_stays: answer.client_stays && whole_request_sent,
        upgraded: answer.upgraded,
    })
}

/// Sends the client an answer: the head, and the body as the server sends it.
async fn deliver(
    session: &Session,
    down: &Lane<'_>,
    answers: &mut Inbox<'_>,
    answer: &rewriting::Answer,
) -> Result<(), Broken> {
    if answer.framing == BodyFraming::UntilClose {
        // Set before the head, because the head alone looks like a whole answer: when this relay is killed, only a reset
        // tells the client that the answer is incomplete.
        pump::abort(&session.client);
    }
    down.write(&answer.head).await?;
    if answer.upgraded {
        // Bytes of the new protocol that the server has sent behind its head.
        return down.write(&answers.take_all()).await;
    }
    down.carry(answers, answer.body, answer.coding).await
}

fn lane<'a>(session: &'a Session, from: &'a TcpStream, to: &'a TcpStream, direction: Direction) -> Lane<'a> {
    Lane { from, to, direction, meter: &session.meter, pipes: session.entrance.pipes() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Whole,
    /// The server does not want the rest; its answer may still come.
    Partly,
}

fn check_sent(result: Result<(), Broken>) -> Result<Sent, Failure> {
    match result {
        Ok(()) => Ok(Sent::Whole),
        Err(Broken::Writing(_)) => Ok(Sent::Partly),
        Err(Broken::Reading(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Failure::Ended(EndReason::BadHandshake("a chunked body that is none")))
        }
        Err(broken @ Broken::Reading(_)) => Err(Failure::Ended(pump::end_of(&broken, Direction::Up))),
    }
}

/// The head that answers the request; interim ones (RFC 9110, 15.2) are passed on to clients that know them.
async fn final_head(inbox: &mut Inbox<'_>, outgoing: &Outgoing, down: &Lane<'_>) -> Result<ResponseHead, Failure> {
    let mut nothing_yet = true;
    loop {
        let parse = |bytes: &[u8]| ResponseHead::parse(bytes, outgoing.head_limit, &outgoing.method);
        let head = match inbox.next(parse).await {
            Ok(head) => head,
            Err(Trouble::Gone(_)) if nothing_yet && inbox.is_empty() => {
                return Err(Failure::NoAnswer(outgoing.hop.clone()));
            }
            Err(Trouble::Gone(_) | Trouble::Late) => return Err(blame(outgoing, Cause::Reset, Cause::Reset)),
            Err(Trouble::Wire(_)) => return Err(blame(outgoing, Cause::HopProtocol, Cause::BadAnswer)),
        };
        nothing_yet = false;
        let switches = head.status == 101;
        let may_switch = |asked: &String| rewrite::can_switch(asked, &head.headers);
        if switches && !outgoing.upgrade.as_ref().is_some_and(may_switch) {
            return Err(blame(outgoing, Cause::HopProtocol, Cause::BadAnswer));
        }
        if switches || head.status >= 200 {
            return Ok(head);
        }
        if outgoing.version == Version::Http11 {
            let interim = rewriting::interim(head);
            down.write(&interim).await.map_err(|broken| pump::end_of(&broken, Direction::Down))?;
        }
    }
}

/// Whoever answered is to blame: the `http` hop, where one was asked, or the server.
fn blame(outgoing: &Outgoing, hops: Cause, servers: Cause) -> Failure {
    match &outgoing.hop {
        Some(hop) => Failure::Told(DialError::of_hop(hops, hop)),
        None => servers.into(),
    }
}
