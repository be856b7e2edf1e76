//! `[[relay]]`, hops and their passwords.

use ekiden_proto::balance::Balance;

use super::*;

#[test]
fn relays_are_defined_by_key_or_by_url() {
    let [osaka, nara] = [random_public_key(), random_public_key()];
    let config = valid_config(&with_listener(&format!(
        "forward = [\"nara\", \"http://web.example:3128\", \"corp\"]
         [[relay]]
         name = \"osaka\"
         address = \"osaka.example:7000\"
         key = \"{osaka}\"
         encrypt = true
         profile = \"longhaul\"
         [[relay]]
         name = \"nara\"
         url = \"section://nara.example:7000?key={nara}&profile=lossy\"
         [[relay]]
         name = \"corp\"
         url = \"socks5://u:hunter2@corp.example:1080\""
    )));
    let shown: Vec<_> = config
        .relays
        .iter()
        .map(|hop| (&*hop.name, hop.kind.as_str(), hop.address.to_string(), hop.profile.name.as_str()))
        .collect();
    let expected = [
        ("osaka", "section", "osaka.example:7000", "longhaul"),
        ("nara", "section", "nara.example:7000", "lossy"),
        ("corp", "socks5", "corp.example:1080", "lan"),
        ("http://web.example:3128", "http", "web.example:3128", "lan"),
    ];
    assert_eq!(shown, expected.map(|(name, word, address, profile)| (name, word, address.to_owned(), profile)));
    let peerings: Vec<_> = config.relays.iter().filter_map(|hop| hop.peering()).map(|p| (p.key, p.encrypt)).collect();
    assert_eq!(peerings, [(osaka, true), (nara, false)]);
    assert_eq!(credentials(&config.relays[2]), ("u", "hunter2"));
    let names: Vec<_> = default_hops(&config).iter().map(ToString::to_string).collect();
    assert_eq!(names, ["nara", "http://web.example:3128", "corp"]);
    assert_eq!(&*config.routes[0].paths[0].name, "nara,http://web.example:3128,corp");
    assert!(Arc::ptr_eq(&default_hops(&config)[0], &config.relays[1]), "the relay exists twice");
}

#[test]
fn command_line_hops_become_relays() {
    let [one, two] = [random_public_key(), random_public_key()];
    let urls = [format!("section://[2001:db8::1]:7000?key={one}"), format!("section://b:7000?key={two}&encrypt=true")];
    let config = load(None, &forwarding(&[&urls[0], &urls[1]])).unwrap_or_else(|e| panic!("{e}"));
    let shown: Vec<_> = config.relays.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["section://[2001:db8::1]:7000", "section://b:7000"]);
    let peerings: Vec<_> = config.relays.iter().filter_map(|hop| hop.peering()).map(|p| (p.key, p.encrypt)).collect();
    assert_eq!(peerings, [(one, false), (two, true)]);
    assert_eq!(default_hops(&config), config.relays);
}

#[test]
fn a_relay_with_several_addresses_is_a_group() {
    let key = random_public_key();
    let relay = |name: &str, more: &str| {
        with_listener(&format!("forward = [\"{name}\"]\n[[relay]]\nname = \"{name}\"\nkey = \"{key}\"\n{more}"))
    };
    let config = valid_config(&relay("osaka", "address = [\"a:1\", \"[2001:db8::1]:2\"]\nencrypt = true"));
    let [group] = &config.relays[..] else { panic!("{:?}", config.relays) };
    assert_eq!((&*group.name, group.group.as_ref().unwrap().balance), ("osaka", Balance::Least));
    let members: Vec<_> = group.members().iter().map(|hop| (&*hop.name, hop.address.to_string())).collect();
    assert_eq!(members, [("osaka@a:1", "a:1".to_owned()), ("osaka@[2001:db8::1]:2", "[2001:db8::1]:2".to_owned())]);
    assert!(group.members().iter().all(|hop| hop.kind == group.kind && hop.profile == group.profile));
    let config = valid_config(&relay("osaka", "address = [\"a:1\", \"b:1\"]\nbalance = \"client\""));
    assert_eq!(config.relays[0].group.as_ref().unwrap().balance, Balance::Client);
    let config = valid_config(&relay("osaka", "address = [\"a:1\"]"));
    assert!(config.relays[0].group.is_none() && config.relays[0].members() == [Arc::clone(&config.relays[0])]);
}

