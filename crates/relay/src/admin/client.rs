//! Client of the admin listener, used by commands such as `ekiden status`.

use std::io;
use std::path::Path;

use ekiden_sys::process;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::{AdminBind, AdminConfig, AdminToken};

/// Requests `path` from a running relay and returns the body.
///
/// # Errors
/// The error of the system if no relay answers, or the text of an error response. Sends nothing to a unix socket that
/// belongs to another user, except root.
pub async fn fetch(admin: &AdminConfig, path: &str) -> io::Result<String> {
    Ok(fetch_and_identify(admin, path).await?.0)
}

/// Like [`fetch`], but also returns the pid of the process that listens on the unix socket, as reported by the kernel
/// (unix(7), `SO_PEERCRED`). The pid is `None` over TCP, and for a process of another PID namespace.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_and_identify(admin: &AdminConfig, path: &str) -> io::Result<(String, Option<u32>)> {
    let token = admin.token.as_ref();
    match &admin.bind {
        AdminBind::Off => Err(io::Error::other("the admin listener is off in this configuration")),
        AdminBind::Tcp(address) => Ok((fetch_over(TcpStream::connect(address).await?, path, token).await?, None)),
        AdminBind::Unix(socket) => {
            let stream = UnixStream::connect(socket).await?;
            let listener = trusted_peer_pid(&stream, socket)?;
            Ok((fetch_over(stream, path, None).await?, listener))
        }
    }
}

/// Returns the pid of the listening process. Unless this process runs as root, the listening process must belong to
/// this user or to root.
fn trusted_peer_pid(stream: &UnixStream, socket: &Path) -> io::Result<Option<u32>> {
    let (peer, own) = (stream.peer_cred()?, process::effective_uid());
    let user = peer.uid();
    if own != 0 && ![0, own].contains(&user) {
        let socket = socket.display();
        let message = format!("{socket} belongs to user {user}, which is neither this user nor root: not trusted");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    // The kernel reports 0 for a process of another PID namespace.
    Ok(peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0))
}

async fn fetch_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
    token: Option<&AdminToken>,
) -> io::Result<String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driving = tokio::spawn(connection);
    let mut request = Request::get(path).header(HOST, "localhost");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    let request = request.body(Full::<Bytes>::default()).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    driving.abort();
    let text = String::from_utf8_lossy(&body).into_owned();
    if status == StatusCode::OK { Ok(text) } else { Err(io::Error::other(format!("the relay responded {text}"))) }
}
