//! `ftp://` URLs through the HTTP proxy, and FTP through SOCKS: the real vsftpd, asked by the real curl. What no good
//! server does is done by a scripted one.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use harness::*;
use serde_json::Value;

const VSFTPD: &str = "/usr/sbin/vsftpd";

/// A running vsftpd with `pub/`, which can be read, and `incoming/`, which can be written.
struct Vsftpd {
    child: Child,
    address: SocketAddr,
    folder: Folder,
}

impl Vsftpd {
    /// Nothing, said aloud, where it cannot run.
    fn start() -> Option<Self> {
        let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !root || !std::path::Path::new(VSFTPD).exists() {
            eprintln!("skipped: needs root and {VSFTPD} (apt-get install vsftpd)");
            return None;
        }
        let folder = Folder::new();
        for (name, mode) in [("", 0o755), ("site", 0o755), ("site/pub", 0o755), ("site/incoming", 0o777)] {
            let path = folder.0.join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        folder.write("banned", "wrong@password\n");
        // It cannot choose a port itself. Another process may take the one that was free, so its banner has to be ours.
        let (child, address) = eventually("vsftpd", || Self::try_start(&folder));
        Some(Self { child, address, folder })
    }

    fn try_start(folder: &Folder) -> Option<(Child, SocketAddr)> {
        let address = nobody();
        let (root, name) = (folder.0.display(), folder.0.file_name().unwrap().to_str().unwrap());
        let text = format!(
            "listen=YES\nlisten_ipv6=NO\nlisten_address=127.0.0.1\nlisten_port={}\nbackground=NO\nftpd_banner={name}\n\
             anonymous_enable=YES\nlocal_enable=NO\nanon_root={root}/site\nwrite_enable=YES\nanon_upload_enable=YES\n\
             anon_world_readable_only=NO\nanon_umask=022\ndelete_failed_uploads=YES\ndeny_email_enable=YES\n\
             banned_email_file={root}/banned\nsecure_chroot_dir={root}/site/pub\nxferlog_enable=NO\nseccomp_sandbox=NO\n",
            address.port()
        );
        let file = folder.write("vsftpd.conf", text);
        let mut child = Command::new(VSFTPD).arg(file).stdin(Stdio::null()).spawn().unwrap();
        let ours = eventually("an answer", || match TcpStream::connect(address) {
            Ok(stream) => {
                let mut greeting = String::new();
                let _ = BufReader::new(stream).read_line(&mut greeting);
                Some(greeting.contains(name))
            }
            Err(_) => child.try_wait().unwrap().map(|_| false),
        });
        if ours {
            return Some((child, address));
        }
        let _ = child.kill();
        let _ = child.wait();
        None
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.0.join("site").join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }
}

impl Drop for Vsftpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the scripted server does, beginning with everything right.
#[derive(Clone, Copy)]
struct Script {
    knows_epsv: bool,
    size: Option<usize>,
    sends: &'static [u8],
    ends_with: &'static str,
    passive_port: Option<u16>,
}

const WELL_BEHAVED: Script =
    Script { knows_epsv: true, size: Some(8), sends: b"contents", ends_with: "226 Done.", passive_port: None };

/// A server that plays `script`, and the commands it has heard.
fn scripted(script: Script) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&heard);
    let address = serve(move |stream| {
        play(script, stream, &record);
        record.lock().unwrap().push("(gone)".to_owned());
    });
    (address, heard)
}

