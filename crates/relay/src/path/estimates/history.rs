//! The history: a database of hourly measurements, and the usual values of each hour of the week.
//!
//! A separate thread writes to the database every minute and at the end. No session waits for or depends on this
//! thread: a full disk or a corrupt file is reported once, and the relay continues without history.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ekiden_proto::event::Event;
use ekiden_proto::path::hours::{HOURS_PER_WEEK, HourlyBaseline};
use rusqlite::{Connection, params};

use super::PeerId;
use super::store::{DuplexEstimate, EstimateDirection};
use crate::config::HistoryConfig as Kept;
use crate::database::{self, WriterThread};
use crate::events::Events;
use crate::path::estimates::EstimateStore;

/// Interval between writes of new measurements.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(3600);

/// Maximum size of the file, in pages of 4 KiB: 64 MiB, enough for a million hours of sections.
const MAX_PAGES: u32 = 16 * 1024;

/// Maximum number of rows; the oldest are deleted first.
const MAX_ROWS: u32 = 500_000;

/// Maximum number of sections with usual values.
const MAX_BASELINES: u32 = 1 << 15;

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS sections (
    place TEXT NOT NULL, way INTEGER NOT NULL, hour INTEGER NOT NULL, samples INTEGER NOT NULL,
    rtt REAL, loss REAL, rate REAL, PRIMARY KEY (place, way, hour)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_hour ON sections (hour);";

/// Each value is the mean of all samples of the hour.
const UPSERT_SAMPLE: &str = "INSERT INTO sections VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6)
    ON CONFLICT (place, way, hour) DO UPDATE SET
    rtt = coalesce((rtt * samples + excluded.rtt) / (samples + 1), excluded.rtt, rtt),
    loss = coalesce((loss * samples + excluded.loss) / (samples + 1), excluded.loss, loss),
    rate = coalesce((rate * samples + excluded.rate) / (samples + 1), excluded.rate, rate),
    samples = samples + 1";

const SELECT_BASELINE: &str = "SELECT place, way, avg(rtt), avg(loss), avg(rate), count(*) FROM sections
    WHERE hour % ?1 = ?2 % ?1 AND hour < ?2 GROUP BY place, way LIMIT ?3";

const DELETE_OLD: &str = "DELETE FROM sections WHERE hour < max(?1,
    coalesce((SELECT hour FROM sections ORDER BY hour DESC LIMIT 1 OFFSET ?2), 0))";

/// The usual values of the current and the previous hour.
#[derive(Debug, Default)]
pub(super) struct Baselines {
    pub now: HourBaseline,
    pub previous: HourBaseline,
    /// When the current hour began, on the clock of the estimate store; `None` without a history.
    pub current_since: Option<Duration>,
}

/// The usual values of one hour, by section and direction.
pub(super) type HourBaseline = HashMap<(PeerId, EstimateDirection), HourlyBaseline>;

/// The thread that writes the history, if there is one.
#[derive(Debug, Default)]
pub struct EstimateHistory(Mutex<Option<HistoryThread>>);

#[derive(Debug)]
struct HistoryThread {
    config: Kept,
    writer: WriterThread,
}

impl EstimateHistory {
    /// Applies `[history]` of a configuration from now on.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn apply_config(
        &self,
        settings: Option<&Kept>,
        estimates: &Arc<EstimateStore>,
        events: &Arc<Events>,
    ) -> std::io::Result<()> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.as_ref().map(|writer| &writer.config) == settings {
            return Ok(());
        }
        writer.take().into_iter().for_each(HistoryThread::stop);
        estimates.set_baselines(Baselines::default());
        if let Some(settings) = settings {
            *writer = Some(HistoryThread::start(settings.clone(), Arc::clone(estimates), Arc::clone(events))?);
        }
        Ok(())
    }

    /// Writes new measurements, and ends the thread.
    pub fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().into_iter().for_each(HistoryThread::stop);
    }
}

impl HistoryThread {
    fn start(settings: Kept, estimates: Arc<EstimateStore>, events: Arc<Events>) -> std::io::Result<Self> {
        let mut history = HistoryWriter::new(settings.clone(), estimates, events);
        let writer = WriterThread::start("history", move || {
            history.write_new();
            WRITE_INTERVAL
        })?;
        Ok(Self { config: settings, writer })
    }

