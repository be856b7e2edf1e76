//! From a target to a dialled section: the ways to it one after the other, until one works.

use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;

use super::Errand;
use crate::dial::{DialError, Dialled};
use crate::path::Way;

/// What was reached, and by which way.
pub struct Reached {
    /// The section: to the target itself, or to the first hop.
    pub dialled: Dialled,
    /// The way.
    pub way: Way,
    /// How long each relay on it took; `None` while that is not known, because nobody has waited for the answer.
    pub times: Option<Vec<Duration>>,
}

/// Dials `target` by the first way that works. What a relay answers is not awaited.
///
/// # Errors
/// What the last way failed for.
pub async fn dial(errand: &Errand, target: &Target) -> Result<Reached, DialError> {
    first_of(errand, target, async |way, ways| {
        let dialled = errand.dialler_for(ways).connect(way, target, &errand.journey()).await?;
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
    first_of(errand, target, async |way, ways| {
        let (dialler, journey) = (errand.dialler_for(ways), errand.journey());
        let mut dialled = dialler.connect(way, target, &journey).await?;
        errand.is_known_as(dialled.trace());
        let mut answer = dialled.answer().await;
        // The relay has restarted since that connection was made ready, and nothing has been delivered by it.
        if dialled.was_ready() && answer.as_ref().is_err_and(DialError::is_break) {
            dialled = dialler.connect(way, target, &journey).await?;
            answer = dialled.answer().await;
        }
        Ok(Reached { times: Some(answer?), dialled, way: way.clone() })
    })
    .await
}

async fn first_of(
    errand: &Errand,
    target: &Target,
    go: impl AsyncFn(&Way, usize) -> Result<Reached, DialError>,
) -> Result<Reached, DialError> {
    let ways = errand.ways(target)?;
    let mut failure = Cause::HopFailed.into();
    for way in &ways {
        errand.goes(way);
        match go(way, ways.len()).await {
            // Nothing has been delivered yet, so another way does no harm.
            Err(error) if error.hop.is_some() => failure = error,
            decided => return decided,
        }
    }
    Err(failure)
}
