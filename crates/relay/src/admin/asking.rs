//! Asking a running relay about itself, as `ekiden status` does.

use std::io;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::{Admin, AdminPlace, Token};

/// Asks a running relay for `path`.
///
/// # Errors
/// The system's, when nobody answers there; and what the relay said when it refused.
pub async fn ask(admin: &Admin, path: &str) -> io::Result<String> {
    let token = admin.token.as_ref();
    match &admin.place {
        AdminPlace::Off => Err(io::Error::other("the admin listener is off in this configuration")),
        AdminPlace::Tcp(address) => ask_over(TcpStream::connect(address).await?, path, token).await,
        AdminPlace::Unix(socket) => ask_over(UnixStream::connect(socket).await?, path, None).await,
    }
}

async fn ask_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
    token: Option<&Token>,
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
    if status == StatusCode::OK { Ok(text) } else { Err(io::Error::other(format!("the relay answered {text}"))) }
}
