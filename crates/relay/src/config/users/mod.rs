//! The users of a listener: an htpasswd file with bcrypt hashes.
//!
//! bcrypt is slow by design, so checks run on other threads than the workers, few at a time, in the order of `checks`;
//! a success is remembered for some time. Every check takes the time of the highest cost in the file, for each user and
//! for names that do not exist. Neither `Debug` nor `Display` shows hashes.

mod checks;

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::num::NonZero;
use std::path::Path;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use checks::{CheckQueue, CheckTurn, PasswordCheck};
use ekiden_proto::addr::source_prefix;
use ekiden_proto::event::EndReason;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Time for which a verified password is remembered.
const VERIFIED_TTL: Duration = Duration::from_secs(5 * 60);

/// bcrypt ignores further bytes, so it would accept any continuation of a correct password.
const MAX_PASSWORD_LENGTH: usize = 72;

/// The costs that `htpasswd` supports; a check with the highest takes some ten seconds.
const COSTS: std::ops::RangeInclusive<u32> = 4..=17;

/// The checks of all listeners. They use at most half of the cores, so that wrong passwords do not delay sessions.
static CHECKS: LazyLock<Arc<CheckQueue>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(CheckQueue::new((cores / 2).max(1)))
});

/// Why a client is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    /// The user or the password is wrong.
    WrongCredentials,
    /// Too many other passwords have to be checked before. The password may be correct.
    Overloaded,
    /// The client has disconnected.
    ClientGone,
}

impl From<AuthError> for EndReason {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::WrongCredentials => Self::Unauthenticated,
            AuthError::Overloaded => Self::Overloaded,
            AuthError::ClientGone => Self::LeftEarly,
        }
    }
}

/// The users of an htpasswd file.
pub struct Users {
    users: HashMap<Vec<u8>, User>,
    /// The bcrypt cost that determines the time of every check.
    highest_cost: u32,
    cache_key: [u8; 32],
}

struct User {
    hash: Arc<str>,
    cost: u32,
    /// The last correct password, and the time of its check. One for each user, so that the size is bounded.
    verified: Mutex<Option<VerifiedPassword>>,
}

struct VerifiedPassword {
    digest: [u8; 32],
    verified_at: Instant,
}

impl Users {
    /// Reads an htpasswd file. A file without users is valid and accepts no user.
    ///
    /// # Errors
    /// Every mistake with its line, from 1, and the expected text; line 0 stands for the whole file.
    pub fn load(path: &Path) -> Result<Self, Vec<(usize, String)>> {
        let file_error = |error: io::Error| vec![(0, format!("a readable htpasswd file ({error})"))];
        let text = fs::read_to_string(path).map_err(file_error)?;
        Self::from_text(&text, random_key().map_err(file_error)?)
    }

    /// Parses an htpasswd file. `key` must be unique to this file: checks with equal keyed digests of user and password
    /// share one result.
    ///
    /// # Errors
    /// Line numbers, and the expected texts.
    pub fn from_text(text: &str, key: [u8; 32]) -> Result<Self, Vec<(usize, String)>> {
        let mut users = HashMap::new();
        let mut mistakes = Vec::new();
        let mut highest_cost = *COSTS.start();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(line) {
                Ok((name, _, _)) if users.contains_key(name.as_bytes()) => {
                    mistakes.push((number, format!("each user once; {name:?} is on an earlier line")));
                }
                Ok((name, hash, cost)) => {
                    highest_cost = highest_cost.max(cost);
                    let user = User { hash: hash.into(), cost, verified: Mutex::default() };
                    users.insert(name.as_bytes().to_vec(), user);
                }
                Err(expected) => mistakes.push((number, expected)),
            }
        }
        if mistakes.is_empty() { Ok(Self { users, highest_cost, cache_key: key }) } else { Err(mistakes) }
    }

    /// Whether the file has a user of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.users.contains_key(name.as_bytes())
    }

    /// Checks that `password` is the password of `user`, for a client at address `client`. The check may wait for
    /// others, until `give_up` completes with the reason to stop waiting. A running check is always completed.
    ///
    /// The future can be dropped at any time: a running check continues on its own, and occupies its place until its
    /// end.
    ///
    /// # Errors
    /// Why the client is not authenticated.
    pub async fn verify(
        &self,
        client: IpAddr,
        user: &[u8],
        password: &[u8],
        give_up: impl Future<Output = AuthError>,
    ) -> Result<(), AuthError> {
        // htpasswd ends a password at a zero byte; bcrypt would accept `a\0a` for `a`.
        if password.len() > MAX_PASSWORD_LENGTH || password.contains(&0) {
            return Err(AuthError::WrongCredentials);
        }
        let digest = self.digest(user, password);
        let entry = self.users.get(user);
        let last_verified = entry.and_then(|entry| entry.last_verified(&digest));
        let now = Instant::now();
        if last_verified.is_some_and(|at| now.saturating_duration_since(at) < VERIFIED_TTL) {
            return Ok(());
        }
        let request = PasswordCheck {
            source: source_prefix(client),
            digest,
            name: self.digest(user, b""),
            was_verified: last_verified.is_some(),
        };
        let mut turn = pin!(CHECKS.enqueue(request).wait_turn());
        let turn = tokio::select! {
            biased;
            turn = &mut turn => turn,
            // All permitted checks are running, so this one has to wait.
            () = std::future::ready(()) => tokio::select! {
                biased;
                error = give_up => return Err(error),
                turn = &mut turn => turn,
            },
        };
        let is_correct = match turn {
            None => return Err(AuthError::Overloaded),
            Some(CheckTurn::Result(is_correct)) => is_correct,
            Some(CheckTurn::Run(running)) => {
                let check = self.check(entry, password);
                let check = tokio::task::spawn_blocking(move || {
                    let is_correct = check();
                    running.finish(is_correct);
                    is_correct
                });
                check.await.unwrap_or(false)
            }
        };
        let user = entry.filter(|_| is_correct).ok_or(AuthError::WrongCredentials)?;
        user.record_verified(digest, Instant::now());
        Ok(())
    }

    /// Returns the work of one check, which takes the same time for every user and for names that do not exist. Hashes
    /// that match no password make up for the difference between the cost of the user and the highest cost.
    fn check(&self, entry: Option<&User>, password: &[u8]) -> impl FnOnce() -> bool + Send + use<> {
        let highest_cost = self.highest_cost;
        let (hash, cost) =
            entry.map_or_else(|| (dummy_hash(highest_cost), highest_cost), |user| (Arc::clone(&user.hash), user.cost));
        let (password, exists) = (password.to_vec(), entry.is_some());
        move || {
            let is_correct = bcrypt::verify(&password, &hash).unwrap_or(false);
            // Each cost takes twice the time of the previous one: 2^c + 2^c + 2^(c+1) + ... + 2^(h-1) = 2^h.
            for cost in cost..highest_cost {
                let _ = bcrypt::verify(&password, &dummy_hash(cost));
            }
            is_correct && exists
        }
    }

    /// Returns the keyed digest of user and password, which is worthless without the key of this process.
    fn digest(&self, user: &[u8], password: &[u8]) -> [u8; 32] {
        let mut hasher = Sha256::new_with_prefix(self.cache_key);
        hasher.update(user.len().to_le_bytes());
        hasher.update(user);
        hasher.update(password);
        hasher.finalize().into()
    }
}

