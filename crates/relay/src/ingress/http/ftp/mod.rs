//! `ftp://` URLs for HTTP clients (RFC 1738, 3.2; RFC 959, 2428 and 3659 toward the server).
//!
//! The client crate `suppaftp` implements the protocol; ekiden transfers the bytes. Control and data connections are
//! dialled like any other connection, with hops, access rules and timeouts, and the bytes of a data connection are
//! transferred by the pump.
//!
//! [`url`] parses the URL, [`connection`] is the control connection, [`download`], [`listing`] and [`upload`] are the
//! operations, and [`response`] writes the HTTP response.
//!
//! If the last hop is an HTTP proxy, the request for the URL is forwarded to it: few proxies permit CONNECT to port 21,
//! and none to the ports of data connections.
//!
//! Not supported: ranges, conditional requests, FTPS, and reuse of control connections for later requests.

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
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{BodyFraming, Headers, RequestHead, RequestTarget, Version};

use super::exchange::RequestLog;
use super::forward::{ClientConnection, forward, give_up, wait_client_gone};
use super::{is_persistent, send_error};
use crate::dial::DialError;
use crate::ingress::HandshakeReader;
use crate::path::PathChoice;
use crate::pump;
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
    keep_alive: bool,
}

/// The method of a request, as far as FTP supports it.
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
    /// The server replied with an error.
    Reply(suppaftp::types::Response),
    /// The relay refuses the request: the HTTP status, and the text of the page.
    Refused(u16, &'static str),
    /// The session has ended, and no response can be sent.
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
/// Why the session ended.
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
    let is_proxied = |path_choices: &Vec<PathChoice>| {
        path_choices.first().is_some_and(|path_choice| path_choice.path.http_hop().is_some())
    };
    if session.dial_context.paths(&target).as_ref().is_ok_and(is_proxied) {
        return forward(session, reader, Box::new(head)).await;
    }
    let log = RequestLog::of(session, head.method.clone(), location.redacted());
    let keep_alive = is_persistent(session, &head);
    let RequestHead { method, version, headers, body, .. } = head;
    let method = Method::read(&method);
    // Only PUT has a meaningful body (RFC 9110, 9.3.1); other bodies are not read.
    let keep_alive = keep_alive && (method == Method::Put || body == BodyFraming::Empty);
    let request =
        FtpRequest { session, log: RefCell::new(log), target, location, method, version, headers, body, keep_alive };
    let served = serve(&request, reader).await;
    // The session's duplicate of the socket would keep the server's section open until the client is gone.
    session.release_upstream();
    match served {
        Ok(connection) => {
            request.finish();
            Ok(connection)
        }
        Err(failure) => fail(request, failure).await,
    }
}

async fn serve(request: &FtpRequest<'_>, reader: &mut HandshakeReader<'_>) -> Result<ClientConnection, FtpFailure> {
    match request.method {
        Method::Get | Method::Head => {}
        Method::Put => upload::check(request)?,
        Method::Other => return request.method_not_allowed().await,
    }
    let mut server = FtpConnection::open(request.session, &request.target, &request.location.login).await?;
    let connection = match request.method {
        Method::Put => upload::store(request, &mut server, reader).await?,
        _ if request.location.is_folder() => listing::list(request, &mut server).await?,
        _ => download::fetch(request, &mut server).await?,
    };
    server.quit().await;
    Ok(connection)
}

/// Reports the failure, unless the response has already begun.
async fn fail(request: FtpRequest<'_>, failure: FtpFailure) -> Result<ClientConnection, EndReason> {
    let session = request.session;
    let has_begun = request.log.borrow().status != 0;
    let result = match failure {
        FtpFailure::Ended(end) => Err(FtpFailure::Ended(end)),
        _ if has_begun => Err(FtpFailure::Ended(EndReason::ServerLost)),
        FtpFailure::Dial(error) => return Err(give_up(session, &error, &mut request.log.into_inner()).await),
        FtpFailure::Reply(response) => request.explain(&response).await,
        FtpFailure::Refused(status, sentence) => request.send_page(status, sentence, Headers::new()).await,
    };
    match result {
        Ok(connection) => Ok(connection),
        Err(failure) => {
            // An incomplete response must not look complete, and no other response may follow it.
            pump::abort(&session.client);
            let FtpFailure::Ended(end) = failure else { return Err(EndReason::ServerLost) };
            Err(end)
        }
    }
}

impl FtpRequest<'_> {
    /// Runs a transfer until the client has gone, and with the session's idle timeout.
    async fn with_idle_timeout<T>(&self, moving: impl Future<Output = Result<T, FtpFailure>>) -> Result<T, FtpFailure> {
        tokio::select! {
            biased;
            moved = moving => moved,
            end = wait_client_gone(self.session) => Err(FtpFailure::Ended(end)),
            () = pump::wait_idle(&self.session.stats, self.session.context.config.timeouts.idle) => {
                Err(FtpFailure::Ended(EndReason::Idle))
            }
        }
    }
}
