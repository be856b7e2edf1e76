//! Tunnels and requests of HTTP/2 clients: Python's h2 and node.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::certificate::Certificate;
use crate::curl::curl;
use crate::harness::{Folder, HTPASSWD, PYTHON, Relay, skipped, unused_address};
use crate::origin;
use crate::programs::{client, is_any_missing, program, run_successfully, run_to_end};

/// A certificate for a test with Python's h2; `None`, with a message, if openssl or h2 is missing.
pub fn h2_certificate() -> Option<Certificate> {
    let has_h2 = Path::new(PYTHON).exists() && run_to_end(Command::new(PYTHON).args(["-c", "import h2"])).code == 0;
    if !has_h2 {
        skipped("h2 of Python is missing, scripts/setup installs it");
    }
    Certificate::new().filter(|_| has_h2)
}

/// A command that runs a script with the client of `http2.py`. In the script, `client()` connects to the relay.
fn script(certificate: &Certificate, relay: &Relay, script: &str, arguments: &[&str]) -> Command {
    const ENDS: &str = "
import sys
def client(**more):
    return Client(('127.0.0.1', int(sys.argv[1])), sys.argv[2], **more)
def server():
    listener = socket.create_server(('127.0.0.1', 0), backlog=1024)
    listener.settimeout(DEADLINE)
    return listener, '%s:%d' % listener.getsockname()
def accept(listener):
    connection = listener.accept()[0]
    connection.settimeout(DEADLINE)
    return connection
def read(connection, count):
    data = b''
    while len(data) < count and (piece := connection.recv(min(count - len(data), 1 << 16))):
        data += piece
    return data
";
    let mut python = client(PYTHON, &certificate.folder);
    let file = certificate.folder.write("client.py", [include_str!("http2.py"), ENDS, script].concat());
    python.arg(file).arg(relay.address().port().to_string()).arg(certificate.file());
    python.args(arguments);
    python
}

/// Runs a script to its end, and returns its output.
pub fn run(certificate: &Certificate, relay: &Relay, text: &str, arguments: &[&str]) -> String {
    String::from_utf8(run_successfully(&mut script(certificate, relay, text, arguments))).unwrap()
}

/// A running script, which exits at the end of its standard input.
pub struct RunningScript(Child);

impl RunningScript {
    pub fn start(certificate: &Certificate, relay: &Relay, text: &str, arguments: &[&str]) -> Self {
        let mut python = script(certificate, relay, text, arguments);
        Self(python.stdin(Stdio::piped()).spawn().unwrap())
    }

