//! Loopback connections within this process, for code that needs a plain TCP stream where the connection is not one.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpStream};

/// Creates a loopback connection and returns both ends.
///
/// # Errors
/// No file descriptors or ports are left.
pub async fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let connected = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (accepted, address) = listener.accept().await?;
        // Another process of this host may have connected first.
        if address == connected.local_addr()? {
            connected.set_nodelay(true)?;
            accepted.set_nodelay(true)?;
            return Ok((connected, accepted));
        }
    }
}
