//! The relay about itself, on a loopback address or a unix socket: `/metrics` for Prometheus, `/api/sessions`, `/api/paths`
//! and `/api/fleet` as JSON.
//! Read-only; requests that name another host than the loopback are refused, so that no web page can ask.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::event::Congestion;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::choose::ChoiceView;
use crate::config::Admin;
use crate::fleet::FleetSummary;
use crate::pump::PipeCounts;
use crate::shared::Shared;
use crate::status::{InterfaceView, LaneView, PoolView, SessionView};
use crate::worker::{Command, Description};

/// A running admin listener; it ends, and its socket file goes, when this is dropped.
pub struct Running {
    task: JoinHandle<()>,
    socket_file: Option<PathBuf>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(path) = &self.socket_file {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts listening.
///
/// # Errors
/// The system's, when the address is taken or the socket file cannot be made.
pub fn start(admin: &Admin, shared: Arc<Shared>, workers: Vec<mpsc::Sender<Command>>) -> io::Result<Running> {
    let answering = Arc::new(Answering { shared, workers });
    match admin {
        Admin::Off => Err(io::Error::other("the admin listener is off")),
        Admin::Tcp(address) => {
            let socket = std::net::TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let listener = TcpListener::from_std(socket)?;
            let task = tokio::spawn(async move {
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(answer_all(stream, Arc::clone(&answering)));
                    }
                }
            });
            Ok(Running { task, socket_file: None })
        }
        Admin::Unix(path) => {
            let listener = bind_unix(path)?;
            let task = tokio::spawn(async move {
                loop {
                    if let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(answer_all(stream, Arc::clone(&answering)));
                    }
                }
            });
            Ok(Running { task, socket_file: Some(path.clone()) })
        }
    }
}

/// Binds a socket file that only its owner can use. One left behind by a relay that is gone is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Ok(found) = std::fs::metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::other(format!("{} exists and is no socket", path.display())));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::other(format!("another ekiden answers at {}", path.display())));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

struct Answering {
    shared: Arc<Shared>,
    workers: Vec<mpsc::Sender<Command>>,
}

async fn answer_all(stream: impl AsyncRead + AsyncWrite + Unpin, answering: Arc<Answering>) {
    let service = service_fn(move |request| {
        let answering = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(answering.answer(&request).await) }
    });
    // A client that leaves in the middle is its own affair.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// The answer of `/api/sessions`.
#[derive(Serialize)]
struct Sessions {
    version: &'static str,
    pipes_open: usize,
    pipes_idle: usize,
    pipe_fallbacks: u64,
    sessions: Vec<SessionView>,
    pools: Vec<PoolView>,
    interfaces: Vec<InterfaceView>,
    lanes: Vec<LaneView>,
    congestion: Vec<Congestion>,
    fleet: Option<FleetSummary>,
    choices: Vec<ChoiceView>,
}

impl Answering {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !names_this_host(request) {
            return page(StatusCode::FORBIDDEN, "text/plain", "ask by a loopback name\n");
        }
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {
                let Description { pipes, .. } = self.describe().await;
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                self.shared.metrics.fleet.show(self.shared.fleet.view());
                page(StatusCode::OK, kind, self.shared.metrics.text(pipes, self.shared.shares.views()))
            }
            (&Method::GET, "/api/sessions") => self.sessions().await,
            (&Method::GET, "/api/paths") => json(&self.shared.book.estimates()),
            (&Method::GET, "/api/fleet") => json(&self.shared.fleet.view()),
            (&Method::GET, "/") => page(
                StatusCode::OK,
                "text/plain",
                "ekiden: /metrics /api/sessions /api/paths /api/fleet
",
            ),
            (&Method::GET, _) => {
                let known = "there are /metrics, /api/sessions, /api/paths and /api/fleet
";
                page(StatusCode::NOT_FOUND, "text/plain", known)
            }
            _ => page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n"),
        }
    }

    async fn sessions(&self) -> Response<Full<Bytes>> {
        let Description { mut sessions, pipes, congestion } = self.describe().await;
        sessions.sort_by_key(|session| session.session);
        let PipeCounts { open: pipes_open, idle: pipes_idle, fallbacks: pipe_fallbacks } = pipes;
        let (pools, interfaces) = (self.shared.pools.views(), self.shared.shares.views());
        let (version, lanes) = (env!("CARGO_PKG_VERSION"), self.shared.lanes.views());
        let answer = Sessions {
            version,
            pipes_open,
            pipes_idle,
            pipe_fallbacks,
            sessions,
            pools,
            interfaces,
            lanes,
            congestion,
            fleet: self.shared.fleet.view().map(|view| view.summary()),
            choices: self.shared.choosing.views(),
        };
        json(&answer)
    }

    async fn describe(&self) -> Description {
        let mut all = Description::default();
        for worker in &self.workers {
            let (answer, answered) = oneshot::channel();
            if worker.send(Command::Describe(answer)).await.is_err() {
                continue;
            }
            let Description { sessions, pipes, congestion } = answered.await.unwrap_or_default();
            all.sessions.extend(sessions);
            all.pipes.open += pipes.open;
            all.pipes.idle += pipes.idle;
            all.pipes.fallbacks += pipes.fallbacks;
            // All serve the same, but for the gate, which serves nothing by itself.
            if all.congestion.is_empty() {
                all.congestion = congestion;
            }
        }
        all
    }
}

/// A page in a browser may ask any port of this machine, under its own host name (DNS rebinding); that name gives it
/// away.
fn names_this_host(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(HOST) else { return true };
    match host.to_str().ok().and_then(|host| Target::parse(host, Some(80)).ok()).map(|target| target.host) {
        Some(Host::Ip(ip)) => ip.is_loopback(),
        Some(Host::Name(name)) => name == "localhost",
        None => false,
    }
}

fn json(answer: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_string(answer) {
        Ok(json) => page(StatusCode::OK, "application/json", json + "\n"),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

fn page(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

/// Asks a running relay for `path`, as `ekiden status` does.
///
/// # Errors
/// The system's, when nobody answers there.
pub async fn ask(admin: &Admin, path: &str) -> io::Result<String> {
    match admin {
        Admin::Off => Err(io::Error::other("the admin listener is off in this configuration")),
        Admin::Tcp(address) => ask_over(tokio::net::TcpStream::connect(address).await?, path).await,
        Admin::Unix(socket) => ask_over(UnixStream::connect(socket).await?, path).await,
    }
}

async fn ask_over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, path: &str) -> io::Result<String> {
    use http_body_util::BodyExt;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driving = tokio::spawn(connection);
    let request =
        Request::get(path).header(HOST, "localhost").body(Full::<Bytes>::default()).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    driving.abort();
    if status != StatusCode::OK {
        return Err(io::Error::other(format!("the relay answered {status}")));
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
