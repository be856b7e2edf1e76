//! The output of `ekiden keygen` is a valid key file.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use harness::*;

/// Runs `ekiden keygen`. Returns its output and the public key in it.
fn keygen() -> (String, String) {
    let output = ekiden().arg("keygen").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_once(": ").unwrap()).collect();
    let [("private-key", private), ("public-key", public)] = lines[..] else { panic!("{lines:?}") };
    assert!(private.len() == 44 && public.len() == 44 && private != public, "{lines:?}");
    let public = public.to_owned();
    (text, public)
}

#[test]
fn generated_key_is_a_valid_key_file_and_relay_key() {
    let folder = Folder::new();
    let (text, own) = keygen();
    let (_, other) = keygen();
    assert_ne!(own, other);
    let key = folder.write("key", text);
    let check = |relay: &str| {
        let file = folder.write(
            "ekiden.toml",
            format!(
                "version = 1\nprivate_key = {key:?}\n[[listener]]\nbind = \"127.0.0.1:7000\"\nkind = \"section\"\n\
                 [[relay]]\nname = \"osaka\"\naddress = \"osaka.example:7000\"\nkey = \"{relay}\"\n\
                 [[path]]\nname = \"via-osaka\"\nrelays = [\"osaka\"]\n[[route]]\npath = \"via-osaka\"\n"
            ),
        );
        let output = ekiden().arg("check").arg(file).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (code, printed) = check(&other);
    assert!(code == Some(2) && printed.contains(&format!("chmod 600 {}", key.display())), "{printed}");
    set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let (code, printed) = check(&other);
    assert!(code == Some(0) && printed.contains("1 listener(s), 1 relay(s), 2 path(s)"), "{printed}");
    let (code, printed) = check(&own);
    assert!(code == Some(2) && printed.contains("the key of another relay, not of this relay"), "{printed}");
}
