//! PUT.
//!
//! In FTP the end of the data connection is the end of the file, so a client that is lost half way would leave half a
//! file that looks whole. Therefore the data connection is set to end in a reset until the whole body has gone over it.

use std::io;

use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{BodyFraming, Headers, Version, rewrite};
use socket2::SockRef;

use super::answer::Answer;
use super::server::{Order, Server, socket};
use super::{Asked, Trouble};
use crate::ingress::Inbox;
use crate::ingress::http::body::BodyCoding;
use crate::ingress::http::exchange::After;
use crate::pump::{self, Broken};

/// Refuses what no FTP server needs to be asked for.
pub fn check(asked: &Asked<'_>) -> Result<(), Trouble> {
    if asked.location.is_folder() {
        return Err(Trouble::Refused(409, "A directory cannot be uploaded."));
    }
    // "An origin server SHOULD respond with a 400" (RFC 9110, 14.5): the rest of the file would be lost.
    if asked.headers.get("Content-Range").is_some() {
        return Err(Trouble::Refused(400, "Parts of files cannot be uploaded."));
    }
    Ok(())
}

/// Stores the request's body as a file.
pub async fn store(asked: &Asked<'_>, server: &mut Server<'_>, inbox: &mut Inbox<'_>) -> Result<After, Trouble> {
    server.set_form(asked.location.form).await?;
    let transfer = server.begin(Order::Store(&asked.location.path)).await?;
    let data = socket(&transfer);
    pump::abort(data);
    let timeouts = &asked.session.entrance.config.timeouts;
    let sent = asked
        .patiently(async {
            invite(asked).await?;
            let up = asked.lane(&asked.session.client, data, Direction::Up);
            Ok(up.carry(inbox, asked.body, BodyCoding::Plain).await)
        })
        .await?;
    match sent {
        Ok(()) => {}
        Err(Broken::Writing(_)) => {
            // The server does not want the rest, and says why.
            server.complete(transfer, timeouts.connect).await?;
            return Err(Trouble::Refused(502, "The server closed the data connection too early."));
        }
        Err(broken) => return Err(body_is_broken(&broken)),
    }
    // If this fails the upload ends in a reset, and the server will say so.
    let _ = SockRef::from(data).set_linger(None);
    // What is still on its way to the server must arrive before it can reply, so this may take as long as the upload.
    server.complete(transfer, timeouts.idle).await?;
    let answer = Answer { status: 201, headers: Headers::new(), body: BodyFraming::Length(0), stays: asked.stays };
    asked.patiently(asked.begin(answer)).await
}

/// Tells a client that waits for it that its body is welcome (RFC 9110, 10.1.1).
async fn invite(asked: &Asked<'_>) -> Result<(), Trouble> {
    let waits = asked.version == Version::Http11 && asked.body != BodyFraming::Empty;
    if waits && rewrite::expects_continue(&asked.headers) {
        asked.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    Ok(())
}

fn body_is_broken(broken: &Broken) -> Trouble {
    match broken {
        Broken::Reading(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Trouble::Refused(400, "The body ended before its time.")
        }
        Broken::Reading(error) if error.kind() == io::ErrorKind::InvalidData => {
            Trouble::Ended(EndReason::BadHandshake("a chunked body that is none"))
        }
        _ => Trouble::Ended(pump::end_of(broken, Direction::Up)),
    }
}
