use ekiden_proto::path::estimate::{Estimate, SectionSample};

use super::*;

fn seen(rate: f64) -> DuplexEstimate {
    let mut both = DuplexEstimate::default();
    let rtt = Some(Duration::from_millis(20));
    let sample = SectionSample { rtt, segments: 1000, lost: 1, rate: Some(rate), rate_is_limit: true, window: None };
    both.receiving.record(&sample, Duration::from_secs(1));
    both
}

fn place() -> PeerId {
    PeerId::Targets("192.0.2.0/24".parse().unwrap())
}

#[test]
fn the_same_hour_of_other_weeks_is_what_is_usual() {
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
        write_samples(&mut database, &[(place(), seen(rate))], hour).unwrap();
    }
    let usual = read_hour_baseline(&database, now).unwrap();
    let receiving = usual[&(place(), EstimateDirection::Receiving)];
    assert_eq!((receiving.rate, receiving.weeks), (Some(3e6), 2), "the mean of 2 and 4 MB/s");
    assert!(receiving.rtt.is_some_and(|rtt| (rtt - 0.02).abs() < 1e-9));
    assert_eq!(usual[&(place(), EstimateDirection::Sending)].rate, None);
}

#[test]
fn what_is_old_and_what_is_too_much_goes() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(CREATE_TABLE).unwrap();
    for hour in 1000..1100 {
        write_samples(&mut database, &[(place(), DuplexEstimate { sending: Estimate::default(), ..seen(1e6) })], hour)
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
fn what_is_kept_is_kept_for_as_long_as_it_says() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(CREATE_TABLE).unwrap();
    for hour in 1000..1100 {
        write_samples(&mut database, &[(place(), seen(1e6))], hour).unwrap();
    }
    delete_old(&database, 1099, HOUR * 10).unwrap();
    let oldest = database.query_row("SELECT min(hour) FROM sections", [], |row| row.get(0));
    assert_eq!(oldest, Ok(1089));
}

#[test]
fn this_hour_and_the_one_before_are_expected() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(CREATE_TABLE).unwrap();
    for (hour, rate) in [(500_000, 1e6), (499_999, 2e6), (499_998, 3e6)] {
        write_samples(&mut database, &[(place(), seen(rate))], hour - HOURS_PER_WEEK).unwrap();
    }
    let expected = read_baselines(&database, 500_000, HOUR).unwrap();
    let rate = |hour: &HourBaseline| hour[&(place(), EstimateDirection::Receiving)].rate;
    assert_eq!((rate(&expected.now), rate(&expected.previous)), (Some(1e6), Some(2e6)));
    assert_eq!(expected.current_since, Some(HOUR));
}

#[test]
fn a_file_has_a_bound() {
    let database = open_database(Path::new(":memory:")).unwrap();
    let most = database.query_row("PRAGMA max_page_count", [], |row| row.get(0));
    assert_eq!(most, Ok(MAX_PAGES));
}

#[test]
fn places_are_read_as_they_are_written() {
    let key = ekiden_proto::key::PublicKey([7; 32]);
    for place in [place(), PeerId::Relay(key), PeerId::Proxy("[2001:db8::1]:1080".parse().unwrap())] {
        assert_eq!(place.to_string().parse(), Ok(place));
    }
    assert!("nonsense".parse::<PeerId>().is_err());
}

#[test]
fn hours_are_counted_from_1970() {
    let time = UNIX_EPOCH + HOUR * 475_000 + Duration::from_secs(61);
    assert_eq!(hour_since_epoch(time), (475_000, Duration::from_secs(61)));
}

/// SQLite makes a database that every user can read, unless the umask prevents it.
#[test]
fn a_new_database_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let file = std::env::temp_dir().join(format!("ekiden-history-{}.db", std::process::id()));
    let database = open_database(&file);
    let mode = std::fs::metadata(&file).map(|metadata| metadata.permissions().mode() & 0o777);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((database.is_ok(), mode.unwrap()), (true, 0o600));
}