#[test]
fn invalid_groups_are_reported() {
    let key = random_public_key();
    let relay = |more: &str| format!("[[relay]]\nname = \"a\"\nkey = \"{key}\"\n{more}");
    let behind_proxy = format!(
        "[[relay]]\nname = \"corp\"\nurl = \"socks5://corp:1080\"\n{}\n[[path]]\nname = \"p\"\nrelays = [\"corp\", \"a\"]",
        relay("address = [\"h:1\", \"i:1\"]")
    );
    for (text, wrong, expected) in [
        (relay("address = []"), "relay[1].address", "at least one in [ ]"),
        (relay("address = [\"h:1\", \"i\"]"), "relay[1].address[2]", "a host and port"),
        (relay("address = [\"h:1\", \"h:1\"]"), "relay[1].address[2]", "each address once"),
        (relay("address = [\"h:1\", \"localhost:1080\"]"), "relay[1].address", "sessions would loop"),
        (relay("address = \"h:1\"\nbalance = \"least\""), "relay[1].balance", "the relay has only one address"),
        (relay("address = [\"h:1\", \"i:1\"]\nbalance = \"clients\""), "relay[1].balance", "\"least\" or \"client\""),
        (
            "[[relay]]\nname = \"a\"\nurl = \"http://h:1\"\nbalance = \"least\"".to_owned(),
            "relay[1].balance",
            "only without url",
        ),
        (behind_proxy, "path[1].relays", "a relay with one address behind the proxy corp: a has several addresses"),
    ] {
        let seen = errors_of(&with_listener(&text));
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert!(mistake.key == wrong && mistake.expected.contains(expected), "{text}: {mistake}");
    }
}

#[test]
fn invalid_relays_are_reported() {
    let key = random_public_key();
    let relay = |keys: &str| format!("[[relay]]\nname = \"a\"\n{keys}");
    let with_address = |address: &str| relay(&format!("address = {address:?}\nkey = \"{key}\""));
    for (text, wrong, expected) in [
        (format!("[[relay]]\naddress = \"h:1\"\nkey = \"{key}\""), "relay[1].name", "a name of 1 to 64"),
        (relay("url = \"http://h:1\"\naddress = \"h:1\""), "relay[1].address", "only without url"),
        (relay(&format!("url = \"http://h:1\"\nkey = \"{key}\"")), "relay[1].key", "only without url"),
        (relay("url = \"http://h:1\"\nprofile = \"lan\""), "relay[1].profile", "only without url"),
        (relay(&format!("key = \"{key}\"")), "relay[1].address", "or url, in the syntax of forward"),
        (relay("address = \"h:1\""), "relay[1].key", "a public key of 44 characters"),
        (with_address("h"), "relay[1].address", "a host and port"),
        (with_address("127.0.0.1:1080"), "relay[1].address", "sessions would loop"),
        (relay("url = \"socks5://u:p@localhost:1080\""), "relay[1].url", "sessions would loop"),
        (with_address("h:1") + "\nprofile = \"lon\"", "relay[1].profile", "\"lan\", perhaps"),
        (with_address("h:1") + "\nencrypt = 1", "relay[1].encrypt", "true or false"),
        (
            with_address("h:1") + "\ncrypt = true",
            "relay[1].crypt",
            "\"encrypt\", perhaps; the keys are address, balance, encrypt",
        ),
        (
            with_address("h:1") + "\n[[relay]]\nname = \"a\"\nurl = \"http://h:2\"",
            "relay[2].name",
            "that no other table",
        ),
        (
            with_address("h:1") + &format!("\n[[relay]]\nname = \"b\"\nurl = \"section://h:2?key={key}\""),
            "relay[2].url",
            "a key that no other relay has",
        ),
        ("[[relay]]\nname = \"a\"\nurl = 5".to_owned(), "relay[1].url", "a hop like"),
    ] {
        let seen = errors_of(&with_listener(&text));
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert!(mistake.key == wrong && mistake.expected.contains(expected), "{text}: {mistake}");
    }
}

