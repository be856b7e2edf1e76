//! Passwords that are right and wrong, and the messages about files with mistakes.

use super::*;

fn users(lines: &[(&str, &str)]) -> Users {
    let line = |(name, password): &(&str, &str)| format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap());
    parsed(&lines.iter().map(line).collect::<String>())
}

/// Each file has a key of its own, as [`Users::load`] gives it: equal digests in two files would share one check.
fn parsed(text: &str) -> Users {
    Users::from_text(text, random_key().unwrap()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

fn verify(users: &Users, user: &str, password: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let client = IpAddr::from([192, 0, 2, 1]);
    let verdict = runtime.block_on(users.verify(client, user.as_bytes(), password, std::future::pending()));
    verdict.map_err(|error| assert_eq!(error, AuthError::WrongCredentials)).is_ok()
}

#[test]
fn right_passwords_pass_and_others_do_not() {
    let longest = "x".repeat(72);
    let users = users(&[("alice", "hunter2"), ("böb", "p:w"), ("long", &longest)]);
    for (user, password, right) in [
        ("alice", "hunter2", true),
        ("alice", "hunter2", true),
        ("alice", "hunter3", false),
        ("alice", "", false),
        ("alice", "hunter2\0hunter2", false),
        ("Alice", "hunter2", false),
        ("mallory", "hunter2", false),
        ("", "", false),
        ("böb", "p:w", true),
        ("long", &longest, true),
        ("long", &format!("{longest}y"), false),
    ] {
        assert_eq!(verify(&users, user, password.as_bytes()), right, "{user} {password}");
    }
    assert!(!verify(&users, "alice", &[0xff, 0xfe]));
}

#[test]
fn all_bcrypt_forms_are_read() {
    let hash = bcrypt::hash("hunter2", 4).unwrap();
    let rest = hash.strip_prefix("$2b$").unwrap();
    for version in ["$2a$", "$2b$", "$2y$"] {
        let users = parsed(&format!("# comment\r\n\r\n  alice:{version}{rest}\r\n"));
        assert!(verify(&users, "alice", b"hunter2"), "{version}");
    }
    assert!(!verify(&parsed(""), "alice", b"hunter2"));
}

#[test]
fn every_mistake_is_told_by_line_without_the_hash() {
    let good = bcrypt::hash("hunter2", 4).unwrap();
    let costly = good.replace("$2b$04$", "$2b$31$");
    let text = format!(
        "a:{good}\nb:$apr1$salt$hash\nc:{{SHA}}secret\nd:secret\nsecret\n:{good}\na:{good}\ne:$2y$05$secret\nf:{costly}\ng:{good}:x"
    );
    let mistakes = Users::from_text(&text, [7; 32]).unwrap_err();
    let lines: Vec<_> = mistakes.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9, 10], "{mistakes:?}");
    for (line, expected) in &mistakes {
        assert!(!expected.contains("secret"), "{line}: {expected}");
        assert!([7, 9].contains(line) || expected.contains("htpasswd -B"), "{line}: {expected}");
    }
    assert!(Users::load(Path::new("/nonexistent")).is_err_and(|mistakes| mistakes[0].0 == 0));
}

#[test]
fn a_verified_password_is_remembered_for_five_minutes() {
    let users = users(&[("alice", "hunter2")]);
    let digest = users.digest(b"alice", b"hunter2");
    let alice = &users.users[b"alice".as_slice()];
    assert!(alice.last_verified(&digest).is_none());
    assert!(!verify(&users, "alice", b"wrong"));
    assert!(alice.last_verified(&users.digest(b"alice", b"wrong")).is_none(), "a wrong one is remembered");
    let before = Instant::now();
    assert!(verify(&users, "alice", b"hunter2"));
    assert!(alice.last_verified(&digest).is_some_and(|at| at >= before));
    assert!(alice.last_verified(&users.digest(b"alice", b"wrong")).is_none());
    // A remembered password needs no bcrypt: it passes although the hash is another.
    let mut users = users;
    let alice = users.users.get_mut(b"alice".as_slice()).unwrap();
    alice.hash = dummy_hash(4);
    assert!(verify(&users, "alice", b"hunter2"));
    // After five minutes it does.
    let alice = &users.users[b"alice".as_slice()];
    alice.record_verified(digest, Instant::now().checked_sub(VERIFIED_TTL).unwrap());
    assert!(!verify(&users, "alice", b"hunter2"));
}

#[test]
fn user_and_password_are_told_apart() {
    let users = users(&[]);
    assert_ne!(users.digest(b"ab", b"c"), users.digest(b"a", b"bc"));
}

/// The time that this thread has had of a processor, in nanoseconds (proc(5)): other programs do not count.
fn on_processor() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// The time of an answer must not tell which users exist, nor which of them have a hash of a low cost.
#[test]
fn every_check_costs_the_highest_cost_of_the_file() {
    let hash = |cost| bcrypt::hash("hunter2", cost).unwrap();
    let users = parsed(&format!("cheap:{}\nusual:{}\ndear:{}\n", hash(4), hash(8), hash(10)));
    let names = ["cheap", "usual", "dear", "nobody"];
    let costs = names.map(|name| {
        let check = users.check(users.users.get(name.as_bytes()), b"wrong");
        let before = on_processor();
        assert!(!check(), "{name}");
        on_processor() - before
    });
    let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
    assert!(most - least < most / 2, "{names:?} take {costs:?} ns");
    for name in ["cheap", "usual", "dear"] {
        assert!(verify(&users, name, b"hunter2"), "{name}");
    }
    assert!(bcrypt::verify("hunter2", &dummy_hash(10)).is_ok_and(|right| !right));
}

#[test]
fn hashes_are_not_printed() {
    assert_eq!(format!("{:?}", users(&[("alice", "hunter2")])), "Users(1)");
}

#[test]
fn keys_differ() {
    assert_ne!(random_key().unwrap(), random_key().unwrap());
}
