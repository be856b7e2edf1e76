//! `ekiden cc list|load|unload`.

use ekiden_sys::congestion::{check_available, of_socket};

use crate::harness::{accept, connect, read_exactly, server};
use crate::mount_namespace::Namespace;
use crate::name_lock::{RegistrationLock, wait_absent};

#[test]
fn loaded_control_is_available_to_all_users_and_unloads_cleanly() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let (namespace, name) = (Namespace::new(), lock.name);
    assert_eq!(namespace.listed(name)["origin"], "not_loaded");
    let output = namespace.ekiden(&format!("cc load {name}")).expect_success();
    assert!(output.contains(&format!("ekiden cc unload {name}")), "{output}");
    let listed = namespace.listed(name);
    assert_eq!((&listed["origin"], &listed["without_privilege"]), (&"pinned".into(), &true.into()), "{listed}");
    assert!(!listed["about"].as_str().unwrap().is_empty());
    let table = namespace.ekiden_unprivileged("cc list").expect_success();
    let row = table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row.contains("ekiden cc load") && row.contains("all users"), "{row}");
    let again = namespace.ekiden(&format!("cc load {name}")).expect_success();
    assert!(again.contains("updated"), "{again}");
    namespace.ekiden(&format!("cc unload {name}")).expect_success();
    wait_absent(name);
    assert_eq!(check_available(name).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let doctor = namespace.ekiden("doctor").out;
    assert!(!doctor.contains(&format!("congestion control {name}")), "{doctor}");
}

#[test]
fn connections_survive_update_and_unload() {
    use std::io::Write;
    let Some(lock) = RegistrationLock::acquire() else { return };
    let (namespace, name) = (Namespace::new(), lock.name);
    namespace.ekiden(&format!("cc load {name}")).expect_success();
    let (listener, address) = server();
    let mut near = connect(address);
    socket2::SockRef::from(&near).set_tcp_congestion(name.as_bytes()).unwrap();
    let mut far = accept(&listener);
    let mut transfer = || {
        near.write_all(&[7; 100_000]).unwrap();
        assert_eq!(read_exactly(&mut far, 100_000), [7; 100_000]);
        assert_eq!(of_socket(&near).unwrap(), name);
    };
    transfer();
    namespace.ekiden(&format!("cc load {name}")).expect_success();
    transfer();
    namespace.ekiden(&format!("cc unload {name}")).expect_success();
    wait_absent(name);
    transfer();
}

/// The registration for kernels without BPF links needs no BPF file system; `ekiden cc` finds such a control by name.
#[test]
fn map_registration_survives_its_process_and_its_pins() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let (bare, name) = (Namespace::with_script("umount /sys/fs/bpf 2>/dev/null; true"), lock.name);
    let output = bare.ekiden(&format!("cc load --older {name}")).expect_success();
    assert!(output.contains("without a BPF file system"), "{output}");
    assert_eq!(bare.listed(name)["origin"], "left");
    let doctor = bare.ekiden("doctor").out;
    assert!(doctor.contains(&format!("BAD   congestion control {name}")), "{doctor}");
    assert!(doctor.contains(&format!("-> ekiden cc unload {name}")), "{doctor}");
    bare.ekiden(&format!("cc unload {name}")).expect_success();
    wait_absent(name);
    let namespace = Namespace::new();
    namespace.ekiden(&format!("cc load --older {name}")).expect_success();
    assert_eq!(namespace.listed(name)["origin"], "pinned");
    // The pins are removed with their file system; the registration remains.
    drop(namespace);
    assert_eq!(bare.listed(name)["origin"], "left");
    bare.ekiden(&format!("cc unload {name}")).expect_success();
    wait_absent(name);
}
