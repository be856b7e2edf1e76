//! Connections of load balancers: reads the PROXY header, which reports the client's address, before a session begins.
//!
//! The client counts for the limits under the address in the header, so the connection has a pending place, like that of a
//! relay without a session, until the header is complete.

use std::io;
use std::rc::Rc;

use ekiden_proto::addr::ClientAddr;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::proxy_protocol::{MAX_HEADER, ProxiedConnection, parse};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ReadError;
use super::admission::{Client, UnprovenPermit};
use super::listener::{ListenerContext, canonical};
use crate::pump::abort;
use crate::session::Origin;

/// Reads the header of a connection from `balancer`, and admits the client that the header reports.
pub async fn admit_client(
    context: Rc<ListenerContext>,
    mut stream: TcpStream,
    balancer: ClientAddr,
    permit: UnprovenPermit,
) {
    let reading = timeout(context.config.timeouts.handshake, read_header(&mut stream));
    let read = tokio::select! {
        biased;
        () = permit.evicted() => return context.services().events.metrics.record_section_evicted(&context.listener.name),
        read = context.thread.drain_state.work_first(reading) => read,
    };
    // The relay is about to end.
    let Some(read) = read else { return };
    let connection = match read.unwrap_or(Err(ReadError::Late)) {
        Ok(connection) => connection,
        Err(error) => {
            let detail = Some("no complete PROXY header".to_owned()).filter(|_| !matches!(error, ReadError::Wire(_)));
            return context.reject(stream, balancer, Origin::Itself, error.into(), detail);
        }
    };
    // An evicted connection has no place to wait in.
    let Some(_permit) = permit.prove() else {
        return context.services().events.metrics.record_section_evicted(&context.listener.name);
    };
    let (client, origin) = match connection {
        Some(ProxiedConnection { source, destination }) => {
            (ClientAddr(canonical(source)), Origin::Proxied { destination: canonical(destination) })
        }
        None => (balancer, Origin::Itself),
    };
    match context.admit_later(Client::Address(client.0.ip())).await {
        Ok(permit) => context.start_session(stream, client, origin, permit),
        Err(end) => {
            if end == EndReason::ClientLimit {
                abort(&stream);
            }
            context.reject(stream, client, origin, end, None);
        }
    }
}

/// Reads a header and no byte after it: bytes are peeked at, and consumed when it is known that they belong to the header.
async fn read_header(stream: &mut TcpStream) -> Result<Option<ProxiedConnection>, ReadError> {
    let gone = |error: io::Error| ReadError::Gone(error.kind());
    let (mut header, mut peeked) = (Vec::new(), vec![0; MAX_HEADER]);
    loop {
        let count = stream.peek(&mut peeked).await.map_err(gone)?;
        if count == 0 {
            return Err(ReadError::Gone(io::ErrorKind::UnexpectedEof));
        }
        let before = header.len();
        header.extend_from_slice(&peeked[..count]);
        let (parsed, consumed) = match parse(&header) {
            Ok((connection, length)) => (Some(connection), length - before),
            Err(WireError::Incomplete) => (None, count),
            Err(error) => return Err(ReadError::Wire(error)),
        };
        stream.read_exact(&mut peeked[..consumed]).await.map_err(gone)?;
        if let Some(connection) = parsed {
            return Ok(connection);
        }
    }
}
