//! One download over one path: arrival times of its bytes, and losses.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::Host;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::http::auth::write_basic;
use ekiden_proto::wire::http::{BodyFraming, ResponseHead};
use ekiden_sys::tcp_info::tcp_counters;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::connect::{self, ProbeConnection, ProbeContext};
use super::target::FileUrl;
use super::{ProbeBudget, ProbeTarget};
use crate::config::{Credentials, Hop, HopKind};
use crate::path::PathChoice;

/// Maximum length of the head of a response, in bytes.
const MAX_HEAD: usize = 64 * 1024;

const READ_SIZE: usize = 64 * 1024;

/// Timeout for the head of the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the server's close after a complete response.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum number of bytes of a download for a meaningful rate.
const MIN_RATE_BYTES: u64 = 256 << 10;

/// The measurements of one download.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Download {
    /// Time from the client's request to the first byte of the response.
    pub first_byte: Duration,
    /// Bytes received and the time of each read, up to the end of the download. Times count from the client's request.
    pub progress: Vec<(u64, Duration)>,
    /// Whether the download reached the end of the file.
    pub is_complete: bool,
    /// Number of segments received on the first section.
    pub segments: u64,
    /// Number of times that a segment was missing among these.
    pub gaps: u64,
    /// Sessions that the first section has carried before; `None` if the section ends with this session.
    pub earlier_sessions: Option<u32>,
}

/// The completion time of an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletionTime {
    /// Time from the client's request to the last byte.
    pub time: Duration,
    /// Whether the download ended earlier, and the time is extrapolated at the measured rate.
    pub is_extrapolated: bool,
}

impl Download {
    /// Returns bytes and duration of the second half, which excludes most of slow start; `None` if the download was too
    /// short.
    pub(super) fn second_half(&self) -> Option<(u64, Duration)> {
        let (bytes, end) = *self.progress.last()?;
        let took = end.saturating_sub(self.time_at(bytes / 2)?);
        (bytes >= MIN_RATE_BYTES && !took.is_zero()).then_some((bytes - bytes / 2, took))
    }

    /// Returns when `size` bytes had arrived, or would have arrived at `rate` if the download had not been stopped.
    pub(super) fn completion_time(&self, size: u64, rate: Option<f64>) -> Option<CompletionTime> {
        if let Some(time) = self.time_at(size) {
            return Some(CompletionTime { time, is_extrapolated: false });
        }
        let (bytes, end) = *self.progress.last()?;
        let rest = size.saturating_sub(bytes) as f64 / rate.filter(|_| !self.is_complete)?;
        Some(CompletionTime { time: end + Duration::from_secs_f64(rest), is_extrapolated: true })
    }

    /// Returns when `size` bytes had arrived, interpolated linearly between two reads.
    pub(super) fn time_at(&self, size: u64) -> Option<Duration> {
        let at = self.progress.iter().position(|(bytes, _)| *bytes >= size)?;
        let (bytes, time) = self.progress[at];
        let (before, time_before) = at.checked_sub(1).map_or((0, self.first_byte), |before| self.progress[before]);
        let part = (size - before) as f64 / (bytes - before).max(1) as f64;
        Some(time_before + time.saturating_sub(time_before).mul_f64(part.clamp(0.0, 1.0)))
    }
}

/// Downloads until `effort` is spent, the file ends, or an error occurs.
///
/// # Errors
/// The error, and its remedy.
pub async fn download_once(
    context: &ProbeContext<'_>,
    path_choice: &PathChoice,
    probe_target: &ProbeTarget,
    effort: ProbeBudget,
) -> Result<Download, String> {
    download(context, path_choice, probe_target, effort, false).await
}

/// Downloads at most the first `effort.bytes` bytes of the file, and closes the connection in order. If the server does
/// not support range requests, the connection is aborted instead.
///
/// # Errors
/// The error, and its remedy.
pub async fn fetch_beginning(
    context: &ProbeContext<'_>,
    path_choice: &PathChoice,
    probe_target: &ProbeTarget,
    effort: ProbeBudget,
) -> Result<Download, String> {
    download(context, path_choice, probe_target, effort, true).await
}

