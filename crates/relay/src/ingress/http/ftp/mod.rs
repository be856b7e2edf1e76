//! `ftp://` URLs for HTTP clients (RFC 1738, 3.2; RFC 959, 2428 and 3659 toward the server).
//!
//! A client crate implements the protocol; ekiden moves the bytes. Control and data connections are dialled like any
//! other, through hops, access rules and deadlines, and the bytes of a data connection go through the pump.
//!
//! [`url`] reads the URL, [`connection`] is the control connection, [`download`], [`listing`] and [`upload`] are the
//! operations, [`response`] is the HTTP response.
//!
//! A last hop that is an HTTP proxy is asked for the URL itself: few proxies permit CONNECT to port 21, and none to the
//! ports of data connections.
//!
//! Left out: ranges, conditional requests, FTPS, and control connections kept for later requests.

mod connection;
mod download;
mod listing;
mod response;
mod upload;
mod url;

use std::cell::RefCell;

use connection::FtpConnection;
use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{BodyFraming, Headers, RequestHead, RequestTarget, Version};

use super::body::BodyFlow;
use super::exchange::RequestLog;
use super::forward::{ClientConnection, forward, give_up};
use super::{is_persistent, send_error};
use crate::dial::DialError;
use crate::ingress::HandshakeReader;
use crate::path::PathChoice;
use crate::pump::{self, Endpoint};
use crate::session::Session;

pub use listing::row;
use url::FtpUrl;

/// A request for an `ftp://` URL.
struct FtpRequest<'a> {
    session: &'a Session,
    log: RefCell<RequestLog<'a>>,
    target: Target,
    location: FtpUrl,
    method: Method,
    version: Version,
    headers: Headers,
    body: BodyFraming,
    /// Whether the client's connection may outlive the request.
    stays: bool,
}

/// A method that applies to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Head,
    Put,
    Other,
}

impl Method {
    fn read(text: &str) -> Self {
        match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            _ => Self::Other,
        }
    }
}

/// Why a request failed.
enum FtpFailure {
    /// The server or its data connection could not be reached or did not answer in time.
    Dial(DialError),
    /// The server said no.
    Said(suppaftp::types::Response),
    /// We say no: a status, and a sentence for people.
    Refused(u16, &'static str),
    /// The session is over.
    Ended(EndReason),
}

impl From<Cause> for FtpFailure {
    fn from(cause: Cause) -> Self {
        Self::Dial(cause.into())
    }
}

/// Serves a request for an `ftp://` URL.
///
/// # Errors
/// The end of the session.
pub async fn run(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    head: RequestHead,
) -> Result<ClientConnection, EndReason> {
    let RequestTarget::Absolute { target, .. } = &head.target else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    let target = target.clone();
    let Some(location) = FtpUrl::read(&head.target, &head.headers) else {
        send_error(session.client_end(), 400, "Bad Request").await;
        return Err(EndReason::BadHandshake("an FTP command in a URL"));
    };
    let by_proxy = |ways: &Vec<PathChoice>| ways.first().is_some_and(|way| way.path.http_hop().is_some());
    if session.dial_context.paths(&target).as_ref().is_ok_and(by_proxy) {
        return forward(session, reader, Box::new(head)).await;
    }
    let log = RequestLog::of(session, head.method.clone(), location.redacted());
    let stays = is_persistent(session, &head);
    let RequestHead { method, version, headers, body, .. } = head;
    let method = Method::read(&method);
    // Only PUT has a meaningful body (RFC 9110, 9.3.1); other bodies are not read.
    let stays = stays && (method == Method::Put || body == BodyFraming::Empty);
    let asked = FtpRequest { session, log: RefCell::new(log), target, location, method, version, headers, body, stays };
    let served = serve(&asked, reader).await;
    // The session's duplicate would keep the server's section open until the client is gone.
    session.release_upstream();
    match served {
        Ok(after) => {
            asked.finish();
            Ok(after)
        }
        Err(trouble) => fail(asked, trouble).await,
    }
}

async fn serve(asked: &FtpRequest<'_>, reader: &mut HandshakeReader<'_>) -> Result<ClientConnection, FtpFailure> {
    match asked.method {
        Method::Get | Method::Head => {}
        Method::Put => upload::check(asked)?,
        Method::Other => return asked.method_not_allowed().await,
    }
    let mut server = FtpConnection::open(asked.session, &asked.target, &asked.location.login).await?;
    let after = match asked.method {
        Method::Put => upload::store(asked, &mut server, reader).await?,
        _ if asked.location.is_folder() => listing::list(asked, &mut server).await?,
        _ => download::fetch(asked, &mut server).await?,
    };
    server.quit().await;
    Ok(after)
}

/// Reports the failure, unless the response has already begun.
async fn fail(asked: FtpRequest<'_>, trouble: FtpFailure) -> Result<ClientConnection, EndReason> {
    let session = asked.session;
    let answer_has_begun = asked.log.borrow().status != 0;
    let told = match trouble {
        FtpFailure::Ended(end) => Err(FtpFailure::Ended(end)),
        _ if answer_has_begun => Err(FtpFailure::Ended(EndReason::ServerLost)),
        FtpFailure::Dial(error) => return Err(give_up(session, &error, &mut asked.log.into_inner()).await),
        FtpFailure::Said(response) => asked.explain(&response).await,
        FtpFailure::Refused(status, sentence) => asked.send_page(status, sentence, Headers::new()).await,
    };
    match told {
        Ok(after) => Ok(after),
        Err(trouble) => {
            // An incomplete response must not look complete, nor be followed by another.
            pump::abort(&session.client);
            let FtpFailure::Ended(end) = trouble else { return Err(EndReason::ServerLost) };
            Err(end)
        }
    }
}

impl FtpRequest<'_> {
    fn lane<'l>(&'l self, from: Endpoint<'l>, to: Endpoint<'l>, direction: Direction) -> BodyFlow<'l> {
        BodyFlow { from, to, direction, stats: &self.session.stats, pipes: self.session.context.pipes() }
    }

    /// Runs a transfer with the session's idle timeout.
    async fn with_idle_timeout<T>(&self, moving: impl Future<Output = Result<T, FtpFailure>>) -> Result<T, FtpFailure> {
        tokio::select! {
            biased;
            moved = moving => moved,
            () = pump::wait_idle(&self.session.stats, self.session.context.config.timeouts.idle) => {
                Err(FtpFailure::Ended(EndReason::Idle))
            }
        }
    }
}
