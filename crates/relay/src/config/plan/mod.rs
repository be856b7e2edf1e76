//! The input file of `ekiden plan`: sites, round-trip times between them, properties of sections, and traffic.
//!
//! It is read like a configuration: all mistakes are reported at once, each with its line and the expected value.

mod rtt;
mod traffic;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::path::model::RelayCosts;
use ekiden_proto::path::plan::implausible::find_anomalies;
use ekiden_proto::path::plan::{
    DistanceModel, PlanInput, Position, Roles, RttEntry, RttMatrix, RttSource, SectionTraits, Site, Traffic,
};
use ekiden_proto::units::{Bytes, Rate};
use toml::de::DeTable;
use traffic::read_traffic;
use values::{CongestionName, InflationFactor, LossRatio, ObjectSize, RoleValue};

use super::error::{ConfigError, ConfigErrors, Diagnostics, FoundValue, expected_one_of};
use super::files::SourceFile;
use super::place::{KeyLocation, SourceText};
use super::reader::TableReader;
use super::shared;
use super::value::{Name, Version};

/// Maximum number of sites: every pair of sites is evaluated for all traffic.
const MAX_SITES: usize = 100;

/// Maximum number of object sizes, which is that of columns in the table.
const MAX_SIZES: usize = 6;

/// The default object sizes in bytes: from a small page to a disk image.
const DEFAULT_SIZES: [u64; MAX_SIZES] = [10_000, 100_000, 1 << 20, 8 << 20, 64 << 20, 1 << 30];

/// The content of a plan file; some round-trip times may still have to be measured.
#[derive(Debug)]
pub struct PlanFile {
    network: PlanInput,
    inflation: Option<f64>,
    /// Round-trip times to be measured from this host.
    pub to_measure: Vec<UnmeasuredRtt>,
    /// Warnings about suspicious values, each with its location.
    pub warnings: Vec<String>,
}

/// A round-trip time to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmeasuredRtt {
    /// The two sites; this host is at the first.
    pub sites: (usize, usize),
    /// Name of the second site.
    pub name: String,
    /// Host and port at the second site that answers connection attempts, if only by refusing them.
    pub address: Target,
}

/// Reads the plan file at `path`.
///
/// # Errors
/// All mistakes in the file.
pub fn load(path: &Path) -> Result<PlanFile, ConfigErrors> {
    let place = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => from_text(&place, &text),
        Err(error) => {
            let expected = format!("a readable file of UTF-8 text ({error})");
            Err(ConfigErrors(vec![ConfigError {
                source: place,
                line: None,
                key: String::new(),
                found: FoundValue::WholeText,
                expected,
            }]))
        }
    }
}

/// Parses a plan; `name` is the name of its file.
///
/// # Errors
/// All mistakes in the text.
pub fn from_text(name: &str, text: &str) -> Result<PlanFile, ConfigErrors> {
    let notes = Diagnostics::default();
    let (table, errors) = DeTable::parse_recoverable(text);
    let file = SourceFile::only(name, text);
    let source = SourceText::new(&file, std::slice::from_ref(&file), &notes);
    for error in errors {
        KeyLocation::whole_text(source).at_span(error.span().as_ref()).error(FoundValue::Syntax, error.message());
    }
    let file = TableReader::new(KeyLocation::whole_text(source), Some(table.get_ref()));
    let plan = read_plan(&file);
    file.finish();
    notes.into_result().map(|()| plan)
}

/// The sites and their addresses.
struct SiteTable {
    sites: Vec<Site>,
    addresses: Vec<Option<Target>>,
}

impl SiteTable {
    /// Returns the index of the site of this name, or reports a mistake at `place`.
    fn find(&self, place: &KeyLocation<'_>, name: &str) -> Option<usize> {
        let index = self.sites.iter().position(|site| site.name == name);
        if index.is_none() {
            let expected = expected_one_of("a site", name, self.sites.iter().map(|site| site.name.as_str()));
            place.error(FoundValue::Value(format!("{name:?}")), expected);
        }
        index
    }

    fn pair_names(&self, first: usize, second: usize) -> String {
        format!("{} and {}", self.sites[first].name, self.sites[second].name)
    }
}

