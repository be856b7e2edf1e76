//! etcd with users and passwords: right, wrong and changed passwords.

use std::path::PathBuf;

use crate::etcd::Etcd;
use crate::etcd_proxy::EtcdProxy;
use crate::fixture::*;
use crate::harness::*;

const ENTRY_REFUSED: &str = "etcd rejects the entry of this relay";

/// Starts an etcd that admits the user `relays` with the password `right`, with `permission` under the fleet's prefix.
fn etcd_with_users(permission: &str) -> Etcd {
    let mut etcd = Etcd::start_with(&["--auth-token-ttl", "1"]);
    etcd.enable_authentication(&[("relays", "right")], permission, Fleet::SHARED);
    etcd
}

/// Writes the password to a file. Returns the file, and the lines of `[fleet]` for user and password.
fn password(folder: &Folder, password: &str) -> (PathBuf, String) {
    let file = folder.write_with_mode("password", format!("{password}\n"), 0o600);
    let settings = format!("user = \"relays\"\npassword_file = {file:?}");
    (file, settings)
}

/// Deletes the relay's entry, and waits until the relay has written another.
fn wait_rewritten_entry(site: &Site, etcd: &Etcd) {
    let entry_key = site.entry_key(etcd);
    etcd.ask(&["del", &entry_key]);
    eventually("another entry", || etcd.value(&entry_key).filter(|value| !value.is_empty()));
}

#[test]
fn expired_and_invalidated_tokens_are_renewed() {
    let (etcd, fleet, folder) = (etcd_with_users("readwrite"), Fleet::new(), Folder::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let (_, settings) = password(&folder, "right");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, BY_OSAKA));
    // Tokens are valid for 1 s, and a deleted entry is written again after 1 s.
    (0..4).for_each(|_| wait_rewritten_entry(&home, &etcd));
    // Setting the password again, unchanged, invalidates every token.
    etcd.set_password("relays", "right");
    wait_rewritten_entry(&home, &etcd);
    let _at_osaka = osaka.run(&osaka.config_at(&etcd.url(), &settings, ""));
    wait_fleet_change(&mut at_home, "joined", "osaka");
    at_home.signal("TERM");
    assert_eq!(count_warnings(&mut at_home, ENTRY_REFUSED), 0);
}

/// etcd no longer accepts a JSON Web Token when any user or role has changed since its creation.
#[test]
fn json_web_token_is_renewed_after_a_change_of_users() {
    let (fleet, folder) = (Fleet::new(), Folder::new());
    let key = folder.write("jwt-key", "a shared secret");
    let mut etcd =
        Etcd::start_with(&["--auth-token", &format!("jwt,sign-method=HS256,priv-key={},ttl=10m", key.display())]);
    etcd.enable_authentication(&[("relays", "right")], "readwrite", Fleet::SHARED);
    let home = fleet.site("home");
    let (_, settings) = password(&folder, "right");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, ""));
    wait_rewritten_entry(&home, &etcd);
    etcd.ask(&["user", "add", "another:password"]);
    wait_rewritten_entry(&home, &etcd);
    at_home.signal("TERM");
    assert_eq!(count_warnings(&mut at_home, ENTRY_REFUSED), 0);
}

#[test]
fn wrong_password_is_reported_and_a_reload_corrects_it() {
    let (etcd, fleet, folder, target) = (etcd_with_users("readwrite"), Fleet::new(), Folder::new(), echo_server());
    let home = fleet.site("home");
    let (file, settings) = password(&folder, "wrong");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, BY_OSAKA));
    let down = wait_etcd_event(&mut at_home, "etcd_unreachable");
    let detail = down["detail"].as_str().unwrap();
    assert!(detail.contains("correct user and password_file") && !detail.contains("wrong"), "{detail}");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    std::fs::write(file, "right").unwrap();
    at_home.signal("HUP");
    wait_etcd_event(&mut at_home, "etcd_reachable");
    home.entry_key(&etcd);
}

