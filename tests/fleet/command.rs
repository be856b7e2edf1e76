//! `ekiden fleet`, and the checks of `[fleet]` by `ekiden check`.

use crate::etcd::Etcd;
use crate::fixture::*;
use crate::harness::*;

#[test]
fn check_rejects_foreign_certificates_and_wrong_fleet_settings() {
    let (fleet, other, folder) = (Fleet::new(), Fleet::new(), Folder::new());
    let check_text = |text: &str| check(&folder.write("ekiden.toml", text));
    let (osaka, kobe) = (fleet.site("osaka"), fleet.site("kobe"));
    let text = |key: &str, site: &Site, certificate: &Site| {
        format!(
            "version = 1\nprivate_key = {:?}\n[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [fleet]\netcd = \"http://127.0.0.1:2379\"\nkey = \"{key}\"\ncertificate = {:?}\n",
            site.key.file, certificate.certificate
        )
    };
    assert_eq!(check_text(&text(&fleet.public, &osaka, &osaka)).0, Some(0));
    for (text, words) in [
        (text(&other.public, &osaka, &osaka), "of another fleet"),
        (text(&fleet.public, &osaka, &kobe), "ekiden fleet request"),
        (text(&fleet.public, &osaka, &osaka).replace("http://", "https://"), "like \"http://127.0.0.1:2379\""),
        (text("AAAA", &osaka, &osaka), "ekiden fleet keygen"),
        (text(&fleet.public, &osaka, &osaka).replace("certificate =", "certifcate ="), "\"certificate\", perhaps"),
    ] {
        let (code, printed) = check_text(&text);
        assert!(code == Some(2) && printed.contains(words), "{code:?} {printed}");
    }
    let lone = "version = 1\n[[listener]]\nkind = \"section\"\nbind = \"127.0.0.1:0\"\nfleet = true\n";
    assert!(check_text(lone).1.contains("a table [fleet]"));
}

#[test]
fn sign_refuses_a_fleet_key_readable_by_others() {
    let folder = Folder::new();
    let open = folder.write_with_mode("key", fleet(&["keygen"]), 0o644);
    let request = fleet(&["request", "--key", Key::new().file.to_str().unwrap()]);
    let sign = ["fleet", "sign", "--key", open.to_str().unwrap(), "--name", "osaka", "--address", "osaka.example:1"];
    let output = ekiden().args(sign).arg(request.trim()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("chmod 600"));
}

#[test]
fn fleet_list_shows_reachable_members() {
    let (etcd, fleet_key) = (Etcd::start(), Fleet::new());
    let osaka = fleet_key.site("osaka");
    let relay = osaka.start(&etcd, "");
    eventually("osaka as a member", || member(&relay, "osaka"));
    let listed = fleet(&["list", "--admin", &format!("unix:{}", relay.admin.display())]);
    assert!(
        listed.contains("osaka") && listed.contains(&osaka.key.public) && listed.contains("reachable for"),
        "{listed}"
    );
    for series in ["ekiden_fleet_members", "ekiden_fleet_etcd_up"] {
        assert_eq!(relay.metric(series), Some(1), "{series}");
    }
}
