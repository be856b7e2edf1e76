//! Requests to one etcd server, each with a deadline: a stopped server accepts connections but does not answer.

use std::future::Future;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, KvClient, WatchClient};

use super::EtcdErrorMessage;
use crate::config::FleetConfig;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest response, in bytes. Any writer to etcd may store up to 1.5 MiB at each key.
const MAX_RESPONSE: usize = 32 << 20;

/// The gRPC status for a response that is too large, and for a compacted revision.
const OUT_OF_RANGE: i32 = 11;

/// The gRPC status for a full store (`RESOURCE_EXHAUSTED`).
const RESOURCE_EXHAUSTED: i32 = 8;

/// Why a question has no good answer.
#[derive(Debug)]
pub enum EtcdError {
    /// The answer would be too large.
    TooLarge,
    /// The server is there, and says no.
    Rejected(EtcdErrorMessage),
    /// The server is down or does not answer.
    Unavailable(EtcdErrorMessage),
}

impl EtcdError {
    /// The error as a message.
    pub fn into_message(self) -> EtcdErrorMessage {
        match self {
            Self::TooLarge => EtcdErrorMessage(
                "the entries under the prefix are too large: remove entries of other programs".to_owned(),
            ),
            Self::Rejected(trouble) | Self::Unavailable(trouble) => trouble,
        }
    }
}

/// A connection to a server, with its clients.
pub struct EtcdConnection {
    /// The client for leases.
    pub client: Client,
    /// The client for keys and values.
    pub kv: KvClient,
    /// The client for watches.
    pub watch: WatchClient,
}

impl EtcdConnection {
    /// Connects to the endpoint `url`.
    pub async fn open(fleet: &FleetConfig, url: &str) -> Result<Self, EtcdError> {
        let keep_alive = (REQUEST_TIMEOUT, REQUEST_TIMEOUT);
        let mut options = ConnectOptions::new()
            .with_connect_timeout(REQUEST_TIMEOUT)
            .with_keep_alive(keep_alive.0, keep_alive.1)
            .with_keep_alive_while_idle(true);
        if let Some(user) = &fleet.credentials {
            // etcd tokens expire after minutes of silence (--auth-token-ttl) and when a password is set.
            options = options.with_user(&user.user, &user.password).with_auto_token_refresh(true);
        }
        let client = with_timeout(Client::connect([url], Some(options))).await?;
        let kv = client.kv_client().max_decoding_message_size(MAX_RESPONSE);
        let watch = client.watch_client().max_decoding_message_size(MAX_RESPONSE);
        Ok(Self { client, kv, watch })
    }
}

/// Waits for an answer, within reason.
pub async fn with_timeout<T>(question: impl Future<Output = Result<T, Error>>) -> Result<T, EtcdError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, question).await {
        Ok(answer) => answer.map_err(classify_error),
        Err(_) => {
            Err(EtcdError::Unavailable(EtcdErrorMessage(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))))
        }
    }
}

/// Maps an error of the client library to the error that is reported.
pub fn classify_error(error: Error) -> EtcdError {
    let Error::GRpcStatus(status) = &error else { return EtcdError::Unavailable(EtcdErrorMessage(error.to_string())) };
    let (code, said) = (status.code() as i32, status.message());
    let remedy = remedy(code, said).map_or(String::new(), |remedy| format!("; {remedy}"));
    let trouble = EtcdErrorMessage(format!("{:?}: {said}{remedy}", status.code()));
    match code {
        OUT_OF_RANGE if said.contains("compacted") => EtcdError::Unavailable(trouble),
        OUT_OF_RANGE => EtcdError::TooLarge,
        // Permission and argument errors would repeat at once.
        3 | 7 | 8 | 9 | 16 => EtcdError::Rejected(trouble),
        _ => EtcdError::Unavailable(trouble),
    }
}

/// The operator's remedy, as far as the message tells.
fn remedy(code: i32, said: &str) -> Option<&'static str> {
    [
        (RESOURCE_EXHAUSTED, "space", "etcd is full: compact, defragment, and disarm its alarm (etcdctl alarm disarm)"),
        (OUT_OF_RANGE, "compacted", "everything is read again"),
        (3, "user name is empty", "set user and password_file in [fleet], then reload (SIGHUP)"),
        (3, "authentication failed", "see user and password_file in [fleet], then reload (SIGHUP)"),
        (9, "not enabled", "etcd has no users: leave user and password_file out of [fleet], then reload (SIGHUP)"),
        (7, "permission denied", "let the user read and write under the prefix (etcdctl role grant-permission)"),
    ]
    .into_iter()
    .find_map(|(of, word, remedy)| (of == code && said.contains(word)).then_some(remedy))
}
