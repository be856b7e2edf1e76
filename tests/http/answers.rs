//! Invalid responses of servers: the client gets an error, and the relay does not use the server's connection again.

use crate::framing::{BAD_CHUNKS, TRICKS};
use crate::harness::*;
use crate::talk::*;

/// The response is invalid, and the relay closes the server's connection.
fn assert_no_answer(scene: &mut Scene, bytes: &[u8]) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, bytes);
    let (head, page) = refused(&mut client, 502, &shown);
    assert_eq!(head.get("Proxy-Status"), Some("ekiden; error=http_protocol_error"), "{shown:?}");
    assert!(!page.contains("evil"), "{shown:?}: {page}");
    drop(client);
    assert_closed(&mut server);
    assert_eq!(scene.request()["status"], 502, "{shown:?}");
    assert_eq!(scene.relay.closed()["end"], "bad_answer", "{shown:?}");
    scene.assert_untouched(&shown);
}

#[test]
fn no_trick_reaches_a_client() {
    let mut scene = Scene::new();
    for trick in TRICKS {
        let evil = "5\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        assert_no_answer(&mut scene, format!("HTTP/1.1 200 OK\r\n{trick}\r\n\r\n{evil}").as_bytes());
    }
}

#[test]
fn what_is_no_answer_does_not_reach_a_client() {
    let mut scene = Scene::new();
    let (many, long) = ("X: y\r\n".repeat(101), "y".repeat(70_000));
    for text in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "SSH-2.0-evil\r\n",
        "220 evil FTP\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 99 evil\r\n\r\n",
        "HTTP/1.1 2000 evil\r\n\r\n",
        "HTTP/1.1  200 evil\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "<html>evil</html>",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "\u{5}\u{1}",
        &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        &format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
    ] {
        assert_no_answer(&mut scene, text.as_bytes());
    }
}

/// People read the page; without a next relay it must not mention a failing relay.
#[test]
fn a_server_s_fault_is_its_own() {
    let scene = Scene::new();
    for evil in ["SSH-2.0-evil\r\n", "HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n"] {
        let mut client = scene.client();
        say(&mut client, scene.get("/"));
        let mut server = scene.accept();
        Head::read(&mut server);
        say(&mut server, evil);
        let (_, page) = answer(&mut client);
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("next relay"), "{evil:?}: {page}");
    }
}

/// The head has already been sent, so the end must not look like the end of the body.
#[test]
fn an_answer_of_bad_chunks_never_ends_well() {
    let mut scene = Scene::new();
    for bad in BAD_CHUNKS {
        let mut client = scene.client();
        say(&mut client, scene.get("/"));
        let mut server = scene.accept();
        Head::read(&mut server);
        let body = format!("3\r\nabc\r\n{bad}0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        say(&mut server, format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let (heard, ending) = hear_out(&mut client);
        let heard = String::from_utf8_lossy(&heard);
        assert_eq!(ending, Ending::Reset, "{bad:?}: {heard:?}");
        assert!(!heard.contains("\r\n0\r\n\r\n") && !heard.contains("evil"), "{bad:?}: {heard:?}");
        assert_closed(&mut server);
        assert_eq!(scene.request()["status"], 200, "{bad:?}");
        assert_ne!(scene.relay.closed()["end"], "finished", "{bad:?}");
        scene.assert_untouched(bad);
    }
}

#[test]
fn chunks_lose_their_extensions_and_trailers_what_must_come_first() {
    let scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
    say(
        &mut server,
        "5;a=b\r\nhello\r\n0006 ;c\r\n world\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a\r\nContent-Length: 1\r\n\r\n",
    );
    let head = Head::read(&mut client);
    assert_eq!((head.get("Transfer-Encoding"), head.get("Trailer")), (Some("chunked"), Some("X-Sum")));
    let expected = "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(String::from_utf8(read_exactly(&mut client, expected.len())).unwrap(), expected);
    scene.exchange(&mut client, &mut server, "/next");
}

/// Framing fields of a response without a body do not define its end (RFC 9112, 6.3), and must not reach a client.
#[test]
fn framing_of_what_has_no_body_is_dropped() {
    let scene = Scene::new();
    let (mut client, mut server) = scene.acquainted();
    for status in ["204 No Content", "304 Not Modified"] {
        say(&mut client, scene.get("/empty"));
        Head::read(&mut server);
        say(&mut server, format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n"));
        let head = Head::read(&mut client);
        assert_eq!((head.all("Transfer-Encoding").len(), head.get("Connection")), (0, None), "{}", head.0);
    }
    scene.exchange(&mut client, &mut server, "/next");
}