#[test]
fn section_hop_errors_hide_the_key() {
    let key = random_public_key();
    let cut = &key.to_string()[..43];
    for (url, expected) in [
        ("section://h:1".to_owned(), "-F[1].key is missing: expected a public key"),
        (format!("section://h:1?key={cut}"), "...\" (43 characters): expected a public key"),
        (format!("section://h?key={key}"), "a port after the host: section://h:7000"),
        (format!("section://h:1/x?key={key}"), "only ?key=value after the port"),
        (format!("section://u:hunter2@h:1?key={key}"), "?key=PUBLIC instead of a user and password"),
        (format!("section://h:1?key={key}&encrypt=yes"), "-F[1].encrypt = \"yes\": expected true or false"),
        (format!("section://h:1?key={key}&key={key}"), "-F[1].key = [...]: expected a public key"),
        (format!("section://h:1?key={key}&password_file=x"), "-F[1].password_file is not a key"),
        (format!("section://localhost:1080?key={key}"), "sessions would loop"),
    ] {
        let shown = flag_error(&forwarding(&[&url]));
        assert!(shown.contains(expected) && shown.lines().count() == 1, "{url}: {shown}");
        assert!(!shown.contains(cut) && !shown.contains("hunter2"), "{url}: {shown}");
    }
    let again = format!("section://other:1?key={key}");
    let shown = flag_error(&forwarding(&[&format!("section://h:1?key={key}"), &again]));
    assert!(shown.contains("-F[2] = \"section://other:1\": expected each relay once: sessions would loop"), "{shown}");
}

#[test]
fn own_key_is_refused_as_a_next_hop() {
    let ((mine, own), (other, listener_key)) = (Scratch::key("mine"), Scratch::key("of-my-listener"));
    let url = format!("section://:7000?key={}", other.path());
    let flags = Flags { key: Some(mine.path()), ..listen(&[&url]) };
    for key in [own, listener_key] {
        let forward = vec![format!("section://far.example:1?key={key}")];
        let shown = flag_error(&Flags { forward, ..flags.clone() });
        assert!(shown.contains("the key of another relay, not of this relay"), "{shown}");
        let relay = format!("version = 1\n[[relay]]\nname = \"a\"\naddress = \"far.example:1\"\nkey = \"{key}\"");
        let file = Scratch::new("own-relay.toml", &relay);
        let shown = load([&*file.0], &flags).unwrap_err().to_string();
        let prefix = &key.to_string()[..6];
        let expected = format!(":5: relay[1].key = \"{prefix}...\" (44 characters): expected the key of another relay");
        assert!(shown.contains(&expected), "{shown}");
    }
}

#[test]
fn forward_refuses_unknown_relay_names() {
    let relay = "[[relay]]\nname = \"osaka\"\nurl = \"http://h:1\"";
    for (name, expected, is_shown) in
        [("osako", "or a relay: \"osaka\", perhaps", true), ("u:hunter2", "or a relay, one of osaka", false)]
    {
        let shown = from_text(&with_listener(&format!("forward = [{name:?}]\n{relay}"))).unwrap_err().to_string();
        assert!(shown.contains(expected) && shown.contains(name) == is_shown, "{shown}");
    }
    // The name `osaka` is defined, so only its invalid URL is reported.
    let seen = errors_of(&with_listener("forward = [\"osaka\"]\n[[relay]]\nname = \"osaka\"\nurl = \"x\""));
    assert_eq!(seen.iter().map(|m| m.key.as_str()).collect::<Vec<_>>(), ["relay[1].url"], "{seen:#?}");
}

