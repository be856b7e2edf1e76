//! HTTP responses: heads, short pages of text, and the HTTP status for an FTP reply.

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::{BodyFraming, Headers, Version, rewrite};
use suppaftp::Status;
use suppaftp::types::Response;

use super::{FtpFailure, FtpRequest, Method};
use crate::ingress::http::body::BodyFlow;
use crate::ingress::http::forward::ClientConnection;
use crate::pump;

/// Longest quotation of an FTP reply on a page, in characters.
const MAX_QUOTE: usize = 500;

/// The head of a response.
pub struct FtpResponse {
    /// The HTTP status of the response.
    pub status: u16,
    /// Header fields, without framing and connection.
    pub headers: Headers,
    /// The body, unless only the head was requested.
    pub body: BodyFraming,
    /// Whether the request permits the client's connection to stay open.
    pub keep_alive: bool,
}

impl FtpRequest<'_> {
    /// Writes the head of a response. Returns the state of the client's connection after the body.
    pub async fn begin(&self, response: FtpResponse) -> Result<ClientConnection, FtpFailure> {
        let FtpResponse { status, mut headers, body, keep_alive } = response;
        rewrite::set_framing(&mut headers, body);
        // The relay may have begun to drain since the request arrived.
        let keep_alive = keep_alive && !self.session.context.thread.drain_state.is_draining();
        let keep_alive = keep_alive && (body != BodyFraming::UntilClose || self.method == Method::Head);
        if !keep_alive {
            headers.push("Connection", "close");
        } else if self.version == Version::Http10 {
            headers.push("Connection", "keep-alive");
        }
        if body == BodyFraming::UntilClose {
            // Until [`FtpRequest::finish`] the client receives a reset if this relay is killed.
            pump::abort(&self.session.client);
        }
        self.log.borrow_mut().status = status;
        self.write(&rewrite::write_response(status, reason(status), &headers)).await?;
        Ok(if keep_alive { ClientConnection::Next } else { ClientConnection::Close })
    }

    /// Marks the body as complete: from now on the connection closes without a reset.
    pub fn finish(&self) {
        pump::cancel_abort(&self.session.client);
    }

    /// Writes bytes to the client.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), FtpFailure> {
        let client = self.session.client_end();
        let result = BodyFlow::new(self.session, client, client, Direction::Down).write(bytes).await;
        result.map_err(|broken| FtpFailure::Ended(pump::end_reason(&broken, Direction::Down)))
    }

    /// Responds with a page of one sentence.
    pub async fn send_page(
        &self,
        status: u16,
        sentence: &str,
        mut headers: Headers,
    ) -> Result<ClientConnection, FtpFailure> {
        let text = format!("{sentence}\n");
        headers.push("Content-Type", "text/plain; charset=utf-8");
        headers.push("X-Content-Type-Options", "nosniff");
        headers.push("Cache-Control", "no-store");
        // After a failed upload an unknown number of body bytes remains unread.
        let keep_alive = self.keep_alive && self.method != Method::Put;
        let body = BodyFraming::Length(text.len() as u64);
        self.with_idle_timeout(async {
            let connection = self.begin(FtpResponse { status, headers, body, keep_alive }).await?;
            if self.method != Method::Head {
                self.write(text.as_bytes()).await?;
            }
            Ok(connection)
        })
        .await
    }

    /// Responds with the meaning of an FTP reply.
    pub async fn explain(&self, response: &Response) -> Result<ClientConnection, FtpFailure> {
        let status = http_status(response.status, self.method);
        let mut headers = Headers::new();
        if status == 401 {
            headers.push("WWW-Authenticate", format!("Basic realm=\"{}\"", self.location.realm()));
        }
        let words = String::from_utf8_lossy(&response.body);
        let words = words.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        let quote: String = words.take(MAX_QUOTE).collect();
        self.send_page(status, &format!("The FTP server says: {quote}"), headers).await
    }

    /// Redirects to the URL with a trailing slash, so that relative links lead into the directory.
    pub async fn redirect(&self) -> Result<ClientConnection, FtpFailure> {
        let mut headers = Headers::new();
        headers.push("Location", self.location.with_slash());
        self.send_page(301, "This is a directory.", headers).await
    }

    /// Responds to an unsupported method.
    pub async fn method_not_allowed(&self) -> Result<ClientConnection, FtpFailure> {
        let mut headers = Headers::new();
        headers.push("Allow", "GET, HEAD, PUT");
        self.send_page(405, "Only GET, HEAD and PUT are allowed for ftp URLs.", headers).await
    }
}

/// Returns the HTTP status for an FTP reply (RFC 959, 4.2.2).
fn http_status(status: Status, method: Method) -> u16 {
    match status {
        Status::NotLoggedIn | Status::InvalidCredentials | Status::LoginNeedAccount | Status::StoringNeedAccount => 401,
        // A file to upload need not exist, so "550" means that the upload is forbidden.
        Status::FileUnavailable if method == Method::Put => 403,
        Status::FileUnavailable => 404,
        Status::BadFilename => 403,
        Status::ExceededStorage | Status::RequestedActionNotTaken => 507,
        Status::ReadyMinute | Status::NotAvailable | Status::HostUnavailable | Status::RequestFileActionIgnored => 503,
        _ => 502,
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        301 => "Moved Permanently",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        _ => "Bad Gateway",
    }
}
