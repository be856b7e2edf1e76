//! From the text of an experiment file to an experiment in which every combination of levels has been read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::experiment::file::{Background, Expect, Factor, Level, Relay, Settings, Treatment, Workload};
use crate::experiment::results::Metric;
use crate::experiment::{expect, metric, overrides};
use crate::program::chain;
use crate::program::command::{self, Way};
use crate::program::server::Protocol;
use crate::topology::{self, Lab};

/// The keys at the top of an experiment file that are not the lab's.
const KEYS: [&str; 8] = ["title", "source", "workload", "background", "treatment", "experiment", "factor", "expect"];

/// An experiment, read and found right.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// What it is called.
    pub name: String,
    /// The text it was read from.
    pub text: String,
    /// What the order of runs and every emulated decision depend on.
    pub seed: u64,
    /// One sentence on what it asks.
    pub title: String,
    /// Who published it.
    pub source: Option<String>,
    /// How it is carried out.
    pub settings: Settings,
    /// The figure that runs are compared by.
    pub metric: Metric,
    /// What varies.
    pub factors: Vec<Factor>,
    /// What should come of it.
    pub expects: Vec<Expect>,
    /// What is run, at every combination of levels, in the order of the file.
    pub cells: Vec<Cell>,
    /// The same for combinations that make no sense, with the reason.
    pub skipped: Vec<(Place, String)>,
}

/// A combination of levels, and a treatment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Factor and level.
    pub levels: BTreeMap<String, String>,
    /// The treatment.
    pub treatment: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.treatment)?;
        self.levels.values().try_for_each(|level| write!(f, ", {level}"))
    }
}

/// What is run at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Where in the experiment.
    pub place: Place,
    /// Whether it takes part in the quick size.
    pub quick: bool,
    /// What the file says there, with every default filled in.
    pub spec: Spec,
}

/// All that one run depends on.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Spec {
    /// The hosts and links.
    pub lab: Lab,
    /// Who transfers what.
    pub workload: Workload,
    /// What else is on the links.
    pub background: Vec<Background>,
    /// What stands between client and server; its chain is the one that holds here.
    pub treatment: Treatment,
}

impl Experiment {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Every mistake in it, at every combination of levels.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<String>> {
        let document: Table =
            text.parse().map_err(|error: toml::de::Error| vec![error.to_string().trim().to_owned()])?;
        let mut mistakes = Vec::new();
        unknown_keys(&document, &mut mistakes);
        let settings: Option<Settings> = part(&document, "experiment", &mut mistakes);
        let title: Option<String> = part(&document, "title", &mut mistakes);
        let factors: Vec<Factor> = parts(&document, "factor", &mut mistakes);
        let expects: Vec<Expect> = parts(&document, "expect", &mut mistakes);
        let source = document.contains_key("source").then(|| part(&document, "source", &mut mistakes)).flatten();
        let (Some(settings), Some(title)) = (settings, title) else { return Err(mistakes) };
        check_settings(&settings, &document, &mut mistakes);
        let metric = metric::by_name(&settings.metric).map_err(|mistake| mistakes.push(mistake)).unwrap_or_default();
        let mut read = Self {
            name: name.into(),
            text: text.into(),
            seed: 0,
            title,
            source,
            settings,
            metric,
            factors,
            expects,
            cells: Vec::new(),
            skipped: Vec::new(),
        };
        read.fill(&document, &mut mistakes);
        if mistakes.is_empty() {
            expect::check(&read, &mut mistakes);
        }
        if mistakes.is_empty() { Ok(read) } else { Err(mistakes) }
    }

    /// Reads every combination. A mistake that all of them share is told once.
    fn fill(&mut self, document: &Table, mistakes: &mut Vec<String>) {
        let mut told: BTreeSet<String> = mistakes.iter().cloned().collect();
        for (levels, sets, quick) in combinations(&self.factors) {
            for treatment in self.settings.treatments.clone() {
                if !document.get("treatment").is_some_and(|all| all.get(&treatment).is_some()) {
                    continue;
                }
                let place = Place { levels: levels.clone(), treatment };
                match spec(document, &sets, &place.treatment) {
                    Ok(spec) => {
                        self.seed = spec.lab.seed;
                        match senseless(&spec) {
                            Some(reason) => self.skipped.push((place, reason)),
                            None => self.cells.push(Cell { place, quick, spec }),
                        }
                    }
                    Err(found) => mistakes.extend(found.into_iter().filter(|mistake| told.insert(mistake.clone()))),
                }
            }
        }
    }

    /// Whether a combination of levels takes part in the quick size.
    #[must_use]
    pub fn is_quick(&self, levels: &BTreeMap<String, String>) -> bool {
        let quick =
            |factor: &Factor, level: &Level| levels.get(&factor.name) != Some(&level.name) || factor.is_quick(level);
        self.factors.iter().all(|factor| factor.levels.iter().all(|level| quick(factor, level)))
    }

    /// The cells of a size.
    pub fn cells_of(&self, full: bool) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| full || cell.quick)
    }
}

