//! The admin listener: its socket, and the limit of concurrent connections.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ekiden_proto::event::Event;
use ekiden_sys::process;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::access::AdminAuth;
use super::connections::WriteTimeoutStream;
use super::connections::{ConnectionSlot, ConnectionSlots, EvictionSignal};
use super::handler::AdminHandler;
use super::snapshot::SnapshotSource;
use super::snapshot::WorkerHandles;
use super::stream::SnapshotStream;
use crate::config::read::{default_sockets, private_folder};
use crate::config::{AdminBind, AdminConfig};
use crate::ingress::services::Services;
use crate::worker::Command;

/// Maximum number of concurrent connections. At the limit, a new connection replaces one that has not sent a valid
/// request.
const MAX_CONNECTIONS: usize = 64;

/// Timeout for receiving the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a request head, in bytes. Also the limit of buffered response bytes, above which no more of the body
/// is generated.
const READ_BUFFER: usize = 16 << 10;

/// Send buffer of each connection, in bytes. Without a limit it grows to megabytes (tcp(7), `tcp_wmem`), and a slow
/// reader would receive outdated snapshots.
const SEND_BUFFER: usize = 64 << 10;

/// Maximum length of the accept queue of a unix socket.
const BACKLOG: i32 = 128;

/// The error of accept(2) at the limit of open descriptors.
const EMFILE: i32 = 24;

/// Pause after a failed accept: while no descriptors are left, not even of the reserve, accept(2) would fail again at
/// once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A running admin listener. Dropping it stops the listener and removes its socket file.
pub struct AdminListener {
    tasks: [JoinHandle<()>; 2],
    socket_file: Option<PathBuf>,
    descriptor: OwnedFd,
}

impl AdminListener {
    /// Returns a duplicate of the listening socket, for a successor process.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn try_clone_descriptor(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    /// Stops the listener, but leaves the socket file to the successor process, which accepts there from now on.
    pub fn hand_over(mut self) {
        self.socket_file = None;
    }
}

impl Drop for AdminListener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        if let Some(path) = &self.socket_file {
            // An administrator may have removed the file already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Starts the admin listener, on the inherited socket if there is one.
///
/// # Errors
/// The address is in use, or the socket file cannot be created.
pub fn start(
    admin: &AdminConfig,
    inherited: Option<OwnedFd>,
    services: Arc<Services>,
    workers: Vec<mpsc::Sender<Command>>,
) -> io::Result<AdminListener> {
    let (listener, descriptor, socket_file) = match &admin.bind {
        AdminBind::Off => return Err(io::Error::other("the admin listener is off")),
        AdminBind::Tcp(address) => {
            let socket = inherited.map_or_else(|| std::net::TcpListener::bind(address), |it| Ok(it.into()))?;
            let descriptor = socket.try_clone()?.into();
            (listen_tcp(socket, &services)?, descriptor, None)
        }
        AdminBind::Unix(path) => {
            let socket = inherited.map_or_else(|| bind_unix_or_next(path), |it| Ok(it.into()))?;
            let descriptor = socket.try_clone()?.into();
            let file = socket.local_addr()?.as_pathname().map(Path::to_owned);
            // For `SO_PEERCRED`, the kernel reports the process that has called listen(2) last (unix(7)).
            SockRef::from(&socket).listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            (AdminSocket::Unix(UnixListener::from_std(socket)?), descriptor, file)
        }
    };
    let (workers, stream) = (WorkerHandles(workers), Arc::new(SnapshotStream::new()));
    let source = SnapshotSource::new(Arc::clone(&services), workers.clone());
    let publish_task = tokio::spawn(Arc::clone(&stream).publish(source));
    let handler = AdminHandler { services, workers, auth: AdminAuth::new(admin), stream };
    let accept_task = tokio::spawn(accept_loop(listener, Arc::new(handler)));
    Ok(AdminListener { tasks: [publish_task, accept_task], socket_file, descriptor })
}

/// Prepares a TCP socket for accepting, and emits "listening" with the port, which the kernel may have chosen.
fn listen_tcp(socket: std::net::TcpListener, services: &Services) -> io::Result<AdminSocket> {
    socket.set_nonblocking(true)?;
    // Accepted connections inherit the options of the listening socket (tcp(7)).
    SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER)?;
    let (listener, address) = ("admin".to_owned(), socket.local_addr()?);
    services.events.emit(&Event::Listening { listener, kind: "admin", address });
    Ok(AdminSocket::Tcp(TcpListener::from_std(socket)?))
}