impl User {
    /// Returns the time of the last success of this password, if it was the last correct password of the user.
    fn last_verified(&self, digest: &[u8; 32]) -> Option<Instant> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.as_ref().filter(|last| bool::from(last.digest.ct_eq(digest))).map(|last| last.verified_at)
    }

    fn record_verified(&self, digest: [u8; 32], at: Instant) {
        *self.verified.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(VerifiedPassword { digest, verified_at: at });
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.users.len())
    }
}

/// Splits `NAME:HASH`; the third value is the cost. The error never shows the hash, which may be a plain password.
fn parse_line(line: &str) -> Result<(&str, &str, u32), String> {
    const LINE_FORMAT: &str = "a line NAME:HASH as \"htpasswd -B\" writes it";
    let (name, hash) = line.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or(LINE_FORMAT)?;
    let bcrypt = ["$2y$", "$2a$", "$2b$"].iter().any(|prefix| hash.starts_with(prefix));
    if !bcrypt {
        return Err(format!("a bcrypt hash ($2y$) for {name:?}: set the password again with \"htpasswd -B\""));
    }
    let cost = bcrypt::HashParts::from_str(hash).map(|parts| parts.get_cost());
    match cost {
        Ok(cost) if COSTS.contains(&cost) => Ok((name, hash, cost)),
        Ok(_) => Err(format!("a bcrypt hash of cost {} to {} for {name:?}", COSTS.start(), COSTS.end())),
        Err(_) => Err(format!("a complete bcrypt hash for {name:?}: set the password again with \"htpasswd -B\"")),
    }
}

/// Returns a well-formed hash that consists of zeros; no password is known for it.
fn dummy_hash(cost: u32) -> Arc<str> {
    format!("$2b${cost:02}${}", ".".repeat(22 + 31)).into()
}

/// Returns random bytes from the kernel (random(4)).
fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    //! Verification of passwords, and the errors of invalid files.

    use super::*;

    fn users(lines: &[(&str, &str)]) -> Users {
        let line = |(name, password): &(&str, &str)| format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap());
        parsed(&lines.iter().map(line).collect::<String>())
    }

    /// Each file has its own key, as in [`Users::load`]: equal digests in two files would share one check.
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
    fn errors_name_the_line_and_hide_the_hash() {
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
        assert!(alice.last_verified(&users.digest(b"alice", b"wrong")).is_none(), "a wrong password is remembered");
        let before = Instant::now();
        assert!(verify(&users, "alice", b"hunter2"));
        assert!(alice.last_verified(&digest).is_some_and(|at| at >= before));
        assert!(alice.last_verified(&users.digest(b"alice", b"wrong")).is_none());
        // A remembered password is not verified with bcrypt, so it is accepted although the hash differs.
        let mut users = users;
        let alice = users.users.get_mut(b"alice".as_slice()).unwrap();
        alice.hash = dummy_hash(4);
        assert!(verify(&users, "alice", b"hunter2"));
        // After five minutes bcrypt runs again.
        let alice = &users.users[b"alice".as_slice()];
        alice.record_verified(digest, Instant::now().checked_sub(VERIFIED_TTL).unwrap());
        assert!(!verify(&users, "alice", b"hunter2"));
    }

    #[test]
    fn digest_separates_user_and_password() {
        let users = users(&[]);
        assert_ne!(users.digest(b"ab", b"c"), users.digest(b"a", b"bc"));
    }

    /// Returns the CPU time of this thread in nanoseconds (proc(5)), which excludes the time of other programs.
    fn on_processor() -> u64 {
        let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    }

    /// The response time must not reveal which users exist, nor which of them have a hash of a low cost.
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
    fn random_keys_differ() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }
}