fn play(script: Script, mut control: TcpStream, heard: &Mutex<Vec<String>>) {
    let lines = BufReader::new(control.try_clone().unwrap()).split(b'\n');
    let mut data: Option<(TcpListener, Option<TcpListener>)> = None;
    let _ = write!(control, "220-Two\r\n220 lines.\r\n");
    for line in lines.map_while(Result::ok) {
        // Names are bytes in no known character set.
        let line: String = line.trim_ascii_end().iter().map(|byte| char::from(*byte)).collect();
        heard.lock().unwrap().push(line.clone());
        let mut passive = || {
            let (listener, address) = server();
            // Another server of the same name, whom nobody has asked for anything.
            let stranger = TcpListener::bind(("::1", address.port())).ok();
            data = Some((listener, stranger));
            script.passive_port.unwrap_or(address.port())
        };
        let reply = match line.split(' ').next().unwrap() {
            "USER" => "331 Password?".to_owned(),
            "PASS" => "230 Hello.".to_owned(),
            "TYPE" => "200 As you like.".to_owned(),
            "SIZE" => script.size.map_or("502 What?".to_owned(), |size| format!("213 {size}")),
            "MDTM" => "213 20240229123456".to_owned(),
            "EPSV" if script.knows_epsv => format!("229 Here (|||{}|)", passive()),
            // An address that leads elsewhere: only the port counts.
            "PASV" => {
                let [high, low] = passive().to_be_bytes();
                format!("227 Here (192,0,2,1,{high},{low}).")
            }
            "CWD" => "250 Welcome.".to_owned(),
            "RETR" | "LIST" => {
                let _ = write!(control, "150 Coming.\r\n");
                let mut data = accept(&data.as_ref().expect("a passive reply").0);
                let _ = data.write_all(script.sends);
                script.ends_with.to_owned()
            }
            "STOR" => {
                // Takes a little, and then its disk is full.
                let _ = write!(control, "150 Go ahead.\r\n");
                let mut data = accept(&data.as_ref().expect("a passive reply").0);
                let _ = data.read(&mut [0; 1000]);
                reset(data);
                script.ends_with.to_owned()
            }
            _ => "500 What?".to_owned(),
        };
        if write!(control, "{reply}\r\n").is_err() {
            return;
        }
    }
}

/// What curl got.
#[derive(Debug)]
struct Got {
    status: u16,
    body: Vec<u8>,
    head: String,
    said: String,
    exit: i32,
}

fn curl(arguments: &[&str]) -> Got {
    let folder = Folder::new();
    let head = folder.0.join("head");
    let mut command = Command::new("curl");
    for name in ["http_proxy", "ftp_proxy", "all_proxy", "no_proxy", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"] {
        command.env_remove(name);
    }
    command.args(["-q", "-sS", "--max-time", "20", "-w", "%{stderr}%{http_code}", "-D"]).arg(&head).args(arguments);
    let output = command.stdin(Stdio::null()).output().expect("curl runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = &said[said.len().saturating_sub(3)..];
    Got {
        status: code.parse().unwrap_or_else(|_| panic!("curl said: {said}")),
        body: output.stdout,
        head: std::fs::read_to_string(head).unwrap_or_default(),
        exit: output.status.code().unwrap(),
        said,
    }
}

/// curl through the relay as an HTTP proxy.
fn get(relay: &Relay, url: &str, more: &[&str]) -> Got {
    let proxy = format!("http://{}", relay.address());
    curl(&[&["-x", &proxy, url], more].concat())
}

fn http() -> Relay {
    Relay::listen(&["http://127.0.0.1:0"])
}

fn request(relay: &mut Relay) -> Value {
    relay.next(|event| event["event"] == "request")
}

/// A request that is written byte for byte, and the connection for what comes next.
fn ask(relay: &Relay, request: &str) -> TcpStream {
    let mut client = relay.connect();
    client.write_all(request.as_bytes()).unwrap();
    client
}

#[test]
fn files_come_with_length_type_and_date() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http();
    vsftpd.write("pub/a file.txt", "hello");
    let url = vsftpd.url("/pub/a%20file.txt");
    // Twice over one connection, which an answer with a length leaves open.
    let got = get(&relay, &url, &[&url]);
    assert_eq!((got.status, got.exit, got.body.as_slice()), (200, 0, b"hellohello".as_slice()), "{got:?}");
    for field in ["Content-Length: 5", "Content-Type: text/plain", "Last-Modified: ", " GMT"] {
        assert!(got.head.contains(field), "{field} in {}", got.head);
    }
    let logged = request(&mut relay);
    let expected = (&logged["method"], &logged["url"], &logged["status"]);
    assert_eq!(expected, (&"GET".into(), &url.clone().into(), &200.into()));
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["target"]), (&"finished".into(), &vsftpd.address.to_string().into()));
    assert!(closed["up"].is_object() && closed["server"].is_string(), "{closed}");
    assert_eq!(request(&mut relay)["session"], logged["session"], "curl opened a second connection");

    let head = get(&relay, &url, &["-I"]);
    assert_eq!((head.status, head.exit), (200, 0));
    assert!(head.head.contains("Content-Length: 5"), "{}", head.head);
    vsftpd.write("pub/empty", "");
    let empty = get(&relay, &vsftpd.url("/pub/empty"), &[]);
    assert_eq!((empty.status, empty.exit, empty.body.len()), (200, 0, 0));
}

