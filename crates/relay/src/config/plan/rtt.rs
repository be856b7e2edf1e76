//! `[rtt]`: the round-trip times, by the names of two sites. One entry for each pair is enough; if both directions are
//! given, they must agree.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::path::plan::{RttEntry, RttMatrix, RttSource};

use super::values::RttValue;
use super::{SiteTable, UnmeasuredRtt, is_same_pair};
use crate::config::error::FoundValue;
use crate::config::place::KeyLocation;
use crate::config::reader::TableReader;
use crate::config::value::Name;

/// Maximum difference of the two directions, which may be measured at different times, as a share of the longer time.
const TOLERANCE: f64 = 0.1;

/// The round-trip times of the file.
pub(super) struct RttTable<'a> {
    pub matrix: RttMatrix,
    pub to_measure: Vec<UnmeasuredRtt>,
    /// The location of each entry, by the pair of sites, the smaller index first.
    pub places: BTreeMap<(usize, usize), KeyLocation<'a>>,
}

pub(super) fn read<'a>(file: &TableReader<'a>, sites: &SiteTable) -> RttTable<'a> {
    let local_site = read_local_site(file, sites);
    let mut table = RttTable { matrix: RttMatrix::default(), to_measure: Vec::new(), places: BTreeMap::new() };
    for (name, row) in file.named_tables("rtt") {
        let Some(from) = sites.find(&row.location(), name) else { continue };
        for (name, place, rtt) in row.entries::<RttValue>() {
            let Some(to) = sites.find(&place, name) else { continue };
            if from == to {
                place.error(
                    FoundValue::Value(format!("{name:?}")),
                    "another site: this is the round trip from a site to itself",
                );
                continue;
            }
            match rtt {
                Some(RttValue::Known(rtt)) => table.record(sites, from, to, place, rtt),
                Some(RttValue::Measured) => {
                    table.to_measure.extend(unmeasured_rtt(sites, local_site, (from, to), &place))
                }
                None => {}
            }
        }
    }
    if file.optional_or("measured", false) {
        table.add_remaining(file, sites, local_site);
    }
    table
}

/// Reads the site where this command runs.
fn read_local_site(file: &TableReader<'_>, sites: &SiteTable) -> Option<usize> {
    let Name(name) = file.optional("here")?;
    sites.find(&file.location_of("here"), &name)
}

impl<'a> RttTable<'a> {
    fn record(&mut self, sites: &SiteTable, from: usize, to: usize, place: KeyLocation<'a>, rtt: Duration) {
        if let Some(entry) = self.matrix.get(from, to) {
            let (short, long) = (entry.rtt.min(rtt), entry.rtt.max(rtt));
            if (long - short).as_secs_f64() > long.as_secs_f64() * TOLERANCE {
                let format_rtt = |rtt: Duration| format!("\"{}ms\"", rtt.as_secs_f64() * 1e3);
                let (first, second) = (&sites.sites[from].name, &sites.sites[to].name);
                let expected = format!(
                    "{}, the value of rtt.{second}.{first}: a round trip is the same from both ends, and one entry is \
                     enough",
                    format_rtt(entry.rtt)
                );
                place.error(FoundValue::Value(format_rtt(rtt)), expected);
            }
        }
        self.matrix.set(from, to, RttEntry { rtt, source: RttSource::Given });
        self.places.insert((from.min(to), from.max(to)), place);
    }

    /// Adds all pairs that can be measured from here and have no entry.
    fn add_remaining(&mut self, file: &TableReader<'_>, sites: &SiteTable, local_site: Option<usize>) {
        let Some(local_site) = local_site else {
            if !file.has("here") {
                file.error("here", "the name of the site where this command runs: round trips are measured from it");
            }
            return;
        };
        for (remote_site, address) in
            sites.addresses.iter().enumerate().filter(|(remote_site, _)| *remote_site != local_site)
        {
            let is_known = self.matrix.get(local_site, remote_site).is_some()
                || self.to_measure.iter().any(|known| is_same_pair(known.sites, (local_site, remote_site)));
            if let (Some(address), false) = (address, is_known) {
                let name = sites.sites[remote_site].name.clone();
                self.to_measure.push(UnmeasuredRtt {
                    sites: (local_site, remote_site),
                    name,
                    address: address.clone(),
                });
            }
        }
    }
}

/// Returns the round-trip time to measure for an entry "measured", or reports a mistake.
fn unmeasured_rtt(
    sites: &SiteTable,
    local_site: Option<usize>,
    ends: (usize, usize),
    place: &KeyLocation<'_>,
) -> Option<UnmeasuredRtt> {
    let report = |expected: String| {
        place.error(FoundValue::Value("\"measured\"".to_owned()), expected);
        None
    };
    let Some(local_site) = local_site else {
        return report(
            "a round trip; or at the top of the file the site where this command runs, like here = \"tokyo\""
                .to_owned(),
        );
    };
    let remote_site = match ends {
        (first, second) if first == local_site => second,
        (first, second) if second == local_site => first,
        _ => {
            let name = &sites.sites[local_site].name;
            return report(format!(
                "a round trip: this command runs at {name}, and can measure only round trips from {name}"
            ));
        }
    };
    let name = sites.sites[remote_site].name.clone();
    match &sites.addresses[remote_site] {
        Some(address) => Some(UnmeasuredRtt { sites: (local_site, remote_site), name, address: address.clone() }),
        None => report(format!("a round trip; or an address of {name}, like address = \"server.example:443\"")),
    }
}