fn read_plan(file: &TableReader<'_>) -> PlanFile {
    let _: Option<Version> = file.required("version");
    let sizes = read_sizes(file);
    let inflation = file.optional("inflation").map(|InflationFactor(factor)| factor);
    let mut sites = read_sites(file);
    let table = file.table("usual");
    let default_traits = read_traits(&table, SectionTraits::default());
    table.finish();
    let rtt::RttTable { matrix, to_measure, places } = rtt::read(file, &sites);
    let traits = read_sections(file, &sites, default_traits);
    let traffic = read_traffic(file, &mut sites, &|first, second| {
        matrix.get(first, second).is_some() || to_measure.iter().any(|known| is_same_pair(known.sites, (first, second)))
    });
    let mut warnings = Vec::new();
    for anomaly in find_anomalies(&sites.sites, &matrix) {
        let Some(place) = places.get(&anomaly.sites) else { continue };
        let rtt = matrix.get(anomaly.sites.0, anomaly.sites.1).map_or(Duration::ZERO, |entry| entry.rtt);
        let found = format!("\"{}ms\"", rtt.as_secs_f64() * 1e3);
        if anomaly.is_mistake {
            place.error(FoundValue::Value(found), anomaly.expected);
        } else {
            let line = place.line.map_or_else(String::new, |line| format!("{line}: "));
            let (file, key) = (place.source.name, &place.key);
            warnings.push(format!("{file}:{line}warning: {key} = {found}: expected {}", anomaly.expected));
        }
    }
    let distance_model = DistanceModel::with_inflation(1.0);
    let costs = RelayCosts::default();
    let network =
        PlanInput { sites: sites.sites, matrix, distance_model, default_traits, traits, traffic, sizes, costs };
    PlanFile { network, inflation, to_measure, warnings }
}

fn is_same_pair(one: (usize, usize), other: (usize, usize)) -> bool {
    one == other || one == (other.1, other.0)
}

fn read_sizes(file: &TableReader<'_>) -> Vec<u64> {
    let mut sizes: Vec<u64> = file.list("sizes").into_iter().map(|ObjectSize(size)| size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if file.has("sizes") && !(1..=MAX_SIZES).contains(&sizes.len()) {
        file.error("sizes", format!("1 to {MAX_SIZES} sizes like \"1MiB\""));
    }
    if sizes.is_empty() { DEFAULT_SIZES.to_vec() } else { sizes }
}

fn read_sites(file: &TableReader<'_>) -> SiteTable {
    let tables = file.tables("site");
    if !(2..=MAX_SITES).contains(&tables.len()) {
        file.error("site", format!("2 to {MAX_SITES} tables that begin with [[site]]"));
    }
    let names = shared::read_names(&tables);
    let mut table = SiteTable { sites: Vec::new(), addresses: Vec::new() };
    for (reader, name) in tables.into_iter().zip(names) {
        let mut roles = Roles::default();
        if reader.has("role") {
            reader.non_empty_list("role").into_iter().for_each(|(_, RoleValue(add))| add(&mut roles));
        }
        let position = read_position(&reader);
        table.addresses.push(reader.optional("address"));
        reader.finish();
        table.sites.push(Site { name: name.unwrap_or_default(), roles, position });
    }
    table
}

fn read_position(reader: &TableReader<'_>) -> Option<Position> {
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
            reader.error("position", EXPECTED);
            None
        }
    }
}

/// Reads the section properties in `[[section]]`.
fn read_sections(
    file: &TableReader<'_>,
    sites: &SiteTable,
    default_traits: SectionTraits,
) -> BTreeMap<(usize, usize), SectionTraits> {
    let mut traits = BTreeMap::new();
    for reader in file.tables("section") {
        let names = reader.non_empty_list::<Name>("between");
        let ends: Vec<_> = names.iter().map(|(place, Name(name))| sites.find(place, name)).collect();
        let section_traits = read_traits(&reader, default_traits);
        match ends[..] {
            [Some(first), Some(second)] if first != second => {
                if traits.insert((first.min(second), first.max(second)), section_traits).is_some() {
                    reader.error("between", "two sites that no other [[section]] names");
                }
            }
            [None, _] | [_, None] => {}
            _ => reader.error("between", "two different sites"),
        }
        reader.finish();
    }
    traits
}

/// Reads the properties of a section; `default_traits` replace missing ones.
fn read_traits(reader: &TableReader<'_>, default_traits: SectionTraits) -> SectionTraits {
    let congestion = reader.optional("congestion").map(|CongestionName(congestion)| congestion);
    SectionTraits {
        loss: reader.optional("loss").map_or(default_traits.loss, |LossRatio(loss)| loss),
        line_rate: reader
            .optional("line")
            .map(|rate: Rate| rate.bytes_per_second() as f64)
            .or(default_traits.line_rate),
        window: reader.optional("window").map(|Bytes(bytes)| bytes).or(default_traits.window),
        congestion: congestion.unwrap_or(default_traits.congestion),
    }
}