#[test]
fn big_files_are_spliced() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http();
    let bytes = pattern(20_000_000);
    vsftpd.write("pub/big", &bytes);
    let got = get(&relay, &vsftpd.url("/pub/big"), &[]);
    assert!(got.exit == 0 && got.body == bytes, "{} bytes arrived", got.body.len());
    let spliced = relay.closed()["bytes_spliced"].as_u64().unwrap();
    assert!(spliced > 19_000_000, "only {spliced} bytes were spliced");

    let file = vsftpd.folder.write("to-send", &bytes);
    let sent = get(&relay, &vsftpd.url("/incoming/big"), &["-T", file.to_str().unwrap()]);
    assert_eq!((sent.status, sent.exit), (201, 0), "{}", sent.head);
    assert!(sent.head.contains("100 Continue"), "{}", sent.head);
    assert!(std::fs::read(vsftpd.path("incoming/big")).unwrap() == bytes);
    let spliced = relay.closed()["bytes_spliced"].as_u64().unwrap();
    assert!(spliced > 19_000_000, "only {spliced} bytes were spliced");
}

#[test]
fn directories_are_pages_of_links() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http();
    vsftpd.write("pub/<b>&\"x\" ü.html", "12345");
    std::fs::create_dir(vsftpd.path("pub/deeper")).unwrap();
    // Too many for one piece of the page.
    (0..500).for_each(|number| vsftpd.write(&format!("pub/deeper/{number}"), ""));
    let many = String::from_utf8(get(&relay, &vsftpd.url("/pub/deeper/"), &[]).body).unwrap();
    assert!((0..500).all(|number| many.contains(&format!("<a href=\"{number}\">{number}</a>"))), "{many}");
    let page = get(&relay, &vsftpd.url("/pub/"), &[]);
    assert_eq!((page.status, page.exit), (200, 0));
    let text = String::from_utf8(page.body).unwrap();
    assert!(page.head.contains("Content-Type: text/html; charset=utf-8"), "{}", page.head);
    let link = "%3Cb%3E%26%22x%22%20%C3%BC.html";
    let row = format!("<a href=\"{link}\">&lt;b&gt;&amp;&quot;x&quot; ü.html</a></td><td>5</td><td>");
    assert!(text.contains(&row), "{text}");
    assert!(text.contains("<a href=\"../\">") && text.contains("<a href=\"deeper/\">"), "{text}");
    assert!(text.ends_with("</html>\n"), "{text}");
    assert_eq!(get(&relay, &vsftpd.url(&format!("/pub/{link}")), &[]).body, b"12345");

    let redirect = get(&relay, &vsftpd.url("/pub"), &[]);
    assert_eq!(redirect.status, 301);
    assert!(redirect.head.contains(&format!("Location: {}\r\n", vsftpd.url("/pub/"))), "{}", redirect.head);
    let top = get(&relay, &vsftpd.url(""), &[]);
    assert!(String::from_utf8_lossy(&top.body).contains("<a href=\"incoming/\">"));
    assert_eq!(get(&relay, &vsftpd.url("/pub/"), &["-I"]).status, 200);
    // Absolute, twice over: both name the root.
    for path in ["/%2Fpub/deeper/", "//pub/deeper/"] {
        assert_eq!(get(&relay, &vsftpd.url(path), &["--path-as-is"]).status, 200);
    }
    // HTTP/1.0 knows no chunks: the page ends with the connection.
    let old = get(&relay, &vsftpd.url("/pub/"), &["-0"]);
    assert!(old.body.ends_with(b"</html>\n") && !old.head.contains("chunked"), "{}", old.head);
}

#[test]
fn what_is_not_there_is_not_found_and_the_connection_stays() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http();
    let missing = vsftpd.url("/pub/missing");
    let got = get(&relay, &missing, &["-o", "/dev/null", &missing]);
    assert_eq!((got.status, got.exit), (404, 0));
    assert!(String::from_utf8(got.body).unwrap().contains("The FTP server says: 550"));
    let sessions = [request(&mut relay), request(&mut relay)].map(|event| event["session"].clone());
    assert_eq!(sessions[0], sessions[1], "curl opened a second connection");
    assert_eq!(get(&relay, &vsftpd.url("/missing/"), &[]).status, 404);
    assert_eq!(get(&relay, &missing, &["-I"]).status, 404);
}

