//! GET and HEAD of a file.
//!
//! A file whose length the server tells is framed by it and leaves the client's connection open. Without a length the
//! end of the connection is the end of the file, and only the server's last reply tells a whole file from a part of it:
//! if that reply is not good, the client gets a reset instead of an end.

use std::time::Duration;

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::{BodyFraming, Headers};
use suppaftp::Status;

use super::connection::{FtpConnection, Transfer, TransferCommand, socket};
use super::response::FtpResponse;
use super::url::TransferForm;
use super::{FtpFailure, FtpRequest, Method};
use crate::ingress::HandshakeReader;
use crate::ingress::http::body::BodyCoding;
use crate::ingress::http::forward::ClientConnection;
use crate::pump::{self, Endpoint};

/// How long the server may think about a file that has arrived in full.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);

/// Content types by the end of the name; everything else is bytes.
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
pub async fn fetch(asked: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    let found = if asked.method == Method::Head { head(asked, server).await } else { send(asked, server).await };
    match found {
        Err(FtpFailure::Said(response)) if response.status == Status::FileUnavailable => {
            match server.enter(&asked.location.path).await {
                Ok(()) => asked.redirect().await,
                // The path is no directory either, so the reply about the file counts.
                Err(FtpFailure::Said(_)) => Err(FtpFailure::Said(response)),
                Err(trouble) => Err(trouble),
            }
        }
        decided => decided,
    }
}

async fn send(asked: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    let form = asked.location.form;
    server.set_form(form).await?;
    let facts = match file_info(asked, server).await {
        // A server may refuse SIZE for a file that it sends.
        Err(FtpFailure::Said(_) | FtpFailure::Refused(..)) => FileInfo { size: None, modified: None },
        other => other?,
    };
    let transfer = server.start_transfer(TransferCommand::Retrieve(&asked.location.path)).await?;
    carry(asked, server, facts, transfer).await
}

async fn carry(
    asked: &FtpRequest<'_>,
    server: &mut FtpConnection<'_>,
    facts: FileInfo,
    transfer: Transfer,
) -> Result<ClientConnection, FtpFailure> {
    let body = facts.size.map_or(BodyFraming::UntilClose, BodyFraming::Length);
    let after = asked
        .with_idle_timeout(async {
            let data = socket(&transfer);
            let after = asked.begin(response(asked, facts, body)).await?;
            let down = asked.lane(Endpoint::plain(data), asked.session.client_end(), Direction::Down);
            let carried =
                down.relay(Vec::new(), &mut HandshakeReader::from_stream(data), body, BodyCoding::Plain).await;
            carried.map_err(|broken| FtpFailure::Ended(pump::end_reason(&broken, Direction::Down)))?;
            Ok(after)
        })
        .await?;
    match body {
        // All bytes have arrived, so the last reply does not matter.
        BodyFraming::Length(_) => drop(server.complete(transfer, COMPLETION_TIMEOUT).await),
        _ => server.complete(transfer, asked.session.context.config.timeouts.connect).await?,
    }
    Ok(after)
}

async fn head(asked: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    // Some servers tell no size while they are to change line ends.
    server.set_form(TransferForm::Binary).await?;
    let facts = match file_info(asked, server).await {
        Err(FtpFailure::Said(response)) if response.status != Status::FileUnavailable => {
            FileInfo { size: None, modified: None }
        }
        other => other?,
    };
    let body = facts.size.map_or(BodyFraming::UntilClose, BodyFraming::Length);
    asked.with_idle_timeout(asked.begin(response(asked, facts, body))).await
}

async fn file_info(asked: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<FileInfo, FtpFailure> {
    let path = &asked.location.path;
    let is_text = asked.location.form == TransferForm::Text;
    if is_text && asked.method == Method::Get {
        return Ok(FileInfo { size: None, modified: None });
    }
    let size = server.size(path).await?;
    let modified = server.modified(path).await?;
    Ok(FileInfo { size: (!is_text).then_some(size), modified })
}

fn response(asked: &FtpRequest<'_>, facts: FileInfo, body: BodyFraming) -> FtpResponse {
    let mut headers = Headers::new();
    headers.push("Content-Type", content_type(&asked.location.path));
    if let Some(date) = facts.modified {
        headers.push("Last-Modified", date);
    }
    FtpResponse { status: 200, headers, body, stays: asked.stays }
}

fn content_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default();
    let known = CONTENT_TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    known.map_or("application/octet-stream", |(_, content_type)| content_type)
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
