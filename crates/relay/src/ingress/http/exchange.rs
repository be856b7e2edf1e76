//! One request and its answer.
//!
//! Both directions run at once: an answer may come before the request's body has gone (100 Continue, 413), and ends the
//! exchange when it does. An idle connection that turns out to be dead costs a request that can be repeated one more
//! try on a fresh one; a request that cannot be repeated never gets an idle connection.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::End;
use ekiden_proto::limiting::Direction;
use ekiden_proto::wire::http::{Body, Form, RequestHead, ResponseHead, Scheme, Version};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::body::{Coding, Lane};
use super::request_log::RequestLog;
use super::rewriting::{self, Outgoing};
use super::upstream::{self, Upstream};
use super::{ftp, reply, tell};
use crate::dial::DialError;
use crate::ingress::Inbox;
use crate::ingress::inbox::Trouble;
use crate::ingress::manner::last_words;
use crate::path::Way;
use crate::pump::{self, Broken};
use crate::session::Session;

/// How often a client that has sent more than it was asked for is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is left of the client's connection after an exchange.
pub enum After {
    /// It may ask again.
    Next,
    /// It is to be closed.
    Close,
    /// It speaks another protocol now, with this server.
    Upgraded(Rc<TcpStream>),
}

/// Why an exchange came to nothing.
pub enum Failure {
    /// The section of the server, or of this `http` hop, ended before the first byte of an answer.
    NoAnswer(Option<Box<str>>),
    /// The client is to be told this.
    Told(DialError),
    /// The session is over.
    Ended(End),
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self::Told(cause.into())
    }
}

impl From<End> for Failure {
    fn from(end: End) -> Self {
        Self::Ended(end)
    }
}

/// Forwards one request and its answer.
///
/// # Errors
/// How the session ended.
pub async fn run(session: &Session, inbox: &mut Inbox<'_>, mut head: RequestHead) -> Result<After, End> {
    if !rewriting::may_go_on(&mut head) {
        let (status, reason) = if head.method == "OPTIONS" { (200, "OK") } else { (405, "Method Not Allowed") };
        tell(&session.client, status, reason).await;
        return Err(End::Finished);
    }
    let Form::Absolute { scheme, target, .. } = &head.form else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    session.wants(target);
    match scheme {
        Scheme::Ftp => ftp::run(session, inbox, head).await,
        Scheme::Https => {
            tell(&session.client, 501, "Use CONNECT for https").await;
            Err(End::BadHandshake("https without CONNECT"))
        }
        Scheme::Http => forward(session, inbox, head).await,
    }
}

/// Forwards a request to a server, or to a hop that does with its URL whatever the scheme says.
///
/// # Errors
/// How the session ended.
pub async fn forward(session: &Session, inbox: &mut Inbox<'_>, head: RequestHead) -> Result<After, End> {
    let Form::Absolute { target, .. } = &head.form else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    let target = target.clone();
    let mut log = RequestLog::new(session, &head);
    match try_ways(session, inbox, &target, head, &mut log).await {
        Ok(after) => Ok(after),
        Err(Failure::Ended(end)) => {
            pump::abort(&session.client);
            Err(end)
        }
        Err(Failure::NoAnswer(hop)) => {
            let error = DialError { hop: hop.map(String::from), ..Cause::Reset.into() };
            Err(give_up(session, &error, &mut log).await)
        }
        Err(Failure::Told(error)) => Err(give_up(session, &error, &mut log).await),
    }
}

/// By the first way whose first hop is there.
async fn try_ways(
    session: &Session,
    inbox: &mut Inbox<'_>,
    target: &Target,
    head: RequestHead,
    log: &mut RequestLog<'_>,
) -> Result<After, Failure> {
    let ways = session.ways(target)?;
    let mut result = Err(Cause::HopFailed.into());
    for way in &ways {
        let outgoing = rewriting::request(session, way, head.clone());
        let road = Road { target, way, ways: ways.len() };
        result = try_both(session, inbox, road, &outgoing, log).await;
        if !matches!(&result, Err(Failure::Told(error)) if error.first_hop_down) {
            break;
        }
    }
    result
}

/// Where a request goes, and which of how many ways is tried.
#[derive(Clone, Copy)]
struct Road<'a> {
    target: &'a Target,
    way: &'a Way,
    ways: usize,
}

/// Whoever answered is to blame: the `http` hop, where one was asked, or the server.
fn blame(outgoing: &Outgoing, hops: Cause, servers: Cause) -> Failure {
    match &outgoing.hop {
        Some(hop) => Failure::Told(DialError::of_hop(hops, hop)),
        None => servers.into(),
    }
}

