//! Hops, and their passwords.

use super::*;

#[test]
fn loops_are_found() {
    for (bind, hop, is_loop) in [
        ("127.0.0.1:1080", "127.0.0.1:1080", true),
        ("127.0.0.1:1080", "localhost:1080", true),
        ("127.0.0.1:1080", "[::ffff:127.0.0.1]:1080", true),
        ("0.0.0.0:1080", "127.0.0.1:1080", true),
        ("[::]:1080", "localhost:1080", true),
        ("127.0.0.1:1080", "0.0.0.0:1080", true),
        ("127.0.0.1:1080", "127.0.0.1:1081", false),
        ("127.0.0.1:1080", "192.0.2.1:1080", false),
        ("192.0.2.1:1080", "127.0.0.1:1080", false),
    ] {
        let text =
            format!("version = 1\nforward = [\"http://{hop}\"]\n[[listener]]\nbind = \"{bind}\"\nallow_open = true\n");
        let read = from_text(&text);
        assert_eq!(read.is_err(), is_loop, "{bind} {hop}");
        if let Err(mistakes) = read {
            assert!(mistakes.to_string().contains("configuration:2: forward[1]"), "{mistakes}");
        }
    }
}

#[test]
fn wrong_hops_are_told_without_their_secret() {
    const SECRET: &str = "hunter2";
    for (url, says) in [
        ("socks5://u:hunter2@h", "a port after the host"),
        ("socks5://u:hunter2", "a hop like"),
        ("u:hunter2@h:1", "a hop like"),
        ("ftp://u:hunter2@h:1", "section://, socks5:// or http:// instead of ftp://"),
        ("socks5://u:hunter2@h:1/path", "nothing after the port"),
        ("socks5://u:a?hunter2@h:1", "a hop like"),
        ("socks5://u:%ffhunter2@h:1", "a hop like"),
        ("http://u%3aa:hunter2@h:1", "without a colon"),
        ("socks5://:hunter2@h:1", "1 to 255 bytes"),
        ("socks5://u:@h:1", "1 to 255 bytes"),
        ("socks5://u@h:1", "one password"),
        ("socks5://u:hunter2@h:1?password_file=/x", "one password"),
        ("socks5://h:1?password_file=/x", "a user name before the host"),
        ("socks5://u@h:1?password_file=/nonexistent", "a file with the password in it"),
        ("socks5://u@h:1?password_env=EKIDEN_NO_SUCH_VARIABLE", "an environment variable"),
        ("socks5://u:hunter2@h:1?profile=lam", "\"lan\", perhaps"),
        ("socks5://u:hunter2@h:1?profil=lan", "\"profile\", perhaps"),
        ("socks5://u:hunter2@127.0.0.1:1080", "this is a loop"),
    ] {
        let in_file = mistakes(&with_listener(&format!("forward = [\"{url}\"]")));
        let shown = flag_mistake(&forwarding(&[url]));
        assert!(shown.contains(says), "{url}: {shown}");
        assert_eq!((in_file.len(), in_file[0].line), (1, Some(2)), "{url}: {in_file:#?}");
        assert!(!shown.contains(SECRET) && !format!("{in_file:?}").contains(SECRET), "{url}: {shown}");
    }
    for text in [
        "forward = \"socks5://u:hunter2@h:1\"",
        "forward = [[\"socks5://u:hunter2@h:1\"]]",
        "forward = [\"socks5://u:hunter2@h:1",
        "password = \"hunter2\"",
        "[admin]\npassword = \"hunter2\"",
    ] {
        let shown = format!("{:?}", mistakes(&with_listener(text)));
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let shown = flag_mistake(&listen(&["socks://u:hunter2@:1080"]));
    assert!(shown.contains("?users=FILE") && !shown.contains(SECRET), "{shown}");
}

#[test]
fn hop_passwords_come_from_files_and_variables() {
    let file = Scratch::new("password", "from file \r\n");
    file.allow(0o600);
    // Set by cargo for every test.
    let inherited = std::env::var("CARGO_PKG_NAME").unwrap();
    for (url, password) in [
        ("socks5://u:hunter2@h:1".to_owned(), "hunter2"),
        ("http://u:@h:1".to_owned(), ""),
        (format!("socks5://u@h:1?password_file={}", file.0.display()), "from file "),
        ("http://u@h:1?password_env=CARGO_PKG_NAME".to_owned(), inherited.as_str()),
    ] {
        let config = load(None, &forwarding(&[&url])).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(credentials(&forward(&config)[0]), ("u", password));
        let shown = format!("{config:?} {}", forward(&config)[0]);
        assert!(shown.contains("Credentials") && !shown.contains("hunter2") && !shown.contains("from file"), "{shown}");
    }
}

/// The whole grammar was printed, without the URL and without the mistake in it.
#[test]
fn what_a_hop_lacks_is_told_beside_its_url() {
    const SECRET: &str = "hunter2";
    for (url, says) in [
        ("socks5://host", "-F[1] = \"socks5://host\": expected a port after the host: socks5://host:1080"),
        ("http://host", "-F[1] = \"http://host\": expected a port after the host: http://host:PORT"),
        ("http://[2001:db8::1]", "expected a port after the host: http://[2001:db8::1]:PORT"),
        ("section://host", "-F[1] = \"section://host\": expected a port after the host: section://host:7000"),
        ("socks5://u:hunter2@host", "-F[1] = \"socks5://...@host\": expected a port after the host"),
        ("socks5://host:99999", "(value not shown): expected a hop like"),
        ("socks5://:1080", "-F[1] = \"socks5://:1080\": expected a host before the port"),
        ("host:1080", "-F[1] = \"host:1080\": expected a scheme before the address, like socks5://host:1080"),
        (
            "ftp://u:hunter2@h:1",
            "-F[1] = \"ftp://...@h:1\": expected section://, socks5:// or http:// instead of ftp://",
        ),
        ("https://h:1", "-F[1] = \"https://h:1\": expected http:// instead of https://: a hop is asked without TLS"),
        ("socks4://h:1", "-F[1] = \"socks4://h:1\": expected socks5:// instead of socks4://"),
        ("sock5://h:1", "-F[1] = \"sock5://h:1\": expected socks5:// instead of sock5://"),
        ("socks5://u:hunter2@h:1/path", "-F[1] = \"socks5://...@h:1/path\": expected nothing after the port"),
        ("socks5://h:1/path", "-F[1] = \"socks5://h:1/path\": expected nothing after the port"),
        ("http://127.0.0.1:1080", "-F[1] = \"http://127.0.0.1:1080\": expected another relay"),
        ("osaka", "-F[1] = \"osaka\": expected a hop like"),
        ("u:hunter2", "-F[1] (value not shown): expected a hop like"),
        ("socks5://u:hunter2", "-F[1] (value not shown): expected a hop like"),
        ("socks5://u:12345678", "-F[1] (value not shown): expected a hop like"),
        ("socks5://h?password=hunter2", "-F[1] = \"socks5://h\": expected a port after the host"),
    ] {
        let shown = flag_mistake(&forwarding(&[url]));
        assert!(shown.contains(says) && !shown.contains(SECRET), "{url}: {shown}");
    }
}

#[test]
fn socks_is_socks5_for_a_hop() {
    let config = load(None, &forwarding(&["socks://hop.example:1080"])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(forward(&config)[0].to_string(), "socks5://hop.example:1080");
}
