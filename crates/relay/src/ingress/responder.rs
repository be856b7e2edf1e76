//! How a client is told whether its target was reached.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ekiden_proto::event::EndReason;
use ekiden_proto::wire::{socks4, socks5};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::http;
use super::section::IncomingOpen;
use crate::dial::DialError;
use crate::pump;

/// How long a client has to take our last words.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Most bytes that are read and thrown away meanwhile.
const MAX_DISCARDED: usize = 256 * 1024;

/// The client's own words for success and failure.
#[derive(Debug, Clone)]
pub enum Responder {
    /// It expects nothing: a failure is a reset.
    Silent,
    /// The same, and nothing of it goes on before the target has answered.
    Caught,
    /// SOCKS4 and 4a.
    Socks4,
    /// SOCKS5, RFC 1928.
    Socks5,
    /// HTTP CONNECT, RFC 9110, 9.3.6.
    Connect,
    /// A relay: it gets an answer, and may have sent what follows already.
    Section(Rc<IncomingOpen>),
}

impl Responder {
    /// Whether nothing of the client goes on before it has been told.
    #[must_use]
    pub fn is_client_waiting(&self) -> bool {
        matches!(self, Self::Caught | Self::Socks4 | Self::Socks5 | Self::Connect)
    }

    /// Tells the client that the path stands; `bound` is our end of it, `times` what the relays on it took.
    ///
    /// # Errors
    /// The client's section is broken.
    pub async fn send_success(
        &self,
        client: &TcpStream,
        bound: Option<SocketAddr>,
        times: &[Duration],
    ) -> io::Result<()> {
        match self {
            Self::Silent | Self::Caught => Ok(()),
            Self::Socks4 => write_all(client, &socks4::reply(true)).await,
            Self::Socks5 => write_all(client, &socks5::reply(socks5::Reply::Succeeded, bound)).await,
            Self::Connect => write_all(client, b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Self::Section(incoming_open) => write_all(client, &incoming_open.success_answer(times)).await,
        }
    }

    /// Tells a client that waits that the path stands, before that is known: from then on a failure is a reset.
    ///
    /// # Errors
    /// The client's section is broken.
    pub async fn send_early_success(self, client: &TcpStream) -> Result<Self, EndReason> {
        if !self.is_client_waiting() {
            return Ok(self);
        }
        self.send_success(client, None, &[]).await.map_err(|_| EndReason::ResetByClient)?;
        Ok(Self::Silent)
    }

    /// Sends the client the cause, with the names of hops where the client may know them, and closes.
    pub async fn send_failure(&self, client: &TcpStream, error: &DialError, names_hops: bool) {
        let cause = error.cause_for_client();
        match self {
            Self::Silent | Self::Caught => pump::abort(client),
            Self::Socks4 => send_and_close(client, &socks4::reply(false)).await,
            Self::Socks5 => send_and_close(client, &socks5::reply(cause.into(), None)).await,
            Self::Connect => send_and_close(client, &http::dial_error_response(error, names_hops)).await,
            Self::Section(incoming_open) => {
                send_and_close(client, &incoming_open.failure_answer(error.open_failure())).await
            }
        }
    }
}

/// Writes through a shared reference, as a session holds its sockets.
///
/// # Errors
/// The socket's.
pub async fn write_all(stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes an answer after which there is nothing more to say.
pub async fn send_and_close(client: &TcpStream, bytes: &[u8]) {
    let goodbye = async {
        if write_all(client, bytes).await.is_ok() {
            lingering_close(client).await;
        }
    };
    // A client that does not take them goes without.
    let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
}

/// Closes so that what was written arrives: closing with unread bytes in the receive buffer would send a reset, and
/// that may overtake them (RFC 9112, 9.6).
pub async fn lingering_close(client: &TcpStream) {
    let _ = SockRef::from(client).shutdown(std::net::Shutdown::Write);
    let mut discarded = 0;
    let mut bytes = vec![0; 8192];
    let drain = async {
        while discarded < MAX_DISCARDED && client.readable().await.is_ok() {
            match client.try_read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => discarded += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, drain).await;
}
