//! Name resolution by the hosts file and by name servers. IPv4 and IPv6 addresses are queried in parallel, and answers
//! are cached for their TTL.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use ekiden_proto::cause::Cause;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::time::timeout;

use super::Judge;

/// A running lookup: one future for each address family.
pub struct Lookup<'a> {
    /// The lookup of the AAAA records.
    pub v6: FamilyLookup<'a>,
    /// The lookup of the A records.
    pub v4: FamilyLookup<'a>,
}

/// The addresses of one family, or the cause of the failure.
pub type FamilyLookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Cause>> + 'a>>;

impl Lookup<'_> {
    /// Returns the first address that `judge` permits, for callers that try only one address: for a datagram, or for
    /// another relay that dials the address. IPv4 is preferred, because this relay does not know whether the remote end
    /// has IPv6.
    ///
    /// # Errors
    /// The cause of the last failure, or of the last refusal.
    pub async fn first_address(self, judge: Judge<'_>) -> Result<IpAddr, Cause> {
        let mut failure = Cause::NameNotFound;
        for family in [self.v4, self.v6] {
            match family.await {
                Ok(addresses) => {
                    for address in addresses {
                        match judge(address) {
                            Ok(()) => return Ok(address),
                            Err(cause) => failure = cause,
                        }
                    }
                }
                Err(cause) => failure = cause,
            }
        }
        Err(failure)
    }
}

/// The resolver of one worker thread.
pub struct Resolver {
    resolver: Option<TokioResolver>,
}

impl Resolver {
    /// A resolver that queries `servers`, or the system's name servers if the list is empty.
    #[must_use]
    pub fn new(servers: &[SocketAddr]) -> Self {
        let builder = if servers.is_empty() {
            TokioResolver::builder_tokio()
        } else {
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(name_server).collect());
            Ok(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()))
        };
        // Without a usable resolv.conf, names cannot be resolved, but addresses still work.
        Self { resolver: builder.and_then(|builder| builder.build()).ok() }
    }

    /// Starts both lookups. A lookup without answer after `time_limit` fails.
    #[must_use]
    pub fn lookup(&self, name: &str, time_limit: Duration) -> Lookup<'_> {
        let start_query = |family| -> FamilyLookup<'_> {
            let name = name.to_owned();
            Box::pin(async move {
                timeout(time_limit, self.query(&name, family)).await.unwrap_or(Err(Cause::NameServerFailed))
            })
        };
        Lookup { v6: start_query(RecordType::AAAA), v4: start_query(RecordType::A) }
    }

    async fn query(&self, name: &str, family: RecordType) -> Result<Vec<IpAddr>, Cause> {
        // RFC 6761, 6.3: queries for localhost never leave the host, regardless of the hosts file.
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(match family {
                RecordType::AAAA => vec![IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])],
                _ => vec![IpAddr::from([127, 0, 0, 1])],
            });
        }
        let resolver = self.resolver.as_ref().ok_or(Cause::NameServerFailed)?;
        let answer = resolver.lookup(name, family).await.map_err(|error| resolve_cause(&error))?;
        let addresses = answer.answers().iter().filter_map(|record| match record.data {
            RData::A(a) => Some(IpAddr::V4(a.0)),
            RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0).to_canonical()),
            _ => None,
        });
        Ok(addresses.collect())
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let at_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

fn resolve_cause(error: &NetError) -> Cause {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => Cause::NameNotFound,
        _ => Cause::NameServerFailed,
    }
}
