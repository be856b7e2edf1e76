//! Metrics of chosen paths, and of their outcomes compared with the predictions.

use ekiden_proto::event::{ChoiceRecord, SessionClosed};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::declare::{Declare, SecondsCounter};
use crate::config::Path;

label_sets! {
    ByVia { via: String, relays: u32 }
    ByReason { reason: &'static str }
}

/// Bucket bounds as ratios to the prediction: from a quarter to four times, with bounds at deviations of 10 % and 25 %.
const PREDICTION_BUCKETS: [f64; 11] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0];

/// The metrics of path choices.
#[derive(Debug)]
pub(super) struct PathMetrics {
    chosen: Family<ByVia, Counter>,
    choices: Family<ByReason, Counter>,
    changes: Counter,
    prediction_ratio: Histogram,
    predicted: Family<ByVia, SecondsCounter>,
    took: Family<ByVia, SecondsCounter>,
}

impl Default for PathMetrics {
    fn default() -> Self {
        Self {
            chosen: Family::default(),
            choices: Family::default(),
            changes: Counter::default(),
            prediction_ratio: Histogram::new(PREDICTION_BUCKETS),
            predicted: Family::default(),
            took: Family::default(),
        }
    }
}

impl PathMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("paths_chosen", "Sessions by first relay of the chosen path", self.chosen.clone());
        r.declare("path_choices", "Path choices by reason", self.choices.clone());
        let changes = "Path changes of groups of targets";
        r.declare("path_changes", changes, self.changes.clone());
        let share = "Measured time of a session divided by the predicted time";
        r.declare("path_took_over_predicted_ratio", share, self.prediction_ratio.clone());
        let predicted = "Predicted time of sessions with a comparable outcome, by first relay";
        r.declare("path_predicted_seconds", predicted, self.predicted.clone());
        r.declare(
            "path_took_seconds",
            "Measured time of sessions with a prediction, by first relay",
            self.took.clone(),
        );
    }

    pub(super) fn record_change(&self) {
        self.changes.inc();
    }

    pub(super) fn record_closed(&self, closed: &SessionClosed) {
        if let Some(chosen) = &closed.chosen {
            self.record_choice(&closed.path, chosen);
        }
    }

    /// Records a choice, labelled with the first relay only: whole paths would be too many label values.
    fn record_choice(&self, path: &str, chosen: &ChoiceRecord) {
        let via = path.split(',').next().unwrap_or(path).to_owned();
        let relays = if via == Path::DIRECT { 0 } else { u32::try_from(path.split(',').count()).unwrap_or(u32::MAX) };
        let label = ByVia { via, relays };
        self.chosen.get_or_create(&label).inc();
        self.choices.get_or_create(&ByReason { reason: chosen.reason }).inc();
        if let (Some(predicted), Some(took)) = (chosen.predicted, chosen.took)
            && !predicted.is_zero()
        {
            let (predicted, took) = (predicted.as_secs_f64(), took.as_secs_f64());
            self.prediction_ratio.observe(took / predicted);
            self.predicted.get_or_create(&label).inc_by(predicted);
            self.took.get_or_create(&label).inc_by(took);
        }
    }
}
