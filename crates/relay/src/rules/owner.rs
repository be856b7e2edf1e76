//! The owner of rules, stored in the comment of the nftables table. A daemon does not replace the rules of another
//! running daemon, and the rules of a daemon that has died are recognised as stale.

use ekiden_sys::process::start_time;

use super::Marks;
use super::apply::run;
use super::error::RulesError;

/// The owner for which rules are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This process, a daemon that removes the rules at its end.
    Daemon,
    /// Like `Daemon`, but the existing rules may belong to the predecessor with this pid, which no longer needs them.
    Successor(u32),
    /// The operator, by `ekiden rules`.
    Operator,
}

/// The owner of existing rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The running daemon with this pid.
    Running(u32),
    /// A daemon with this pid that no longer runs.
    Gone(u32),
    /// No process: the rules stay until `ekiden rules remove`.
    Operator,
}

impl Owner {
    /// Returns the comment of the table.
    pub(super) fn comment(self, marks: Marks) -> String {
        let instance = marks.instance();
        match self {
            Self::Operator => format!("ekiden instance {instance}, by ekiden rules"),
            Self::Daemon | Self::Successor(_) => {
                let pid = std::process::id();
                format!("ekiden instance {instance}, pid {pid}, started {}", start_time(pid).unwrap_or(0))
            }
        }
    }

    /// Returns whether this owner may replace the rules of the running daemon with this pid.
    pub(super) fn succeeds(self, daemon: u32) -> bool {
        daemon == std::process::id() || self == Self::Successor(daemon)
    }
}

/// Returns the owner of the rules of `instance` in the kernel; `None` if there are none.
///
/// # Errors
/// nft has failed, in most cases for lack of privilege.
pub fn holder(instance: u8) -> Result<Option<Holder>, RulesError> {
    let table = table(Marks::new(instance));
    let tables = run("nft", &["list", "tables"], "")?;
    if !tables.lines().any(|line| line == format!("table inet {table}")) {
        return Ok(None);
    }
    let text = run("nft", &["list", "table", "inet", &table], "")?;
    Ok(Some(read(&text)))
}

/// Returns the name of the nftables table.
pub(super) fn table(marks: Marks) -> String {
    match marks.instance() {
        1 => "ekiden".to_owned(),
        instance => format!("ekiden-{instance}"),
    }
}

fn read(text: &str) -> Holder {
    let number = |word: &str| {
        let comment = text.lines().find_map(|line| line.trim().strip_prefix("comment \"ekiden instance "))?;
        let (_, after) = comment.split_once(word)?;
        after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    match (number(", pid ").and_then(|pid| u32::try_from(pid).ok()), number(", started ")) {
        (Some(pid), Some(started)) if start_time(pid) == Some(started) => Holder::Running(pid),
        (Some(pid), Some(_)) => Holder::Gone(pid),
        _ => Holder::Operator,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;

    #[test]
    fn table_comment_identifies_the_owner() {
        let text = |comment: &str| format!("table inet ekiden {{\n\tcomment \"{comment}\"\n}}\n");
        let (marks, pid) = (Marks::new(1), std::process::id());
        assert_eq!(read(&text(&Owner::Daemon.comment(marks))), Holder::Running(pid));
        assert_eq!(read(&text(&Owner::Operator.comment(marks))), Holder::Operator);
        assert_eq!(read(&text(&format!("ekiden instance 1, pid {pid}, started 1"))), Holder::Gone(pid));
        assert_eq!(read(&text("something else")), Holder::Operator);
    }
}
