//! Races between paths: attempts in parallel, of which the first established path wins.
//!
//! Paths race while there are too few measurements to choose one. The slower attempts continue after the race, because
//! a direct connection measures the round-trip time to the target.

use std::os::fd::AsFd;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::path::estimate::SectionSample;
use ekiden_sys::tcp_info::tcp_info;
use tokio::task::JoinSet;

use super::connect::{ConnectedPath, DialContext, PathTaken, connect_by_path, try_in_order};
use crate::dial::DialError;
use crate::path::estimates::FirstHop;
use crate::path::{self, PathChoice};

/// One attempt of a race and its result.
struct RaceResult {
    dial_context: DialContext,
    path_choice: PathChoice,
    result: Result<ConnectedPath, DialError>,
}

/// The race gets one of this number of equal shares of the time; the rest is for paths outside the race.
const RACE_TIME_SHARES: usize = 2;

/// Dials `target` by the racing paths of `path_choices` in parallel, then by the other paths one after the other.
///
/// # Errors
/// The error of the last path, or the answer of the target itself if there was one.
pub(super) async fn race(
    dial_context: &DialContext,
    target: &Target,
    mut path_choices: Vec<PathChoice>,
) -> Result<ConnectedPath, DialError> {
    let remaining = path_choices.split_off(path::racing_count(&path_choices));
    let mut running = JoinSet::new();
    for path_choice in path_choices {
        let (dial_context, target) = (dial_context.for_attempt(), target.clone());
        running.spawn_local(async move {
            dial_context.on_attempt(&path_choice);
            let result = connect_by_path(&dial_context, &target, &path_choice, RACE_TIME_SHARES).await;
            RaceResult { dial_context, path_choice, result }
        });
    }
    let (mut failed, mut failure): (Vec<PathChoice>, Option<DialError>) = (Vec::new(), None);
    while let Some(joined) = running.join_next().await {
        // A panicked task is skipped, as if its path had failed.
        let Ok(RaceResult { dial_context: attempt_context, path_choice, result }) = joined else { continue };
        match result {
            Ok(connected) => {
                let failed_paths =
                    failed.iter().map(|path_choice| format!("{} failed", path_choice.path.name)).collect();
                dial_context.set_path(PathTaken { failed_paths, ..attempt_context.path_taken() });
                dial_context.on_success(&path_choice, connected.dialled.server, target, &failed);
                tokio::task::spawn_local(drain_losers(running));
                return Ok(connected);
            }
            Err(error) => {
                dial_context.on_attempt(&path_choice);
                dial_context.on_failure(&path_choice, &error);
                failed.push(path_choice);
                // The answer of the target is more informative than a failed hop.
                if failure.as_ref().is_none_or(|before| before.hop.is_some()) {
                    failure = Some(error);
                }
            }
        }
    }
    let failure = failure.unwrap_or_else(|| Cause::HopFailed.into());
    if remaining.is_empty() || matches!(failure.cause, Cause::Refused | Cause::Denied | Cause::NameNotFound) {
        return Err(failure);
    }
    try_in_order(dial_context, target, &remaining, async |path_choice, share| {
        connect_by_path(dial_context, target, path_choice, RACE_TIME_SHARES * share).await
    })
    .await
}

/// Waits for the slower attempts. A direct connection yields a sample of the round-trip time to the target.
async fn drain_losers(mut running: JoinSet<RaceResult>) {
    while let Some(joined) = running.join_next().await {
        let Ok(RaceResult { dial_context, result: Ok(connected), .. }) = joined else { continue };
        if dial_context.first_hop() != Some(FirstHop::Direct) {
            continue;
        }
        let Ok(info) = tcp_info(connected.dialled.stream.as_fd()) else { continue };
        let sample = SectionSample { rtt: Some(info.min_rtt), ..SectionSample::default() };
        let peer_id = FirstHop::Direct.peer_id(connected.dialled.server);
        dial_context.context.services().estimates.record_session(peer_id, None, &sample, &sample, 0);
    }
}