    /// Writes the line for which the script waits.
    pub fn write_line(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for RunningScript {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn many_tunnels_share_one_connection() {
    const SCRIPT: &str = "
client, (listener, target) = client(), server()
numbers = [client.connect(target) for _ in range(100)]
client.until(lambda: all(client.streams[number].headers for number in numbers))
ends = [accept(listener) for _ in numbers]
# Each server says which of the streams it has.
for number in numbers:
    client.send(number, b'%08d' % number)
for end in ends:
    number = int(read(end, 8))
    end.sendall(b'%08d' % number * 5000)
    end.close()
for number in numbers:
    client.end(number)
    assert client.read_remaining(number) == b'%08d' % number * 5000, number
    assert client.streams[number].status == 200 and client.streams[number].ended
client.close()
";
    let Some(certificate) = h2_certificate() else { return };
    for kind in ["auto", "http"] {
        let mut relay = Relay::listen(&[&certificate.listener(kind)]);
        run(&certificate, &relay, SCRIPT, &[]);
        let closed = relay.all_closed(100, "session");
        for event in &closed {
            assert_eq!(
                (&event["end"], &event["http"], &event["tls"]),
                (&"finished".into(), &2.into(), &"1.3".into()),
                "{event}"
            );
            assert_eq!((&event["bytes_up"], &event["bytes_down"]), (&8.into(), &40_000.into()), "{event}");
            assert_eq!(event["client"], closed[0]["client"], "one connection");
        }
    }
}

/// Servers receive the requests, and the log reports them, as those of HTTP/1.1 clients.
#[test]
fn requests_are_forwarded() {
    const SCRIPT: &str = "
origin = sys.argv[3]
client = client()
answer = client.get(origin, '/path?query', more=[('cookie', 'a=1'), ('x-name', 'value'), ('cookie', 'b=2'), ('te', 'trailers')])
text = bytes(answer.data).decode()
assert answer.status == 200, answer.headers
for line in ['GET /path?query HTTP/1.1', 'host: ' + origin, 'cookie: a=1; b=2', 'x-name: value']:
    assert line in text.lower() or line in text, (line, text)
assert 'close' not in text and 'te:' not in text, text
for path in ['/chunked', '/close']:
    answer = client.get(origin, path)
    assert (answer.status, len(answer.data), answer.ended) == (200, 300000, True), (path, answer.headers)
    assert b'transfer-encoding' not in answer.headers and b'connection' not in answer.headers
answer = client.get(origin, '/broken-chunks')
assert answer.reset == 2 and not answer.ended, 'half an answer is no answer'
body = b'y' * 700000
for more in [[], [('content-length', str(len(body)))]]:
    number = client.request([(':method', 'POST'), (':scheme', 'http'), (':authority', origin), (':path', '/'), *more])
    client.send(number, body, end=True)
    text = client.read_remaining(number).decode()
    assert 'body: 700000 ' + sys.argv[4] in text, text
    assert ('Transfer-Encoding: chunked' in text) == (not more), text
number = client.request([(':method', 'POST'), (':scheme', 'http'), (':authority', origin), (':path', '/'), ('expect', '100-continue')])
client.until(lambda: client.streams[number].interim)
assert client.streams[number].interim == [100]
client.send(number, b'later', end=True)
assert b'body: 5 ' in client.read_remaining(number)
number = client.request([(':method', 'HEAD'), (':scheme', 'http'), (':authority', origin), (':path', '/')], end=True)
assert client.read_remaining(number) == b'' and client.streams[number].status == 200
answer = client.get('localhost:' + sys.argv[1], '/proxy.pac', scheme='https')
assert answer.status == 200 and b'HTTPS localhost:' + sys.argv[1].encode() in answer.data, answer.data
answer = client.get('localhost:' + sys.argv[1], '/', scheme='https')
assert answer.status == 400 and b'This is ekiden' in answer.data, answer.headers
";
    let Some(certificate) = h2_certificate() else { return };
    let origin = origin::start();
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[&origin.to_string(), &origin::checksum(&[b'y'; 700_000])]);
    let request = relay.next(|event| event["event"] == "request" && event["method"] == "HEAD");
    assert_eq!((&request["status"], &request["url"]), (&200.into(), &format!("http://{origin}/").into()));
}

/// Refusals have the same status codes as for HTTP/1.1 clients, and the connection remains open.
#[test]
fn refusals_affect_only_one_stream() {
    const SCRIPT: &str = "
import base64
client, refused, origin = client(), sys.argv[3], sys.argv[4]
credentials = lambda text: [('proxy-authorization', 'Basic ' + base64.b64encode(text).decode())]
def status(number):
    text = client.read_remaining(number)
    answer = client.streams[number]
    # NO_ERROR asks the client to stop sending (RFC 9113, 8.1).
    assert answer.ended and answer.reset in [None, 0], answer.reset
    return answer.status, text, answer.headers
for more in [[], credentials(b'ann:wrong')]:
    found, text, headers = status(client.connect(refused, more))
    assert found == 407 and headers[b'proxy-authenticate'].startswith(b'Basic '), headers
    assert b'connection' not in headers
right = credentials(b'ann:correct horse')
found, text, headers = status(client.connect(refused, right))
assert found == 502 and b'error=connection_refused' in headers[b'proxy-status'], headers
assert status(client.connect('no-port.example', right))[0] == 400
answer = client.get(origin, '/', more=right)
assert answer.status == 200 and b'roxy-' not in answer.data, answer.data
# An upload that is not read.
number = client.request([(':method', 'POST'), (':scheme', 'http'), (':authority', origin), (':path', '/')])
client.send(number, b'z' * 100000)
assert status(number)[0] == 407
";
    let Some(certificate) = h2_certificate() else { return };
    let folder = Folder::new();
    let users = folder.write("users", HTPASSWD);
    let mut relay = Relay::listen(&[&format!("{}&users={}", certificate.listener("auto"), users.display())]);
    run(&certificate, &relay, SCRIPT, &[&unused_address().to_string(), &origin::start().to_string()]);
    let refused = relay.next(|event| event["event"] == "closed" && event["end"] == "refused");
    assert_eq!((&refused["user"], &refused["http"]), (&"ann".into(), &2.into()), "{refused}");
}

#[test]
fn end_stream_and_fin_close_one_direction() {
    const SCRIPT: &str = "
client, (listener, target) = client(), server()
def tunnel():
    number = client.tunnel(target)
    return number, accept(listener)
# END_STREAM closes one direction.
number, end = tunnel()
client.send(number, b'question', end=True)
assert read(end, 100) == b'question'
end.sendall(b'answer')
end.close()
assert client.read_remaining(number) == b'answer' and client.streams[number].ended
# So does FIN.
number, end = tunnel()
end.sendall(b'greeting')
end.shutdown(socket.SHUT_WR)
client.until(lambda: client.streams[number].ended)
client.send(number, b'more', end=True)
assert read(end, 100) == b'more' and client.streams[number].data == b'greeting'
end.close()
";
    let Some(certificate) = h2_certificate() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[]);
    assert!(relay.all_closed(2, "session").iter().all(|event| event["end"] == "finished"));
}

#[test]
fn stream_resets_map_to_connection_resets() {
    const SCRIPT: &str = "
import struct
client, (listener, target) = client(), server()
def tunnel():
    number = client.tunnel(target)
    return number, accept(listener)
# RST_STREAM is a reset, whether the client has ended its direction or not.
for ended in [False, True]:
    number, end = tunnel()
    if ended:
        client.end(number)
        assert read(end, 1) == b''
    client.reset(number)
    # The server may write until it learns of the reset.
    try:
        while True:
            end.sendall(b'x') if ended else end.recv(1) or sys.exit('an orderly end')
    except ConnectionError:
        pass
# A reset is RST_STREAM with CONNECT_ERROR (RFC 9113, 8.5).
for ended in [False, True]:
    number, end = tunnel()
    if ended:
        client.end(number)
        assert read(end, 1) == b''
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    end.close()
    client.until(lambda: client.is_over(number))
    assert client.streams[number].reset == 10, client.streams[number].reset
# A lost connection resets all of its tunnels.
number, end = tunnel()
client.socket.close()
try:
    assert end.recv(1) != b'', 'an orderly end'
except ConnectionResetError:
    pass
";
    let Some(certificate) = h2_certificate() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[]);
    let mut ends: Vec<_> = (0..5).map(|_| relay.closed()["end"].as_str().unwrap().to_owned()).collect();
    ends.sort();
    let expected = [("reset_by_client", 3), ("reset_by_server", 2)];
    assert_eq!(ends, expected.map(|(end, count)| vec![end; count]).concat());
}