#[test]
fn uploads_arrive_whole() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http();
    let bytes = pattern(300_000);
    let file = vsftpd.folder.write("to-send", &bytes);
    let file = file.to_str().unwrap();
    for (name, more) in [
        ("length", vec!["-H", "Expect:"]),
        ("waiting", vec!["-H", "Expect: 100-continue"]),
        ("chunked", vec!["-H", "Transfer-Encoding: chunked"]),
    ] {
        let got = get(&relay, &vsftpd.url(&format!("/incoming/{name}")), &[&["-T", file], more.as_slice()].concat());
        assert_eq!((got.status, got.exit), (201, 0), "{name}: {}", got.head);
        assert!(std::fs::read(vsftpd.path(&format!("incoming/{name}"))).unwrap() == bytes, "{name}");
    }
    let (first, second) = (vsftpd.url("/incoming/first"), vsftpd.url("/incoming/second"));
    let both = get(&relay, &first, &["-T", file, "-T", file, &second, "-w", "%{stderr}%{num_connects} %{http_code}"]);
    assert_eq!((both.status, both.exit), (201, 0));
    assert!(both.said.ends_with("0 201"), "curl opened a second connection: {}", both.said);
    assert_eq!(get(&relay, &vsftpd.url("/incoming/empty"), &["-T", "/dev/null"]).status, 201);
    assert_eq!(std::fs::read(vsftpd.path("incoming/empty")).unwrap(), b"");
    assert_eq!(get(&relay, &vsftpd.url("/pub/no"), &["-T", file]).status, 403);
    let part = ["-T", file, "-H", "Content-Range: bytes 1-2/3"];
    assert_eq!(get(&relay, &vsftpd.url("/incoming/part"), &part).status, 400);
}

#[test]
fn a_client_that_waits_hears_the_refusal_instead_of_an_invitation() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http();
    let url = vsftpd.url("/pub/no");
    let put = format!("PUT {url} HTTP/1.1\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n");
    let answer = read_all(&mut ask(&relay, &put));
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&answer));
}

/// In FTP a closed connection is the end of the file: half a file used to look whole.
#[test]
fn half_an_upload_is_no_file() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http();
    let put = |framing: &str| {
        format!("PUT {} HTTP/1.1\r\n{framing}\r\nExpect: 100-continue\r\n\r\n", vsftpd.url("/incoming/half"))
    };
    let begin = |framing: &str| {
        let mut client = ask(&relay, &put(framing));
        assert_eq!(read_head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
        assert!(vsftpd.path("incoming/half").exists());
        client
    };
    let gone = || eventually("the file's removal", || (!vsftpd.path("incoming/half").exists()).then_some(()));

    let mut client = begin("Content-Length: 1000");
    client.write_all(&[b'x'; 500]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 400 "));
    gone();

    let mut client = begin("Transfer-Encoding: chunked");
    client.write_all(b"5\r\nhello\r\nnonsense\r\n").unwrap();
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    gone();

    let client = begin("Content-Length: 1000");
    reset(client);
    gone();
}

#[test]
fn wrong_passwords_are_asked_for_again() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http();
    vsftpd.write("pub/file", "hello");
    let wrong = format!("ftp://ftp:wrong%40password@{}/pub/file", vsftpd.address);
    let got = get(&relay, &wrong, &[]);
    assert_eq!(got.status, 401);
    let challenge = format!("WWW-Authenticate: Basic realm=\"ftp://{}\"\r\n", vsftpd.address);
    assert!(got.head.contains(&challenge), "{}", got.head);
    let logged = request(&mut relay).to_string();
    assert!(!logged.contains("wrong"), "{logged}");
    assert_eq!(get(&relay, &format!("ftp://nobody:x@{}/pub/file", vsftpd.address), &[]).status, 401);
    let right = get(&relay, &vsftpd.url("/pub/file"), &["-H", "Authorization: Basic ZnRwOnJpZ2h0"]);
    assert_eq!(right.body, b"hello");
    let field = get(&relay, &vsftpd.url("/pub/file"), &["-H", "Authorization: Basic ZnRwOndyb25nQHBhc3N3b3Jk"]);
    assert_eq!(field.status, 401);
}

#[test]
fn ftp_works_through_socks() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    vsftpd.write("pub/file", "hello");
    let proxy = relay.address().to_string();
    for kind in ["--socks5", "--socks5-hostname", "--socks4", "--socks4a"] {
        for passive in ["--ftp-pasv", "--disable-epsv"] {
            let got = curl(&[kind, &proxy, passive, &vsftpd.url("/pub/file")]);
            assert_eq!((got.exit, got.body.as_slice()), (0, b"hello".as_slice()), "{kind} {passive}");
        }
    }
}