/// Tells the client why, and hangs up.
pub async fn give_up(session: &Session, error: &DialError, log: &mut RequestLog<'_>) -> End {
    let told = error.told_to_client();
    log.status = told.http_status();
    session.parted();
    let page = reply::of_cause(told);
    last_words(&session.client, if log.method == "HEAD" { reply::head_of(&page) } else { &page }).await;
    session.failed(error)
}

/// On an idle connection first, where the request may be repeated, and then on a fresh one.
async fn try_both(
    session: &Session,
    inbox: &mut Inbox<'_>,
    road: Road<'_>,
    outgoing: &Outgoing,
    log: &mut RequestLog<'_>,
) -> Result<After, Failure> {
    let Road { target, way, ways } = road;
    if let Some(idle) = outgoing.repeatable.then(|| upstream::idle(session, way, target)).flatten() {
        match attempt(session, inbox, road, outgoing, idle, log).await {
            Err(Failure::NoAnswer(_)) => session.entrance.shared().metrics.kept("stale"),
            decided => return decided,
        }
    }
    let fresh = Box::pin(upstream::fresh(session, way, ways, target)).await.map_err(Failure::Told)?;
    attempt(session, inbox, road, outgoing, fresh, log).await
}

async fn attempt(
    session: &Session,
    inbox: &mut Inbox<'_>,
    road: Road<'_>,
    outgoing: &Outgoing,
    mut upstream: Upstream,
    log: &mut RequestLog<'_>,
) -> Result<After, Failure> {
    log.reused = upstream.reused;
    let idle = session.entrance.config.timeouts.idle;
    let finished = tokio::select! {
        finished = converse(session, inbox, outgoing, &mut upstream, log) => finished?,
        // Nobody reads from a client whose request is complete, so its end has to be watched for.
        end = departure(session) => return Err(end.into()),
        // Before the answer has begun there is a status for it; afterwards it can only be broken off.
        () = pump::silence(&session.meter, idle) => {
            return Err(if log.status == 0 { Cause::TimedOut.into() } else { End::Idle.into() });
        }
    };
    match finished {
        Finished { upgraded: true, .. } => Ok(After::Upgraded(upstream.stream)),
        Finished { server_stays, client_stays, .. } => {
            session.parted();
            if server_stays {
                upstream::keep(session, road.way, road.target, upstream);
            }
            Ok(if client_stays { After::Next } else { After::Close })
        }
    }
}

/// Completes when the client is gone: reset, or closed and nothing has moved for the half-close time since. A client that has
/// closed may have left for good, or may still want the answer; it looks the same.
async fn departure(session: &Session) -> End {
    loop {
        match session.client.peek(&mut [0]).await {
            Ok(0) => break,
            // It belongs to the body, or to the next request; the end comes behind it.
            Ok(_) => sleep(LOOK_AGAIN).await,
            // The kernel tells of a reset once, so it has to be taken for one here.
            Err(_) => return End::ResetByClient,
        }
    }
    tokio::select! {
        _ = session.client.ready(Interest::ERROR) => End::ResetByClient,
        () = pump::silence(&session.meter, session.entrance.config.timeouts.half_close_idle) => End::HalfCloseIdle,
    }
}

struct Finished {
    server_stays: bool,
    client_stays: bool,
    upgraded: bool,
}

/// Sends the request and delivers the answer, both at once.
async fn converse(
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
        up.carry(inbox, outgoing.body, Coding::Chunks).await
    });
    let answer = {
        let mut heading = pin!(async {
            if let Some((answer, asked)) = relays {
                session.answered(answer.await.map_err(Failure::Told)?, asked);
            }
            final_head(&mut answers, outgoing, &down).await
        });
        loop {
            tokio::select! {
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
        let mut delivering = pin!(async {
            down.write(&answer.head).await?;
            let (body, coding) =
                if answer.upgraded { (Body::Empty, Coding::Plain) } else { (answer.body, answer.coding) };
            down.carry(&mut answers, body, coding).await?;
            // What a server sends ahead in its new protocol.
            if answer.upgraded { down.write(&answers.take_all()).await } else { Ok(()) }
        });
        loop {
            tokio::select! {
                result = &mut sending, if sent.is_none() => sent = Some(check_sent(result)?),
                delivered = &mut delivering => break delivered,
            }
        }
    };
    delivered.map_err(|broken| pump::end_of(&broken, Direction::Down))?;
    // Where only the end of the stream ends the body, a hidden reset would make half an answer look whole.
    if answer.body == Body::UntilClose && pump::is_cut_off(server) {
        return Err(End::ResetByServer.into());
    }
    let whole_request_sent = sent == Some(Sent::Whole);
    Ok(Finished {
        server_stays: answer.server_stays && whole_request_sent && answers.is_empty(),
        client_stays: answer.client_stays && whole_request_sent,
        upgraded: answer.upgraded,
    })
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
            Err(Failure::Ended(End::BadHandshake("a chunked body that is none")))
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
        if switches && outgoing.upgrade.is_none() {
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
