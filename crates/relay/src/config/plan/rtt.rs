//! `[rtt]`: the round trips, by the names of two sites. Each pair once is enough; where it is written both ways, both have
//! to say the same.

use std::collections::BTreeMap;
use std::time::Duration;

use ekiden_proto::path::plan::{Entry, Matrix, Origin};

use super::values::Rtt;
use super::{Measurable, Sites, same};
use crate::config::mistake::Found;
use crate::config::place::Place;
use crate::config::reader::Reader;
use crate::config::value::Name;

/// Both ways are measured at two times: so much they may differ, as a share of the longer one.
const TOLERANCE: f64 = 0.1;

/// What is known of round trips.
pub(super) struct Read<'a> {
    pub matrix: Matrix,
    pub to_measure: Vec<Measurable>,
    /// Where each is written, the smaller site first.
    pub places: BTreeMap<(usize, usize), Place<'a>>,
}

pub(super) fn read<'a>(file: &Reader<'a>, sites: &Sites) -> Read<'a> {
    let here = here(file, sites);
    let mut read = Read { matrix: Matrix::default(), to_measure: Vec::new(), places: BTreeMap::new() };
    for (name, row) in file.named("rtt") {
        let Some(from) = sites.find(&row.place(), name) else { continue };
        for (name, place, rtt) in row.each::<Rtt>() {
            let Some(to) = sites.find(&place, name) else { continue };
            if from == to {
                place.note(Found::Value(format!("{name:?}")), "another site: this is the way from a site to itself");
                continue;
            }
            match rtt {
                Some(Rtt::Known(rtt)) => read.note(sites, (from, to), place, rtt),
                Some(Rtt::Measured) => read.to_measure.extend(measurable(sites, here, (from, to), &place)),
                None => {}
            }
        }
    }
    if file.or("measured", false) {
        read.measure_the_rest(file, sites, here);
    }
    read
}

/// The site where this command runs.
fn here(file: &Reader<'_>, sites: &Sites) -> Option<usize> {
    let Name(name) = file.optional("here")?;
    sites.find(&file.place_of("here"), &name)
}

impl<'a> Read<'a> {
    fn note(&mut self, sites: &Sites, (from, to): (usize, usize), place: Place<'a>, rtt: Duration) {
        if let Some(known) = self.matrix.get(from, to) {
            let (short, long) = (known.rtt.min(rtt), known.rtt.max(rtt));
            if (long - short).as_secs_f64() > long.as_secs_f64() * TOLERANCE {
                let shown = |rtt: Duration| format!("\"{}ms\"", rtt.as_secs_f64() * 1e3);
                let (one, other) = (&sites.sites[from].name, &sites.sites[to].name);
                let expected = format!(
                    "{}, as rtt.{other}.{one} says: a round trip is the same from both ends, and once is enough",
                    shown(known.rtt)
                );
                place.note(Found::Value(shown(rtt)), expected);
            }
        }
        self.matrix.set(from, to, Entry { rtt, origin: Origin::Given });
        self.places.insert((from.min(to), from.max(to)), place);
    }

    /// All that can be measured from here and is not written.
    fn measure_the_rest(&mut self, file: &Reader<'_>, sites: &Sites, here: Option<usize>) {
        let Some(here) = here else {
            if !file.has("here") {
                file.mistake("here", "the name of the site where this command runs: round trips are measured from it");
            }
            return;
        };
        for (there, address) in sites.addresses.iter().enumerate().filter(|(there, _)| *there != here) {
            let known = self.matrix.get(here, there).is_some()
                || self.to_measure.iter().any(|known| same(known.sites, (here, there)));
            if let (Some(address), false) = (address, known) {
                let name = sites.sites[there].name.clone();
                self.to_measure.push(Measurable { sites: (here, there), name, address: address.clone() });
            }
        }
    }
}

/// What "measured" between two sites means, or a mistake.
fn measurable(sites: &Sites, here: Option<usize>, ends: (usize, usize), place: &Place<'_>) -> Option<Measurable> {
    let note = |expected: String| {
        place.note(Found::Value("\"measured\"".to_owned()), expected);
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
        Some(address) => Some(Measurable { sites: (here, there), name, address: address.clone() }),
        None => note(format!("a round trip; or an address of {name}, like address = \"server.example:443\"")),
    }
}
