//! Many password checks at once. A check is expensive by design, and the relay runs only a few at a time.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::curl::{curl, proxy_option};
use crate::harness::{Folder, Relay, connect_from, eventually, read_exactly, read_remaining, serve};
use crate::programs::is_any_missing;

/// Users files with `ann` and the password `correct horse`, at the bcrypt cost 10, which is usual for servers, and at
/// cost 13: a check with cost 13 takes longer than all other steps of a test.
const USUAL: &str = "ann:$2b$10$ekidenekidenekidenekieLUNTXhJ/d/ihUaZWlQa53Sz0AD1H11O\n";
const SLOW: &str = "ann:$2b$13$ekidenekidenekidenekieFdgzbRDmeMlgNrkxoySvrRpTU3MwvEu\n";

const RIGHT: &str = "correct horse";

fn start(folder: &Folder, users: &str, more: &str) -> Relay {
    let users = folder.write("users", users);
    let text = format!("version = 1\n[[listener]]\nbind = \"0.0.0.0:0\"\nusers = \"{}\"\n{more}", users.display());
    let file = folder.write("ekiden.toml", text);
    Relay::run(&["-c", file.to_str().unwrap()], 1)
}

/// Connects to the relay from a loopback address of its own for each `number`.
fn client(relay: &Relay, number: u16) -> TcpStream {
    let [high, low] = number.to_be_bytes();
    connect_from([127, 1, high, low], SocketAddr::from(([127, 0, 0, 1], relay.address().port())))
}

/// Sends `user` and `password` (RFC 1929), and does not wait for the reply.
fn send_password(mut client: TcpStream, user: &str, password: &str) -> TcpStream {
    client.write_all(&[5, 1, 2]).unwrap();
    assert_eq!(read_exactly(&mut client, 2), [5, 2]);
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let parts = [&[1, length(user)], user.as_bytes(), &[length(password)], password.as_bytes()];
    client.write_all(&parts.concat()).unwrap();
    client
}

/// Number of checks that the relay runs at once: half the number of cores, at least 1.
fn places() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from((cores / 2).max(1)).unwrap()
}

/// Occupies all places for checks. Each place has its own client address. On return the checks run; they take much
/// longer than the rest of the test.
fn occupy_all_places(relay: &Relay, round: u8) -> Vec<TcpStream> {
    let before = ticks(relay);
    let occupy = |at| send_password(client(relay, 10_000 + at), "bob", &format!("wrong {round} {at}"));
    let clients = (0..places()).map(occupy).collect();
    let begun = before + 2 * u64::from(places());
    eventually("the CPU time of the password checks", || (ticks(relay) >= begun).then_some(()));
    clients
}

/// Returns the CPU time of the relay in clock ticks (proc(5)), most of which password checks use.
fn ticks(relay: &Relay) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", relay.id())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Waits until all clients have received the reply to a wrong password and the connections are closed.
fn wait_until_rejected(clients: Vec<TcpStream>) {
    for mut client in clients {
        assert_eq!(read_remaining(&mut client).0, [1, 1]);
    }
}

/// Returns whether the reply to a client has arrived.
fn is_answered(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let answered = client.peek(&mut [0]).is_ok();
    client.set_nonblocking(false).unwrap();
    answered
}

/// Two wrong passwords for the same user from each of several addresses wait for a check. The right password from
/// another address is checked before most of them.
#[test]
fn right_password_does_not_wait_behind_wrong_passwords() {
    let folder = Folder::new();
    let relay = start(&folder, SLOW, "[timeouts]\nhandshake = \"10min\"\n");
    let addresses = 4 * places();
    let mut wrong = Vec::new();
    for round in 0..2 {
        wrong
            .extend((1..=addresses).map(|at| send_password(client(&relay, at), "ann", &format!("wrong {round} {at}"))));
    }
    let mut right = send_password(client(&relay, 10_000), "ann", RIGHT);
    assert_eq!(read_exactly(&mut right, 2), [1, 0]);
    // A quarter may be answered by now: the checks that ran before the right password arrived, and those that ran
    // beside its check.
    let answered = wrong.iter().filter(|client| is_answered(client)).count();
    assert!(2 * answered < wrong.len(), "{answered} of {} were answered before", wrong.len());
    // After a successful check, the same password is accepted at once from any address, here from one with wrong
    // passwords that wait.
    let mut right = send_password(client(&relay, 1), "ann", RIGHT);
    assert_eq!(read_exactly(&mut right, 2), [1, 0]);
}