impl PlanFile {
    /// Adds the measured round-trip times, estimates missing ones, and returns the network.
    ///
    /// # Errors
    /// A pair of sites with traffic whose round-trip time was not measured and cannot be estimated.
    pub fn complete(self, measured: &[(UnmeasuredRtt, Duration)]) -> Result<PlanInput, String> {
        let Self { mut network, inflation, .. } = self;
        for (UnmeasuredRtt { sites: (first, second), .. }, rtt) in measured {
            network.matrix.set(*first, *second, RttEntry { rtt: *rtt, source: RttSource::Measured });
        }
        network.distance_model = inflation
            .map_or_else(|| DistanceModel::fit(&network.sites, &network.matrix), DistanceModel::with_inflation);
        network.matrix.fill_estimates(&network.sites, &network.distance_model);
        let missing = network.traffic.iter().find(|t| network.matrix.get(t.client, t.server).is_none());
        match missing {
            None => Ok(network),
            Some(Traffic { client, server, .. }) => {
                let (from, to) = (&network.sites[*client].name, &network.sites[*server].name);
                Err(format!(
                    "{from} -> {to}: the round trip could not be measured: set rtt.{from}.{to}, or give both sites a \
                     position"
                ))
            }
        }
    }

    /// Returns the known round-trip times, for the check of anomalies.
    #[must_use]
    pub fn matrix(&self) -> &RttMatrix {
        &self.network.matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: &str = "version = 1
[[site]]
name = \"a\"
role = \"client\"
[[site]]
name = \"b\"
role = [\"relay\", \"possible\"]
address = \"127.0.0.1:1\"
[[site]]
name = \"c\"
role = \"server\"
";

    fn mistakes(text: &str) -> Vec<String> {
        from_text("f", text).expect_err("the plan was accepted").0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plan_sizes_rtts_and_sections_are_read() {
        let text = format!(
        "sizes = [\"1MiB\", \"10kB\"]\n{SITES}[rtt.a]\nc = \"38.6ms\"\nb = \"10ms\"\n[rtt.b]\nc = \"20ms\"\na = \"10.5ms\"
        [usual]\nwindow = \"256KiB\"\n[[section]]\nbetween = [\"c\", \"b\"]\nloss = \"0.1%\"\nline = \"80Mbit/s\"\n"
    );
        let network = from_text("f", &text).unwrap().complete(&[]).unwrap();
        assert_eq!(network.sizes, [10_000, 1 << 20]);
        assert_eq!(network.traffic, [Traffic { client: 0, server: 2, weight: 1.0 }]);
        assert_eq!(network.matrix.get(2, 0).unwrap().rtt, Duration::from_micros(38_600));
        let section = network.traits_of(1, 2);
        assert_eq!((section.loss, section.line_rate, section.window), (0.001, Some(1e7), Some(256 << 10)));
        assert_eq!(network.traits_of(0, 1), network.default_traits);
    }

    #[test]
    fn each_contradiction_is_reported_with_its_line() {
        let text = format!(
            "{SITES}[rtt.a]\nb = \"10ms\"\nc = \"-3ms\"\na = \"1ms\"\nd = \"5ms\"\n[rtt.b]\na = \"30ms\"\nc = \"measured\"\n"
        );
        let reported = mistakes(&text);
        for expected in [
            "f:14: rtt.a.c = \"-3ms\": expected a time above zero like \"31.8ms\", or \"measured\"",
            "f:15: rtt.a.a = \"a\": expected another site: this is the round trip from a site to itself",
            "f:16: rtt.a.d = \"d\": expected a site, one of a, b, c",
            "f:18: rtt.b.a = \"30ms\": expected \"10ms\", the value of rtt.a.b: a round trip is the same from both \
         ends, and one entry is enough",
            "f:19: rtt.b.c = \"measured\": expected a round trip; or at the top of the file the site where this \
         command runs, like here = \"tokyo\"",
        ] {
            assert!(
                reported.iter().any(|mistake| mistake == expected),
                "{expected}\nis missing in\n{}",
                reported.join("\n")
            );
        }
    }
}
