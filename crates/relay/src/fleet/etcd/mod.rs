//! A client of etcd's JSON gateway, with the requests that a fleet needs.

mod connection;
mod error;
mod messages;

use hyper::body::Bytes;
use serde_json::{Value, json};

use self::connection::{EtcdConnection, EtcdReply};
use self::messages::{AuthenticateResponse, RangeResponse, WriteResponse, encode, parse, parse_stream_line};
use crate::config::FleetConfig;

pub use self::connection::{REQUEST_TIMEOUT, WatchStream};
pub use self::error::EtcdError;
pub use self::messages::{EventKind, LeaseResponse, WatchResponse};

/// The messages of etcd for a token that has expired or was invalidated by a change of the password, and for a JSON Web
/// Token that is older than the last change of any user or role.
const INVALID_TOKEN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];

/// A client of one server.
pub struct EtcdClient<'a> {
    fleet: &'a FleetConfig,
    connection: EtcdConnection,
    /// The token of the last authentication; `None` without `user`.
    token: Option<String>,
}

impl<'a> EtcdClient<'a> {
    /// Connects to the server at `url`, and authenticates if the configuration has a user.
    pub async fn open(fleet: &'a FleetConfig, url: &str) -> Result<Self, EtcdError> {
        let mut client = Self { fleet, connection: EtcdConnection::new(url), token: None };
        client.check_alive().await?;
        client.authenticate().await?;
        Ok(client)
    }

    /// Checks that the server answers. The request needs neither a token nor a quorum of the servers.
    pub async fn check_alive(&mut self) -> Result<(), EtcdError> {
        into_body(self.connection.get("/version").await?).map(drop)
    }

    /// Reads at most `limit` keys from `begin` up to, not including, `end` at a revision; 0 is the newest revision.
    pub async fn read_range(
        &mut self,
        begin: &[u8],
        end: &[u8],
        limit: i64,
        revision: i64,
    ) -> Result<RangeResponse, EtcdError> {
        let (limit, revision) = (limit.to_string(), revision.to_string());
        self.range(&json!({
            "key": encode(begin), "range_end": encode(end), "limit": limit, "revision": revision,
        }))
        .await
    }

    /// Reads the value of one key; `None` if the key does not exist.
    pub async fn read_key(&mut self, key: &str) -> Result<Option<Vec<u8>>, EtcdError> {
        let response = self.range(&json!({ "key": encode(key) })).await?;
        Ok(response.kvs.into_iter().next().map(|kv| kv.value))
    }

    /// Reads the newest revision.
    pub async fn read_revision(&mut self) -> Result<i64, EtcdError> {
        let prefix = encode(&self.fleet.prefix);
        Ok(self.range(&json!({ "key": prefix, "count_only": true })).await?.header.revision)
    }

    async fn range(&mut self, request: &Value) -> Result<RangeResponse, EtcdError> {
        parse(&self.call("/v3/kv/range", request).await?)
    }

    /// Writes a key under a lease. Returns the revision of the write.
    pub async fn put(&mut self, key: &str, value: &str, lease: i64) -> Result<i64, EtcdError> {
        let request = json!({ "key": encode(key), "value": encode(value), "lease": lease.to_string() });
        let response: WriteResponse = parse(&self.call("/v3/kv/put", &request).await?)?;
        Ok(response.header.revision)
    }

    /// Creates a lease of `seconds` seconds. Returns the identifier.
    pub async fn grant_lease(&mut self, seconds: i64) -> Result<i64, EtcdError> {
        let response = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() })).await?;
        parse::<LeaseResponse>(&response).map(|lease| lease.id)
    }

    /// Renews a lease for its full duration.
    pub async fn keep_lease_alive(&mut self, id: i64) -> Result<LeaseResponse, EtcdError> {
        // etcd answers with a stream: one line for each renewal.
        parse_stream_line(&self.call("/v3/lease/keepalive", &json!({ "ID": id.to_string() })).await?)
    }

    /// Ends a lease; its keys are deleted.
    pub async fn revoke_lease(&mut self, id: i64) -> Result<(), EtcdError> {
        self.call("/v3/lease/revoke", &json!({ "ID": id.to_string() })).await.map(drop)
    }

    /// Watches the keys from `begin` up to, not including, `end`, starting at a revision.
    pub async fn watch(&mut self, begin: &str, end: &[u8], revision: i64) -> Result<WatchStream, EtcdError> {
        let create = json!({
            "key": encode(begin), "range_end": encode(end), "start_revision": revision.to_string(), "fragment": true,
        });
        let request = json!({ "create_request": create }).to_string();
        let (mut stream, mut first) = self.open_watch(&request).await?;
        if self.token.is_some() && is_token_rejected(&first.cancel_reason) {
            self.authenticate().await?;
            (stream, first) = self.open_watch(&request).await?;
        }
        first.check_open()?;
        Ok(stream)
    }

    async fn open_watch(&self, request: &str) -> Result<(WatchStream, WatchResponse), EtcdError> {
        let mut stream = self.connection.stream("/v3/watch", request, self.token.as_deref()).await?;
        // The first message confirms or rejects the watch, and has no events.
        let first = stream.first_message().await?;
        Ok((stream, first))
    }

    async fn authenticate(&mut self) -> Result<(), EtcdError> {
        let Some(user) = &self.fleet.credentials else { return Ok(()) };
        let request = json!({ "name": user.user, "password": user.password }).to_string();
        let response = into_body(self.connection.post("/v3/auth/authenticate", &request, None).await?)?;
        self.token = Some(parse::<AuthenticateResponse>(&response)?.token);
        Ok(())
    }

    /// Sends a request, and repeats it once with a new token if etcd rejects the token. Tokens expire after minutes
    /// without a request (`--auth-token-ttl`), when a password is set, and JSON Web Tokens when users or roles change.
    async fn call(&mut self, path: &str, request: &Value) -> Result<Bytes, EtcdError> {
        let request = request.to_string();
        let mut response = self.connection.post(path, &request, self.token.as_deref()).await?;
        if self.token.is_some()
            && !response.status.is_success()
            && is_token_rejected(&String::from_utf8_lossy(&response.body))
        {
            self.authenticate().await?;
            response = self.connection.post(path, &request, self.token.as_deref()).await?;
        }
        into_body(response)
    }
}

/// Returns whether the message of etcd states that the token is no longer accepted.
fn is_token_rejected(message: &str) -> bool {
    INVALID_TOKEN.iter().any(|words| message.contains(words))
}

fn into_body(reply: EtcdReply) -> Result<Bytes, EtcdError> {
    if reply.status.is_success() { Ok(reply.body) } else { Err(EtcdError::from_response(reply.status, &reply.body)) }
}
