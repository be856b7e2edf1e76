//! A network in virtual time: its sections, the reports of the maps, and its sessions.

use super::*;
use crate::path::model;

/// Round trip in ms and loss of a section by its ends; `None` is the target. The round trips are constant.
type TruthFn = fn(from: u32, to: Option<u32>, at: f64) -> (f64, f64);

/// The values that the map reports instead of the truth.
type ReportFn = fn(from: u32, to: Option<u32>, at: f64) -> (f64, f64);

/// The parameters of a simulation.
pub(super) struct Simulation {
    pub(super) truth: TruthFn,
    pub(super) report: ReportFn,
    /// Standard deviation of the logarithm of a session's duration.
    pub(super) noise: f64,
    /// Seconds between the starts of sessions.
    pub(super) every: f64,
    /// Delay of the maps in seconds.
    pub(super) lag: f64,
    pub(super) seconds: u32,
}

/// A session of the simulation.
pub(super) struct Session {
    pub(super) at: f64,
    pub(super) candidate: Candidate,
    why: ChoiceReason,
    pub(super) changed: bool,
    pub(super) took: f64,
}

/// A session that has not ended yet.
struct RunningSession {
    candidate: Candidate,
    began: f64,
    took: f64,
    reported_until: f64,
}

impl RunningSession {
    /// Records the outcome every three seconds and at the end; returns whether the session continues.
    fn report(&mut self, chooser: &mut PathChooser, now: f64) -> bool {
        let end = self.began + self.took;
        let until = if now >= end { end } else { now };
        if now < end && now < self.reported_until + 3.0 {
            return true;
        }
        let stretch = until - self.reported_until;
        let continues = self.reported_until > self.began;
        let bytes = (BULK_SIZE as f64 * stretch / self.took) as u64;
        chooser.record_outcome(
            target(),
            &self.candidate,
            &TransferOutcome { is_continuation: continues, session_bytes: BULK_SIZE, ..outcome(bytes, stretch) },
            seconds(until),
        );
        self.reported_until = until;
        now < end
    }
}

const RELAYS: [u32; 3] = [1, 2, 3];

/// The sections of a candidate, by their ends.
fn hops(candidate: &Candidate) -> Vec<(u32, Option<u32>)> {
    let from = std::iter::once(THIS_RELAY).chain(candidate.relays.iter().copied());
    let to = candidate.relays.iter().copied().map(Some).chain([None]);
    from.zip(to).collect()
}

pub(super) fn completion(truth: TruthFn, candidate: &Candidate, at: f64) -> f64 {
    let section = |(from, to): (u32, Option<u32>)| {
        let (millis, loss) = truth(from, to, at);
        section(millis, loss, to.is_some())
    };
    let sections: Vec<SectionModel> = hops(candidate).into_iter().map(section).collect();
    model::completion(&sections, BULK_SIZE, &RelayCosts::default()).as_secs_f64()
}

fn draft(report: ReportFn, at: f64) -> Arc<NetworkMap> {
    let mut draft = MapBuilder::new();
    for from in 0..=3 {
        for to in RELAYS.into_iter().filter(|to| *to != from) {
            let (millis, loss) = report(from, Some(to), at);
            draft = draft.with_section(from, to, millis, loss);
        }
        let (millis, loss) = report(from, None, at);
        draft = draft.with_last_section(from, millis, loss);
    }
    draft.build()
}

/// An approximately normal random number (Irwin and Hall).
pub(super) fn normal(seed: u64) -> f64 {
    (0..12).map(|number| (aqm::random_bits(seed, number) >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0
}

impl Simulation {
    /// Runs all sessions in order: each begins at its time and reports its outcome at its end.
    pub(super) fn run(&self, seed: u64) -> (Vec<Session>, PathChooser) {
        let mut chooser = chooser(draft(self.report, 0.0));
        let mut sessions: Vec<Session> = Vec::new();
        let mut running: Vec<RunningSession> = Vec::new();
        let (mut mapped, count) = (0.0, (f64::from(self.seconds) / self.every) as u64);
        for number in 0..count {
            let at = number as f64 * self.every;
            if at >= mapped + 2.0 {
                chooser.set_map(draft(self.report, (at - self.lag).max(0.0)));
                mapped = at;
            }
            running.retain_mut(|session| session.report(&mut chooser, at));
            let bits = aqm::random_bits(seed, number);
            let choice = chooser.choose(target(), TransferSize::down(BULK_SIZE), seconds(at));
            let candidate = first(&choice).clone();
            let took = completion(self.truth, &candidate, at) * (self.noise * normal(bits)).exp();
            running.push(RunningSession { candidate: candidate.clone(), began: at, took, reported_until: at });
            let changed = choice.previous.is_some();
            sessions.push(Session { at, candidate, why: choice.reason, changed, took });
        }
        (sessions, chooser)
    }
}

impl Session {
    pub(super) fn explores(&self) -> bool {
        matches!(self.why, ChoiceReason::Explores(_))
    }
}
