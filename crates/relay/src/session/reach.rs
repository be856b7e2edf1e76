//! From a target to a dialled section: the ways to it one after the other, until one works; all at once while nobody knows
//! which is the best.

use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;

use super::{Errand, race};
use crate::dial::{DialError, Dialled};
use crate::path::{self, Way};

/// Most ways that share the time for them.
const MOST_WAYS: usize = 4;

/// What was reached, and by which way.
pub struct Reached {
    /// The section: to the target itself, or to the first hop.
    pub dialled: Dialled,
    /// The way.
    pub way: Way,
    /// How long each relay on it took; `None` while that is not known, because nobody has waited for the answer.
    pub times: Option<Vec<Duration>>,
}

/// Dials `target` by the first way that works. What a relay answers is not awaited, unless ways have to race.
///
/// # Errors
/// What the last way failed for.
pub async fn dial(errand: &Errand, target: &Target) -> Result<Reached, DialError> {
    let ways = errand.ways(target)?;
    if path::racers(&ways) > 1 {
        return race::race(errand, target, ways).await;
    }
    first_of(errand, target, &ways, async |way, share| {
        let entrance = errand.in_force();
        let dialled = errand.dialler_for(&entrance, share).connect(way, target, &errand.journey()).await?;
        errand.is_known_as(dialled.trace());
        let times = dialled.opened.is_none().then(Vec::new);
        Ok(Reached { dialled, way: way.clone(), times })
    })
    .await
}

/// Dials `target` by the first way that stands from end to end.
///
/// # Errors
/// What the last way failed for.
pub async fn reach(errand: &Errand, target: &Target) -> Result<Reached, DialError> {
    reach_by(errand, target, errand.ways(target)?).await
}

/// The same by these ways.
///
/// # Errors
/// What the last way failed for.
pub async fn reach_by(errand: &Errand, target: &Target, ways: Vec<Way>) -> Result<Reached, DialError> {
    if path::racers(&ways) > 1 {
        return race::race(errand, target, ways).await;
    }
    one_by_one(errand, target, &ways).await
}

/// The same, one after the other.
///
/// # Errors
/// What the last way failed for.
pub(super) async fn one_by_one(errand: &Errand, target: &Target, ways: &[Way]) -> Result<Reached, DialError> {
    first_of(errand, target, ways, async |way, share| stand(errand, target, way, share).await).await
}

/// Dials `target` by this way, in one of so many shares of the time, until it stands from end to end.
///
/// # Errors
/// What it failed for.
pub(super) async fn stand(errand: &Errand, target: &Target, way: &Way, share: usize) -> Result<Reached, DialError> {
    let (entrance, journey) = (errand.in_force(), errand.journey());
    let dialler = errand.dialler_for(&entrance, share);
    let mut dialled = dialler.connect(way, target, &journey).await?;
    errand.is_known_as(dialled.trace());
    let mut answer = dialled.answer().await;
    // The relay has restarted since that connection was made ready, and nothing has been delivered by it.
    if dialled.was_ready() && answer.as_ref().is_err_and(DialError::is_break) {
        dialled = dialler.connect(way, target, &journey).await?;
        answer = dialled.answer().await;
    }
    Ok(Reached { times: Some(answer?), dialled, way: way.clone() })
}

async fn first_of(
    errand: &Errand,
    target: &Target,
    ways: &[Way],
    go: impl AsyncFn(&Way, usize) -> Result<Reached, DialError>,
) -> Result<Reached, DialError> {
    let mut failure = Cause::HopFailed.into();
    for (at, way) in ways.iter().enumerate() {
        errand.goes(way);
        match go(way, ways.len().min(MOST_WAYS)).await {
            // Nothing has been delivered yet, so another way does no harm.
            Err(error) if may_differ(way, &error) => {
                errand.leaves(way, &error);
                failure = error;
            }
            Ok(reached) => {
                errand.stands(way, reached.dialled.server, target, &ways[..at]);
                return Ok(reached);
            }
            decided => return decided,
        }
    }
    Err(failure)
}

/// Whether another way could do better: a hop is to blame, or, where the relay chooses, the network before the target.
pub(super) fn may_differ(way: &Way, error: &DialError) -> bool {
    let network = matches!(error.cause, Cause::Unreachable | Cause::TimedOut | Cause::NameServerFailed);
    error.hop.is_some() || way.expected.is_some() && network
}
