//! SOCKS4, SOCKS4a and SOCKS5 clients (RFC 1928, RFC 1929).

use ekiden_proto::event::End;
use ekiden_proto::wire::socks4;
use ekiden_proto::wire::socks5::{self, Command, Credentials, Greeting, Method, Reply, Request, RequestError};

use super::manner::{last_words, write_all};
use super::{Inbox, Manner, Tunnel};
use crate::session::Session;
use crate::users::AuthError;

/// Reads a SOCKS4 or 4a request. The protocol has no passwords, so a listener with users refuses it.
pub async fn accept_socks4(session: &Session, inbox: &mut Inbox<'_>) -> Result<Tunnel, End> {
    let request = inbox.next(socks4::Request::parse).await?;
    let refusal = if session.entrance.listener.users.is_some() {
        Some(End::Unauthenticated)
    } else if request.command != Command::Connect {
        Some(End::BadHandshake("command not supported"))
    } else {
        None
    };
    if let Some(end) = refusal {
        last_words(&session.client, &socks4::reply(false)).await;
        return Err(end);
    }
    Ok(Tunnel { target: request.target, early: inbox.take_all(), manner: Manner::Socks4 })
}

/// Reads greeting, credentials where the listener wants them, and request.
pub async fn accept_socks5(session: &Session, inbox: &mut Inbox<'_>) -> Result<Tunnel, End> {
    choose_method(session, inbox).await?;
    let request = inbox
        .next(|bytes| match Request::parse(bytes) {
            Ok((request, used)) => Ok((Ok(request), used)),
            Err(RequestError::Wire(error)) => Err(error),
            Err(other) => Ok((Err(other), bytes.len())),
        })
        .await?;
    let (reply, why) = match request {
        Ok(Request { command: Command::Connect, target }) => {
            return Ok(Tunnel { target, early: inbox.take_all(), manner: Manner::Socks5 });
        }
        Ok(_) | Err(RequestError::CommandNotSupported) => (Reply::CommandNotSupported, "command not supported"),
        Err(_) => (Reply::AddressTypeNotSupported, "address type not supported"),
    };
    last_words(&session.client, &socks5::reply(reply, None)).await;
    Err(End::BadHandshake(why))
}

async fn choose_method(session: &Session, inbox: &mut Inbox<'_>) -> Result<(), End> {
    let client = &session.client;
    let users = session.entrance.listener.users.as_ref();
    let wanted = if users.is_some() { Method::UserPass } else { Method::NoAuth };
    let greeting = inbox.next(Greeting::parse).await?;
    if !greeting.offers(wanted) {
        last_words(client, &socks5::method_reply(None)).await;
        return Err(End::Unauthenticated);
    }
    write_all(client, &socks5::method_reply(Some(wanted))).await.map_err(|_| End::LeftEarly)?;
    let Some(users) = users else { return Ok(()) };
    let Credentials { user, password } = inbox.next(Credentials::parse).await?;
    if let Err(error) = session.authenticate(users, &user, &password).await {
        match error {
            AuthError::Wrong => last_words(client, &socks5::credentials_reply(false)).await,
            AuthError::Overload => last_words(client, &socks5::CREDENTIALS_UNCHECKED).await,
            AuthError::Departed => {}
        }
        return Err(error.into());
    }
    write_all(client, &socks5::credentials_reply(true)).await.map_err(|_| End::LeftEarly)
}
