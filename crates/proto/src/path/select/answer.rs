//! What a chooser answers: paths with what is known of them now, as ways and as reasons.

use std::time::Duration;

use super::Chooser;
use crate::path::candidates::{Candidate, Hops};
use crate::path::choice::{Choice, Figures, Ranked, Why};
use crate::path::hysteresis::{Open, Verdict};
use crate::path::ranking::{Question, Rated, duration};

/// Ways of a choice at most.
pub(super) const MOST_WAYS: usize = 4;

/// A path of which nothing is sure may be better than predicted by this share.
const HOPE: f64 = 0.5;

/// A path with what is known of it now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weighed {
    pub rated: Rated,
    /// Seconds.
    pub predicted: f64,
    pub confidence: f64,
    pub experienced: bool,
    /// It was out, and nothing has come since.
    pub on_trial: bool,
}
impl Weighed {
    pub(super) const fn open(&self) -> Open {
        Open { hops: self.rated.hops, predicted: self.predicted, experienced: self.experienced }
    }

    pub(super) fn ranked(&self) -> Ranked {
        Ranked {
            candidate: self.rated.hops.candidate(),
            predicted: duration(self.predicted),
            rate: self.rated.rate,
            confidence: self.confidence,
        }
    }

    /// What it would take if it were as much better as it may be.
    pub(super) fn hoped(&self) -> f64 {
        let hoped = self.predicted * (1.0 - HOPE * (1.0 - self.confidence));
        if self.experienced { hoped } else { hoped.min(self.rated.hoped) }
    }
}

impl Chooser {
    /// `first` before the others; the paths of others that are nearest; and direct.
    pub(super) fn ways(&self, open: &[Weighed], first: Option<&Weighed>) -> Vec<Ranked> {
        let first_hops = first.map(|first| first.rated.hops);
        let others = open.iter().filter(|way| Some(way.rated.hops) != first_hops);
        let mut ways: Vec<Weighed> = first.into_iter().chain(others).copied().collect();
        let direct = ways.iter().position(|way| way.rated.hops.is_direct());
        if let Some(at) = direct.filter(|at| *at >= MOST_WAYS) {
            ways.swap(at, MOST_WAYS - 1);
        }
        ways.truncate(MOST_WAYS);
        let mut ranked: Vec<Ranked> = ways.iter().map(Weighed::ranked).collect();
        if direct.is_none() {
            let unknown =
                Ranked { candidate: Candidate::direct(), predicted: Duration::ZERO, rate: 0.0, confidence: 0.0 };
            ranked.push(unknown);
        }
        ranked
    }

    pub(super) fn only(&self, question: &Question, out: &[Weighed]) -> Choice {
        let direct = out.iter().find(|way| way.rated.hops.is_direct());
        let predicted = direct.map_or(Duration::ZERO, |way| duration(way.predicted));
        let figures = Figures { name: "direct".to_owned(), predicted, bytes: question.bytes(), other: None };
        Choice { ways: self.ways(&[], direct), race: false, why: Why::Only(figures), former: None }
    }

    pub(super) fn why(
        &self,
        question: &Question,
        open: &[Weighed],
        at: usize,
        verdict: Verdict,
        former: Option<Hops>,
    ) -> Why {
        let chosen = &open[at];
        let beside = if at > 0 {
            Some(&open[0])
        } else if chosen.rated.hops.is_direct() {
            open.get(1)
        } else {
            open.iter().find(|way| way.rated.hops.is_direct())
        };
        let mut figures = self.figures(question, chosen, beside);
        if let (Verdict::Degraded | Verdict::Gone, Some(former)) = (verdict, former) {
            let left = open.iter().find(|way| way.rated.hops == former);
            let predicted = left.map(|way| duration(way.predicted));
            figures.other = Some((former.candidate().name(&self.map), predicted));
            return Why::Retreats(figures);
        }
        match verdict {
            Verdict::Kept => Why::Kept(figures),
            _ if open.len() == 1 => Why::Only(figures),
            _ => Why::Best(figures),
        }
    }

    pub(super) fn figures(&self, question: &Question, chosen: &Weighed, beside: Option<&Weighed>) -> Figures {
        let name = |way: &Weighed| way.rated.hops.candidate().name(&self.map);
        Figures {
            name: name(chosen),
            predicted: duration(chosen.predicted),
            bytes: question.bytes(),
            other: beside.map(|way| (name(way), Some(duration(way.predicted)))),
        }
    }
}
