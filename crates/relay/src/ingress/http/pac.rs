//! `/proxy.pac`: the script by which browsers and operating systems choose a proxy for each URL (`FindProxyForURL`).
//!
//! The script is ECMAScript 3 without the helper functions of browsers: WinHTTP runs JScript, and `isInNet` resolves names.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use ekiden_proto::addr::Target;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{Headers, RequestHead, RequestTarget, rewrite};

use super::exchange::RequestLog;
use super::responses;
use crate::config::{Config, HostPattern, Listener, Route, TargetPattern};
use crate::ingress::responder::send_and_close;
use crate::session::Session;

/// The path of the script on the listener itself.
const PATH: &str = "/proxy.pac";

/// The fixed part of the script: the port of a URL, and tests for IPv4 networks and for domains.
const FUNCTIONS: &str = r#"
function portOf(url) {
  var parts = /^([a-z]+):\/\/(?:[^\/?#]*@)?(?:\[[^\]]*\]|[^:\/?#]*)(?::(\d+))?/.exec(url.toLowerCase());
  if (!parts) return 0;
  return parts[2] ? Number(parts[2]) : { http: 80, ws: 80, https: 443, wss: 443, ftp: 21 }[parts[1]] || 0;
}

function isIn(host, network, bits) {
  var parts = /^(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(host);
  if (!parts) return false;
  var address = ((parts[1] * 256 + Number(parts[2])) * 256 + Number(parts[3])) * 256 + Number(parts[4]);
  var size = Math.pow(2, 32 - bits);
  return Math.floor(address / size) === Math.floor(network / size);
}

function endsWith(host, end) {
  return host.length > end.length && host.slice(-end.length) === end;
}
"#;

/// Networks that a listener without `allow_private` refuses (RFC 6890).
const PRIVATE: [(Ipv4Addr, u8); 6] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
];

/// Whether a request is for the script.
pub fn is_requested(listener: &Listener, head: &RequestHead) -> bool {
    let RequestTarget::Origin(path) = &head.target else { return false };
    let path = path.split('?').next().unwrap_or_default();
    listener.pac && path == PATH && matches!(head.method.as_str(), "GET" | "HEAD")
}

/// Responds with the script, in which the proxy has the name that the client uses for this relay.
pub async fn send(session: &Session, head: &RequestHead) -> EndReason {
    let context = session.dial_context.current_listener();
    let mut log = RequestLog::of(session, head.method.clone(), PATH.to_owned());
    let default_port = if context.listener.tls.is_some() { 443 } else { 80 };
    // The client has reached the relay under the name in `Host`, and a certificate contains that name.
    let requested = head.headers.get("Host").and_then(|host| std::str::from_utf8(host).ok());
    let requested = requested.and_then(|host| Target::parse(host, Some(default_port)).ok());
    let Some(relay) = requested.or_else(|| session.client.local_addr().map(Target::from).ok()) else {
        return EndReason::LeftEarly;
    };
    let script = script(&context.config, &context.listener, &relay);
    let mut headers = Headers::new();
    headers.push("Content-Type", "application/x-ns-proxy-autoconfig");
    headers.push("Content-Length", script.len().to_string());
    headers.push("Cache-Control", "no-cache");
    headers.push("Connection", "close");
    let mut response = rewrite::write_response(200, "OK", &headers);
    response.extend_from_slice(script.as_bytes());
    log.status = 200;
    let response = if head.method == "HEAD" { responses::head_only(&response) } else { &response };
    send_and_close(session.client_end(), response).await;
    EndReason::Finished
}

/// Returns the script for clients that reach the listener as `relay`.
fn script(config: &Config, listener: &Listener, relay: &Target) -> String {
    let scheme = if listener.tls.is_some() { "HTTPS" } else { "PROXY" };
    let mut script = format!("{}\nfunction FindProxyForURL(url, host) {{\n", FUNCTIONS.trim_start());
    let mut rule = |condition: &str, result: &str| {
        writeln!(script, "  if ({condition}) return {result};").expect("invariant: writing to a String does not fail");
    };
    if !listener.access.allow_private && listener.access.allow.is_empty() {
        rule(r#"!/[.:]/.test(host) || endsWith(host, ".localhost") || endsWith(host, ".local")"#, r#""DIRECT""#);
        let networks = PRIVATE.map(|(address, bits)| in_network(address, bits));
        rule(&networks.join(" || "), r#""DIRECT""#);
    }
    let proxy = quoted(&format!("{scheme} {relay}"));
    // The script does not contain the lists of routes. After a route with lists that leads to other relays, only the
    // relay can decide which route applies, so the script leaves out later direct routes.
    let mut may_be_listed = false;
    for route in config.routes.iter().filter(|route| !route.takes_all()) {
        let is_direct = is_direct(route);
        let is_hidden = may_be_listed && is_direct;
        let conditions: Vec<String> = route.to.iter().filter_map(|pattern| condition(pattern, is_direct)).collect();
        if !is_hidden && !conditions.is_empty() {
            rule(&conditions.join(" || "), if is_direct { r#""DIRECT""# } else { &proxy });
        }
        may_be_listed |= !route.lists.is_empty() && !is_direct;
    }
    script.push_str(&format!("  return {proxy};\n}}\n"));
    script
}

/// Whether clients can connect to the targets as the relay would: without another relay, and without the PROXY header.
fn is_direct(route: &Route) -> bool {
    !route.auto && route.send_proxy.is_none() && route.paths.iter().all(|path| path.is_direct())
}

/// Returns the condition for a pattern of a route that `is_direct` or not. The targets of IPv6 networks are left to the
/// routes of the relay: the condition is `None` for a direct route, else true for all IPv6 addresses.
fn condition(pattern: &TargetPattern, is_direct: bool) -> Option<String> {
    let host = match &pattern.hosts {
        HostPattern::Any => "true".to_owned(),
        HostPattern::Name(name) => format!("host === {}", quoted(name)),
        HostPattern::Subdomains(domain) => format!("endsWith(host, {})", quoted(domain)),
        HostPattern::Network(network) => match network.address() {
            IpAddr::V4(address) => in_network(address, network.prefix_len()),
            IpAddr::V6(_) if is_direct => return None,
            IpAddr::V6(_) => "/:/.test(host)".to_owned(),
        },
    };
    Some(match pattern.port {
        Some(port) => format!("{host} && portOf(url) === {port}"),
        None => host,
    })
}

fn in_network(address: Ipv4Addr, bits: u8) -> String {
    format!("isIn(host, {}, {bits})", u32::from(address))
}

/// Formats a string literal of the script. Names and addresses contain no character that Rust and ECMAScript write
/// differently.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}
