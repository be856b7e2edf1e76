//! What `ekiden plan` reads: sites, round trips between them, what sections are like, and who fetches from whom.
//!
//! Read as a configuration is: every mistake at once, each with its line and what was expected.

mod rtt;
mod traffic;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::path::model::{Congestion, Costs};
use ekiden_proto::path::plan::doubts::doubts;
use ekiden_proto::path::plan::{Entry, Matrix, Network, Origin, Position, Roles, Site, Traffic, Traits, Yardstick};
use ekiden_proto::units::{Bytes, Rate};
use toml::de::DeTable;

use super::mistake::{Found, Mistake, Mistakes, Notes, one_of};
use super::named;
use super::place::{Place, Source};
use super::reader::Reader;
use super::value::{Name, Version};
use traffic::traffic;
use values::{Factor, Loss, Role, Size};

/// Every pair of places is tried with every traffic.
const MOST_SITES: usize = 100;

/// As many sizes as the table has columns for.
const MOST_SIZES: usize = 6;

/// The sizes of a file that names none: from a small page to a disk image.
const SIZES: [u64; MOST_SIZES] = [10_000, 100_000, 1 << 20, 8 << 20, 64 << 20, 1 << 30];

/// What a file says; some round trips may be left to measure.
#[derive(Debug)]
pub struct Written {
    network: Network,
    inflation: Option<f64>,
    /// Round trips that are to be measured from here.
    pub to_measure: Vec<Measurable>,
    /// What is strange and not wrong, each with its place.
    pub warnings: Vec<String>,
}

/// A round trip to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurable {
    /// The two sites; this host is at the first one.
    pub sites: (usize, usize),
    /// The name of the other one.
    pub name: String,
    /// Where something answers there, if only by refusing.
    pub address: Target,
}

/// Reads the plan of `path`.
///
/// # Errors
/// Every mistake in it.
pub fn load(path: &Path) -> Result<Written, Mistakes> {
    let place = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => from_text(&place, &text),
        Err(error) => {
            let expected = format!("a readable file of UTF-8 text ({error})");
            Err(Mistakes(vec![Mistake { place, line: None, key: String::new(), found: Found::Whole, expected }]))
        }
    }
}

/// Reads the text of a plan; `name` is that of its file.
///
/// # Errors
/// Every mistake in it.
pub fn from_text(name: &str, text: &str) -> Result<Written, Mistakes> {
    let notes = Notes::default();
    let (table, errors) = DeTable::parse_recoverable(text);
    let source = Source { name, text: Some(text), open: false, notes: &notes };
    for error in errors {
        Place::whole(source).at(error.span().as_ref()).note(Found::Syntax, error.message());
    }
    let file = Reader::new(Place::whole(source), Some(table.get_ref()));
    let written = written(&file);
    file.finish();
    notes.verdict().map(|()| written)
}

/// The sites, and what else is known of them.
struct Sites {
    sites: Vec<Site>,
    addresses: Vec<Option<Target>>,
}

impl Sites {
    /// The site of this name, or a mistake at `place`.
    fn find(&self, place: &Place<'_>, name: &str) -> Option<usize> {
        let found = self.sites.iter().position(|site| site.name == name);
        if found.is_none() {
            let expected = one_of("a site", name, self.sites.iter().map(|site| site.name.as_str()));
            place.note(Found::Value(format!("{name:?}")), expected);
        }
        found
    }

    fn names(&self, (one, other): (usize, usize)) -> String {
        format!("{} and {}", self.sites[one].name, self.sites[other].name)
    }
}

fn written(file: &Reader<'_>) -> Written {
    let _: Option<Version> = file.required("version");
    let sizes = sizes(file);
    let inflation = file.optional("inflation").map(|Factor(factor)| factor);
    let mut sites = sites(file);
    let table = file.table("usual");
    let usual = traits(&table, Traits::default());
    table.finish();
    let rtt::Read { matrix, to_measure, places } = rtt::read(file, &sites);
    let traits = sections(file, &sites, usual);
    let traffic = traffic(file, &mut sites, &|one, other| {
        matrix.get(one, other).is_some() || to_measure.iter().any(|known| same(known.sites, (one, other)))
    });
    let mut warnings = Vec::new();
    for doubt in doubts(&sites.sites, &matrix) {
        let Some(place) = places.get(&doubt.sites) else { continue };
        let rtt = matrix.get(doubt.sites.0, doubt.sites.1).map_or(Duration::ZERO, |entry| entry.rtt);
        let found = format!("\"{}ms\"", rtt.as_secs_f64() * 1e3);
        if doubt.is_mistake {
            place.note(Found::Value(found), doubt.expected);
        } else {
            let line = place.line.map_or_else(String::new, |line| format!("{line}: "));
            let (file, key) = (place.source.name, &place.key);
            warnings.push(format!("{file}:{line}warning: {key} = {found}: expected {}", doubt.expected));
        }
    }
    let yardstick = Yardstick::written(1.0);
    let costs = Costs::default();
    let network = Network { sites: sites.sites, matrix, yardstick, usual, traits, traffic, sizes, costs };
    Written { network, inflation, to_measure, warnings }
}

