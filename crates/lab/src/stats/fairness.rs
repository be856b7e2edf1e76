//! How evenly something is shared.

pub use ekiden_proto::share::jain_index_of as jain;

/// The mean; `None` of no values.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a number of connections")]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: Option<f64>, wanted: f64) -> bool {
        value.is_some_and(|value| (value - wanted).abs() < 1e-12)
    }

    #[test]
    fn equal_shares_are_fair_and_one_for_all_is_not() {
        assert!(close(jain(&[3.0; 7]), 1.0));
        assert!(close(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25));
        // The example of the report: 60 Mbit/s and 40 Mbit/s.
        assert!(close(jain(&[60.0, 40.0]), 10_000.0 / 10_400.0));
        assert_eq!((jain(&[]), jain(&[0.0, 0.0])), (None, None));
    }

    #[test]
    fn the_mean_of_nothing_is_none() {
        assert!(close(mean(&[1.0, 2.0, 6.0]), 3.0));
        assert_eq!(mean(&[]), None);
    }
}