#[test]
fn both_connections_go_through_the_hops() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut hop = Relay::listen(&["socks://127.0.0.1:0"]);
    let forward = format!("socks5://{}", hop.address());
    let relay = Relay::run(&["-L", "http://127.0.0.1:0", "-F", &forward], 1);
    vsftpd.write("pub/file", "hello");
    let got = get(&relay, &vsftpd.url("/pub/file"), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"hello".as_slice()));
    let mut targets = [hop.closed(), hop.closed()].map(|closed| closed["target"].as_str().unwrap().to_owned());
    targets.sort_by_key(|target| *target != vsftpd.address.to_string());
    assert_eq!(targets[0], vsftpd.address.to_string());
    assert!(targets[1].starts_with("127.0.0.1:") && targets[1] != targets[0], "{targets:?}");
}

#[test]
fn a_last_http_hop_is_asked_for_the_url_itself() {
    let (hop, address) = server();
    let relay = Relay::run(&["-L", "http://127.0.0.1:0", "-F", &format!("http://{address}")], 1);
    let mut client = ask(&relay, "GET ftp://me:pw@ftp.example:2121/a%20b;type=a HTTP/1.1\r\n\r\n");
    let mut proxy = accept(&hop);
    let head = read_head(&mut proxy);
    assert!(head.starts_with("GET ftp://me:pw@ftp.example:2121/a%20b;type=a HTTP/1.1\r\n"), "{head}");
    proxy.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn commands_cannot_be_smuggled_into_the_control_connection() {
    let (address, heard) = scripted(WELL_BEHAVED);
    let mut relay = http();
    for url in ["/a%0D%0ADELE%20b", "/a%0ADELE%20b", "/a%00b", "/%0d/"] {
        let got = get(&relay, &format!("ftp://{address}{url}"), &["-H", "Authorization:"]);
        assert_eq!(got.status, 400, "{url}");
        assert_eq!(relay.closed()["end"], "bad_handshake");
    }
    for user in ["u%0d%0aDELE%20b:p", "u:p%0aDELE%20b"] {
        let answer = read_all(&mut ask(&relay, &format!("GET ftp://{user}@{address}/ HTTP/1.1\r\n\r\n")));
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{user}");
    }
    // "u\r\nDELE b" and "p"
    let field = ["-H", "Authorization: Basic dQ0KREVMRSBiOnA="];
    assert_eq!(get(&relay, &format!("ftp://{address}/"), &field).status, 400);
    assert!(heard.lock().unwrap().is_empty());
}

#[test]
fn servers_without_extended_passive_are_understood_and_not_followed_elsewhere() {
    let (address, heard) = scripted(Script { knows_epsv: false, ..WELL_BEHAVED });
    let relay = http();
    let got = get(&relay, &format!("ftp://u:p@{address}/a/%E9;type=i"), &["-i"]);
    assert_eq!((got.status, got.exit), (200, 0), "{got:?}");
    assert!(got.head.contains("Last-Modified: Thu, 29 Feb 2024 12:34:56 GMT"), "{}", got.head);
    let heard = heard.lock().unwrap().clone();
    let expected = ["EPSV", "PASV", "RETR a/\u{e9}"];
    let transfer: Vec<_> = heard.iter().filter(|line| expected.contains(&line.as_str())).collect();
    assert_eq!(transfer, expected, "{heard:?}");
}

#[test]
fn data_comes_from_the_server_that_was_asked_even_if_its_name_has_more() {
    let (address, _) = scripted(WELL_BEHAVED);
    let got = get(&http(), &format!("ftp://localhost:{}/file", address.port()), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"contents".as_slice()));
}

#[test]
fn the_server_may_go_while_the_client_stays() {
    let relay = http();
    for (method, body) in [("GET", b"contents".as_slice()), ("HEAD", b"")] {
        let (address, heard) = scripted(WELL_BEHAVED);
        let mut client = ask(&relay, &format!("{method} ftp://{address}/file HTTP/1.1\r\n\r\n"));
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert_eq!(read_exactly(&mut client, body.len()), body);
        eventually("the end of the control connection", || {
            heard.lock().unwrap().last().is_some_and(|line| line == "(gone)").then_some(())
        });
        assert!(heard.lock().unwrap().iter().any(|line| line == "QUIT"));
    }
}