#[test]
fn forwarding_loops_are_detected() {
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
fn hop_errors_hide_secrets() {
    const SECRET: &str = "hunter2";
    for (url, expected) in [
        ("socks5://u:hunter2@h", "a port after the host"),
        ("socks5://u:hunter2", "a hop like"),
        ("u:hunter2@h:1", "a hop like"),
        ("ftp://u:hunter2@h:1", "section://, socks5:// or http:// instead of ftp://"),
        ("socks5://u:hunter2@h:1/path", "only ?key=value after the port"),
        ("socks5://u:a?hunter2@h:1", "a hop like"),
        ("socks5://u:%ffhunter2@h:1", "a hop like"),
        ("http://u%3aa:hunter2@h:1", "without a colon"),
        ("socks5://:hunter2@h:1", "1 to 255 bytes"),
        ("socks5://u:@h:1", "1 to 255 bytes"),
        ("socks5://u@h:1", "one password"),
        ("socks5://u:hunter2@h:1?password_file=/x", "one password"),
        ("socks5://h:1?password_file=/x", "a user name before the host"),
        ("socks5://u@h:1?password_file=/nonexistent", "a readable file with the password"),
        ("socks5://u@h:1?password_env=EKIDEN_NO_SUCH_VARIABLE", "an environment variable"),
        ("socks5://u:hunter2@h:1?profile=lam", "\"lan\", perhaps"),
        ("socks5://u:hunter2@h:1?profil=lan", "\"profile\", perhaps"),
        ("socks5://u:hunter2@127.0.0.1:1080", "sessions would loop"),
    ] {
        let in_file = errors_of(&with_listener(&format!("forward = [\"{url}\"]")));
        let shown = flag_error(&forwarding(&[url]));
        assert!(shown.contains(expected), "{url}: {shown}");
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
        let shown = format!("{:?}", errors_of(&with_listener(text)));
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let shown = flag_error(&listen(&["socks://u:hunter2@:1080"]));
    assert!(shown.contains("?users=FILE") && !shown.contains(SECRET), "{shown}");
}

#[test]
fn hop_passwords_are_read_from_url_file_and_variable() {
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
        assert_eq!(credentials(&default_hops(&config)[0]), ("u", password));
        let shown = format!("{config:?} {}", default_hops(&config)[0]);
        assert!(shown.contains("Credentials") && !shown.contains("hunter2") && !shown.contains("from file"), "{shown}");
    }
}

/// Regression: the error printed the whole grammar, without the URL and its mistake.
#[test]
fn hop_errors_show_the_url_and_the_missing_part() {
    const SECRET: &str = "hunter2";
    for (url, expected) in [
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
        (
            "https://h:1",
            "-F[1] = \"https://h:1\": expected http:// instead of https://: ekiden connects to hops without TLS",
        ),
        ("socks4://h:1", "-F[1] = \"socks4://h:1\": expected socks5:// instead of socks4://"),
        ("sock5://h:1", "-F[1] = \"sock5://h:1\": expected socks5:// instead of sock5://"),
        ("socks5://u:hunter2@h:1/path", "-F[1] = \"socks5://...@h:1/path\": expected only ?key=value after the port"),
        ("socks5://h:1/path", "-F[1] = \"socks5://h:1/path\": expected only ?key=value after the port"),
        ("http://127.0.0.1:1080", "-F[1] = \"http://127.0.0.1:1080\": expected another relay"),
        ("osaka", "-F[1] = \"osaka\": expected a hop like"),
        ("u:hunter2", "-F[1] (value not shown): expected a hop like"),
        ("socks5://u:hunter2", "-F[1] (value not shown): expected a hop like"),
        ("socks5://u:12345678", "-F[1] (value not shown): expected a hop like"),
        ("socks5://h?password=hunter2", "-F[1] = \"socks5://h\": expected a port after the host"),
    ] {
        let shown = flag_error(&forwarding(&[url]));
        assert!(shown.contains(expected) && !shown.contains(SECRET), "{url}: {shown}");
    }
}

#[test]
fn socks_scheme_of_a_hop_means_socks5() {
    let config = load(None, &forwarding(&["socks://hop.example:1080"])).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(default_hops(&config)[0].to_string(), "socks5://hop.example:1080");
}
