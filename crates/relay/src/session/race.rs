//! Several ways at once, while too little is measured to choose: the first that stands from end to end is taken. Nothing of
//! the client has gone anywhere by then. The others are still waited for, to know what they would have been like.

use std::os::fd::AsFd;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::path::estimate::SectionSample;
use ekiden_sys::tcp_info::tcp_info;
use tokio::task::JoinSet;

use super::DialContext;
use super::reach::{ConnectedPath, connect_by_path, connect_in_order};
use crate::dial::DialError;
use crate::measure::FirstHop;
use crate::path::{self, PathChoice};

/// One way that is tried, and how it came out.
struct RaceResult {
    dial_context: DialContext,
    way: PathChoice,
    result: Result<ConnectedPath, DialError>,
}

/// The rest of the time is for the ways that do not race.
const RACE_TIME_SHARES: usize = 2;

/// Dials `target` by as many of `ways` at once as race, and if none of them stands, by the others one after the other.
///
/// # Errors
/// What the last way failed for; where the target itself has answered, what it said.
pub async fn race(
    dial_context: &DialContext,
    target: &Target,
    mut ways: Vec<PathChoice>,
) -> Result<ConnectedPath, DialError> {
    let others = ways.split_off(path::racing_count(&ways));
    let mut running = JoinSet::new();
    for way in ways {
        let (dial_context, target) = (dial_context.for_attempt(), target.clone());
        running.spawn_local(async move {
            dial_context.on_attempt(&way);
            let result = connect_by_path(&dial_context, &target, &way, RACE_TIME_SHARES).await;
            RaceResult { dial_context, way, result }
        });
    }
    let (mut failed, mut failure): (Vec<PathChoice>, Option<DialError>) = (Vec::new(), None);
    while let Some(ran) = running.join_next().await {
        // A way whose task has panicked does not stand.
        let Ok(RaceResult { dial_context: companion, way, result }) = ran else { continue };
        match result {
            Ok(reached) => {
                let left = failed.iter().map(|way| format!("{} failed", way.path.name)).collect();
                dial_context.set_path(super::PathTaken { left, ..companion.path_taken() });
                dial_context.on_success(&way, reached.dialled.server, target, &failed);
                tokio::task::spawn_local(drain_losers(running));
                return Ok(reached);
            }
            Err(error) => {
                dial_context.on_attempt(&way);
                dial_context.on_failure(&way, &error);
                failed.push(way);
                // The target's own word says more than that a hop is down.
                if failure.as_ref().is_none_or(|before| before.hop.is_some()) {
                    failure = Some(error);
                }
            }
        }
    }
    let failure = failure.unwrap_or_else(|| Cause::HopFailed.into());
    if others.is_empty() || matches!(failure.cause, Cause::Refused | Cause::Denied | Cause::NameNotFound) {
        return Err(failure);
    }
    connect_in_order(dial_context, target, &others).await
}

/// Waits for those that were too slow. A direct one tells how far the target is.
async fn drain_losers(mut running: JoinSet<RaceResult>) {
    while let Some(ran) = running.join_next().await {
        let Ok(RaceResult { dial_context, result: Ok(reached), .. }) = ran else { continue };
        if dial_context.path_taken().via != Some(FirstHop::Direct) {
            continue;
        }
        let Ok(info) = tcp_info(reached.dialled.stream.as_fd()) else { continue };
        let seen = SectionSample { rtt: Some(info.min_rtt), ..SectionSample::default() };
        let place = FirstHop::Direct.peer_id(reached.dialled.server);
        dial_context.context.shared().estimates.record_session(place, None, (&seen, &seen), 0);
    }
}
