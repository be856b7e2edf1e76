//! Some have more than one share.

use std::net::SocketAddr;

use crate::harness::*;
use crate::programs::missing;
use crate::scene::*;

/// One share for the first, three for the other.
const SHARES: [f64; 2] = [RATE / 4.0, RATE * 3.0 / 4.0];

fn check_three_to_one(scene: &Scene, downloads: &[Download; 2]) {
    scene.settles(&SHARES);
    let ratio = |got: &Got| got.bytes[1] as f64 / got.bytes[0] as f64;
    scene.shares_so(&downloads.each_ref(), &SHARES, 8_000_000, |got| (2.3..3.7).contains(&ratio(got)));
}

#[test]
fn listeners_have_weights() {
    let text = [SHARED, &listener(8001, "bbr", ""), &listener(8002, "cubic", "weight = 3")].concat();
    let Some(scene) = Scene::new(&text) else { return };
    let downloads = [8001, 8002].map(|port| scene.download(port));
    check_three_to_one(&scene, &downloads);
}

#[test]
fn users_have_weights_on_top_of_that() {
    if missing(&["htpasswd"]) {
        return;
    }
    let folder = Folder::new();
    let hash = |user| {
        let output = std::process::Command::new("htpasswd").args(["-nbB", "-C4", user, "hunter2"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned() + "\n"
    };
    let users = folder.write("users", hash("alice") + &hash("bob"));
    let text = format!(
        "{SHARED}[user.bob]\nweight = 3\n[[listener]]\nbind = \"0.0.0.0:8001\"\nallow_private = true\nweight = 2\n\
         users = \"{}\"\n",
        users.display()
    );
    let Some(scene) = Scene::new(&text) else { return };
    let proxy = SocketAddr::new(scene.relay_ip(), 8001);
    for way in ["http", "socks5"] {
        let downloads = ["alice", "bob"]
            .map(|user| scene.download_by(&["--proxy", &format!("{way}://{user}:hunter2@{proxy}")], scene.server));
        check_three_to_one(&scene, &downloads);
    }
}
