//! Pages of earlier runs, which did not have the full size with enough blocks. Each page states this in its first
//! lines.

use crate::experiment::spec::builtin::BUILT_IN_EXPERIMENTS;

/// Size, blocks, clock and date of a run, as its page states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierRun {
    size: String,
    blocks: String,
    clock: String,
    date: String,
}

impl EarlierRun {
    /// Reads the circumstances from the report of a built-in experiment. Returns `None` for any other page.
    #[must_use]
    pub fn read(page: &str) -> Option<Self> {
        let value = |name: &str| {
            let (_, section) = page.split_once("\n## Experiment\n")?;
            let line = section.lines().find_map(|line| line.strip_prefix(&format!("| {name} | ")))?;
            Some(line.trim_end_matches(" |").to_owned())
        };
        let name = value("experiment")?;
        BUILT_IN_EXPERIMENTS.iter().find(|(own, _)| *own == name)?;
        let clock =
            value("clock").map_or("real", |clock| if clock.starts_with("virtual") { "virtual" } else { "real" });
        let date = value("started")?.split('T').next()?.to_owned();
        Some(Self { size: value("size")?, blocks: value("blocks")?, clock: clock.to_owned(), date })
    }

    /// Returns the circumstances as text.
    #[must_use]
    pub fn describe(&self) -> String {
        let blocks = if self.blocks == "1" { "block" } else { "blocks" };
        format!("{} size, {} {blocks}, {} time, {}", self.size, self.blocks, self.clock, self.date)
    }
}

const NOTICE: &str = "> **Earlier run**: ";

/// Returns the page with one notice of its circumstances below the title, which replaces an older notice. Returns
/// `None` if the page is no report of an experiment.
#[must_use]
pub fn with_notice(page: &str) -> Option<String> {
    let run = EarlierRun::read(page)?;
    let (title, rest) = page.split_once("\n\n")?;
    let rest = match rest.strip_prefix(NOTICE) {
        Some(rest) => rest.split_once("\n\n")?.1,
        None => rest,
    };
    let notice = format!("{NOTICE}{}. These are not the figures of `make figures`.", run.describe());
    Some(format!("{title}\n\n{notice}\n\n{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# x\n\nA question?\n\n## Experiment\n\n| experiment | demo |\n| size | quick |\n\
                        | started | 2026-11-22T10:07:31Z |\n| blocks | 2 |\n";

    #[test]
    fn notice_is_added_only_once() {
        let once = with_notice(PAGE).unwrap();
        let notice = "# x\n\n> **Earlier run**: quick size, 2 blocks, real time, 2026-11-22. ";
        assert!(once.starts_with(notice) && once.contains("\n\nA question?\n"), "{once}");
        assert_eq!(with_notice(&once).unwrap(), once);
        assert_eq!(with_notice("# A page\n\nof something else\n"), None);
    }
}
