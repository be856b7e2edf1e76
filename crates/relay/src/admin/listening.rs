//! Where the relay answers about itself, and how many may ask at once.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::event::Event;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::access::Access;
use super::answering::Answering;
use super::patience::Patient;
use super::snapshot::Source;
use super::stream::Stream;
use super::workers::Workers;
use crate::config::{Admin, AdminPlace};
use crate::shared::Shared;
use crate::worker::Command;

/// Most connections at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 64;

/// How long a client may take for the head of a request, or be idle before the next.
const HEAD: Duration = Duration::from_secs(10);

/// Most bytes of a head; and an answer is asked for more as long as fewer wait to be sent.
const BUFFER: usize = 16 << 10;

/// What the kernel keeps for a client that does not read, in bytes. Without a bound it grows to megabytes (tcp(7), `tcp_wmem`),
/// and a slow reader gets what is long past.
const SEND_BUFFER: usize = 64 << 10;

/// Pause after a failed accept: out of descriptors, it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// A running admin listener; it ends, and its socket file goes, when this is dropped.
pub struct Running {
    tasks: [JoinHandle<()>; 2],
    socket_file: Option<PathBuf>,
    descriptor: OwnedFd,
}

impl Running {
    /// The same listener, for another process.
    ///
    /// # Errors
    /// The kernel's, when it is out of descriptors.
    pub fn lend(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    /// Another process answers there from now on.
    pub fn hand_over(mut self) {
        self.socket_file = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        if let Some(path) = &self.socket_file {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts listening, on a socket of another process where there is one for this address.
///
/// # Errors
/// The system's, when the address is taken or the socket file cannot be made.
pub fn start(
    admin: &Admin,
    inherited: Option<OwnedFd>,
    shared: Arc<Shared>,
    workers: Vec<mpsc::Sender<Command>>,
) -> io::Result<Running> {
    let (door, descriptor, socket_file) = match &admin.place {
        AdminPlace::Off => return Err(io::Error::other("the admin listener is off")),
        AdminPlace::Tcp(address) => {
            let socket = inherited.map_or_else(|| std::net::TcpListener::bind(address), |it| Ok(it.into()))?;
            let descriptor = socket.try_clone()?.into();
            (tcp(socket, &shared)?, descriptor, None)
        }
        AdminPlace::Unix(path) => {
            let socket = inherited.map_or_else(|| bind_unix(path), |it| Ok(it.into()))?;
            let descriptor = socket.try_clone()?.into();
            socket.set_nonblocking(true)?;
            (Door::Unix(UnixListener::from_std(socket)?), descriptor, Some(path.clone()))
        }
    };
    let (workers, stream) = (Workers(workers), Arc::new(Stream::new()));
    let source = Source::new(Arc::clone(&shared), workers.clone());
    let publishing = tokio::spawn(Arc::clone(&stream).publish(source));
    let answering = Answering { shared, workers, access: Access::new(admin), stream };
    let accepting = tokio::spawn(accept_all(door, Arc::new(answering)));
    Ok(Running { tasks: [publishing, accepting], socket_file, descriptor })
}

/// Says which port the kernel has chosen.
fn tcp(socket: std::net::TcpListener, shared: &Shared) -> io::Result<Door> {
    socket.set_nonblocking(true)?;
    // Connections have what their listener has (tcp(7)).
    SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER)?;
    let (listener, address) = ("admin".to_owned(), socket.local_addr()?);
    shared.emit(&Event::Listening { listener, kind: "admin", address });
    Ok(Door::Tcp(TcpListener::from_std(socket)?))
}

/// Binds a socket file that only its owner can use. One left behind by a relay that is gone is replaced.
fn bind_unix(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    if let Ok(found) = std::fs::metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::other(format!("{} exists and is no socket", path.display())));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::other(format!("another ekiden answers at {}", path.display())));
        }
        std::fs::remove_file(path)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// What connections come in by.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Door {
    async fn accept(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

async fn accept_all(door: Door, answering: Arc<Answering>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match door.accept().await {
            Ok(connection) => {
                tokio::spawn(answer_all(connection, Arc::clone(&answering), place));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn answer_all(connection: Box<dyn Connection>, answering: Arc<Answering>, place: OwnedSemaphorePermit) {
    let service = service_fn(move |request| {
        let answering = Arc::clone(&answering);
        async move { Ok::<_, Infallible>(answering.answer(&request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER);
    // A client that leaves in the middle is its own affair.
    let _ = server.serve_connection(TokioIo::new(Patient::new(connection)), service).await;
    drop(place);
}
