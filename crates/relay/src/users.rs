//! Who may use a listener: an htpasswd file with bcrypt hashes.
//!
//! bcrypt is slow on purpose, so it runs beside the workers, few at a time, and a success is remembered for a while. A
//! wrong password and an unknown user cost the same work. Hashes are in no `Debug` or `Display`.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// How long a verified password is remembered.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// bcrypt reads no further, and would take any continuation for right.
const LONGEST_PASSWORD: usize = 72;

/// Costs that `htpasswd` makes; the highest takes some ten seconds for each check.
const COSTS: std::ops::RangeInclusive<u32> = 4..=17;

/// How many checks run at once, over all listeners: a flood of wrong passwords must not take every core.
static CHECKS: Semaphore = Semaphore::const_new(4);

/// The users of an htpasswd file.
pub struct Users {
    users: HashMap<Vec<u8>, User>,
    /// What an unknown user's password is checked against.
    nobody: Arc<str>,
    key: [u8; 32],
}

struct User {
    hash: Arc<str>,
    /// The last password that was right, and when. One for each user is a bound in itself.
    verified: Mutex<Option<Verified>>,
}

struct Verified {
    digest: [u8; 32],
    at: Instant,
}

impl Users {
    /// Reads an htpasswd file. A file without users is right, and lets nobody in.
    ///
    /// # Errors
    /// Every mistake with its line, from 1, and what was expected; line 0 stands for the whole file.
    pub fn load(path: &Path) -> Result<Self, Vec<(usize, String)>> {
        let whole = |error: io::Error| vec![(0, format!("a readable htpasswd file ({error})"))];
        let text = fs::read_to_string(path).map_err(whole)?;
        Self::from_text(&text, random_key().map_err(whole)?)
    }

    /// Reads the text of an htpasswd file; `key` is for this process only and keys the cache of checked passwords.
    ///
    /// # Errors
    /// Line numbers, and what was expected there.
    pub fn from_text(text: &str, key: [u8; 32]) -> Result<Self, Vec<(usize, String)>> {
        let mut users = HashMap::new();
        let mut mistakes = Vec::new();
        let mut highest_cost = *COSTS.start();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match entry(line) {
                Ok((name, _, _)) if users.contains_key(name.as_bytes()) => {
                    mistakes.push((number, format!("each user once; {name:?} stands above")));
                }
                Ok((name, hash, cost)) => {
                    highest_cost = highest_cost.max(cost);
                    users.insert(name.as_bytes().to_vec(), User { hash: hash.into(), verified: Mutex::default() });
                }
                Err(expected) => mistakes.push((number, expected)),
            }
        }
        if mistakes.is_empty() { Ok(Self { users, nobody: nobody(highest_cost), key }) } else { Err(mistakes) }
    }

    /// Whether there is somebody of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.users.contains_key(name.as_bytes())
    }

    /// Whether `password` is the password of `user`.
    ///
    /// Dropping the future is sound: a check that runs already ends on its own, and keeps its place until then.
    pub async fn verify(&self, user: &[u8], password: &[u8]) -> bool {
        // A zero byte ends a password for htpasswd; bcrypt would take `a\0a` for `a`.
        if password.len() > LONGEST_PASSWORD || password.contains(&0) {
            return false;
        }
        let digest = self.digest(user, password);
        let known = self.users.get(user);
        let remembered = || known.is_some_and(|user| user.remembers(&digest, Instant::now()));
        if remembered() {
            return true;
        }
        let Ok(place) = CHECKS.acquire().await else { return false };
        // A client that opens many connections at once waits here for the first of them.
        if remembered() {
            return true;
        }
        let hash = Arc::clone(known.map_or(&self.nobody, |user| &user.hash));
        let password = password.to_vec();
        let check = tokio::task::spawn_blocking(move || {
            let right = bcrypt::verify(&password, &hash).unwrap_or(false);
            drop(place);
            right
        });
        let right = check.await.unwrap_or(false);
        match known {
            Some(user) if right => {
                user.remember(digest, Instant::now());
                true
            }
            _ => false,
        }
    }

    /// What is remembered of a password: worthless without this process's key.
    fn digest(&self, user: &[u8], password: &[u8]) -> [u8; 32] {
        let mut hasher = Sha256::new_with_prefix(self.key);
        hasher.update(user.len().to_le_bytes());
        hasher.update(user);
        hasher.update(password);
        hasher.finalize().into()
    }
}

