//! Connections that end too soon: no receiver may treat a partial file or list as complete.

use super::vsftpd::*;
use crate::harness::*;
use crate::scripted::*;

#[test]
fn control_connection_is_closed_while_the_client_stays_connected() {
    let relay = http_relay();
    for (method, body) in [("GET", b"contents".as_slice()), ("HEAD", b"")] {
        let (address, commands) = scripted(WELL_BEHAVED);
        let mut client = send_request(&relay, &format!("{method} ftp://{address}/file HTTP/1.1\r\n\r\n"));
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert_eq!(read_exactly(&mut client, body.len()), body);
        eventually("the end of the control connection", || {
            commands.lock().unwrap().last().is_some_and(|line| line == "(gone)").then_some(())
        });
        assert!(commands.lock().unwrap().iter().any(|line| line == "QUIT"));
    }
}

#[test]
fn truncated_listing_is_not_sent_as_complete() {
    let list = Script { sends: b"-rw-r--r-- 1 0 0 1 Nov 05 2019 one\r\nodd & end", ..WELL_BEHAVED };
    let (whole, _) = scripted(list);
    let (part, _) = scripted(Script { ends_with: "426 Too bad.", ..list });
    let relay = http_relay();
    let got = get(&relay, &format!("ftp://{whole}/"), &[]);
    let text = String::from_utf8(got.body).unwrap();
    assert!(got.exit == 0 && text.contains("<a href=\"one\">") && text.contains("<pre>odd &amp; end</pre>"), "{text}");
    for version in ["-0", "--http1.1"] {
        let got = get(&relay, &format!("ftp://{part}/"), &[version]);
        assert!([18, 56].contains(&got.exit), "{version}: {got:?}");
    }
}

#[test]
fn truncated_file_is_not_sent_as_complete() {
    let short = Script { sends: b"half", ends_with: "426 Too bad.", ..WELL_BEHAVED };
    for (script, exit) in [
        // curl: "18 Partial file", "56 Failure in receiving network data".
        (short, [18, 56]),
        (Script { ends_with: "226 Done.", ..short }, [18, 56]),
        (Script { size: None, ..short }, [56, 56]),
        (Script { size: None, ends_with: "451 Disk error.", ..short }, [56, 56]),
    ] {
        let (address, _) = scripted(script);
        let mut relay = http_relay();
        let got = get(&relay, &format!("ftp://{address}/file"), &[]);
        assert!(exit.contains(&got.exit), "{got:?}");
        assert_eq!(relay.closed()["end"], "server_lost");
    }
    let (address, _) = scripted(Script { size: None, ..WELL_BEHAVED });
    let got = get(&http_relay(), &format!("ftp://{address}/file"), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"contents".as_slice()));
    // The server converts line ends in ASCII mode, so the reply to SIZE is not the length of the transfer.
    let (address, commands) = scripted(Script { size: Some(7), ..WELL_BEHAVED });
    let got = get(&http_relay(), &format!("ftp://{address}/file;type=a"), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"contents".as_slice()));
    assert!(commands.lock().unwrap().iter().any(|line| line.starts_with("TYPE A")));
    let head = get(&http_relay(), &format!("ftp://{address}/file;type=a"), &["-I"]);
    assert!(head.status == 200 && !head.head.contains("Content-Length"), "{}", head.head);
}

/// Without a length, the client takes a FIN as the end of the file or list. If the relay is killed before the server's
/// final reply, the client must get a reset.
#[test]
fn killed_relay_resets_unconfirmed_downloads() {
    // A list longer than the relay's write buffer, so the response begins before the end of the list.
    let list = (0..1000).map(|number| format!("-rw-r--r-- 1 0 0 1 Nov 05 2019 file-{number}\r\n")).collect::<String>();
    let list: &'static [u8] = list.leak().as_bytes();
    for stalls in [Stall::BeforeEnd, Stall::BeforeReply] {
        for (path, sends, version) in [("", list, "1.0"), ("file", b"contents", "1.0"), ("file", b"contents", "1.1")] {
            let script = Script { size: None, sends, stalls: Some(stalls), ..WELL_BEHAVED };
            let (address, commands) = scripted(script);
            let relay = http_relay();
            let mut client = send_request(&relay, &format!("GET ftp://{address}/{path} HTTP/{version}\r\n\r\n"));
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
            read_exactly(&mut client, sends.len().min(10_000));
            if stalls == Stall::BeforeReply {
                eventually("the end of the data connection", || {
                    commands.lock().unwrap().iter().any(|line| line == "(end of data)").then_some(())
                });
            }
            relay.signal("KILL");
            assert_eq!(read_remaining(&mut client).1, Ending::Reset, "/{path} for HTTP/{version}");
        }
    }
}

/// Regression: a client that left during a transfer was noticed only at the idle timeout.
#[test]
fn client_reset_closes_the_connections_to_the_server() {
    let (address, commands) = scripted(Script { size: None, stalls: Some(Stall::BeforeEnd), ..WELL_BEHAVED });
    let mut relay = http_relay();
    let mut client = send_request(&relay, &format!("GET ftp://{address}/file HTTP/1.1\r\n\r\n"));
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
    read_exactly(&mut client, WELL_BEHAVED.sends.len());
    reset(client);
    eventually("the end of the control connection", || {
        commands.lock().unwrap().last().is_some_and(|line| line == "(gone)").then_some(())
    });
    assert_eq!(relay.closed()["end"], "reset_by_client");
}
