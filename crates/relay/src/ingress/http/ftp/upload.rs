//! PUT of a file.
//!
//! In FTP the end of the data connection is the end of the file, so a client that is lost during the upload would leave
//! a partial file that looks complete. Therefore the data connection ends with a reset until the whole body has been
//! written to it.

use std::io;

use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{BodyFraming, Headers, Version, rewrite};
use socket2::SockRef;

use super::connection::{FtpConnection, TransferCommand, socket};
use super::response::FtpResponse;
use super::{FtpFailure, FtpRequest};
use crate::ingress::HandshakeReader;
use crate::ingress::http::body::{BodyCoding, BodyFlow};
use crate::ingress::http::forward::ClientConnection;
use crate::pump::{self, Endpoint, FlowError};

/// Rejects requests that can be answered without the FTP server.
pub fn check(request: &FtpRequest<'_>) -> Result<(), FtpFailure> {
    if request.location.is_folder() {
        return Err(FtpFailure::Refused(409, "A directory cannot be uploaded."));
    }
    // "An origin server SHOULD respond with a 400" (RFC 9110, 14.5): the rest of the file would be lost.
    if request.headers.get("Content-Range").is_some() {
        return Err(FtpFailure::Refused(400, "Content-Range is not supported: upload the whole file."));
    }
    Ok(())
}

/// Stores the request's body as a file.
pub async fn store(
    request: &FtpRequest<'_>,
    server: &mut FtpConnection<'_>,
    reader: &mut HandshakeReader<'_>,
) -> Result<ClientConnection, FtpFailure> {
    server.set_form(request.location.form).await?;
    let transfer = server.start_transfer(TransferCommand::Store(&request.location.path)).await?;
    let data = socket(&transfer);
    pump::abort(data);
    let timeouts = &request.session.context.config.timeouts;
    let result = request
        .with_idle_timeout(async {
            send_continue(request).await?;
            let session = request.session;
            let up = BodyFlow::new(session, session.client_end(), Endpoint::plain(data), Direction::Up);
            Ok(up.relay(Vec::new(), reader, request.body, BodyCoding::Plain).await)
        })
        .await?;
    match result {
        Ok(()) => {}
        Err(FlowError::Writing(_)) => {
            // The server has closed the data connection, and reports the reason in its reply.
            server.complete(transfer, timeouts.connect).await?;
            return Err(FtpFailure::Refused(502, "The server closed the data connection too early."));
        }
        Err(broken) => return Err(body_error(&broken)),
    }
    // If this fails, the upload ends with a reset, and the server reports an error.
    let _ = SockRef::from(data).set_linger(None);
    // The server replies after all bytes in flight have arrived, so the timeout of the reply is the idle timeout of the
    // upload.
    server.complete(transfer, timeouts.idle).await?;
    let response = FtpResponse {
        status: 201,
        headers: Headers::new(),
        body: BodyFraming::Length(0),
        keep_alive: request.keep_alive,
    };
    request.with_idle_timeout(request.begin(response)).await
}

/// Sends 100 Continue to a client that waits for it (RFC 9110, 10.1.1).
async fn send_continue(request: &FtpRequest<'_>) -> Result<(), FtpFailure> {
    let waits = request.version == Version::Http11 && request.body != BodyFraming::Empty;
    if waits && rewrite::expects_continue(&request.headers) {
        request.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    Ok(())
}

fn body_error(broken: &FlowError) -> FtpFailure {
    match broken {
        FlowError::Reading(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            FtpFailure::Refused(400, "The request body ended early.")
        }
        FlowError::Reading(error) if error.kind() == io::ErrorKind::InvalidData => {
            FtpFailure::Ended(EndReason::BadHandshake("malformed chunked body"))
        }
        _ => FtpFailure::Ended(pump::end_reason(broken, Direction::Up)),
    }
}
