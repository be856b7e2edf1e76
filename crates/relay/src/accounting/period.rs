//! Days and months in UTC, the periods of quotas.

use std::time::{Duration, SystemTime};

use time::{Date, OffsetDateTime};

use crate::config::QuotaPeriod;

/// The name of a day or a month in UTC: `2026-11-25` or `2026-11`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeriodName(pub Box<str>);

impl QuotaPeriod {
    /// Returns the name of the day or month at `now`.
    pub fn name_at(self, now: SystemTime) -> PeriodName {
        let date = OffsetDateTime::from(now).date();
        let (year, month) = (date.year(), u8::from(date.month()));
        let name = match self {
            Self::Day => format!("{year:04}-{month:02}-{:02}", date.day()),
            Self::Month => format!("{year:04}-{month:02}"),
        };
        PeriodName(name.into())
    }

    /// Returns the end of the day or month at `now`.
    pub fn end_at(self, now: SystemTime) -> SystemTime {
        let date = OffsetDateTime::from(now).date();
        let next = match self {
            Self::Day => date.next_day(),
            Self::Month => {
                let (month, year) = (date.month().next(), date.year() + i32::from(u8::from(date.month()) == 12));
                Date::from_calendar_date(year, month, 1).ok()
            }
        };
        next.unwrap_or(Date::MAX).midnight().assume_utc().into()
    }
}

/// Returns the time until `end`, rounded up to seconds.
pub fn seconds_until(end: SystemTime, now: SystemTime) -> Duration {
    Duration::from_secs(end.duration_since(now).unwrap_or_default().as_secs() + 1)
}

/// Formats a midnight (RFC 3339): `2026-11-26T00:00:00Z`.
pub fn format_midnight(end: SystemTime) -> String {
    format!("{}T00:00:00Z", QuotaPeriod::Day.name_at(end).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_periods_are_calendar_days_and_months_in_utc() {
        for (unix, day, day_ends, month, month_ends) in [
            (1_795_628_320, "2026-11-25", "2026-11-26", "2026-11", "2026-12-01"),
            (1_798_761_599, "2026-12-31", "2027-01-01", "2026-12", "2027-01-01"),
            (1_709_164_800, "2024-02-29", "2024-03-01", "2024-02", "2024-03-01"),
        ] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(unix);
            for (period, name, ends) in [(QuotaPeriod::Day, day, day_ends), (QuotaPeriod::Month, month, month_ends)] {
                let end = period.end_at(now);
                assert_eq!((&*period.name_at(now).0, format_midnight(end)), (name, format!("{ends}T00:00:00Z")));
                assert_ne!(period.name_at(end), period.name_at(now));
            }
        }
    }
}
