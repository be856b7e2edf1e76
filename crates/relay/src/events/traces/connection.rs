//! A connection to a collector, kept open between batches.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Host;
use ekiden_sys::transparent::set_mark;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use super::ExportSettings;
use super::otlp::rejected_spans;
use crate::config::Collector;

/// Timeout of one batch, which is the default of OpenTelemetry.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response body that is read, in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// The error of a batch that was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The collector did not answer, or the answer is invalid.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// The collector rejected the batch.
    #[error("responds with status {0}")]
    Rejected(hyper::StatusCode),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error.to_string())
    }
}

impl From<hyper::Error> for ExportError {
    fn from(error: hyper::Error) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// The HTTP connection to the collector.
pub struct CollectorConnection {
    settings: Arc<ExportSettings>,
    /// The connection of the previous batch, for reuse.
    idle: Option<SendRequest<Full<Bytes>>>,
}

impl CollectorConnection {
    /// Creates a connection that is opened on demand.
    pub fn new(settings: Arc<ExportSettings>) -> Self {
        Self { settings, idle: None }
    }

    /// Sends a batch and returns the number of rejected spans.
    ///
    /// # Errors
    /// The collector could not be reached, or it rejected the batch.
    pub async fn post(&mut self, body: Vec<u8>) -> Result<u64, ExportError> {
        match timeout(EXPORT_TIMEOUT, self.exchange(body.into())).await {
            Ok(result) => result,
            Err(_) => {
                self.idle = None;
                Err(ExportError::Unreachable(format!("no answer in {} s", EXPORT_TIMEOUT.as_secs())))
            }
        }
    }

    async fn exchange(&mut self, body: Bytes) -> Result<u64, ExportError> {
        let response = self.send_request(body).await?;
        let status = response.status();
        let response_body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
        if response_body.is_err() {
            // Otherwise the rest of the body would be read as the next response.
            self.idle = None;
        }
        if !status.is_success() {
            return Err(ExportError::Rejected(status));
        }
        Ok(response_body.map_or(0, |response_body| rejected_spans(&response_body.to_bytes())))
    }

    async fn send_request(&mut self, body: Bytes) -> Result<Response<Incoming>, ExportError> {
        if let Some(mut idle) = self.idle.take()
            && idle.ready().await.is_ok()
            && let Ok(response) = idle.send_request(self.request(body.clone())?).await
        {
            self.idle = Some(idle);
            return Ok(response);
        }
        // Connects again, because the collector may close an idle connection at any time.
        let (mut sender, connection) = handshake(TokioIo::new(self.connect().await?)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(self.request(body)?).await?;
        self.idle = Some(sender);
        Ok(response)
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, ExportError> {
        let Collector { address, path } = &self.settings.traces.collector;
        let request = Request::post(format!("{path}/v1/traces"))
            .header(HOST, address.to_string())
            .header(USER_AGENT, concat!("ekiden/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body));
        request.map_err(|error| ExportError::Unreachable(error.to_string()))
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let address = &self.settings.traces.collector.address;
        let addresses: Vec<SocketAddr> = match &address.host {
            Host::Ip(ip) => vec![SocketAddr::new(*ip, address.port)],
            Host::Name(name) => lookup_host((name.as_str(), address.port)).await?.collect(),
        };
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in addresses {
            match self.connect_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(mark) = self.settings.mark {
            set_mark(socket.as_fd(), mark)?;
        }
        socket.connect(address).await
    }
}
