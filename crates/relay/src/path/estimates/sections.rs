//! What is known of the sections between the relays of a configuration, by their names, for those who look.

use ekiden_proto::key::PublicKey;
use serde::Serialize;

use super::store::{DuplexEstimate, EstimateView};
use super::{EstimateStore, PeerId};
use crate::config::Config;

/// Most relays of which this is told: each may have a section to each.
const MAX_RELAYS: usize = 32;

/// A section between relays.
#[derive(Debug, Clone, Serialize)]
pub struct RelaySectionView {
    /// The relay that dials; none for this one.
    pub from: Option<String>,
    /// The relay that it dials.
    pub to: String,
    /// Data toward that.
    pub up: EstimateView,
    /// Data from there.
    pub down: EstimateView,
}

impl EstimateStore {
    /// The sections from this relay to those of `config`, and between those, as far as they were measured.
    #[must_use]
    pub fn relay_sections(&self, config: &Config) -> Vec<RelaySectionView> {
        let keyed = config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &*hop.name)));
        let relays: Vec<(PublicKey, &str)> = keyed.take(MAX_RELAYS).collect();
        let (now, pages) = (self.now(), self.lock());
        let view = |from: Option<&str>, to: &str, both: &DuplexEstimate| RelaySectionView {
            from: from.map(str::to_owned),
            to: to.to_owned(),
            up: EstimateView::from_estimate(&both.sending, now),
            down: EstimateView::from_estimate(&both.receiving, now),
        };
        let mut sections = Vec::new();
        for (key, to) in &relays {
            let place = PeerId::Relay(*key);
            sections.extend(pages.own.peek(&place).map(|entry| view(None, to, &entry.estimate)));
            for (teller, from) in relays.iter().filter(|(teller, _)| teller != key) {
                let told = pages.reported.get(teller).and_then(|told| told.peek(&place));
                sections.extend(told.filter(|both| both.dialled).map(|both| view(Some(from), to, both)));
            }
        }
        sections
    }
}
