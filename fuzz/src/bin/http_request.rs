//! Requests as a forward proxy treats them: read, rewritten, written, and read again as the same request.
#![no_main]

use ekiden_fuzz::{lax, settled};
use ekiden_proto::wire::http::auth::{basic, basic_value};
use ekiden_proto::wire::http::rewrite::{
    add_via, expects_continue, keep_alive, set_framing, set_host, strip_hop_by_hop, upgrade, write_request,
};
use ekiden_proto::wire::http::{Body, Form, Headers, RequestHead, Scheme};

/// As `limits.head` is by default.
const LIMIT: usize = 64 << 10;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((head, used)) = settled(bytes, |bytes| RequestHead::parse(bytes, LIMIT)) else { return };
    assert!(used <= LIMIT && head.headers.len() <= 100);
    assert_ne!(head.body, Body::UntilClose);
    lax::agrees(&bytes[..used], head.body);
    if let Some((user, password)) = head.headers.get("Proxy-Authorization").and_then(basic) {
        assert_eq!(basic(basic_value(&user, &password).as_bytes()), Some((user, password)));
    }
    // Via and Host may be added.
    if head.headers.len() <= 98 {
        for target in onward_targets(&head.form) {
            check_onward(&head, &target);
        }
    }
});

/// How the request may be sent on: to the server, or to the next proxy.
fn onward_targets(form: &Form) -> Vec<String> {
    match form {
        Form::Authority(target) => vec![target.to_string()],
        Form::Absolute { scheme: Scheme::Http, authority_text, path_and_query, .. } => {
            let path = path_and_query.strip_prefix('*').unwrap_or(path_and_query);
            vec![path_and_query.clone(), format!("http://{authority_text}{path}")]
        }
        Form::Absolute { .. } => vec![],
        Form::Origin(path) => vec![path.clone()],
        Form::Asterisk => vec!["*".to_owned()],
    }
}

fn check_onward(head: &RequestHead, target: &str) {
    let headers = onward_headers(head);
    let written = write_request(&head.method, target, &headers);
    lax::agrees(&written, head.body);
    let (again, used) = RequestHead::parse(&written, usize::MAX).expect("our own request");
    assert_eq!((used, again.body, &again.method, &again.headers), (written.len(), head.body, &head.method, &headers));
    match (&head.form, &again.form) {
        (Form::Absolute { path_and_query, .. }, Form::Origin(path)) => assert_eq!(path_and_query, path),
        (Form::Absolute { path_and_query, .. }, Form::Asterisk) => assert_eq!(path_and_query, "*"),
        (first, second) => assert_eq!(first, second),
    }
    let via = headers.get("Via").unwrap_or_default();
    assert!(via.ends_with(b" ekiden") && headers.get_all("Via").count() == 1);
}

fn onward_headers(head: &RequestHead) -> Headers {
    let mut headers = head.headers.clone();
    let _ = (keep_alive(head.version, &headers), expects_continue(&headers));
    let protocols = upgrade(&headers);
    strip_hop_by_hop(&mut headers);
    for name in ["Connection", "Keep-Alive", "Proxy-Authorization", "Transfer-Encoding", "TE", "Upgrade"] {
        assert!(headers.get(name).is_none(), "{name} got through");
    }
    match &head.form {
        Form::Absolute { authority_text, .. } => set_host(&mut headers, authority_text),
        Form::Authority(target) => set_host(&mut headers, &target.to_string()),
        // HTTP/1.0 may come without, and we write 1.1.
        Form::Origin(_) | Form::Asterisk if headers.get("Host").is_none() => set_host(&mut headers, ""),
        Form::Origin(_) | Form::Asterisk => {}
    }
    add_via(&mut headers, head.version, "ekiden");
    set_framing(&mut headers, head.body);
    if let Some(protocols) = protocols.filter(|_| headers.len() <= 98) {
        headers.push("Connection", "upgrade");
        headers.push("Upgrade", protocols);
    }
    headers
}
