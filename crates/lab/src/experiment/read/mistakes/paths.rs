//! What can be wrong where a relay chooses among paths, and where things change while transfers are made.

use crate::experiment::read::Spec;
use crate::experiment::treatment::{Relay, Treatment};
use crate::program::agent::Agent;

/// Finds what is wrong with a combination of levels and a treatment.
pub(super) fn of_spec(spec: &Spec, mistakes: &mut Vec<String>) {
    of_relays(&spec.treatment, mistakes);
    if !spec.treatment.relays.is_empty() && spec.workload.agent != Agent::Curl {
        mistakes.push("relays: with agent = \"curl\" only: it tells by which connection it came".into());
    }
}

fn of_relays(treatment: &Treatment, mistakes: &mut Vec<String>) {
    let Treatment { relays, path, chain, .. } = treatment;
    if relays.is_empty() != path.is_none() {
        mistakes.push("relays and path belong together".into());
    }
    if relays.is_empty() {
        return;
    }
    if treatment.program != Relay::Ekiden || treatment.sections || treatment.transparent {
        mistakes.push("relays: with program = \"ekiden\", without sections and transparent".into());
    }
    if chain.len() != 1 || relays.contains(&chain[0]) {
        mistakes.push("chain: with relays it is one host, that of the chooser, at which no other relay stands".into());
    }
    if relays.iter().enumerate().any(|(place, name)| relays[..place].contains(name)) {
        mistakes.push("relays: each host once".into());
    }
    if path.as_ref().is_some_and(|path| !path.is_through(relays)) {
        mistakes.push("path: \"auto\", [\"direct\"], or some of the relays, each once".into());
    }
}