/// A tunnel whose client does not read and a tunnel whose server does not read exhaust only their own windows.
#[test]
fn blocked_streams_do_not_block_other_streams() {
    const SCRIPT: &str = "
import threading
client, (listener, target) = client(window=65535), server()
blocked, other, moving = (client.tunnel(target), client.tunnel(target), client.tunnel(target))
ends = [accept(listener) for _ in range(3)]
client.streams[blocked].reading = False
def flood(end):
    try:
        end.sendall(b'x' * (64 << 20))
    except OSError:
        pass
threading.Thread(target=flood, args=[ends[0]], daemon=True).start()
client.until(lambda: len(client.streams[blocked].data) == 65535)
assert client.fill(other) == 512 << 10, 'the window of a stream'
data = bytes(range(256)) * 40000
def echo(end):
    for _ in range(len(data) >> 16):
        end.sendall(read(end, 1 << 16))
    end.sendall(read(end, len(data) % (1 << 16)))
threading.Thread(target=echo, args=[ends[2]], daemon=True).start()
client.send(moving, data)
client.until(lambda: len(client.streams[moving].data) == len(data))
assert client.streams[moving].data == data
assert len(client.streams[blocked].data) == 65535
";
    let Some(certificate) = h2_certificate() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    run(&certificate, &relay, SCRIPT, &[]);
}

/// The HTTP/2 client of node is nghttp2.
#[test]
fn node_tunnels_and_fetches() {
    const SCRIPT: &str = "
const http2 = require('http2'), fs = require('fs');
const [port, ca, target] = process.argv.slice(2);
const client = http2.connect(`https://localhost:${port}`, { ca: fs.readFileSync(ca) });
function fetch(headers, body) {
    return new Promise((resolve, reject) => {
        const stream = client.request(headers);
        let status, size = 0;
        stream.on('response', head => { status = head[':status']; if (body) stream.end(body); });
        stream.on('data', data => { size += data.length; });
        stream.on('end', () => resolve(`${status} ${size}`));
        stream.on('error', reject);
    });
}
const request = `GET /close HTTP/1.0\\r\\nHost: ${target}\\r\\n\\r\\n`;
const http = { ':scheme': 'http', ':authority': target };
Promise.all([
    fetch({ ':method': 'CONNECT', ':authority': target }, request),
    fetch({ ':method': 'GET', ':path': '/chunked', ...http }),
    fetch({ ':method': 'GET', ':path': '/proxy.pac' }),
]).then(answers => { console.log(answers.join('\\n')); client.close(); });
";
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["node"]) {
        return;
    }
    let origin = origin::start().to_string();
    let mut relay = Relay::listen(&[&certificate.listener("http")]);
    let file = certificate.folder.write("client.js", SCRIPT);
    let mut node = program("node", &certificate.folder);
    let port = relay.address().port().to_string();
    let output =
        String::from_utf8(run_successfully(node.arg(file).arg(port).arg(certificate.file()).arg(&origin))).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], ["200 300019", "200 300000"], "{output}");
    assert!(lines[2].starts_with("200 "), "{output}");
    assert_eq!(relay.all_closed(3, "session").iter().filter(|event| event["http"] == 2).count(), 3);
}

/// curl uses HTTP/2 to a proxy only with `--proxy-http2`.
#[test]
fn curl_tunnels_over_http2() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let help = run_to_end(program("curl", &certificate.folder).args(["--help", "all"]));
    if !String::from_utf8_lossy(&help.out).contains("--proxy-http2") {
        return skipped("this curl is older than 8.1, which has --proxy-http2");
    }
    let origin = origin::start();
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    let (proxy, authority) = (format!("-xhttps://{}", relay.address()), certificate.file().display().to_string());
    let url = format!("http://{origin}/close");
    curl(&[&proxy, "--proxy-cacert", &authority, "--proxy-http2", "-p", &url])
        .assert_success(200, &origin::long_answer());
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["http"]), (&"finished".into(), &2.into()), "{closed}");
}