#[test]
fn changed_password_in_etcd_is_reported_until_a_reload() {
    let (etcd, fleet, folder) = (etcd_with_users("readwrite"), Fleet::new(), Folder::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let (file, settings) = password(&folder, "right");
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, BY_OSAKA));
    let entry_key = home.entry_key(&etcd);
    etcd.set_password("relays", "changed");
    etcd.ask(&["del", &entry_key]);
    wait_warning(&mut at_home, ENTRY_REFUSED);
    std::fs::write(file, "changed").unwrap();
    // The watch continues, so a relay that joins now is still reported.
    let _at_osaka = osaka.run(&osaka.config_at(&etcd.url(), &settings, ""));
    wait_fleet_change(&mut at_home, "joined", "osaka");
    at_home.signal("HUP");
    assert_eq!(home.entry_key(&etcd), entry_key);
    at_home.signal("TERM");
    assert_eq!(count_warnings(&mut at_home, ENTRY_REFUSED), 0, "repeated warning");
}

#[test]
fn access_errors_of_etcd_are_reported_with_a_remedy() {
    let (etcd, open, fleet, folder) = (etcd_with_users("read"), Etcd::start(), Fleet::new(), Folder::new());
    let (home, kobe, nara) = (fleet.site("home"), fleet.site("kobe"), fleet.site("nara"));
    let (_, settings) = password(&folder, "right");
    // The user has the permission to read only.
    let mut at_home = home.run(&home.config_at(&etcd.url(), &settings, ""));
    let warning = wait_warning(&mut at_home, ENTRY_REFUSED);
    assert!(warning["message"].as_str().unwrap().contains("etcdctl role grant-permission"), "{warning}");
    for (url, settings, site, words) in [
        (etcd.url(), "", &kobe, "set user and password_file in [fleet]"),
        (open.url(), settings.as_str(), &nara, "remove user and password_file from [fleet]"),
    ] {
        let mut relay = site.run(&site.config_at(&url, settings, ""));
        let down = wait_etcd_event(&mut relay, "etcd_unreachable");
        assert!(down["detail"].as_str().unwrap().contains(words), "{down}");
    }
}

#[test]
fn revoked_read_permission_is_reported() {
    let (etcd, fleet, folder) = (etcd_with_users("readwrite"), Fleet::new(), Folder::new());
    let home = fleet.site("home");
    let (_, settings) = password(&folder, "right");
    etcd.put(&format!("{}first", Fleet::SHARED), "something to read");
    let proxy = EtcdProxy::with_hold_after(etcd.port, "something to read");
    let mut at_home = home.run(&home.config_at(&proxy.url(), &settings, ""));
    // The relay has read all entries, and its next request, for a watch, is held back.
    proxy.wait_held();
    etcd.ask(&["role", "revoke-permission", "fleet", "--prefix=true", Fleet::SHARED]);
    proxy.release();
    let down = wait_etcd_event(&mut at_home, "etcd_unreachable");
    assert!(down["detail"].as_str().unwrap().contains("etcd has ended the watch"), "{down}");
}

#[test]
fn check_requires_a_private_password_file_and_a_user() {
    let (fleet, folder) = (Fleet::new(), Folder::new());
    let home = fleet.site("home");
    let (file, settings) = password(&folder, "right");
    let check_with = |settings: &str| check(&home.config_at("http://127.0.0.1:1", settings, ""));
    assert_eq!(check_with(&settings).0, Some(0));
    let nowhere = settings.replace("/password", "/elsewhere");
    for (settings, words) in [
        (nowhere.as_str(), "a readable file with the password of user"),
        ("user = \"relays\"", "the path of a file with the password of user"),
        (settings.lines().nth(1).unwrap(), "the user name for the password in password_file"),
    ] {
        let (code, printed) = check_with(settings);
        assert!(code == Some(2) && printed.contains(words), "{printed}");
    }
    folder.write_with_mode("password", "right", 0o640);
    let (code, printed) = check_with(&settings);
    assert!(code == Some(2) && printed.contains(&format!("chmod 600 {}", file.display())), "{printed}");
    assert!(!printed.contains("right"), "{printed}");
}
