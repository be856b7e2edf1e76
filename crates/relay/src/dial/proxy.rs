//! Requests to proxies: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT (RFC 9110, 9.3.6). Reads the proxy's answer exactly to
//! its end, and no byte that the target has sent after the answer.

use std::io::{self, Read};

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::wire::http::{ResponseHead, connect};
use ekiden_proto::wire::{WireError, socks5};
use socket2::SockRef;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::config::{Credentials, Hop, HopKind};

/// Maximum length of the response head of a proxy to CONNECT, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// The refusal of a hop to connect.
pub struct HopRefusal {
    /// The cause that the hop reported, or the failure of the hop itself.
    pub cause: Cause,
    /// The explanation in the proxy's answer, if any.
    pub remark: Option<String>,
}

impl From<Cause> for HopRefusal {
    fn from(cause: Cause) -> Self {
        Self { cause, remark: None }
    }
}

/// Requests a connection to `next` from the proxy `hop` at the other end of `stream`.
///
/// # Errors
/// The cause for which the proxy did not connect.
pub async fn request_connect(stream: &mut TcpStream, hop: &Hop, next: &Target) -> Result<(), HopRefusal> {
    match &hop.kind {
        HopKind::Socks5(credentials) => Ok(connect_socks5(stream, credentials.as_ref(), next).await?),
        HopKind::Http(credentials) => connect_http(stream, credentials.as_ref(), next).await,
        HopKind::Section(_) | HopKind::Absent => unreachable!("invariant: a relay receives OPEN, not a proxy request"),
    }
}

fn io_cause(error: &io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Cause::HopProtocol,
        _ => Cause::Reset,
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), Cause> {
    stream.write_all(bytes).await.map_err(|error| io_cause(&error))
}

/// Reads until `bytes` is full. Does not use `AsyncRead`, which treats a short read as an empty socket, although a read
/// also ends at urgent data.
async fn read(stream: &TcpStream, bytes: &mut [u8]) -> Result<(), Cause> {
    let mut filled = 0;
    while filled < bytes.len() {
        let read = || (&*SockRef::from(stream)).read(&mut bytes[filled..]);
        match stream.async_io(Interest::READABLE, read).await {
            Ok(0) => return Err(Cause::HopProtocol),
            Ok(count) => filled += count,
            Err(error) => return Err(io_cause(&error)),
        }
    }
    Ok(())
}

async fn connect_socks5(stream: &mut TcpStream, credentials: Option<&Credentials>, next: &Target) -> Result<(), Cause> {
    write(stream, &socks5::greeting(credentials.is_some())).await?;
    let mut choice = [0; 2];
    read(stream, &mut choice).await?;
    let (method, _) = socks5::parse_method(&choice).map_err(|_| Cause::HopProtocol)?;
    match (method, credentials) {
        (Some(socks5::Method::NoAuth), _) => {}
        (Some(socks5::Method::UserPass), Some(credentials)) => authenticate(stream, credentials).await?,
        _ => return Err(Cause::DeniedByHop),
    }
    write(stream, &socks5::request(next)).await?;
    let mut reply_bytes = Vec::with_capacity(22);
    loop {
        let missing = socks5::reply_bytes_missing(&reply_bytes);
        if missing == 0 {
            break;
        }
        let length = reply_bytes.len();
        reply_bytes.resize(length + missing, 0);
        read(stream, &mut reply_bytes[length..]).await?;
    }
    let (reply, _) = socks5::parse_reply(&reply_bytes).map_err(|_| Cause::HopProtocol)?;
    reply.cause().map_or(Ok(()), Err)
}

async fn authenticate(stream: &mut TcpStream, credentials: &Credentials) -> Result<(), Cause> {
    // Credentials that are too long for the protocol cannot be valid at the proxy.
    let login = wire_credentials(credentials).write().map_err(|_| Cause::DeniedByHop)?;
    write(stream, &login).await?;
    let mut verdict = [0; 2];
    read(stream, &mut verdict).await?;
    match socks5::parse_credentials_reply(&verdict) {
        Ok((true, _)) => Ok(()),
        Ok((false, _)) => Err(Cause::DeniedByHop),
        Err(_) => Err(Cause::HopProtocol),
    }
}

fn wire_credentials(credentials: &Credentials) -> socks5::Credentials {
    socks5::Credentials {
        user: credentials.user.clone().into_bytes(),
        password: credentials.password.clone().into_bytes(),
    }
}

async fn connect_http(
    stream: &mut TcpStream,
    credentials: Option<&Credentials>,
    next: &Target,
) -> Result<(), HopRefusal> {
    let credentials = credentials.map(wire_credentials);
    write(stream, &connect::connect_request(next, credentials.as_ref())).await?;
    let mut head = Vec::new();
    loop {
        read_head(stream, &mut head).await?;
        match ResponseHead::parse(&head, MAX_HEAD, "CONNECT") {
            Ok((response, _)) if (200..300).contains(&response.status) => return Ok(()),
            Ok((response, _)) if (100..200).contains(&response.status) => head.clear(),
            Ok((response, _)) => return Err(http_refusal(&response)),
            Err(WireError::Incomplete) => {}
            Err(_) => return Err(Cause::HopProtocol.into()),
        }
    }
}

/// Returns the cause for which an HTTP proxy did not connect. The text of the response is kept for statuses that are
/// not specific.
fn http_refusal(response: &ResponseHead) -> HopRefusal {
    let cause = connect::cause_of(response.status, &response.headers);
    let details = connect::refusal_details(&response.headers).filter(|_| cause == Cause::HopFailed);
    HopRefusal { cause, remark: details.map(|details| format!("could not connect: {details}")) }
}

/// Appends to `head` the bytes up to and including the next blank line. Later bytes stay in the socket: the server may
/// send first.
async fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> Result<(), Cause> {
    let mut buffer = [0; 2048];
    let peeked = stream.peek(&mut buffer).await.map_err(|error| io_cause(&error))?;
    if peeked == 0 {
        return Err(if head.is_empty() { Cause::Reset } else { Cause::HopProtocol });
    }
    let length = connect::append_head(head, &buffer[..peeked]);
    read(stream, &mut buffer[..length]).await
}
