//! Responses in a forward proxy: parsed, rewritten and written, a response parses as an equal response again.
//! The first byte of the input, `0` to `3`, selects the method of the request.
#![no_main]

use ekiden_fuzz::{HEAD_LIMIT, check_prefixes, lax};
use ekiden_proto::wire::http::connect::cause_of;
use ekiden_proto::wire::http::rewrite::{add_via, is_keep_alive, set_framing, strip_hop_by_hop, write_response};
use ekiden_proto::wire::http::{BodyFraming, ResponseHead};

const METHODS: [&str; 4] = ["GET", "HEAD", "CONNECT", "POST"];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let method = METHODS[usize::from(*first) % METHODS.len()];
    let Some((head, used)) = check_prefixes(bytes, |bytes| ResponseHead::parse(bytes, HEAD_LIMIT, method)) else {
        return;
    };
    assert!(used <= HEAD_LIMIT && (100..1000).contains(&head.status));
    // The framing fields of these responses are ignored.
    let unframed = matches!(head.status, 100..200 | 204) || (method == "CONNECT" && head.status / 100 == 2);
    if unframed || method == "HEAD" || head.status == 304 {
        assert_eq!(head.body, BodyFraming::Empty);
    }
    if !unframed {
        lax::assert_same_framing(&bytes[..used], head.body);
    }
    let _ = (cause_of(head.status, &head.headers), is_keep_alive(head.version, &head.headers));
    if head.headers.len() <= 99 {
        check_forwarded(&head, method);
    }
});

fn check_forwarded(head: &ResponseHead, method: &str) {
    let mut headers = head.headers.clone();
    strip_hop_by_hop(&mut headers);
    add_via(&mut headers, head.version, "ekiden");
    set_framing(&mut headers, head.body);
    let written = write_response(head.status, &head.reason, &headers);
    lax::assert_same_framing(&written, head.body);
    let (again, used) = ResponseHead::parse(&written, usize::MAX, method).expect("our own response");
    assert_eq!((used, again.status, again.body, &again.headers), (written.len(), head.status, head.body, &headers));
}
