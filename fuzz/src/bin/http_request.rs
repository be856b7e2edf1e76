//! Requests in a forward proxy: parsed, rewritten and written, a request parses as an equal request again.
#![no_main]

use ekiden_fuzz::{HEAD_LIMIT, check_prefixes, lax};
use ekiden_proto::wire::http::auth::{parse_basic, write_basic};
use ekiden_proto::wire::http::rewrite::{
    add_via, expects_continue, is_keep_alive, set_framing, set_host, strip_hop_by_hop, upgrade_protocols, write_request,
};
use ekiden_proto::wire::http::{BodyFraming, Headers, RequestHead, RequestTarget, Scheme};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((head, used)) = check_prefixes(bytes, |bytes| RequestHead::parse(bytes, HEAD_LIMIT)) else { return };
    assert!(used <= HEAD_LIMIT && head.headers.len() <= 100);
    assert_ne!(head.body, BodyFraming::UntilClose);
    lax::assert_same_framing(&bytes[..used], head.body);
    if let Some((user, password)) = head.headers.get("Proxy-Authorization").and_then(parse_basic) {
        assert_eq!(parse_basic(write_basic(&user, &password).as_bytes()), Some((user, password)));
    }
    // The proxy may add Via and Host.
    if head.headers.len() <= 98 {
        for target in forward_targets(&head.target) {
            check_forwarded(&head, &target);
        }
    }
});

/// Returns the request targets with which the request may be forwarded, to the server or to the next proxy.
fn forward_targets(form: &RequestTarget) -> Vec<String> {
    match form {
        RequestTarget::Authority(target) => vec![target.to_string()],
        RequestTarget::Absolute { scheme: Scheme::Http, authority_text, path_and_query, .. } => {
            let path = path_and_query.strip_prefix('*').unwrap_or(path_and_query);
            vec![path_and_query.clone(), format!("http://{authority_text}{path}")]
        }
        RequestTarget::Absolute { .. } => vec![],
        RequestTarget::Origin(path) => vec![path.clone()],
        RequestTarget::Asterisk => vec!["*".to_owned()],
    }
}

fn check_forwarded(head: &RequestHead, target: &str) {
    let headers = forward_headers(head);
    let written = write_request(&head.method, target, &headers);
    lax::assert_same_framing(&written, head.body);
    let (again, used) = RequestHead::parse(&written, usize::MAX).expect("our own request");
    assert_eq!((used, again.body, &again.method, &again.headers), (written.len(), head.body, &head.method, &headers));
    match (&head.target, &again.target) {
        (RequestTarget::Absolute { path_and_query, .. }, RequestTarget::Origin(path)) => {
            assert_eq!(path_and_query, path)
        }
        (RequestTarget::Absolute { path_and_query, .. }, RequestTarget::Asterisk) => assert_eq!(path_and_query, "*"),
        (first, second) => assert_eq!(first, second),
    }
    let via = headers.get("Via").unwrap_or_default();
    assert!(via.ends_with(b" ekiden") && headers.get_all("Via").count() == 1);
}

fn forward_headers(head: &RequestHead) -> Headers {
    let mut headers = head.headers.clone();
    let _ = (is_keep_alive(head.version, &headers), expects_continue(&headers));
    let protocols = upgrade_protocols(&headers);
    strip_hop_by_hop(&mut headers);
    for name in ["Connection", "Keep-Alive", "Proxy-Authorization", "Transfer-Encoding", "TE", "Upgrade"] {
        assert!(headers.get(name).is_none(), "{name} was forwarded");
    }
    match &head.target {
        RequestTarget::Absolute { authority_text, .. } => set_host(&mut headers, authority_text),
        RequestTarget::Authority(target) => set_host(&mut headers, &target.to_string()),
        // An HTTP/1.0 request may lack Host, but the proxy writes HTTP/1.1.
        RequestTarget::Origin(_) | RequestTarget::Asterisk if headers.get("Host").is_none() => {
            set_host(&mut headers, "")
        }
        RequestTarget::Origin(_) | RequestTarget::Asterisk => {}
    }
    add_via(&mut headers, head.version, "ekiden");
    set_framing(&mut headers, head.body);
    if let Some(protocols) = protocols.filter(|_| headers.len() <= 98) {
        headers.push("Connection", "upgrade");
        headers.push("Upgrade", protocols);
    }
    headers
}
