//! Limits of HTTP/2 connections: number of streams, memory, descriptors and lifetime.

use std::time::{Duration, Instant};

use crate::harness::{Relay, eventually};
use crate::http2::{RunningScript, h2_certificate, run};

/// Number of streams with this result. The metric appears with the first of them.
fn streams(relay: &Relay, result: &str) -> u64 {
    let series = format!("ekiden_http2_streams_total{{listener=\"door\",result=\"{result}\"}}");
    relay.metric(&series).unwrap_or(0)
}

#[test]
fn concurrent_streams_per_connection_are_limited() {
    const SCRIPT: &str = "
client, (listener, target) = client(), server()
assert client.h2.remote_settings.max_concurrent_streams == 256
client.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
client.h2.remote_settings.acknowledge()
numbers = [client.tunnel(target) for _ in range(256)]
extra = client.connect(target)
client.until(lambda: client.is_over(extra))
assert client.streams[extra].reset == 7, 'REFUSED_STREAM'
client.reset(numbers[0])
client.tunnel(target)
";
    let Some(certificate) = h2_certificate() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[]);
}

#[test]
fn streams_count_as_sessions() {
    const SCRIPT: &str = "
client, (listener, target) = client(), server()
numbers = [client.tunnel(target) for _ in range(3)]
for _ in range(2):
    number = client.connect(target)
    text = client.read_remaining(number)
    assert client.streams[number].status == int(sys.argv[3]), client.streams[number].headers
    assert text.startswith(b'This relay serves no more sessions'), text
client.reset(numbers[0])
accept(listener).close()
# The place is free when the session has ended.
while True:
    number = client.connect(target)
    client.until(lambda: client.streams[number].headers)
    if client.streams[number].status == 200:
        break
";
    let Some(certificate) = h2_certificate() else { return };
    for (limit, status, result) in
        [("sessions_per_client", "429", "client_limit"), ("sessions", "503", "session_limit")]
    {
        let relay = certificate.relay(&format!("[limits]\n{limit} = 3"), "");
        run(&certificate, &relay, SCRIPT, &[status]);
        assert!(streams(&relay, result) >= 2 && streams(&relay, "session") == 4, "{}", relay.ask("/metrics"));
        eventually("the end of all connections", || {
            (relay.metric("ekiden_http2_connections{listener=\"door\"}") == Some(0)).then_some(())
        });
    }
}

/// CVE-2023-44487 (rapid reset).
#[test]
fn rapid_reset_client_is_stopped() {
    const SCRIPT: &str = "
client = client()
listener, target = server()
for _ in range(20000):
    number = client.h2.get_next_available_stream_id()
    client.h2.send_headers(number, [(':method', 'CONNECT'), (':authority', target)])
    client.h2.reset_stream(number, 8)
try:
    client.flush()
    client.until_closed()
except OSError:
    # The relay has closed while bytes were on their way.
    pass
";
    let Some(certificate) = h2_certificate() else { return };
    let mut relay = certificate.relay("", "");
    run(&certificate, &relay, SCRIPT, &[]);
    // Other clients are served.
    run(&certificate, &relay, "listener, target = server()\nclient().tunnel(target)", &[]);
    let (sessions, refused) = (streams(&relay, "session"), streams(&relay, "exhausted"));
    assert!(sessions > 0 && sessions + refused < 1000, "{sessions} sessions of 20000 streams, {refused} refused");
    assert_eq!(relay.next(|event| event["event"] == "closed" && event["bytes_up"] == 0)["http"], 2);
}

#[test]
fn connections_without_streams_time_out() {
    const SCRIPT: &str = "
silent, used = client(), client()
listener, target = server()
number = used.tunnel(target)
end = accept(listener)
silent.until_closed()
assert silent.goaway.error_code == 0
# A connection with a stream stays, however long the stream waits.
used.send(number, b'question')
assert read(end, 8) == b'question'
end.close()
used.end(number)
used.until_closed()
assert used.goaway.error_code == 0 and used.streams[number].ended
";
    let Some(certificate) = h2_certificate() else { return };
    let relay = certificate.relay("[timeouts]\nhandshake = \"1s\"\nkeep_alive = \"500ms\"", "");
    run(&certificate, &relay, SCRIPT, &[]);
    // A client that negotiates h2 and sends no HTTP/2 preface.
    let mut client =
        certificate.try_client(relay.connect(), &[&tokio_rustls::rustls::version::TLS13], &["h2"]).unwrap();
    assert_eq!(client.0.conn.alpn_protocol(), Some(&b"h2"[..]));
    // Fails unless the relay ends the connection.
    client.read_remaining();
}

/// Idle connections are closed for new connections; connections with streams are not evicted.
#[test]
fn idle_connections_are_evicted_for_new_connections() {
    const SCRIPT: &str = "
busy = client()
listener, target = server()
number = busy.tunnel(target)
end = accept(listener)
idle = [client() for _ in range(40)]
idle[0].until_closed()
assert idle[0].goaway.error_code == 0
assert idle[-1].tunnel(target)
busy.send(number, b'hello')
assert read(end, 5) == b'hello'
";
    let Some(certificate) = h2_certificate() else { return };
    // One thread accepts in the order of arrival.
    let relay = Relay::run_with_few_files(&certificate.configuration("threads = 1", ""));
    run(&certificate, &relay, SCRIPT, &[]);
    assert!(relay.evictions("door") >= 9, "{}", relay.evictions("door"));
}

