//! `[rtt]`: the round trips, by the names of two sites. Each pair once is enough; where it is written both ways, both have
//! to say the same.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::path::plan::{RttEntry, RttMatrix, RttSource};

use super::values::RttValue;
use super::{SiteTable, UnmeasuredRtt, is_same_pair};
use crate::config::error::FoundValue;
use crate::config::place::KeyLocation;
use crate::config::reader::TableReader;
use crate::config::value::Name;

/// Both ways are measured at two times: so much they may differ, as a share of the longer one.
const TOLERANCE: f64 = 0.1;

/// The known round trips.
pub(super) struct RttTable<'a> {
    pub matrix: RttMatrix,
    pub to_measure: Vec<UnmeasuredRtt>,
    /// Where each is written, the smaller site first.
    pub places: BTreeMap<(usize, usize), KeyLocation<'a>>,
}

pub(super) fn read<'a>(file: &TableReader<'a>, sites: &SiteTable) -> RttTable<'a> {
    let here = read_here(file, sites);
    let mut read = RttTable { matrix: RttMatrix::default(), to_measure: Vec::new(), places: BTreeMap::new() };
    for (name, row) in file.named_tables("rtt") {
        let Some(from) = sites.find(&row.location(), name) else { continue };
        for (name, place, rtt) in row.entries::<RttValue>() {
            let Some(to) = sites.find(&place, name) else { continue };
            if from == to {
                place.error(
                    FoundValue::Value(format!("{name:?}")),
                    "another site: this is the way from a site to itself",
                );
                continue;
            }
            match rtt {
                Some(RttValue::Known(rtt)) => read.record(sites, from, to, place, rtt),
                Some(RttValue::Measured) => read.to_measure.extend(unmeasured_rtt(sites, here, (from, to), &place)),
                None => {}
            }
        }
    }
    if file.optional_or("measured", false) {
        read.add_remaining(file, sites, here);
    }
    read
}

/// The site where this command runs.
fn read_here(file: &TableReader<'_>, sites: &SiteTable) -> Option<usize> {
    let Name(name) = file.optional("here")?;
    sites.find(&file.location_of("here"), &name)
}

impl<'a> RttTable<'a> {
    fn record(&mut self, sites: &SiteTable, from: usize, to: usize, place: KeyLocation<'a>, rtt: Duration) {
        if let Some(known) = self.matrix.get(from, to) {
            let (short, long) = (known.rtt.min(rtt), known.rtt.max(rtt));
            if (long - short).as_secs_f64() > long.as_secs_f64() * TOLERANCE {
                let shown = |rtt: Duration| format!("\"{}ms\"", rtt.as_secs_f64() * 1e3);
                let (one, other) = (&sites.sites[from].name, &sites.sites[to].name);
                let expected = format!(
                    "{}, as rtt.{other}.{one} says: a round trip is the same from both ends, and once is enough",
                    shown(known.rtt)
                );
                place.error(FoundValue::Value(shown(rtt)), expected);
            }
        }
        self.matrix.set(from, to, RttEntry { rtt, source: RttSource::Given });
        self.places.insert((from.min(to), from.max(to)), place);
    }

    /// All that can be measured from here and is not written.
    fn add_remaining(&mut self, file: &TableReader<'_>, sites: &SiteTable, here: Option<usize>) {
        let Some(here) = here else {
            if !file.has("here") {
                file.error("here", "the name of the site where this command runs: round trips are measured from it");
            }
            return;
        };
        for (there, address) in sites.addresses.iter().enumerate().filter(|(there, _)| *there != here) {
            let known = self.matrix.get(here, there).is_some()
                || self.to_measure.iter().any(|known| is_same_pair(known.sites, (here, there)));
            if let (Some(address), false) = (address, known) {
                let name = sites.sites[there].name.clone();
                self.to_measure.push(UnmeasuredRtt { sites: (here, there), name, address: address.clone() });
            }
        }
    }
}

/// The round trip that "measured" stands for between two sites, or a mistake.
fn unmeasured_rtt(
    sites: &SiteTable,
    here: Option<usize>,
    ends: (usize, usize),
    place: &KeyLocation<'_>,
) -> Option<UnmeasuredRtt> {
    let note = |expected: String| {
        place.error(FoundValue::Value("\"measured\"".to_owned()), expected);
        None
    };
    let Some(here) = here else {
        return note("a round trip; or say at the top where this command runs, like here = \"tokyo\"".to_owned());
    };
    let there = match ends {
        (one, other) if one == here => other,
        (one, other) if other == here => one,
        _ => {
            let name = &sites.sites[here].name;
            return note(format!("a round trip: only those of {name}, which is here, can be measured from here"));
        }
    };
    let name = sites.sites[there].name.clone();
    match &sites.addresses[there] {
        Some(address) => Some(UnmeasuredRtt { sites: (here, there), name, address: address.clone() }),
        None => note(format!("a round trip; or an address of {name}, like address = \"server.example:443\"")),
    }
}