/// Every combination of levels: their names, what they set, and whether all of them are quick.
fn combinations(factors: &[Factor]) -> Vec<(BTreeMap<String, String>, Vec<Table>, bool)> {
    let mut all = vec![(BTreeMap::new(), Vec::new(), true)];
    for factor in factors {
        let mut longer = Vec::new();
        for (names, sets, quick) in &all {
            for level in &factor.levels {
                let (mut names, mut sets) = (names.clone(), sets.clone());
                names.insert(factor.name.clone(), level.name.clone());
                sets.push(level.set.clone());
                longer.push((names, sets, *quick && factor.is_quick(level)));
            }
        }
        all = longer;
    }
    all
}

/// The document as it is at these levels and for this treatment.
fn spec(document: &Table, sets: &[Table], treatment: &str) -> Result<Spec, Vec<String>> {
    let mut document = document.clone();
    let mut mistakes: Vec<String> = sets.iter().flat_map(|set| overrides::apply(&mut document, set)).collect();
    if let Some(Value::Table(set)) = document["treatment"].get(treatment).and_then(|own| own.get("set")).cloned() {
        mistakes.extend(overrides::apply(&mut document, &set));
    }
    let workload: Option<Workload> = part(&document, "workload", &mut mistakes);
    let background = parts(&document, "background", &mut mistakes);
    let own = document["treatment"].as_table().cloned().unwrap_or_default();
    let read = part::<Treatment>(&own, treatment, &mut Vec::new());
    if read.is_none() {
        let mut found = Vec::new();
        part::<Treatment>(&own, treatment, &mut found);
        mistakes.extend(found.into_iter().map(|mistake| format!("treatment.{mistake}")));
    }
    document.retain(|key, _| topology::file::LAB_KEYS.contains(&key));
    let lab = topology::file::parse(document);
    let lab = lab.map_err(|found| mistakes.extend(found.iter().map(ToString::to_string))).ok();
    let (Some(workload), Some(mut treatment), Some(lab)) = (workload, read, lab) else { return Err(mistakes) };
    if treatment.chain.is_empty() {
        treatment.chain.clone_from(&workload.chain);
    }
    let spec = Spec { lab, workload, background, treatment };
    check_spec(&spec, &mut mistakes);
    if mistakes.is_empty() { Ok(spec) } else { Err(mistakes) }
}

/// Why a combination makes no sense, if it makes none.
fn senseless(spec: &Spec) -> Option<String> {
    let (treatment, protocol) = (&spec.treatment, spec.workload.protocol);
    if treatment.program == Relay::Direct {
        return None;
    }
    if treatment.chain.is_empty() {
        return Some("no relay in the chain: it would be the direct path".into());
    }
    if !treatment.protocols.is_empty() && !treatment.protocols.contains(&protocol) {
        return Some(format!("not for {}, the file says", protocol.name()));
    }
    (protocol == Protocol::Ftp && chain::way(treatment) == Way::Forward)
        .then(|| "FTP's data connections cannot pass a forwarder of one port".into())
}

fn check_spec(spec: &Spec, mistakes: &mut Vec<String>) {
    let mut host = |key: &str, name: &String| {
        if !spec.lab.hosts.contains_key(name) {
            mistakes.push(format!("{key}: there is no host {name:?}"));
        }
    };
    host("workload.client", &spec.workload.client);
    host("workload.server", &spec.workload.server);
    spec.treatment.chain.iter().for_each(|name| host("chain", name));
    for traffic in &spec.background {
        host("background.from", &traffic.from);
        host("background.to", &traffic.to);
    }
    let workload = &spec.workload;
    if workload.server_program().protocol() != workload.protocol {
        let (program, protocol) = (workload.server_program().about().name, workload.protocol.name());
        mistakes.push(format!("workload: {program} does not speak {protocol}"));
    }
    if workload.file.0 == 0 || workload.transfers == 0 {
        mistakes.push("workload: nothing to transfer".into());
    }
    for traffic in &spec.background {
        if (traffic.flows > 0) == traffic.rate.is_some() {
            mistakes.push("background: either flows (1 or more) or rate".into());
        }
    }
    if spec.treatment.program == Relay::Command {
        mistakes.extend(command::ready(&spec.treatment.ready).err().map(|mistake| format!("ready: {mistake}")));
        if spec.treatment.command.is_empty() {
            mistakes.push("command: a program and its arguments".into());
        }
    }
}

fn check_settings(settings: &Settings, document: &Table, mistakes: &mut Vec<String>) {
    let written = document.get("treatment").and_then(Value::as_table).cloned().unwrap_or_default();
    if settings.treatments.is_empty() {
        mistakes.push("experiment.treatments: at least one".into());
    }
    for name in &settings.treatments {
        if !written.contains_key(name) {
            mistakes.push(format!("experiment.treatments: there is no [treatment.{name}]"));
        }
    }
    for name in written.keys().filter(|name| !settings.treatments.contains(name)) {
        mistakes.push(format!("treatment.{name}: not in experiment.treatments"));
    }
    if settings.blocks.quick == 0 || settings.blocks.full == 0 {
        mistakes.push("experiment.blocks: at least 1".into());
    }
}