/// Browsers open several connections at once. The unit tests of `checks` count the checks of equal passwords.
#[test]
fn concurrent_connections_of_one_client_are_all_accepted() {
    let folder = Folder::new();
    let relay = start(&folder, USUAL, "[timeouts]\nhandshake = \"10min\"\n");
    let mut clients: Vec<_> = (0..12).map(|_| send_password(client(&relay, 7), "ann", RIGHT)).collect();
    for client in &mut clients {
        assert_eq!(read_exactly(client, 2), [1, 0]);
    }
}

/// If the relay cannot check a password in time, the reply must not cause the client to request another password.
#[test]
fn overload_is_not_answered_as_a_wrong_password() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    let mut relay = start(&folder, SLOW, "[timeouts]\nhandshake = \"200ms\"\n");
    let target = serve(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let _ = stream.read(&mut [0; 1024]);
    });
    let (credentials, url) = (format!("ann:{RIGHT}"), format!("http://{target}/"));
    let address = SocketAddr::from(([127, 0, 0, 1], relay.address().port()));
    let overloaded = |relay: &mut Relay| {
        relay.next(|event| event["event"] == "closed" && event["client"].as_str().unwrap().starts_with("127.0.0.1:"))
    };

    let busy = occupy_all_places(&relay, 1);
    let fetched = curl(&[&proxy_option("http", address), "-i", "-U", &credentials, &url]);
    fetched.assert_ended(0, 503);
    assert!(fetched.text().contains("Retry-After: "), "{}", fetched.text());
    assert!(!fetched.text().contains("Proxy-Authenticate"), "{}", fetched.text());
    assert_eq!(overloaded(&mut relay)["end"], "overloaded");
    wait_until_rejected(busy);

    let busy = occupy_all_places(&relay, 2);
    let fetched = curl(&[&proxy_option("http", address), "-p", "-U", &credentials, &url]);
    assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, 503), "{}", fetched.err);
    assert_eq!(overloaded(&mut relay)["end"], "overloaded");
    wait_until_rejected(busy);

    let busy = occupy_all_places(&relay, 3);
    let fetched = curl(&[&proxy_option("socks5h", address), "-U", &credentials, &url]);
    // RFC 1929 defines only success (0) and failure (other values). The status of a wrong password is 1.
    assert!(fetched.code == 97 && fetched.err.contains("(1 2)"), "{}", fetched.err);
    assert_eq!(overloaded(&mut relay)["end"], "overloaded");
    // A running check is not aborted by the handshake timeout.
    wait_until_rejected(busy);
}

#[test]
fn passwords_of_closed_connections_are_not_checked() {
    let folder = Folder::new();
    let mut relay = start(&folder, SLOW, "");
    let busy = occupy_all_places(&relay, 1);
    for at in 1..=20 {
        let gone = send_password(client(&relay, at), "ann", &format!("wrong {at}"));
        // Half of the clients end with FIN, the other half with a reset.
        match at % 2 {
            0 => gone.shutdown(Shutdown::Write).unwrap(),
            _ => crate::harness::reset(gone),
        }
    }
    for _ in 1..=20 {
        let closed = relay.next(|event| event["event"] == "closed" && event["user"] != "bob");
        assert_eq!(closed["end"], "left_early", "{closed}");
    }
    wait_until_rejected(busy);
}