    fn stop(self) {
        self.writer.stop();
    }
}

struct HistoryWriter {
    config: Kept,
    estimates: Arc<EstimateStore>,
    events: Arc<Events>,
    /// The open database, and the hour whose usual values were read last.
    database: Option<(Connection, u32)>,
    /// Time of the last write, on the clock of the estimate store.
    written_at: Duration,
    has_warned: bool,
}

impl HistoryWriter {
    /// Creates a writer of the measurements from now on: earlier ones may belong to another hour.
    fn new(config: Kept, estimates: Arc<EstimateStore>, events: Arc<Events>) -> Self {
        let written_at = estimates.now();
        Self { config, estimates, events, database: None, written_at, has_warned: false }
    }

    /// Writes new measurements. When a new hour has begun, also reads the usual values of that hour.
    fn write_new(&mut self) {
        if let Err(error) = self.try_write_new() {
            self.database = None;
            self.estimates.set_baselines(Baselines::default());
            if !self.has_warned {
                let file = self.config.file.display();
                let message =
                    format!("cannot update the history in {file}: {error}: free disk space, or move the file away");
                self.events.emit(&Event::Warning { message });
            }
            self.has_warned = true;
        }
    }

    fn try_write_new(&mut self) -> rusqlite::Result<()> {
        let (hour, since_hour) = hour_since_epoch(SystemTime::now());
        let now = self.estimates.now();
        // Samples are stored for the hour of the write, so samples that cannot be written are dropped.
        let since = std::mem::replace(&mut self.written_at, now);
        let (database, baseline_hour) = match &mut self.database {
            Some(open) => open,
            none => none.insert((database::open(&self.config.file, CREATE_TABLE, MAX_PAGES)?, 0)),
        };
        if *baseline_hour != hour {
            // Deletion precedes the write, which fails while the database is full.
            delete_old(database, hour, self.config.retention)?;
            self.estimates.set_baselines(read_baselines(database, hour, now.saturating_sub(since_hour))?);
            *baseline_hour = hour;
        }
        write_samples(database, &self.estimates.updated_since(since), hour)
    }
}

fn write_samples(database: &mut Connection, updates: &[(PeerId, DuplexEstimate)], hour: u32) -> rusqlite::Result<()> {
    let transaction = database.transaction()?;
    {
        let mut upsert = transaction.prepare_cached(UPSERT_SAMPLE)?;
        for (peer_id, duplex) in updates {
            for (direction, estimate) in
                [(EstimateDirection::Sending, &duplex.sending), (EstimateDirection::Receiving, &duplex.receiving)]
            {
                let rtt = estimate.rtt().map(|rtt| rtt.as_secs_f64());
                upsert.execute(params![
                    peer_id.to_string(),
                    direction as i64,
                    hour,
                    rtt,
                    estimate.loss(),
                    estimate.rate()
                ])?;
            }
        }
    }
    transaction.commit()
}

/// Deletes rows older than `retention`, and the oldest rows above the maximum number.
fn delete_old(database: &Connection, hour: u32, retention: Duration) -> rusqlite::Result<()> {
    let hours = u32::try_from(retention.as_secs() / HOUR.as_secs()).unwrap_or(u32::MAX);
    database.execute(DELETE_OLD, params![hour.saturating_sub(hours), MAX_ROWS]).map(drop)
}

/// Reads the usual values of the hour `hour`, which began at `since`, and of the previous hour.
fn read_baselines(database: &Connection, hour: u32, since: Duration) -> rusqlite::Result<Baselines> {
    let (now, before) = (read_hour_baseline(database, hour)?, read_hour_baseline(database, hour.saturating_sub(1))?);
    Ok(Baselines { now, previous: before, current_since: Some(since) })
}