async fn download(
    context: &ProbeContext<'_>,
    path_choice: &PathChoice,
    probe_target: &ProbeTarget,
    effort: ProbeBudget,
    is_part: bool,
) -> Result<Download, String> {
    let url = probe_target.url.as_ref().expect("invariant: the target is a URL");
    let connection = connect::open(context, path_choice, probe_target).await;
    let ProbeConnection { stream, section, started_at: session_start, earlier_sessions, .. } =
        connection.map_err(|error| super::verdict::describe(&error))?;
    let task = DownloadTask {
        section: section.as_fd(),
        started_at: session_start,
        budget: effort,
        is_part,
        url,
        proxy: probe_target.http_proxy(path_choice),
    };
    let download = if url.tls {
        let name = match &probe_target.target.host {
            Host::Ip(ip) => Ok(ServerName::from(*ip)),
            Host::Name(name) => ServerName::try_from(name.clone()),
        };
        let name = name.map_err(|_| "the server's name cannot occur in a certificate".to_owned())?;
        let secured = timeout(RESPONSE_TIMEOUT, tls_connector().connect(name, stream)).await;
        let secured = secured.map_err(|_| "the server did not answer the TLS handshake in time".to_owned())?;
        task.fetch(secured.map_err(|error| format!("no TLS: {error}"))?).await?
    } else {
        task.fetch(stream).await?
    };
    Ok(Download { earlier_sessions, ..download })
}

/// Returns a connector that trusts the system's root certificates.
fn tls_connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    // Unreadable certificates are missing from the list; with an empty list the handshake fails.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("invariant: ring has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

struct DownloadTask<'a> {
    section: BorrowedFd<'a>,
    started_at: Instant,
    budget: ProbeBudget,
    /// Whether the request is for a byte range within the budget.
    is_part: bool,
    url: &'a FileUrl,
    /// The proxy that receives the request for the file instead of the server.
    proxy: Option<&'a Hop>,
}

