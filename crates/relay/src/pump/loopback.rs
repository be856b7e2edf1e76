//! Loopback connections within this process, between code that works on plain TCP streams and connections that are none.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpStream};

/// Both ends of one loopback connection.
///
/// # Errors
/// No descriptors or ports are left.
pub async fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (far, address) = listener.accept().await?;
        // Another process of this host may have connected first.
        if address == near.local_addr()? {
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            return Ok((near, far));
        }
    }
}
