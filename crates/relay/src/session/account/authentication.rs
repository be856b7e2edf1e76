//! Authentication of the client by user name and password.

use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Session;
use crate::users::{AuthError, Users};

/// Interval between the checks whether a client that has sent more than its password has reset its connection.
const CLIENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Session {
    /// Checks the password of the client, and notes the user name. The check is slow on purpose and may wait for other
    /// checks: at most half of `timeouts.handshake`, and only until the client closes its side.
    ///
    /// # Errors
    /// Why the client is not let in.
    pub async fn authenticate(&self, users: &Users, user: &[u8], password: &[u8]) -> Result<(), AuthError> {
        self.state.borrow_mut().user = Some(String::from_utf8_lossy(user).into());
        let give_up = async {
            let departed = timeout(self.context.config.timeouts.handshake / 2, wait_client_gone(&self.client)).await;
            departed.map_or(AuthError::Overloaded, |()| AuthError::ClientGone)
        };
        let verified = users.verify(self.dial_context.client.0.ip(), user, password, give_up).await;
        self.stats.set_weight(self.weight());
        verified
    }
}

/// Completes when the client has closed or reset its section.
async fn wait_client_gone(client: &TcpStream) {
    // An end of stream behind unread bytes is not visible, so only a reset shows that such a client has left.
    while client.peek(&mut [0]).await.is_ok_and(|count| count > 0) {
        if timeout(CLIENT_POLL_INTERVAL, client.ready(Interest::ERROR)).await.is_ok() {
            return;
        }
    }
}