/// A stream needs more descriptors than a connection, so fewer streams than connections are admitted.
#[test]
fn descriptors_suffice_for_all_streams() {
    const SCRIPT: &str = "
clients = [client() for _ in range(4)]
listener, target = server()
served = 0
for number in range(200):
    one = clients[number % 4]
    stream = one.connect(target)
    one.until(lambda: one.streams[stream].headers)
    assert one.streams[stream].status in [200, 503], one.streams[stream].headers
    served += one.streams[stream].status == 200
print(served)
";
    let Some(certificate) = h2_certificate() else { return };
    let mut relay = Relay::run_with_few_files(&certificate.configuration("threads = 1", ""));
    let served: u64 = run(&certificate, &relay, SCRIPT, &[]).trim().parse().unwrap();
    assert!((20..60).contains(&served), "{served}");
    assert_eq!((streams(&relay, "session"), streams(&relay, "exhausted")), (served, 0));
    relay.signal("TERM");
    assert!(relay.remaining_events().iter().all(|event| event["event"] != "accept_paused"));
}

/// Streams finish after GOAWAY, and their last bytes arrive.
#[test]
fn streams_finish_while_the_relay_drains() {
    const SCRIPT: &str = "
import os, signal
one, idle = client(), client()
listener, target = server()
number = one.tunnel(target)
end = accept(listener)
os.kill(int(sys.argv[3]), signal.SIGTERM)
one.until(lambda: one.goaway)
idle.until_closed()
assert one.goaway.error_code == 0 and idle.goaway.error_code == 0
one.send(number, b'question', end=True)
assert read(end, 100) == b'question'
end.sendall(b'x' * 5000000)
end.close()
assert one.read_remaining(number) == b'x' * 5000000 and one.streams[number].ended
one.until_closed()
";
    let Some(certificate) = h2_certificate() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[&relay.id().to_string()]);
    assert_eq!(relay.closed()["end"], "finished");
    assert_eq!(relay.exit_code(), Some(0));
}

/// Neither the client nor the servers read: a tunnel may then use 1 MiB of the relay's memory.
#[test]
fn memory_of_waiting_streams_is_bounded() {
    const SCRIPT: &str = "
import select, threading
one, (listener, target) = client(window=(1 << 31) - 1), server()
numbers = [one.tunnel(target) for _ in range(int(sys.argv[3]))]
ends = [accept(listener) for _ in numbers]
# Each server reads nothing. The client sends as much as the relay lets it.
while True:
    for number in numbers:
        one.fill(number)
    readable, _, _ = select.select([one.socket, sys.stdin], [], [])
    if sys.stdin in readable:
        break
    one.receive()
# The client reads nothing more, and the servers send.
def flood(end):
    try:
        while end.send(b'x' * 65536):
            pass
    except OSError:
        pass
for end in ends:
    end.settimeout(None)
    threading.Thread(target=flood, args=[end], daemon=True).start()
sys.stdin.readline()
sys.stdin.read()
";
    const TUNNELS: u64 = 48;
    let Some(certificate) = h2_certificate() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, "listener, target = server()\nclient().tunnel(target)", &[]);
    let before = relay.resident_kib();
    let mut python = RunningScript::start(&certificate, &relay, SCRIPT, &[&TUNNELS.to_string()]);
    let used = || relay.resident_kib().saturating_sub(before);
    eventually("full flow-control windows", || (used() >= TUNNELS * 512).then_some(()));
    wait_unchanged(&relay, "bytes_up");
    python.write_line();
    eventually("bytes of all servers", || (counter_sum(&relay, "bytes_down") >= TUNNELS * (64 << 10)).then_some(()));
    wait_unchanged(&relay, "bytes_down");
    let used = used();
    assert!(used <= TUNNELS * 1024, "{used} KiB of {TUNNELS} tunnels");
}

/// Interim responses have no flow control, so the client cannot hold them back by reading nothing: without a limit, all
/// 32 MiB waited in the relay.
#[test]
fn memory_of_interim_responses_is_bounded() {
    const SCRIPT: &str = "
def resident_kib():
    with open('/proc/%s/status' % sys.argv[3]) as status:
        return next(int(line.split()[1]) for line in status if line.startswith('VmRSS:'))
client, (listener, target) = client(), server()
number = client.request([(':method', 'GET'), (':scheme', 'http'), (':authority', target), (':path', '/')], end=True)
end = accept(listener)
before = resident_kib()
for _ in range(4096):
    end.sendall(b'HTTP/1.1 103 Early Hints\\r\\nLink: ' + b'x' * 8000 + b'\\r\\n\\r\\n')
used = resident_kib() - before
assert used < 8 << 10, '%d KiB' % used
end.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
assert client.read_remaining(number) == b'ok'
# Of the heads of 8078 bytes each, as RFC 9113 counts them, as many are forwarded as fit into 32 KiB.
assert client.streams[number].interim == [103] * 4, client.streams[number].interim
";
    let Some(certificate) = h2_certificate() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[&relay.id().to_string()]);
}

/// The sum of a counter over all sessions.
fn counter_sum(relay: &Relay, counter: &str) -> u64 {
    relay.sessions().iter().map(|session| session[counter].as_u64().unwrap()).sum()
}

/// Waits until the counter has not changed for a second.
fn wait_unchanged(relay: &Relay, counter: &str) {
    let (mut last, mut since) = (0, Instant::now());
    eventually("full buffers", || {
        if counter_sum(relay, counter) != last {
            (last, since) = (counter_sum(relay, counter), Instant::now());
        }
        (since.elapsed() > Duration::from_secs(1)).then_some(())
    });
}
