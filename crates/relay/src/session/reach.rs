//! From a target to a dialled section: the ways to it one after the other, until one works; all at once while nobody knows
//! which is the best.

use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;

use super::{DialContext, race};
use crate::dial::{DialError, Dialled};
use crate::path::{self, PathChoice};

/// Most ways that share the time for them.
const MAX_ATTEMPTS: usize = 4;

/// What was reached, and by which way.
pub struct ConnectedPath {
    /// The section: to the target itself, or to the first hop.
    pub dialled: Dialled,
    /// The way.
    pub way: PathChoice,
    /// How long each relay on it took; `None` while that is not known, because nobody has waited for the answer.
    pub times: Option<Vec<Duration>>,
}

/// Dials `target` by the first way that works. What a relay answers is not awaited, unless ways have to race.
///
/// # Errors
/// What the last way failed for.
pub async fn dial(dial_context: &DialContext, target: &Target) -> Result<ConnectedPath, DialError> {
    let ways = dial_context.paths(target)?;
    if path::racing_count(&ways) > 1 {
        return race::race(dial_context, target, ways).await;
    }
    try_in_order(dial_context, target, &ways, async |way, share| {
        let context = dial_context.current_listener();
        let dialled =
            dial_context.dialler_for(&context, share).connect(way, target, &dial_context.open_params()).await?;
        dial_context.set_trace(dialled.trace());
        let times = dialled.opened.is_none().then(Vec::new);
        Ok(ConnectedPath { dialled, way: way.clone(), times })
    })
    .await
}

/// Dials `target` by the first way that stands from end to end.
///
/// # Errors
/// What the last way failed for.
pub async fn connect_end_to_end(dial_context: &DialContext, target: &Target) -> Result<ConnectedPath, DialError> {
    connect_by_paths(dial_context, target, dial_context.paths(target)?).await
}

/// The same by these ways.
///
/// # Errors
/// What the last way failed for.
pub async fn connect_by_paths(
    dial_context: &DialContext,
    target: &Target,
    ways: Vec<PathChoice>,
) -> Result<ConnectedPath, DialError> {
    if path::racing_count(&ways) > 1 {
        return race::race(dial_context, target, ways).await;
    }
    connect_in_order(dial_context, target, &ways).await
}

/// The same, one after the other.
///
/// # Errors
/// What the last way failed for.
pub(super) async fn connect_in_order(
    dial_context: &DialContext,
    target: &Target,
    ways: &[PathChoice],
) -> Result<ConnectedPath, DialError> {
    try_in_order(dial_context, target, ways, async |way, share| connect_by_path(dial_context, target, way, share).await)
        .await
}

/// Dials `target` by this way, in one of so many shares of the time, until it stands from end to end.
///
/// # Errors
/// What it failed for.
pub(super) async fn connect_by_path(
    dial_context: &DialContext,
    target: &Target,
    way: &PathChoice,
    share: usize,
) -> Result<ConnectedPath, DialError> {
    let (context, open_params) = (dial_context.current_listener(), dial_context.open_params());
    let dialler = dial_context.dialler_for(&context, share);
    let mut dialled = dialler.connect(way, target, &open_params).await?;
    dial_context.set_trace(dialled.trace());
    let mut answer = dialled.wait_answer().await;
    // The relay has restarted since that connection was made ready, and nothing has been delivered by it.
    if dialled.used_ready_connection() && answer.as_ref().is_err_and(DialError::is_disconnect) {
        dialled = dialler.connect(way, target, &open_params).await?;
        answer = dialled.wait_answer().await;
    }
    Ok(ConnectedPath { times: Some(answer?), dialled, way: way.clone() })
}

async fn try_in_order(
    dial_context: &DialContext,
    target: &Target,
    ways: &[PathChoice],
    go: impl AsyncFn(&PathChoice, usize) -> Result<ConnectedPath, DialError>,
) -> Result<ConnectedPath, DialError> {
    let mut failure = Cause::HopFailed.into();
    for (at, way) in ways.iter().enumerate() {
        dial_context.on_attempt(way);
        match go(way, ways.len().min(MAX_ATTEMPTS)).await {
            // Nothing has been delivered yet, so another way does no harm.
            Err(error) if can_retry(way, &error) => {
                dial_context.on_failure(way, &error);
                failure = error;
            }
            Ok(reached) => {
                dial_context.on_success(way, reached.dialled.server, target, &ways[..at]);
                return Ok(reached);
            }
            decided => return decided,
        }
    }
    Err(failure)
}

/// Whether another way could do better: a hop is to blame, or, where the relay chooses, the network before the target.
pub(super) fn can_retry(way: &PathChoice, error: &DialError) -> bool {
    let network = matches!(error.cause, Cause::Unreachable | Cause::TimedOut | Cause::NameServerFailed);
    error.hop.is_some() || way.expected.is_some() && network
}