impl User {
    fn remembers(&self, digest: &[u8; 32], now: Instant) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.as_ref().is_some_and(|last| {
            now.saturating_duration_since(last.at) < REMEMBERED && bool::from(last.digest.ct_eq(digest))
        })
    }

    fn remember(&self, digest: [u8; 32], at: Instant) {
        *self.verified.lock().unwrap_or_else(PoisonError::into_inner) = Some(Verified { digest, at });
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.users.len())
    }
}

/// Takes `NAME:HASH` apart; the third is the cost. The error never shows the hash, which may be a plain password.
fn entry(line: &str) -> Result<(&str, &str, u32), String> {
    const HOW: &str = "a line NAME:HASH as \"htpasswd -B\" writes it";
    let (name, hash) = line.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or(HOW)?;
    let bcrypt = ["$2y$", "$2a$", "$2b$"].iter().any(|prefix| hash.starts_with(prefix));
    if !bcrypt {
        return Err(format!("a bcrypt hash ($2y$) for {name:?}: set the password again with \"htpasswd -B\""));
    }
    let cost = bcrypt::HashParts::from_str(hash).map(|parts| parts.get_cost());
    match cost {
        Ok(cost) if COSTS.contains(&cost) => Ok((name, hash, cost)),
        Ok(_) => Err(format!("a bcrypt hash of cost {} to {} for {name:?}", COSTS.start(), COSTS.end())),
        Err(_) => Err(format!("a whole bcrypt hash for {name:?}: set the password again with \"htpasswd -B\"")),
    }
}

/// A well-formed hash that no password is known for: of nothing but zeros.
fn nobody(cost: u32) -> Arc<str> {
    format!("$2b${cost:02}${}", ".".repeat(22 + 31)).into()
}

/// Bytes that nobody else knows (random(4)).
fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(lines: &[(&str, &str)]) -> Users {
        let line = |(name, password): &(&str, &str)| format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap());
        parsed(&lines.iter().map(line).collect::<String>())
    }

    fn parsed(text: &str) -> Users {
        Users::from_text(text, [7; 32]).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
    }

    fn verify(users: &Users, user: &str, password: &[u8]) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(users.verify(user.as_bytes(), password))
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
        assert!(!alice.remembers(&digest, Instant::now()));
        assert!(!verify(&users, "alice", b"wrong"));
        assert!(!alice.remembers(&users.digest(b"alice", b"wrong"), Instant::now()), "a wrong one is remembered");
        assert!(verify(&users, "alice", b"hunter2"));
        let now = Instant::now();
        assert!(alice.remembers(&digest, now));
        assert!(!alice.remembers(&users.digest(b"alice", b"wrong"), now));
        assert!(!alice.remembers(&digest, now + REMEMBERED));
        // What is remembered needs no bcrypt: it passes though the hash is another.
        let mut users = users;
        users.users.get_mut(b"alice".as_slice()).unwrap().hash = nobody(4);
        assert!(verify(&users, "alice", b"hunter2"));
    }

    #[test]
    fn user_and_password_are_told_apart() {
        let users = users(&[]);
        assert_ne!(users.digest(b"ab", b"c"), users.digest(b"a", b"bc"));
    }

    /// An unknown user must cost what a known one costs, or the time tells which users exist.
    #[test]
    fn nobody_costs_as_much_as_somebody() {
        let users = parsed(&format!("alice:{}\n", bcrypt::hash("hunter2", 5).unwrap()));
        let parts = bcrypt::HashParts::from_str(&users.nobody).unwrap();
        assert_eq!(parts.get_cost(), 5);
        assert!(bcrypt::verify("hunter2", &users.nobody).is_ok_and(|right| !right));
    }

    #[test]
    fn hashes_are_not_printed() {
        assert_eq!(format!("{:?}", users(&[("alice", "hunter2")])), "Users(1)");
    }

    #[test]
    fn keys_differ() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }
}