/// Reads the usual values of the hour; rows in an unknown format are skipped.
fn read_hour_baseline(database: &Connection, hour: u32) -> rusqlite::Result<HourBaseline> {
    let mut query = database.prepare_cached(SELECT_BASELINE)?;
    let rows = query.query_map(params![HOURS_PER_WEEK, hour, MAX_BASELINES], |row| {
        let baseline = HourlyBaseline { rtt: row.get(2)?, loss: row.get(3)?, rate: row.get(4)?, weeks: row.get(5)? };
        let direction = if row.get::<_, i64>(1)? == EstimateDirection::Sending as i64 {
            EstimateDirection::Sending
        } else {
            EstimateDirection::Receiving
        };
        Ok((row.get::<_, String>(0)?.parse::<PeerId>().ok().map(|peer_id| (peer_id, direction)), baseline))
    })?;
    rows.filter_map(|row| row.map(|(key, baseline)| key.map(|key| (key, baseline))).transpose()).collect()
}

/// Returns the number of the current hour since 1970, and the elapsed part of the hour.
fn hour_since_epoch(time: SystemTime) -> (u32, Duration) {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let hour = u32::try_from(since_epoch.as_secs() / HOUR.as_secs()).unwrap_or(u32::MAX);
    (hour, since_epoch.saturating_sub(HOUR * hour))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use ekiden_proto::path::estimate::{Estimate, SectionSample};

    use super::*;
    use crate::config::LogConfig;
    use crate::events::log::Log;

    fn sample(rate: f64) -> SectionSample {
        let rtt = Some(Duration::from_millis(20));
        SectionSample { rtt, segments: 1000, lost: 1, rate: Some(rate), rate_is_limit: true, window: None }
    }

    fn estimate(rate: f64) -> DuplexEstimate {
        let mut both = DuplexEstimate::default();
        both.receiving.record(&sample(rate), Duration::from_secs(1));
        both
    }

    fn peer() -> PeerId {
        PeerId::Targets("192.0.2.0/24".parse().unwrap())
    }

    #[test]
    fn hour_baseline_averages_the_same_hour_of_past_weeks() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(CREATE_TABLE).unwrap();
        let now = 500_000;
        for (hour, rate) in [
            (now, 9e9),
            (now - 1, 7e9),
            (now - HOURS_PER_WEEK, 1e6),
            (now - HOURS_PER_WEEK, 3e6),
            (now - 2 * HOURS_PER_WEEK, 4e6),
        ] {
            write_samples(&mut database, &[(peer(), estimate(rate))], hour).unwrap();
        }
        let baseline = read_hour_baseline(&database, now).unwrap();
        let receiving = baseline[&(peer(), EstimateDirection::Receiving)];
        assert_eq!((receiving.rate, receiving.weeks), (Some(3e6), 2), "the mean of 2 and 4 MB/s");
        assert!(receiving.rtt.is_some_and(|rtt| (rtt - 0.02).abs() < 1e-9));
        assert_eq!(baseline[&(peer(), EstimateDirection::Sending)].rate, None);
    }

    #[test]
    fn old_and_excess_rows_are_deleted() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(CREATE_TABLE).unwrap();
        for hour in 1000..1100 {
            write_samples(
                &mut database,
                &[(peer(), DuplexEstimate { sending: Estimate::default(), ..estimate(1e6) })],
                hour,
            )
            .unwrap();
        }
        let rows = |database: &Connection| {
            database.query_row("SELECT count(*), min(hour) FROM sections", [], |row| Ok((row.get(0)?, row.get(1)?)))
        };
        database.execute(DELETE_OLD, params![1040, MAX_ROWS]).unwrap();
        assert_eq!(rows(&database), Ok((120, 1040)));
        database.execute(DELETE_OLD, params![1040, 20]).unwrap();
        let (left, _): (i64, i64) = rows(&database).unwrap();
        assert!((20..=22).contains(&left), "{left} rows");
    }

    #[test]
    fn rows_are_kept_for_the_configured_time() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(CREATE_TABLE).unwrap();
        for hour in 1000..1100 {
            write_samples(&mut database, &[(peer(), estimate(1e6))], hour).unwrap();
        }
        delete_old(&database, 1099, HOUR * 10).unwrap();
        let oldest = database.query_row("SELECT min(hour) FROM sections", [], |row| row.get(0));
        assert_eq!(oldest, Ok(1089));
    }

    #[test]
    fn baselines_cover_the_current_and_the_previous_hour() {
        let mut database = Connection::open_in_memory().unwrap();
        database.execute_batch(CREATE_TABLE).unwrap();
        for (hour, rate) in [(500_000, 1e6), (499_999, 2e6), (499_998, 3e6)] {
            write_samples(&mut database, &[(peer(), estimate(rate))], hour - HOURS_PER_WEEK).unwrap();
        }
        let expected = read_baselines(&database, 500_000, HOUR).unwrap();
        let rate = |hour: &HourBaseline| hour[&(peer(), EstimateDirection::Receiving)].rate;
        assert_eq!((rate(&expected.now), rate(&expected.previous)), (Some(1e6), Some(2e6)));
        assert_eq!(expected.current_since, Some(HOUR));
    }

    /// A writer to a database in memory, and an estimate from before its start.
    fn memory_writer() -> HistoryWriter {
        let estimates = EstimateStore::new(Instant::now().checked_sub(Duration::from_secs(1)).unwrap());
        estimates.record_session(peer(), None, &SectionSample::default(), &sample(1e6), 0);
        let (log, _writer) = Log::start(LogConfig::default()).unwrap();
        let config = Kept { file: ":memory:".into(), retention: HOUR };
        HistoryWriter::new(config, Arc::new(estimates), Events::new(log))
    }

    fn connection(writer: &HistoryWriter) -> &Connection {
        &writer.database.as_ref().unwrap().0
    }

    fn row_count(writer: &HistoryWriter) -> i64 {
        connection(writer).query_row("SELECT count(*) FROM sections", [], |row| row.get(0)).unwrap()
    }

    fn has_baselines(estimates: &EstimateStore) -> bool {
        estimates.lock().baselines.current_since.is_some()
    }

    /// The usual values of the last hour with a history counted as those of every later hour.
    #[test]
    fn baselines_end_with_the_history() {
        let HistoryWriter { config, estimates, events, .. } = memory_writer();
        let history = EstimateHistory::default();
        history.apply_config(Some(&config), &estimates, &events).unwrap();
        history.apply_config(None, &estimates, &events).unwrap();
        assert!(!has_baselines(&estimates));
    }

    /// Samples from before the start of the writer, or from the time of an error, were stored for the hour of a later
    /// write.
    #[test]
    fn error_ends_the_baselines_and_earlier_samples_are_not_stored() {
        let mut writer = memory_writer();
        writer.try_write_new().unwrap();
        assert_eq!((row_count(&writer), has_baselines(&writer.estimates)), (0, true));
        writer.written_at = Duration::ZERO;
        connection(&writer).execute_batch("DROP TABLE sections").unwrap();
        writer.write_new();
        assert!(!has_baselines(&writer.estimates));
        writer.try_write_new().unwrap();
        assert_eq!((row_count(&writer), has_baselines(&writer.estimates)), (0, true));
    }

    /// Writes came before the deletion, so a full database stayed full.
    #[test]
    fn full_database_is_written_after_the_deletion_of_old_rows() {
        let mut full = database::open(Path::new(":memory:"), CREATE_TABLE, 16).unwrap();
        let mut write = |hour| write_samples(&mut full, &[(peer(), estimate(1e6))], hour);
        assert!((100_000..101_000).any(|hour| write(hour).is_err()));
        let mut writer = HistoryWriter { database: Some((full, 0)), written_at: Duration::ZERO, ..memory_writer() };
        writer.try_write_new().unwrap();
        assert_eq!(row_count(&writer), 2, "both directions of the section");
    }

    #[test]
    fn peer_ids_round_trip_through_text() {
        let key = ekiden_proto::key::PublicKey([7; 32]);
        for peer in [peer(), PeerId::Relay(key), PeerId::Proxy("[2001:db8::1]:1080".parse().unwrap())] {
            assert_eq!(peer.to_string().parse(), Ok(peer));
        }
        assert!("nonsense".parse::<PeerId>().is_err());
    }

    #[test]
    fn hours_are_counted_from_1970() {
        let time = UNIX_EPOCH + HOUR * 475_000 + Duration::from_secs(61);
        assert_eq!(hour_since_epoch(time), (475_000, Duration::from_secs(61)));
    }
}
