//! `ekiden cc list|load|unload`.

use ekiden_sys::congestion::{check_available, of_socket};

use crate::harness::{accept, connect, read_exactly, server};
use crate::room::Room;
use crate::turn::{RegistrationLock, wait_absent};

#[test]
fn what_is_loaded_can_be_chosen_by_everybody_and_is_unloaded_without_a_trace() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    let (room, name) = (Room::new(), turn.name);
    assert_eq!(room.listed(name)["origin"], "not_loaded");
    let said = room.ekiden(&format!("cc load {name}")).well();
    assert!(said.contains(&format!("ekiden cc unload {name}")), "{said}");
    let listed = room.listed(name);
    assert_eq!((&listed["origin"], &listed["without_privilege"]), (&"pinned".into(), &true.into()), "{listed}");
    assert!(!listed["about"].as_str().unwrap().is_empty());
    let table = room.as_nobody("cc list").well();
    let row = table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row.contains("ekiden cc load") && row.contains("all users"), "{row}");
    let again = room.ekiden(&format!("cc load {name}")).well();
    assert!(again.contains("updated"), "{again}");
    room.ekiden(&format!("cc unload {name}")).well();
    wait_absent(name);
    assert_eq!(check_available(name).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let doctor = room.ekiden("doctor").out;
    assert!(!doctor.contains(&format!("congestion control {name}")), "{doctor}");
}

#[test]
fn connections_go_on_while_it_is_updated_and_unloaded() {
    use std::io::Write;
    let Some(turn) = RegistrationLock::acquire() else { return };
    let (room, name) = (Room::new(), turn.name);
    room.ekiden(&format!("cc load {name}")).well();
    let (listener, address) = server();
    let mut near = connect(address);
    socket2::SockRef::from(&near).set_tcp_congestion(name.as_bytes()).unwrap();
    let mut far = accept(&listener);
    let mut carries = || {
        near.write_all(&[7; 100_000]).unwrap();
        assert_eq!(read_exactly(&mut far, 100_000), [7; 100_000]);
        assert_eq!(of_socket(&near).unwrap(), name);
    };
    carries();
    room.ekiden(&format!("cc load {name}")).well();
    carries();
    room.ekiden(&format!("cc unload {name}")).well();
    wait_absent(name);
    carries();
}

/// A kernel without BPF links needs no bpffs; a control that was registered there is found by its name.
#[test]
fn the_older_way_survives_its_process_and_even_its_pins() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    let (bare, name) = (Room::after("umount /sys/fs/bpf 2>/dev/null; true"), turn.name);
    let said = bare.ekiden(&format!("cc load --older {name}")).well();
    assert!(said.contains("without a BPF file system"), "{said}");
    assert_eq!(bare.listed(name)["origin"], "left");
    let doctor = bare.ekiden("doctor").out;
    assert!(doctor.contains(&format!("BAD   congestion control {name}")), "{doctor}");
    assert!(doctor.contains(&format!("-> ekiden cc unload {name}")), "{doctor}");
    bare.ekiden(&format!("cc unload {name}")).well();
    wait_absent(name);
    let room = Room::new();
    room.ekiden(&format!("cc load --older {name}")).well();
    assert_eq!(room.listed(name)["origin"], "pinned");
    // The pins end with their file system; the registration stays.
    drop(room);
    assert_eq!(bare.listed(name)["origin"], "left");
    bare.ekiden(&format!("cc unload {name}")).well();
    wait_absent(name);
}
