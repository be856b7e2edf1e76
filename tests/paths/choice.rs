//! Path selection without failures.

use crate::fixture::*;
use crate::harness::*;

/// The relay dials both paths at the same time. If it dialled the silent path first, the session would wait for the
/// connect timeout of 10 min, longer than the client waits.
#[test]
fn first_session_is_not_delayed_by_a_silent_path() {
    for (silent, expected) in [("a", "direct"), ("direct", "a")] {
        let Some(mut fixture) = Fixture::new(&format!("[timeouts]\nconnect = \"10min\"\n{AUTO}")) else { return };
        if silent == "a" {
            fixture.relays[0].as_ref().unwrap().relay.stop();
        } else {
            fixture.silence_direct_path();
        }
        let closed = fixture.download(10_000);
        assert_eq!(path(&closed), expected, "{silent} is silent: {closed}");
        assert_eq!(closed["chosen"]["reason"], "unmeasured", "{closed}");
    }
}

#[test]
fn first_session_races_unmeasured_paths() {
    let Some(mut fixture) = Fixture::new(AUTO) else { return };
    let closed = fixture.download(10_000);
    assert!(["a", "direct"].contains(&path(&closed).as_str()), "{closed}");
    assert_eq!(closed["chosen"]["reason"], "unmeasured", "{closed}");
    assert!(
        closed["chosen"]["predicted_seconds"].is_null() && closed["chosen"]["took_seconds"].is_number(),
        "{closed}"
    );
}

/// The direct path and the paths that begin with `a` or `c` are slow. A path through `b` and a further relay is as fast
/// as the path through `b` alone, so both are accepted.
#[test]
fn fastest_path_is_found_and_kept() {
    let Some(mut fixture) = Fixture::with(AUTO, true, |_| String::new()) else { return };
    for (host, mbit) in [("server", 8), ("a", 12), ("c", 12)] {
        fixture.limit_rate(host, mbit);
    }
    fixture.run_until_settled_on('b');
    let kept = fixture.paths(10, SESSION_BYTES);
    assert!(kept.iter().filter(|path| path.starts_with('b')).count() >= 8, "{kept:?}");
    let status: serde_json::Value = serde_json::from_str(&fixture.home.relay.ask("/api/sessions")).unwrap();
    let choice = status["choices"]
        .as_array()
        .unwrap()
        .iter()
        .find(|choice| choice["likely_bytes"].as_u64() >= Some(SESSION_BYTES / 2));
    assert!(choice.unwrap()["path"].as_str().unwrap().starts_with('b'), "{status}");
    let shown = fixture.home.relay.status(&[]);
    assert!(shown.contains("CANDIDATE") && shown.contains("10.9.0.0/24"), "{shown}");
}

#[test]
fn reload_enables_and_disables_path_selection() {
    let fixed = "[[path]]\nname = \"fixed\"\nrelays = [\"c\"]\n[[route]]\npath = [\"fixed\"]\n";
    let Some(mut fixture) = Fixture::new(fixed) else { return };
    let closed = fixture.download(1000);
    assert!(path(&closed) == "fixed" && closed["chosen"].is_null(), "{closed}");
    fixture.reload(AUTO);
    wait_for_session(&mut fixture, |closed| closed["chosen"]["reason"].is_string());
    fixture.reload(fixed);
    wait_for_session(&mut fixture, |closed| path(closed) == "fixed" && closed["chosen"].is_null());
}

/// Repeats sessions until one satisfies `wanted`: a worker may accept a connection before it has the new configuration.
fn wait_for_session(fixture: &mut Fixture, wanted: impl Fn(&serde_json::Value) -> bool) {
    eventually("a session by the new configuration", || wanted(&fixture.download(1000)).then_some(()));
}