fn unknown_keys(document: &Table, mistakes: &mut Vec<String>) {
    let known = |key: &str| KEYS.contains(&key) || topology::file::LAB_KEYS.contains(&key);
    mistakes.extend(document.keys().filter(|key| !known(key)).map(|key| format!("{key}: unknown key")));
}

/// Reads one part of a document, and writes a mistake down with the key it is at.
fn part<T: DeserializeOwned>(document: &Table, key: &str, mistakes: &mut Vec<String>) -> Option<T> {
    let Some(value) = document.get(key) else {
        mistakes.push(format!("{key}: missing"));
        return None;
    };
    value.clone().try_into().map_err(|error| mistakes.push(told(key, &error))).ok()
}

/// Reads a list of parts, each for itself.
fn parts<T: DeserializeOwned>(document: &Table, key: &str, mistakes: &mut Vec<String>) -> Vec<T> {
    let values = match document.get(key) {
        None => return Vec::new(),
        Some(Value::Array(values)) => values,
        Some(_) => {
            mistakes.push(format!("{key}: a list of tables, [[{key}]]"));
            return Vec::new();
        }
    };
    let read = |(number, value): (usize, &Value)| {
        value.clone().try_into().map_err(|error| mistakes.push(told(&format!("{key} {}", number + 1), &error))).ok()
    };
    values.iter().enumerate().filter_map(read).collect()
}

fn told(key: &str, error: &toml::de::Error) -> String {
    format!("{key}: {}", error.to_string().trim().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::examples_for_tests::{TEXT, small};

    fn mistakes(text: &str) -> Vec<String> {
        Experiment::read("x", text).unwrap_err()
    }

    #[test]
    fn every_combination_is_read_with_what_its_levels_set() {
        let experiment = small("").unwrap();
        // 2 delays, 2 protocols, 3 treatments, without haproxy for FTP.
        assert_eq!((experiment.cells.len(), experiment.skipped.len(), experiment.seed), (10, 2, 7));
        assert_eq!(experiment.cells_of(false).count(), 5);
        for cell in &experiment.cells {
            let delay = cell.spec.lab.links["near"].forward.delay.map(|delay| delay.to_string());
            let wanted = if cell.place.levels["delay"] == "short" { "1ms" } else { "9ms" };
            assert_eq!(delay.as_deref(), Some(wanted), "{}", cell.place);
            assert_eq!(cell.spec.workload.protocol.name(), cell.place.levels["protocol"]);
            assert_eq!(cell.spec.treatment.chain, ["relay"]);
        }
        assert_eq!(experiment.skipped[0].0.to_string(), "haproxy, short, ftp");
    }

    #[test]
    fn a_treatment_may_change_the_document_too() {
        let text = TEXT.replace("[treatment.dante]", "[treatment.dante]\nset = { \"link.far.delay\" = \"3ms\" }");
        let experiment = Experiment::read("x", &text).unwrap();
        let far = |treatment: &str| {
            let cell = experiment.cells.iter().find(|cell| cell.place.treatment == treatment).unwrap();
            cell.spec.lab.links["far"].forward.delay.is_some()
        };
        assert!(far("dante") && !far("direct"));
    }

    #[test]
    fn mistakes_are_told_all_at_once_and_each_once() {
        let text = TEXT
            .replace("file = \"1MB\"", "file = \"1\"")
            .replace("title = \"A small one\"", "title = \"A small one\"\nflavour = 1")
            .replace("program = \"dante\"", "program = \"dante\"\nmod = \"socks\"")
            .replace("\"link.near.delay\" = \"9ms\"", "\"link.nowhere.delay\" = \"9ms\"");
        let mistakes = mistakes(&text);
        let has = |part: &str| mistakes.iter().filter(|mistake| mistake.contains(part)).count();
        assert_eq!(has("flavour: unknown key"), 1, "{mistakes:#?}");
        assert_eq!(has("workload: \"1\" is not a size like"), 1, "{mistakes:#?}");
        assert_eq!(has("treatment.dante: unknown field `mod`"), 1, "{mistakes:#?}");
        assert_eq!(has("there is no link.nowhere"), 1, "{mistakes:#?}");
    }

    #[test]
    fn hosts_treatments_and_programs_have_to_be_there() {
        let wrong = [
            ("chain = [\"relay\"]", "chain = [\"r9\"]", "chain: there is no host \"r9\""),
            ("treatments = [\"direct\",", "treatments = [\"best\",", "there is no [treatment.best]"),
            ("treatments = [\"direct\",", "treatments = [\"best\",", "treatment.direct: not in experiment.treatments"),
            ("protocol = \"http\"", "protocol = \"http\"\nprogram = \"vsftpd\"", "vsftpd does not speak http"),
            ("quick = 2", "quick = 0", "experiment.blocks: at least 1"),
            ("title = \"A small one\"", "", "title: missing"),
            ("blocks =", "metric = \"speed\"\nblocks =", "there is no metric \"speed\""),
            ("program = \"dante\"", "program = \"command\"", "command: a program and its arguments"),
        ];
        for (from, to, wanted) in wrong {
            let mistakes = mistakes(&TEXT.replace(from, to));
            assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
        }
    }
}