#[test]
fn part_of_a_list_does_not_look_like_a_list() {
    let list = Script { sends: b"-rw-r--r-- 1 0 0 1 Nov 05 2019 one\r\nodd & end", ..WELL_BEHAVED };
    let (whole, _) = scripted(list);
    let (part, _) = scripted(Script { ends_with: "426 Too bad.", ..list });
    let relay = http();
    let got = get(&relay, &format!("ftp://{whole}/"), &[]);
    let text = String::from_utf8(got.body).unwrap();
    assert!(got.exit == 0 && text.contains("<a href=\"one\">") && text.contains("<pre>odd &amp; end</pre>"), "{text}");
    for version in ["-0", "--http1.1"] {
        let got = get(&relay, &format!("ftp://{part}/"), &[version]);
        assert!([18, 56].contains(&got.exit), "{version}: {got:?}");
    }
}

#[test]
fn part_of_a_file_does_not_look_like_a_file() {
    let short = Script { sends: b"half", ends_with: "426 Too bad.", ..WELL_BEHAVED };
    for (script, exit) in [
        // curl: "18 Partial file", "56 Failure in receiving network data".
        (short, [18, 56]),
        (Script { ends_with: "226 Done.", ..short }, [18, 56]),
        (Script { size: None, ..short }, [56, 56]),
        (Script { size: None, ends_with: "451 Disk error.", ..short }, [56, 56]),
    ] {
        let (address, _) = scripted(script);
        let mut relay = http();
        let got = get(&relay, &format!("ftp://{address}/file"), &[]);
        assert!(exit.contains(&got.exit), "{got:?}");
        assert_eq!(relay.closed()["end"], "server_lost");
    }
    let (address, _) = scripted(Script { size: None, ..WELL_BEHAVED });
    let got = get(&http(), &format!("ftp://{address}/file"), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"contents".as_slice()));
    // A length in bytes says nothing of a text whose line ends are changed.
    let (address, heard) = scripted(Script { size: Some(7), ..WELL_BEHAVED });
    let got = get(&http(), &format!("ftp://{address}/file;type=a"), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"contents".as_slice()));
    assert!(heard.lock().unwrap().iter().any(|line| line.starts_with("TYPE A")));
    let head = get(&http(), &format!("ftp://{address}/file;type=a"), &["-I"]);
    assert!(head.status == 200 && !head.head.contains("Content-Length"), "{}", head.head);
}

#[test]
fn a_full_disk_is_told_as_such() {
    let (address, _) = scripted(Script { ends_with: "552 Disk full.", ..WELL_BEHAVED });
    let folder = Folder::new();
    let file = folder.write("to-send", pattern(3_000_000));
    let got = get(&http(), &format!("ftp://{address}/file"), &["-T", file.to_str().unwrap()]);
    assert_eq!(got.status, 507, "{got:?}");
}

#[test]
fn data_connections_obey_the_access_rules() {
    let (_listener, forbidden) = server();
    let (address, _) = scripted(Script { passive_port: Some(forbidden.port()), ..WELL_BEHAVED });
    let mut relay = Relay::listen(&[&format!("http://127.0.0.1:0?deny=127.0.0.0/8:{}", forbidden.port())]);
    assert_eq!(get(&relay, &format!("ftp://{address}/file"), &[]).status, 403);
    assert_eq!(relay.closed()["end"], "denied");
}

#[test]
fn failures_to_connect_keep_their_cause_and_silence_has_an_end() {
    let folder = Folder::new();
    let text = "version = 1\n[timeouts]\nconnect = \"300ms\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"http\"\n";
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    assert_eq!(get(&relay, &format!("ftp://{}/", nobody()), &[]).status, 502);
    assert_eq!(relay.closed()["end"], "refused");
    let (_silent, address) = server();
    assert_eq!(get(&relay, &format!("ftp://{address}/"), &[]).status, 504);
    assert_eq!(relay.closed()["end"], "timed_out");
    let http = serve(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    assert_eq!(get(&relay, &format!("ftp://{http}/"), &[]).status, 502);
}

#[test]
fn other_methods_are_not_allowed() {
    let (address, heard) = scripted(WELL_BEHAVED);
    for method in ["DELETE", "POST", "OPTIONS", "put"] {
        let got = get(&http(), &format!("ftp://{address}/file"), &["-X", method]);
        assert_eq!(got.status, 405, "{method}");
        assert!(got.head.contains("Allow: GET, HEAD, PUT\r\n"), "{}", got.head);
    }
    assert!(heard.lock().unwrap().is_empty());
}
