//! Private keys and payloads appear neither in the log, nor in metrics, nor in status.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

const PAYLOAD: &[u8] = b"the-payload-of-the-session";

/// Runs sessions that succeed, sessions that fail with bytes in flight, and handshakes that are malformed.
fn run_sessions(home: SocketAddr, relay: SocketAddr) {
    let target = echo_server();
    let mut client = socks5(home, target).unwrap();
    for _ in 0..3 {
        client.write_all(PAYLOAD).unwrap();
        assert_eq!(read_exactly(&mut client, PAYLOAD.len()), PAYLOAD);
    }
    reset(client);
    let refused = unused_address();
    let mut client = connect(home);
    client.write_all(format!("CONNECT {refused} HTTP/1.1\r\nHost: {refused}\r\n\r\n").as_bytes()).unwrap();
    client.write_all(PAYLOAD).unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 502 "));
    for address in [home, relay] {
        let mut stranger = connect(address);
        let _ = stranger.write_all(PAYLOAD);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        read_remaining(&mut stranger);
    }
}

/// Checks that `output` contains neither the payload nor a private key. It must contain `expected`, which shows that it
/// covers sessions.
fn assert_no_secret(output: &str, expected: &str, sites: &[Site]) {
    assert!(output.contains(expected), "{expected} is missing in:\n{output}");
    assert!(!output.contains(std::str::from_utf8(PAYLOAD).unwrap()), "the payload is in:\n{output}");
    for site in sites {
        assert!(!output.contains(&site.key.private), "a private key is in:\n{output}");
    }
}

#[test]
fn log_metrics_and_api_contain_no_keys_or_payloads() {
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(1, encrypt);
        run_sessions(chain.home.address(), chain.sites[1].address);
        let (mut client, mut server) = chain.pair();
        exchange_messages(&mut client, &mut server);
        client.write_all(PAYLOAD).unwrap();
        assert_eq!(read_exactly(&mut server, PAYLOAD.len()), PAYLOAD);
        let target = server.local_addr().unwrap().to_string();
        for relay in [&chain.home, &chain.relays[0]] {
            assert_no_secret(&relay.ask("/metrics"), "ekiden_sessions_open{", &chain.sites);
            assert_no_secret(&relay.ask("/api/sessions"), &target, &chain.sites);
        }
        drop((client, server));
        for relay in [&mut chain.home, &mut chain.relays[0]] {
            relay.signal("TERM");
            let events: String = relay.remaining_events().iter().map(ToString::to_string).collect();
            assert_no_secret(&(events + &relay.read_stderr()), "closed", &chain.sites);
        }
    }
}

/// Starts a relay whose text log goes to a file.
fn start_with_text_log(folder: &Path, config: &Path) -> KillOnDrop {
    let (out, err) = (File::create(folder.join("out")).unwrap(), File::create(folder.join("err")).unwrap());
    let mut command = ekiden();
    command.args(["run", "--log", "text", "--admin", "off", "-c"]).arg(config);
    KillOnDrop(command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap())
}

#[test]
fn text_log_contains_no_keys_or_payloads() {
    let sites = [Site::new(), Site::new()];
    let peers = sites[1].admit(&[(&sites[0].key.public, "home")]);
    let door = own_address();
    let far = sites[1].write("", &format!("peers = {peers:?}\n"));
    let home = sites[0].write_home(&format!("forward = [\"{}\"]\n", sites[1].url()), AUTO);
    let text = std::fs::read_to_string(&home).unwrap().replace("127.0.0.1:0", &door.to_string());
    std::fs::write(&home, text).unwrap();
    let relays = [start_with_text_log(&sites[1].folder.0, &far), start_with_text_log(&sites[0].folder.0, &home)];
    for address in [sites[1].address, door] {
        eventually(&format!("the listener at {address}"), || std::net::TcpStream::connect(address).ok());
    }
    run_sessions(door, sites[1].address);
    for KillOnDrop(relay) in &relays {
        // Before its end, the relay writes all events.
        signal(relay.id(), "TERM");
        wait_process_end(relay.id());
    }
    for site in &sites {
        let output = |name: &str| std::fs::read_to_string(site.folder.0.join(name)).unwrap();
        assert_no_secret(&(output("out") + &output("err")), "closed", &sites);
    }
}