impl DownloadTask<'_> {
    async fn fetch(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Download, String> {
        let broken = |error: std::io::Error| format!("the connection broke: {error}");
        stream.write_all(self.request().as_bytes()).await.map_err(broken)?;
        let mut bytes = Vec::with_capacity(READ_SIZE);
        let head = timeout(RESPONSE_TIMEOUT, read_head(&mut stream, &mut bytes)).await;
        let (head, head_length) = head.map_err(|_| "the server did not answer in time".to_owned())??;
        let first_byte = self.started_at.elapsed();
        let length = body_length(&head, self.is_part)?;
        let most = length.unwrap_or(u64::MAX).min(self.budget.bytes);
        let mut download = Download { first_byte, ..Download::default() };
        let mut count = (bytes.len() - head_length) as u64;
        let mut last = self.record_progress(&mut download, count, 0);
        let end = tokio::time::Instant::now() + self.budget.time.saturating_sub(first_byte.min(self.budget.time / 2));
        bytes.resize(READ_SIZE, 0);
        while count < most {
            match tokio::time::timeout_at(end, stream.read(&mut bytes)).await {
                // The end of the time budget is no failure.
                Err(_) => break,
                Ok(Ok(0)) => {
                    download.is_complete = true;
                    break;
                }
                Ok(Ok(more)) => count += more as u64,
                // Not every server sends a TLS close_notify.
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
                Ok(Err(error)) if download.progress.len() < 2 => return Err(broken(error)),
                Ok(Err(_)) => break,
            }
            last = self.record_progress(&mut download, count, last);
        }
        download.is_complete |= length == Some(count);
        if self.is_part && download.is_complete {
            read_to_end(&mut stream).await;
        }
        Ok(download)
    }

    /// Records the progress, and whether the number of out-of-order segments has grown since `last`. Returns the new
    /// number.
    fn record_progress(&self, download: &mut Download, count: u64, last: u32) -> u32 {
        download.progress.push((count, self.started_at.elapsed()));
        let Ok(now) = tcp_counters(self.section) else { return last };
        download.gaps += u64::from(now.out_of_order > last);
        download.segments = u64::from(now.segments_received);
        now.out_of_order
    }

    fn request(&self) -> String {
        let FileUrl { authority, path, .. } = self.url;
        let (mut request_target, mut login) = (path.clone(), String::new());
        let range = self.is_part.then(|| format!("Range: bytes=0-{}\r\n", self.budget.bytes.saturating_sub(1)));
        let range = range.unwrap_or_default();
        if let Some(proxy) = self.proxy {
            request_target = format!("http://{authority}{path}");
            if let HopKind::Http(Some(Credentials { user, password })) = &proxy.kind {
                let value = write_basic(user.as_bytes(), password.as_bytes());
                login = format!("Proxy-Authorization: {value}\r\n");
            }
        }
        format!(
            "GET {request_target} HTTP/1.1\r\nHost: {authority}\r\n{login}User-Agent: ekiden-probe/{}\r\nAccept: */*\r\n\
             {range}Accept-Encoding: identity\r\nConnection: close\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// Waits for the end of the server's stream, so that closing the socket sends no reset: after a reset the section
/// cannot carry another session. No TLS close_notify is sent, because a server that has closed answers data with a
/// reset.
async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) {
    // If the server does not close in time, this side closes first.
    let _ = timeout(END_TIMEOUT, tokio::io::copy(stream, &mut tokio::io::sink())).await;
}

/// Reads to the end of the head of the final response. Returns the head, and its length in `bytes`.
async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
) -> Result<(ResponseHead, usize), String> {
    loop {
        match ResponseHead::parse(bytes, MAX_HEAD, "GET") {
            Ok((head, used)) if (100..200).contains(&head.status) => {
                bytes.drain(..used);
                continue;
            }
            Ok(done) => return Ok(done),
            Err(WireError::Incomplete) => {}
            Err(_) => return Err("the server's answer is not HTTP/1.1: check the port".to_owned()),
        }
        let read = stream.read_buf(bytes).await.map_err(|error| format!("the connection broke: {error}"))?;
        if read == 0 {
            return Err("the server closed the connection without an answer".to_owned());
        }
    }
}

/// Returns the length of the file or of the requested range; `None` if the server does not state it.
fn body_length(head: &ResponseHead, is_part: bool) -> Result<Option<u64>, String> {
    let ResponseHead { status, reason, headers, body, .. } = head;
    match (status, body) {
        (206, BodyFraming::Length(length)) if is_part => Ok(Some(*length)),
        (200 | 203, BodyFraming::Length(length)) => Ok(Some(*length)),
        (200 | 203, BodyFraming::Chunked | BodyFraming::UntilClose) => Ok(None),
        (300..400, _) => {
            let location = headers.get("Location").map(String::from_utf8_lossy).unwrap_or_default();
            Err(format!("the server answers {status} and redirects to {location:?}: probe that URL instead"))
        }
        _ => Err(format!("the server answers {status} {reason}: name a file that requires no login")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a download with these numbers of bytes and milliseconds. `is_complete` says whether the file has ended.
    pub(in crate::probe) fn with_progress(progress: &[(u64, u64)], is_complete: bool) -> Download {
        let progress = progress.iter().map(|(bytes, ms)| (*bytes, Duration::from_millis(*ms))).collect();
        Download { first_byte: Duration::from_millis(100), progress, is_complete, ..Download::default() }
    }

    #[test]
    fn download_progress_yields_times_and_rate() {
        let half = 512 << 10;
        let download = with_progress(&[(0, 100), (half, 1100), (2 * half, 1600)], false);
        assert_eq!(download.second_half(), Some((half, Duration::from_millis(500))));
        assert_eq!(download.time_at(half / 2), Some(Duration::from_millis(600)));
        let later = download.completion_time(4 * half, Some(2.0 * half as f64)).unwrap();
        assert!(later.is_extrapolated && later.time == Duration::from_millis(2600), "{later:?}");
    }

    #[test]
    fn small_file_has_no_rate_and_no_extrapolation() {
        let small = with_progress(&[(20_000, 150)], true);
        assert_eq!((small.second_half(), small.completion_time(100_000, Some(1e6))), (None, None));
        assert!(small.completion_time(10_000, None).is_some_and(|time| !time.is_extrapolated));
    }
}
