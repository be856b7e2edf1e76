//! One request and its answer.
//!
//! Both directions run at once: an answer may come before the request's body has gone (100 Continue, 413), and ends the
//! exchange when it does. An idle connection that turns out to be dead costs a request that can be repeated one more
//! try on a fresh one; a request that cannot be repeated never gets an idle connection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{RequestHead, RequestTarget, Scheme};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::conversation::{Finished, converse};
use super::request_log::RequestLog;
use super::rewriting::{self, Outgoing};
use super::upstream::{self, Upstream};
use super::{ftp, reply, tell};
use crate::dial::DialError;
use crate::ingress::Inbox;
use crate::ingress::manner::last_words;
use crate::path::{self, Way};
use crate::pump;
use crate::session::{Session, reach_by};

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
    Ended(EndReason),
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self::Told(cause.into())
    }
}

impl From<EndReason> for Failure {
    fn from(end: EndReason) -> Self {
        Self::Ended(end)
    }
}

/// Forwards one request and its answer.
///
/// # Errors
/// How the session ended.
pub async fn run(session: &Session, inbox: &mut Inbox<'_>, mut head: RequestHead) -> Result<After, EndReason> {
    if !rewriting::may_go_on(&mut head) {
        let (status, reason) = if head.method == "OPTIONS" { (200, "OK") } else { (405, "Method Not Allowed") };
        tell(&session.client, status, reason).await;
        return Err(EndReason::Finished);
    }
    let RequestTarget::Absolute { scheme, target, .. } = &head.target else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    session.wants(target);
    match scheme {
        Scheme::Ftp => ftp::run(session, inbox, head).await,
        Scheme::Https => {
            tell(&session.client, 501, "Use CONNECT for https").await;
            Err(EndReason::BadHandshake("https without CONNECT"))
        }
        Scheme::Http => forward(session, inbox, head).await,
    }
}

/// Forwards a request to a server, or to a hop that does with its URL whatever the scheme says.
///
/// # Errors
/// How the session ended.
pub async fn forward(session: &Session, inbox: &mut Inbox<'_>, head: RequestHead) -> Result<After, EndReason> {
    let RequestTarget::Absolute { target, .. } = &head.target else {
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
    let ways = session.errand.ways(target)?;
    if path::racers(&ways) > 1 && ways.iter().all(|way| way.path.http_hop().is_none()) {
        return race(session, inbox, (target, ways), head, log).await;
    }
    let mut result = Err(Cause::HopFailed.into());
    let mut head = Some(head);
    for (at, way) in ways.iter().enumerate() {
        session.errand.goes(way);
        // Kept as long as there is another way.
        let this = if at + 1 < ways.len() { head.clone() } else { head.take() };
        let Some(this) = this else { break };
        let outgoing = rewriting::request(session, way, this);
        let road = Road { target, way, ways: ways.len() };
        result = try_both(session, inbox, road, &outgoing, log).await;
        match &result {
            Err(Failure::Told(error)) if error.first_hop_down => session.errand.leaves(way, error),
            _ => break,
        }
    }
    result
}

/// By the first of several ways that stands: nobody knows yet which is the best.
async fn race(
    session: &Session,
    inbox: &mut Inbox<'_>,
    (target, ways): (&Target, Vec<Way>),
    head: RequestHead,
    log: &mut RequestLog<'_>,
) -> Result<After, Failure> {
    let asked = Instant::now();
    let reached = Box::pin(reach_by(&session.errand, target, ways)).await.map_err(Failure::Told)?;
    let (way, outgoing) = (&reached.way, rewriting::request(session, &reached.way, head));
    let upstream = upstream::of(session, way, reached.dialled, asked).await.map_err(Failure::Told)?;
    attempt(session, inbox, Road { target, way, ways: 1 }, &outgoing, upstream, log).await
}

/// Where a request goes, and which of how many ways is tried.
#[derive(Clone, Copy)]
struct Road<'a> {
    target: &'a Target,
    way: &'a Way,
    ways: usize,
}

/// Tells the client why, and hangs up.
pub async fn give_up(session: &Session, error: &DialError, log: &mut RequestLog<'_>) -> EndReason {
    log.status = error.told_to_client().http_status();
    session.parted();
    let page = reply::of_dial(error, !session.entrance.listener.admits_unauthenticated());
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
            Err(Failure::NoAnswer(_)) => session.entrance.shared().metrics.record_upstream_reuse("stale"),
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
        biased;
        finished = converse(session, inbox, outgoing, &mut upstream, log) => finished?,
        // Nobody reads from a client whose request is complete, so its end has to be watched for.
        end = departure(session) => return Err(end.into()),
        // Before the answer has begun there is a status for it; afterwards it can only be broken off.
        () = pump::silence(&session.meter, idle) => {
            return Err(if log.status == 0 { Cause::TimedOut.into() } else { EndReason::Idle.into() });
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
async fn departure(session: &Session) -> EndReason {
    loop {
        match session.client.peek(&mut [0]).await {
            Ok(0) => break,
            // It belongs to the body, or to the next request; the end comes behind it.
            Ok(_) => sleep(LOOK_AGAIN).await,
            // The kernel tells of a reset once, so it has to be taken for one here.
            Err(_) => return EndReason::ResetByClient,
        }
    }
    tokio::select! {
        _ = session.client.ready(Interest::ERROR) => EndReason::ResetByClient,
        () = pump::silence(&session.meter, session.entrance.config.timeouts.half_close_idle) => EndReason::HalfCloseIdle,
    }
}
