//! HTTP/1.1 to one etcd server. Every wait has a deadline: a stopped server accepts connections but does not answer.

use std::future::Future;
use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::error::EtcdError;
use super::messages::{WatchResponse, parse_stream_line};

/// Timeout of one request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest response and largest line of a watch, in bytes. Any writer to etcd may store up to 1.5 MiB at each key.
const MAX_RESPONSE: usize = 32 << 20;

/// Unanswered keepalive probes after which a connection without traffic is dead.
const KEEPALIVE_PROBES: u32 = 2;

/// Connections to one server: one for requests, and one for each stream.
pub struct EtcdConnection {
    /// Host and port of the server, as in a URL.
    authority: String,
    /// The connection of the last request.
    idle: Option<SendRequest<Full<Bytes>>>,
}

/// A response with its complete body.
pub struct EtcdReply {
    pub status: StatusCode,
    pub body: Bytes,
}

impl EtcdConnection {
    /// Returns a client of the server at `url`. Connections are opened on demand.
    pub fn new(url: &str) -> Self {
        let authority = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { authority, idle: None }
    }

    /// Sends a POST request and reads the response.
    pub async fn post(&mut self, path: &str, body: &str, token: Option<&str>) -> Result<EtcdReply, EtcdError> {
        self.exchange(self.request(Method::POST, path, body, token)?).await
    }

    /// Sends a GET request and reads the response.
    pub async fn get(&mut self, path: &str) -> Result<EtcdReply, EtcdError> {
        self.exchange(self.request(Method::GET, path, "", None)?).await
    }

    /// Sends a POST request on a separate connection, for a response that does not end.
    pub async fn stream(&self, path: &str, body: &str, token: Option<&str>) -> Result<WatchStream, EtcdError> {
        let request = self.request(Method::POST, path, body, token)?;
        let response = with_timeout(async {
            let mut sender = connect(&self.authority).await?;
            sender.send_request(request).await.map_err(EtcdError::unavailable)
        });
        let response = response.await?;
        if response.status().is_success() {
            return Ok(WatchStream { body: response.into_body(), buffer: Vec::new(), searched: 0 });
        }
        let EtcdReply { status, body } = with_timeout(read_response(response)).await?;
        Err(EtcdError::from_response(status, &body))
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<EtcdReply, EtcdError> {
        with_timeout(async {
            let mut sender = match self.ready_connection().await {
                Some(sender) => sender,
                None => connect(&self.authority).await?,
            };
            let response = sender.send_request(request).await.map_err(EtcdError::unavailable)?;
            let reply = read_response(response).await?;
            // Only after a complete response can the connection be used again: the next bytes belong to the next
            // response.
            self.idle = Some(sender);
            Ok(reply)
        })
        .await
    }

    async fn ready_connection(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut sender = self.idle.take()?;
        sender.ready().await.is_ok().then_some(sender)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: &str,
        token: Option<&str>,
    ) -> Result<Request<Full<Bytes>>, EtcdError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("ekiden/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).map_err(EtcdError::unavailable)
    }
}

/// Waits for `exchange`, at most for the timeout of a request.
async fn with_timeout<T>(exchange: impl Future<Output = Result<T, EtcdError>>) -> Result<T, EtcdError> {
    tokio::time::timeout(REQUEST_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err(EtcdError::unavailable(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))))
}

async fn connect(authority: &str) -> Result<SendRequest<Full<Bytes>>, EtcdError> {
    let stream = connect_tcp(authority).await.map_err(|error| EtcdError::unavailable(format!("connect: {error}")))?;
    let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(EtcdError::unavailable)?;
    tokio::spawn(driver);
    Ok(sender)
}

async fn connect_tcp(authority: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    // A watch sends nothing: without probes, a middlebox that has dropped the connection would go unnoticed.
    let keepalive = TcpKeepalive::new().with_time(REQUEST_TIMEOUT).with_interval(REQUEST_TIMEOUT);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
    Ok(stream)
}

async fn read_response(response: Response<Incoming>) -> Result<EtcdReply, EtcdError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { EtcdError::TooLarge } else { EtcdError::unavailable(error) }
    })?;
    Ok(EtcdReply { status, body: body.to_bytes() })
}

/// The messages of a watch, one in each line.
pub struct WatchStream {
    body: Incoming,
    /// Bytes after the last complete line.
    buffer: Vec<u8>,
    /// Length of the start of `buffer` that is known to contain no line feed.
    searched: usize,
}

impl WatchStream {
    /// Reads the next message. Cancel safe: no message is lost when the future is dropped.
    ///
    /// # Errors
    /// The connection ends, or etcd reports an error.
    pub async fn message(&mut self) -> Result<WatchResponse, EtcdError> {
        loop {
            if let Some(line) = self.take_line() {
                return parse_stream_line(&line);
            }
            if self.buffer.len() > MAX_RESPONSE {
                return Err(EtcdError::TooLarge);
            }
            let Some(frame) = self.body.frame().await else {
                return Err(EtcdError::unavailable("etcd has closed the watch"));
            };
            if let Ok(data) = frame.map_err(EtcdError::unavailable)?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Waits for the first message, at most for the timeout of a request.
    pub async fn first_message(&mut self) -> Result<WatchResponse, EtcdError> {
        with_timeout(self.message()).await
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.buffer.len();
            return None;
        };
        let rest = self.buffer.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.buffer, rest))
    }
}