fn same(one: (usize, usize), other: (usize, usize)) -> bool {
    one == other || one == (other.1, other.0)
}

fn sizes(file: &Reader<'_>) -> Vec<u64> {
    let mut sizes: Vec<u64> = file.list("sizes").into_iter().map(|Size(size)| size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if file.has("sizes") && !(1..=MOST_SIZES).contains(&sizes.len()) {
        file.mistake("sizes", format!("1 to {MOST_SIZES} sizes like \"1MiB\""));
    }
    if sizes.is_empty() { SIZES.to_vec() } else { sizes }
}

fn sites(file: &Reader<'_>) -> Sites {
    let tables = file.tables("site");
    if !(2..=MOST_SITES).contains(&tables.len()) {
        file.mistake("site", format!("2 to {MOST_SITES} tables that begin with [[site]]"));
    }
    let names = named::names(&tables);
    let mut all = Sites { sites: Vec::new(), addresses: Vec::new() };
    for (reader, name) in tables.into_iter().zip(names) {
        let mut roles = Roles::default();
        if reader.has("role") {
            reader.some("role").into_iter().for_each(|(_, Role(add))| add(&mut roles));
        }
        let position = position(&reader);
        all.addresses.push(reader.optional("address"));
        reader.finish();
        all.sites.push(Site { name: name.unwrap_or_default(), roles, position });
    }
    all
}

fn position(reader: &Reader<'_>) -> Option<Position> {
    const EXPECTED: &str = "[LATITUDE, LONGITUDE] in degrees, like [35.68, 139.77]: north and east are positive";
    if !reader.has("position") {
        return None;
    }
    let degrees: Vec<f64> = reader.list("position").into_iter().map(|values::Degrees(degrees)| degrees).collect();
    match degrees[..] {
        [latitude, longitude] if latitude.abs() <= 90.0 && longitude.abs() <= 180.0 => {
            Some(Position { latitude, longitude })
        }
        _ => {
            reader.mistake("position", EXPECTED);
            None
        }
    }
}

/// What sections are like that `[[section]]` speaks of.
fn sections(file: &Reader<'_>, sites: &Sites, usual: Traits) -> BTreeMap<(usize, usize), Traits> {
    let mut all = BTreeMap::new();
    for reader in file.tables("section") {
        let names = reader.some::<Name>("between");
        let found: Vec<_> = names.iter().map(|(place, Name(name))| sites.find(place, name)).collect();
        let read = traits(&reader, usual);
        match found[..] {
            [Some(one), Some(other)] if one != other => {
                if all.insert((one.min(other), one.max(other)), read).is_some() {
                    reader.mistake("between", "two sites of which no other [[section]] speaks");
                }
            }
            [None, _] | [_, None] => {}
            _ => reader.mistake("between", "two different sites"),
        }
        reader.finish();
    }
    all
}

/// Reads what a section is like; `usual` is what is not written.
fn traits(reader: &Reader<'_>, usual: Traits) -> Traits {
    let congestion = reader.optional("congestion").map(|Name(name)| Congestion::of_name(&name));
    Traits {
        loss: reader.optional("loss").map_or(usual.loss, |Loss(loss)| loss),
        line: reader.optional("line").map(|rate: Rate| rate.bytes_per_second() as f64).or(usual.line),
        window: reader.optional("window").map(|Bytes(bytes)| bytes).or(usual.window),
        congestion: congestion.unwrap_or(usual.congestion),
    }
}

impl Written {
    /// Adds what was measured, estimates what is missing, and hands out the network.
    ///
    /// # Errors
    /// A traffic whose own round trip is not known: it should have been measured, and was not.
    pub fn complete(self, measured: &[(Measurable, Duration)]) -> Result<Network, String> {
        let Self { mut network, inflation, .. } = self;
        for (Measurable { sites: (here, there), .. }, rtt) in measured {
            network.matrix.set(*here, *there, Entry { rtt: *rtt, origin: Origin::Measured });
        }
        network.yardstick =
            inflation.map_or_else(|| Yardstick::learnt(&network.sites, &network.matrix), Yardstick::written);
        network.matrix.estimate(&network.sites, &network.yardstick);
        let missing = network.traffic.iter().find(|t| network.matrix.get(t.client, t.server).is_none());
        match missing {
            None => Ok(network),
            Some(Traffic { client, server, .. }) => {
                let (from, to) = (&network.sites[*client].name, &network.sites[*server].name);
                Err(format!(
                    "{from} -> {to}: the round trip could not be measured: write it as rtt.{from}.{to}, or give both a position"
                ))
            }
        }
    }

    /// The matrix so far, for doubts.
    #[must_use]
    pub fn matrix(&self) -> &Matrix {
        &self.network.matrix
    }
}

#[cfg(test)]
mod tests;
