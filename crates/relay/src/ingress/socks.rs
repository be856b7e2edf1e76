//! SOCKS4, SOCKS4a and SOCKS5 clients (RFC 1928, RFC 1929).

use ekiden_proto::event::EndReason;
use ekiden_proto::wire::socks4;
use ekiden_proto::wire::socks5::{
    self, Command, Credentials, Greeting, Method, Reply, Socks5Request, Socks5RequestError,
};

use super::responder::send_and_close;
use super::{BindRequest, ClientRequest, HandshakeReader, Responder, TunnelRequest};
use crate::config::users::AuthError;
use crate::session::Session;

/// Reads a SOCKS4 or 4a request. The protocol has no passwords, so a listener with users refuses every request.
pub async fn accept_socks4(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<TunnelRequest, EndReason> {
    let request = match reader.next(socks4::Socks4Request::parse).await.map_err(EndReason::from) {
        Err(end @ EndReason::BadHandshake(_)) => {
            send_and_close(session.client_end(), &socks4::reply(false)).await;
            return Err(end);
        }
        request => request?,
    };
    let refusal = if session.users_to_ask(&session.context).is_some() {
        Some(EndReason::Unauthenticated)
    } else if request.command != Command::Connect {
        Some(EndReason::BadHandshake("command not supported"))
    } else {
        None
    };
    if let Some(end) = refusal {
        send_and_close(session.client_end(), &socks4::reply(false)).await;
        return Err(end);
    }
    Ok(TunnelRequest { target: request.target, early: reader.take_all(), responder: Responder::Socks4 })
}

/// Reads the greeting, the credentials if the listener has users, and the request.
pub async fn accept_socks5(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    choose_method(session, reader).await?;
    let request = reader
        .next(|bytes| match Socks5Request::parse(bytes) {
            Ok((request, used)) => Ok((Ok(request), used)),
            Err(Socks5RequestError::Wire(error)) => Err(error),
            Err(error) => Ok((Err(error), bytes.len())),
        })
        .await?;
    let (reply, reason) = match request {
        Ok(Socks5Request::Connect(target)) => {
            let tunnel = TunnelRequest { target, early: reader.take_all(), responder: Responder::Socks5 };
            return Ok(ClientRequest::Tunnel(tunnel));
        }
        Ok(Socks5Request::UdpAssociate(announced)) if session.context.listener.udp => {
            return Ok(ClientRequest::Associate(announced));
        }
        Ok(Socks5Request::Bind(peer)) if session.context.listener.socks_bind => {
            return Ok(ClientRequest::Bind(BindRequest { peer, early: reader.take_all() }));
        }
        Ok(Socks5Request::Bind(_)) => (Reply::CommandNotSupported, "BIND, and the listener has socks_bind = false"),
        Ok(Socks5Request::UdpAssociate(_)) => {
            (Reply::CommandNotSupported, "UDP ASSOCIATE, and the listener has udp = false")
        }
        Err(Socks5RequestError::CommandNotSupported) => (Reply::CommandNotSupported, "command not supported"),
        Err(Socks5RequestError::InvalidTarget) => (Reply::GeneralFailure, "not a host name, or port 0"),
        Err(_) => (Reply::AddressTypeNotSupported, "address type not supported"),
    };
    send_and_close(session.client_end(), &socks5::reply(reply, None)).await;
    Err(EndReason::BadHandshake(reason))
}

async fn choose_method(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<(), EndReason> {
    let client = session.client_end();
    let users = session.users_to_ask(&session.context);
    let method = if users.is_some() { Method::UserPass } else { Method::NoAuth };
    let greeting = reader.next(Greeting::parse).await?;
    if !greeting.offers(method) {
        send_and_close(client, &socks5::method_reply(None)).await;
        return Err(EndReason::Unauthenticated);
    }
    client.write_all(&socks5::method_reply(Some(method))).await.map_err(|_| EndReason::LeftEarly)?;
    let Some(users) = users else { return Ok(()) };
    let Credentials { user, password } = reader.next(Credentials::parse).await?;
    if let Err(error) = session.authenticate(users, &user, &password).await {
        match error {
            AuthError::WrongCredentials => send_and_close(client, &socks5::credentials_reply(false)).await,
            AuthError::Overloaded => send_and_close(client, &socks5::CREDENTIALS_NOT_CHECKED).await,
            AuthError::ClientGone => {}
        }
        return Err(error.into());
    }
    client.write_all(&socks5::credentials_reply(true)).await.map_err(|_| EndReason::LeftEarly)
}
