use ekiden_proto::path::estimate::{Estimate, Sample};

use super::*;

fn seen(rate: f64) -> Both {
    let mut both = Both::default();
    let rtt = Some(Duration::from_millis(20));
    let sample = Sample { rtt, segments: 1000, lost: 1, rate: Some(rate), rate_is_limit: true, window: None };
    both.receiving.note(&sample, Duration::from_secs(1));
    both
}

fn place() -> Place {
    Place::Targets("192.0.2.0/24".parse().unwrap())
}

#[test]
fn the_same_hour_of_other_weeks_is_what_is_usual() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(TABLE).unwrap();
    let now = 500_000;
    for (hour, rate) in [(now, 9e9), (now - 1, 7e9), (now - WEEK, 1e6), (now - WEEK, 3e6), (now - 2 * WEEK, 4e6)] {
        write(&mut database, &[(place(), seen(rate))], hour).unwrap();
    }
    let usual = usual(&database, now).unwrap();
    let receiving = usual[&(place(), Way::Receiving)];
    assert_eq!((receiving.rate, receiving.weeks), (Some(3e6), 2), "the mean of 2 and 4 MB/s");
    assert!(receiving.rtt.is_some_and(|rtt| (rtt - 0.02).abs() < 1e-9));
    assert_eq!(usual[&(place(), Way::Sending)].rate, None);
}

#[test]
fn what_is_old_and_what_is_too_much_goes() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(TABLE).unwrap();
    for hour in 1000..1100 {
        write(&mut database, &[(place(), Both { sending: Estimate::default(), ..seen(1e6) })], hour).unwrap();
    }
    let rows = |database: &Connection| {
        database.query_row("SELECT count(*), min(hour) FROM sections", [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    database.execute(FORGET, params![1040, MOST_ROWS]).unwrap();
    assert_eq!(rows(&database), Ok((120, 1040)));
    database.execute(FORGET, params![1040, 20]).unwrap();
    let (left, _): (i64, i64) = rows(&database).unwrap();
    assert!((20..=22).contains(&left), "{left} rows");
}

#[test]
fn what_is_kept_is_kept_for_as_long_as_it_says() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(TABLE).unwrap();
    for hour in 1000..1100 {
        write(&mut database, &[(place(), seen(1e6))], hour).unwrap();
    }
    forget(&database, 1099, HOUR * 10).unwrap();
    let oldest = database.query_row("SELECT min(hour) FROM sections", [], |row| row.get(0));
    assert_eq!(oldest, Ok(1089));
}

#[test]
fn this_hour_and_the_one_before_are_expected() {
    let mut database = Connection::open_in_memory().unwrap();
    database.execute_batch(TABLE).unwrap();
    for (hour, rate) in [(500_000, 1e6), (499_999, 2e6), (499_998, 3e6)] {
        write(&mut database, &[(place(), seen(rate))], hour - WEEK).unwrap();
    }
    let expected = expected(&database, 500_000, HOUR).unwrap();
    let rate = |hour: &Hour| hour[&(place(), Way::Receiving)].rate;
    assert_eq!((rate(&expected.now), rate(&expected.before)), (Some(1e6), Some(2e6)));
    assert_eq!(expected.since, Some(HOUR));
}

#[test]
fn a_file_has_a_bound() {
    let database = open(Path::new(":memory:")).unwrap();
    let most = database.query_row("PRAGMA max_page_count", [], |row| row.get(0));
    assert_eq!(most, Ok(MOST_PAGES));
}

#[test]
fn places_are_read_as_they_are_written() {
    let key = ekiden_proto::key::PublicKey([7; 32]);
    for place in [place(), Place::Relay(key), Place::Proxy("[2001:db8::1]:1080".parse().unwrap())] {
        assert_eq!(place.to_string().parse(), Ok(place));
    }
    assert!("nonsense".parse::<Place>().is_err());
}

#[test]
fn hours_are_counted_from_1970() {
    let time = UNIX_EPOCH + HOUR * 475_000 + Duration::from_secs(61);
    assert_eq!(hour_of(time), (475_000, Duration::from_secs(61)));
}

/// SQLite makes a database that every user can read, unless the umask prevents it.
#[test]
fn a_new_database_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let file = std::env::temp_dir().join(format!("ekiden-history-{}.db", std::process::id()));
    let database = open(&file);
    let mode = std::fs::metadata(&file).map(|metadata| metadata.permissions().mode() & 0o777);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((database.is_ok(), mode.unwrap()), (true, 0o600));
}
