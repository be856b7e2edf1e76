//! GET and HEAD of a file.
//!
//! If the server reports the length of the file, the response is framed by that length, and the client's connection
//! stays open. Otherwise the end of the connection is the end of the file, and only the server's last reply shows
//! whether the file is complete: after an error in that reply the client receives a reset.

use std::time::Duration;

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::{BodyFraming, Headers};
use suppaftp::Status;

use super::connection::{FtpConnection, Transfer, TransferCommand, socket};
use super::response::FtpResponse;
use super::url::TransferForm;
use super::{FtpFailure, FtpRequest, Method};
use crate::ingress::HandshakeReader;
use crate::ingress::http::body::{BodyCoding, BodyFlow};
use crate::ingress::http::forward::ClientConnection;
use crate::pump::{self, Endpoint};

/// Timeout of the server's last reply after all bytes of the file have arrived.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// Content types by file name extension; other files are `application/octet-stream`.
const CONTENT_TYPES: [(&str, &str); 32] = [
    ("avif", "image/avif"),
    ("bz2", "application/x-bzip2"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("patch", "text/plain"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("zip", "application/zip"),
];

/// Properties of a file, from the server.
struct FileInfo {
    size: Option<u64>,
    modified: Option<String>,
}

/// Sends the file, or a redirect if it is a directory.
pub async fn fetch(request: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    let result = if request.method == Method::Head { head(request, server).await } else { send(request, server).await };
    match result {
        Err(FtpFailure::Reply(response)) if response.status == Status::FileUnavailable => {
            match server.enter(&request.location.path).await {
                Ok(()) => request.redirect().await,
                // The path is not a directory either, so the reply about the file is reported.
                Err(FtpFailure::Reply(_)) => Err(FtpFailure::Reply(response)),
                Err(failure) => Err(failure),
            }
        }
        decided => decided,
    }
}

async fn send(request: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    let form = request.location.form;
    server.set_form(form).await?;
    let info = match file_info(request, server).await {
        // A server may refuse SIZE for a file that it sends.
        Err(FtpFailure::Reply(_) | FtpFailure::Refused(..)) => FileInfo { size: None, modified: None },
        result => result?,
    };
    let transfer = server.start_transfer(TransferCommand::Retrieve(&request.location.path)).await?;
    send_file(request, server, info, transfer).await
}

/// Sends the response with the bytes that arrive from the data connection.
async fn send_file(
    request: &FtpRequest<'_>,
    server: &mut FtpConnection<'_>,
    info: FileInfo,
    transfer: Transfer,
) -> Result<ClientConnection, FtpFailure> {
    let body = info.size.map_or(BodyFraming::UntilClose, BodyFraming::Length);
    let connection = request
        .with_idle_timeout(async {
            let data = socket(&transfer);
            let connection = request.begin(response(request, info, body)).await?;
            let session = request.session;
            let down = BodyFlow::new(session, Endpoint::plain(data), session.client_end(), Direction::Down);
            let result = down.relay(Vec::new(), &mut HandshakeReader::from_stream(data), body, BodyCoding::Plain).await;
            result.map_err(|broken| FtpFailure::Ended(pump::end_reason(&broken, Direction::Down)))?;
            Ok(connection)
        })
        .await?;
    match body {
        // All bytes have arrived, so the last reply does not matter.
        BodyFraming::Length(_) => drop(server.complete(transfer, COMPLETION_TIMEOUT).await),
        _ => server.complete(transfer, request.session.context.config.timeouts.connect).await?,
    }
    Ok(connection)
}

async fn head(request: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    // Some servers refuse SIZE in text mode, in which they convert line ends.
    server.set_form(TransferForm::Binary).await?;
    let info = match file_info(request, server).await {
        Err(FtpFailure::Reply(response)) if response.status != Status::FileUnavailable => {
            FileInfo { size: None, modified: None }
        }
        result => result?,
    };
    let body = info.size.map_or(BodyFraming::UntilClose, BodyFraming::Length);
    request.with_idle_timeout(request.begin(response(request, info, body))).await
}

async fn file_info(request: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<FileInfo, FtpFailure> {
    let path = &request.location.path;
    let is_text = request.location.form == TransferForm::Text;
    if is_text && request.method == Method::Get {
        return Ok(FileInfo { size: None, modified: None });
    }
    let size = server.size(path).await?;
    let modified = server.modified(path).await?;
    Ok(FileInfo { size: (!is_text).then_some(size), modified })
}

fn response(request: &FtpRequest<'_>, info: FileInfo, body: BodyFraming) -> FtpResponse {
    let mut headers = Headers::new();
    headers.push("Content-Type", content_type(&request.location.path));
    if let Some(date) = info.modified {
        headers.push("Last-Modified", date);
    }
    FtpResponse { status: 200, headers, body, keep_alive: request.keep_alive }
}

fn content_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default();
    let entry = CONTENT_TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    entry.map_or("application/octet-stream", |(_, content_type)| content_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_follows_the_file_extension() {
        for (path, expected) in [
            ("a.txt", "text/plain"),
            ("pub/A.HTML", "text/html"),
            ("a.tar.gz", "application/gzip"),
            ("a.unknown", "application/octet-stream"),
            ("dir.txt/file", "application/octet-stream"),
            ("txt", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), expected, "{path}");
        }
    }
}