/// Binds the socket file at `path`. If that is a default path and another relay answers there, binds the next free
/// default path.
fn bind_unix_or_next(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let mut sockets = default_sockets().skip_while(|socket| socket != path).skip(1);
    let mut result = bind_unix(path);
    while let Err(error) = &result
        && error.kind() == io::ErrorKind::AddrInUse
        && let Some(next) = sockets.next()
    {
        result = bind_unix(&next);
    }
    result
}

/// Binds a socket file that only its owner can use. Replaces the file of a relay that no longer runs.
fn bind_unix(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let folder = private_folder();
    if path.parent() == Some(&folder) {
        ensure_private_folder(&folder)?;
    }
    if let Ok(metadata) = fs::metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::other(format!("{} exists and is not a socket", path.display())));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let message = format!("another relay answers at {}", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
        }
        fs::remove_file(path)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Creates a directory that only this user can enter, or verifies that an existing one is such a directory: in /tmp
/// another user may have created it first.
fn ensure_private_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result,
    }
    let (metadata, user) = (fs::symlink_metadata(folder)?, process::effective_uid());
    if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let folder = folder.display();
    Err(io::Error::other(format!(
        "{folder} is not a directory of user {user} with mode 0700: remove it, or set XDG_RUNTIME_DIR, or bind in \
         [admin]"
    )))
}

/// The listening TCP or unix socket.
enum AdminSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An accepted TCP or unix connection.
trait AdminStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> AdminStream for T {}

/// An accepted connection; with its source address for TCP.
type AcceptedStream = (Box<dyn AdminStream>, Option<IpAddr>);

impl AdminSocket {
    /// Accepts the next connection.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<AcceptedStream>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, source)| {
                let stream: Box<dyn AdminStream> = Box::new(stream);
                (stream, Some(source.ip().to_canonical()))
            }),
            Self::Unix(listener) => listener.poll_accept(cx).map_ok(|(stream, _)| {
                let stream: Box<dyn AdminStream> = Box::new(stream);
                (stream, None)
            }),
        }
    }

    /// Accepts the next connection. When sessions use all file descriptors of the soft limit, this uses the reserve
    /// above that limit.
    async fn accept(&self) -> io::Result<AcceptedStream> {
        poll_fn(|cx| match self.poll_accept(cx) {
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(EMFILE) => {
                process::with_max_open_file_limit(|| self.poll_accept(cx)).unwrap_or(Poll::Ready(Err(error)))
            }
            polled => polled,
        })
        .await
    }
}

async fn accept_loop(listener: AdminSocket, handler: Arc<AdminHandler>) {
    let slots = ConnectionSlots::new(MAX_CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((connection, source)) => {
                let (slot, eviction) = slots.admit(source).await;
                tokio::spawn(serve_connection(connection, Arc::clone(&handler), slot, eviction));
            }
            // The reserve is used up. An evicted connection frees a descriptor.
            Err(_) if slots.evict() => yield_now().await,
            Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

async fn serve_connection(
    connection: Box<dyn AdminStream>,
    handler: Arc<AdminHandler>,
    slot: ConnectionSlot,
    eviction: EvictionSignal,
) {
    let slot = Arc::new(slot);
    let service = service_fn(move |request| {
        let (handler, slot) = (Arc::clone(&handler), Arc::clone(&slot));
        async move { Ok::<_, Infallible>(handler.handle(&request, &slot).await) }
    });
    let mut server = http1::Builder::new();
    // One request per connection, so that a proven connection ends with its response.
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(READ_BUFFER).keep_alive(false);
    tokio::select! {
        // An error affects only this client.
        _ = server.serve_connection(TokioIo::new(WriteTimeoutStream::new(connection)), service) => {}
        () = eviction.wait() => {}
    }
}
