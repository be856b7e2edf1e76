//! etcd with users and passwords: right, wrong and changed passwords.

use std::path::PathBuf;

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;
use crate::way::Way;

const NOT_TAKEN: &str = "etcd does not take our entry";

/// An etcd that admits the user `relays` with the password `right`, with `permission` under the fleet's prefix.
fn guarded(permission: &str) -> Etcd {
    let mut etcd = Etcd::start_with(&["--auth-token-ttl", "1"]);
    etcd.let_in_only(&[("relays", "right")], permission, Fleet::SHARED);
    etcd
}

/// Writes the password to its own file, and returns the file and its lines for `[fleet]`.
fn password(folder: &Folder, password: &str) -> (PathBuf, String) {
    let file = folder.write_with_mode("password", format!("{password}\n"), 0o600);
    let settings = format!("user = \"relays\"\npassword_file = {file:?}");
    (file, settings)
}

/// Deletes the relay's entry, and waits until the relay has written another.
fn writes_again(site: &Site, etcd: &Etcd) {
    let place = site.place(etcd);
    etcd.ask(&["del", &place]);
    eventually("another entry", || etcd.value(&place).filter(|value| !value.is_empty()));
}

#[test]
fn who_has_the_password_comes_in_and_goes_on_when_its_token_ends() {
    let (etcd, fleet, folder) = (guarded("readwrite"), Fleet::new(), Folder::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let (_, settings) = password(&folder, "right");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, BY_OSAKA));
    // Tokens are valid for 1 s, and a deleted entry is written again after 1 s.
    (0..4).for_each(|_| writes_again(&home, &etcd));
    // Setting the password again, unchanged, invalidates every token.
    etcd.set_password("relays", "right");
    writes_again(&home, &etcd);
    let _at_osaka = osaka.run(&osaka.config_at(&etcd.url(), &settings, ""));
    hears(&mut at_home, "joined", "osaka");
    at_home.signal("TERM");
    assert_eq!(warnings(&mut at_home, NOT_TAKEN), 0);
}

#[test]
fn who_has_a_wrong_password_is_told_and_comes_in_with_the_right_one() {
    let (etcd, fleet, folder, target) = (guarded("readwrite"), Fleet::new(), Folder::new(), echo());
    let home = fleet.site("home");
    let (file, settings) = password(&folder, "wrong");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, BY_OSAKA));
    let down = etcd_is(&mut at_home, "etcd_unreachable");
    let detail = down["detail"].as_str().unwrap();
    assert!(detail.contains("see user and password_file") && !detail.contains("wrong"), "{detail}");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    std::fs::write(file, "right").unwrap();
    at_home.signal("HUP");
    etcd_is(&mut at_home, "etcd_reachable");
    home.place(&etcd);
}

#[test]
fn a_password_that_is_changed_is_told_and_taken_by_a_reload() {
    let (etcd, fleet, folder) = (guarded("readwrite"), Fleet::new(), Folder::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let (file, settings) = password(&folder, "right");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, BY_OSAKA));
    let place = home.place(&etcd);
    etcd.set_password("relays", "changed");
    etcd.ask(&["del", &place]);
    warns(&mut at_home, NOT_TAKEN);
    std::fs::write(file, "changed").unwrap();
    // The watch continues, so a relay that joins now is still reported.
    let _at_osaka = osaka.run(&osaka.config_at(&etcd.url(), &settings, ""));
    hears(&mut at_home, "joined", "osaka");
    at_home.signal("HUP");
    assert_eq!(home.place(&etcd), place);
    at_home.signal("TERM");
    assert_eq!(warnings(&mut at_home, NOT_TAKEN), 0, "said again");
}

#[test]
fn what_is_wrong_with_the_user_is_told_with_what_to_do() {
    let (etcd, open, fleet, folder) = (guarded("read"), Etcd::start(), Fleet::new(), Folder::new());
    let (home, kobe, nara) = (fleet.site("home"), fleet.site("kobe"), fleet.site("nara"));
    let (_, settings) = password(&folder, "right");
    // The user may read, and not write.
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, ""));
    let warning = warns(&mut at_home, NOT_TAKEN);
    assert!(warning["message"].as_str().unwrap().contains("etcdctl role grant-permission"), "{warning}");
    for (url, settings, site, words) in [
        (etcd.url(), "", &kobe, "set user and password_file in [fleet]"),
        (open.url(), settings.as_str(), &nara, "leave user and password_file out of [fleet]"),
    ] {
        let mut relay = site.run(&site.config_at(&url, settings, ""));
        let down = etcd_is(&mut relay, "etcd_unreachable");
        assert!(down["detail"].as_str().unwrap().contains(words), "{down}");
    }
}

#[test]
fn who_may_no_longer_read_is_told() {
    let (etcd, fleet, folder) = (guarded("readwrite"), Fleet::new(), Folder::new());
    let home = fleet.site("home");
    let (_, settings) = password(&folder, "right");
    etcd.put(&format!("{}first", Fleet::SHARED), "something to read");
    let way = Way::held_after(etcd.port, "something to read");
    let mut at_home = home.run(&home.config_at(&way.url(), &settings, ""));
    // The relay has read, and does not watch yet.
    way.assert_held();
    etcd.ask(&["role", "revoke-permission", "fleet", "--prefix=true", Fleet::SHARED]);
    way.open();
    let down = etcd_is(&mut at_home, "etcd_unreachable");
    assert!(down["detail"].as_str().unwrap().contains("etcd has ended the watch"), "{down}");
}

#[test]
fn a_password_is_for_one_pair_of_eyes() {
    let (fleet, folder) = (Fleet::new(), Folder::new());
    let home = fleet.site("home");
    let (file, settings) = password(&folder, "right");
    let check = |settings: &str| {
        let output = ekiden().arg("check").arg(home.config_at("http://127.0.0.1:1", settings, "")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check(&settings).0, Some(0));
    let nowhere = settings.replace("/password", "/elsewhere");
    for (settings, words) in [
        (nowhere.as_str(), "a readable file with the password of user"),
        ("user = \"relays\"", "the path of a file with the password, beside user"),
        (settings.lines().nth(1).unwrap(), "the name that goes with password_file"),
    ] {
        let (code, said) = check(settings);
        assert!(code == Some(2) && said.contains(words), "{said}");
    }
    folder.write_with_mode("password", "right", 0o640);
    let (code, said) = check(&settings);
    assert!(code == Some(2) && said.contains(&format!("chmod 600 {}", file.display())), "{said}");
    assert!(!said.contains("right"), "{said}");
}
