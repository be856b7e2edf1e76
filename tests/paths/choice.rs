//! The chosen path without failures.

use crate::harness::*;
use crate::scene::*;

const AUTO: &str = "[[route]]\npath = \"auto\"\n";

/// Bytes of a session, enough for an estimate of the rate.
const MUCH: u64 = 1 << 20;

#[test]
fn the_first_session_races_and_says_so() {
    let Some(mut scene) = Scene::new(AUTO) else { return };
    let closed = scene.pull(10_000);
    assert!(["a", "direct"].contains(&path(&closed).as_str()), "{closed}");
    assert_eq!(closed["chosen"]["reason"], "unmeasured", "{closed}");
    assert!(
        closed["chosen"]["predicted_seconds"].is_null() && closed["chosen"]["took_seconds"].is_number(),
        "{closed}"
    );
}

/// The direct path, `a` and `c` are slow, and home must find this out. Paths by `b` and a further relay are as good as
/// `b`.
#[test]
fn the_best_is_found_and_kept() {
    let Some(mut scene) = Scene::with(AUTO, true, |_| String::new()) else { return };
    for (host, mbit) in [("server", 8), ("a", 12), ("c", 12)] {
        scene.slow(host, mbit);
    }
    scene.settles_on('b', MUCH);
    let kept = scene.paths(10, MUCH);
    assert!(kept.iter().filter(|path| path.starts_with('b')).count() >= 8, "{kept:?}");
    let status: serde_json::Value = serde_json::from_str(&scene.home.relay.ask("/api/sessions")).unwrap();
    let choice =
        status["choices"].as_array().unwrap().iter().find(|choice| choice["likely_bytes"].as_u64() >= Some(MUCH / 2));
    assert!(choice.unwrap()["path"].as_str().unwrap().starts_with('b'), "{status}");
    let shown =
        ekiden().args(["status", "--admin", &format!("unix:{}", scene.home.relay.admin.display())]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("CANDIDATE") && shown.contains("10.9.0.0/24"), "{shown}");
}

#[test]
fn a_reload_begins_and_ends_the_choice() {
    let fixed = "[[path]]\nname = \"fixed\"\nrelays = [\"c\"]\n[[route]]\npath = [\"fixed\"]\n";
    let Some(mut scene) = Scene::new(fixed) else { return };
    let closed = scene.pull(1000);
    assert!(path(&closed) == "fixed" && closed["chosen"].is_null(), "{closed}");
    scene.reload(AUTO);
    follows(&mut scene, |closed| closed["chosen"]["reason"].is_string());
    scene.reload(fixed);
    follows(&mut scene, |closed| path(closed) == "fixed" && closed["chosen"].is_null());
}

/// Waits for a session under the new configuration: a connection that was accepted at the same time has the old one.
fn follows(scene: &mut Scene, is_so: impl Fn(&serde_json::Value) -> bool) {
    eventually("a session that goes the new way", || is_so(&scene.pull(1000)).then_some(()));
}
