//! Answers a client in its protocol: success, or the cause of a failure.

use std::io;
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
use crate::pump::{self, Endpoint, write_all};

/// Timeout for sending the last answer and for the client to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest number of bytes to read and discard before the close: more than a client in the middle of an upload has in
/// flight (`tcp_wmem` and `tcp_rmem` are 4 and 6 MiB at most by default), and few compared with an upload that does not
/// stop.
const MAX_DISCARDED: usize = 16 << 20;

/// The protocol in which the client is answered.
#[derive(Debug, Clone)]
pub enum Responder {
    /// The client expects no answer; a failure is a reset.
    Silent,
    /// An intercepted client: as `Silent`, but its bytes are held back until the target has answered.
    Caught,
    /// SOCKS4 and SOCKS4a replies.
    Socks4,
    /// SOCKS5 replies (RFC 1928).
    Socks5,
    /// HTTP CONNECT, RFC 9110, 9.3.6.
    Connect,
    /// A relay, which receives the answer to OPEN and may already have sent bytes of the session.
    Section(Rc<IncomingOpen>),
}

impl Responder {
    /// Whether the client sends nothing before it has received an answer.
    #[must_use]
    pub fn is_client_waiting(&self) -> bool {
        matches!(self, Self::Caught | Self::Socks4 | Self::Socks5 | Self::Connect)
    }

    /// Reports success. `server` is the section to the server, if the client may learn the local address of that
    /// section, and `times` is the setup time of each relay.
    ///
    /// # Errors
    /// The client's section has failed.
    pub async fn send_success(
        &self,
        client: Endpoint<'_>,
        server: Option<&TcpStream>,
        times: &[Duration],
    ) -> io::Result<()> {
        match self {
            Self::Silent | Self::Caught => Ok(()),
            Self::Socks4 => client.write_all(&socks4::reply(true)).await,
            Self::Socks5 => {
                let address = server.and_then(|server| server.local_addr().ok());
                client.write_all(&socks5::reply(socks5::Reply::Succeeded, address)).await
            }
            Self::Connect => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Self::Section(incoming_open) => client.write_all(&incoming_open.success_answer(times)).await,
        }
    }

    /// Reports success to a waiting client before the path is established. Returns the responder for a later failure,
    /// which is a reset.
    ///
    /// # Errors
    /// The client's section has failed.
    pub async fn send_early_success(self, client: Endpoint<'_>) -> Result<Self, EndReason> {
        if !self.is_client_waiting() {
            return Ok(self);
        }
        self.send_success(client, None, &[]).await.map_err(|_| EndReason::ResetByClient)?;
        Ok(Self::Silent)
    }

    /// Reports the cause of a failure and closes the connection. `names_hops` says whether the client may learn the
    /// names of hops.
    pub async fn send_failure(&self, client: Endpoint<'_>, error: &DialError, names_hops: bool) {
        let cause = error.cause_for_client();
        match self {
            Self::Silent | Self::Caught => pump::abort(client.stream),
            Self::Socks4 => send_and_close(client, &socks4::reply(false)).await,
            Self::Socks5 => send_and_close(client, &socks5::reply(cause.into(), None)).await,
            Self::Connect => send_and_close(client, &http::dial_error_response(error, names_hops)).await,
            Self::Section(incoming_open) => {
                send_and_close(client, &incoming_open.failure_answer(error.open_failure())).await
            }
        }
    }
}

/// Writes the last answer and closes the connection.
pub async fn send_and_close(client: Endpoint<'_>, bytes: &[u8]) {
    let close = async {
        if client.write_all(bytes).await.is_ok() {
            lingering_close(client).await;
        }
    };
    // A client that does not read in time loses the answer. Boxed, so that the futures of successful handshakes do not
    // reserve space for it.
    let _ = Box::pin(timeout(CLOSE_TIMEOUT, close)).await;
}

/// Closes the connection so that the bytes written before arrive: close(2) with unread bytes in the receive buffer
/// sends a reset, which may overtake them (RFC 9112, 9.6).
pub async fn lingering_close(client: Endpoint<'_>) {
    if let Some(tls) = client.framing.tls()
        && write_all(client.stream, &tls.end()).await.is_err()
    {
        return;
    }
    let client = client.stream;
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
