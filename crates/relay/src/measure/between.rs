//! What is known of the sections between the relays of a configuration, by their names, for those who look.

use ekiden_proto::key::PublicKey;
use serde::Serialize;

use super::book::{Both, EstimateView};
use super::{Book, Place};
use crate::config::Config;

/// Most relays of which this is told: each may have a section to each.
const MOST_RELAYS: usize = 32;

/// A section between relays.
#[derive(Debug, Clone, Serialize)]
pub struct BetweenView {
    /// The relay that dials; none for this one.
    pub from: Option<String>,
    /// The relay that it dials.
    pub to: String,
    /// Data toward that.
    pub up: EstimateView,
    /// Data from there.
    pub down: EstimateView,
}

impl Book {
    /// The sections from this relay to those of `config`, and between those, as far as they were measured.
    #[must_use]
    pub fn between(&self, config: &Config) -> Vec<BetweenView> {
        let keyed = config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &*hop.name)));
        let relays: Vec<(PublicKey, &str)> = keyed.take(MOST_RELAYS).collect();
        let (now, pages) = (self.now(), self.pages());
        let view = |from: Option<&str>, to: &str, both: &Both| BetweenView {
            from: from.map(str::to_owned),
            to: to.to_owned(),
            up: EstimateView::of(&both.sending, now),
            down: EstimateView::of(&both.receiving, now),
        };
        let mut sections = Vec::new();
        for (key, to) in &relays {
            let place = Place::Relay(*key);
            sections.extend(pages.own.peek(&place).map(|entry| view(None, to, &entry.both)));
            for (teller, from) in relays.iter().filter(|(teller, _)| teller != key) {
                let told = pages.told.get(teller).and_then(|told| told.peek(&place));
                sections.extend(told.filter(|both| both.dialled).map(|both| view(Some(from), to, both)));
            }
        }
        sections
    }
}
