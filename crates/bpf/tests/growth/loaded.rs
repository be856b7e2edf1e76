//! A congestion control of this crate in the kernel, under a name of its own, and a connection that uses it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use ekiden_bpf::congestion::RegistrationMethod;
use ekiden_bpf::kernel::KernelTypes;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, Program};

use crate::name_lock::is_any_requirement_missing;
use crate::network::{Network, TIMEOUT, connect};

/// Flag of a registration by a link (linux/bpf.h), which kernels before Linux 6.4 do not support.
const BPF_F_LINK: u32 = 1 << 13;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A congestion control in the kernel. It is unregistered on drop.
pub struct LoadedControl {
    pub name: String,
    // Dropped before the object: where the kernel has no links, the drop deletes an entry of the object's map.
    _link: Link,
    pub object: Object,
}

impl LoadedControl {
    /// Registers the control under a unique name, as all network namespaces share the congestion controls. `None`, with
    /// a printed reason, where the kernel accepts no congestion control of this process.
    pub fn new(name: &str, bytes: &[u8]) -> Option<Self> {
        if is_any_requirement_missing() {
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = format!("{name:.4}_{}_{count}", std::process::id() % 100_000);
        let method = RegistrationMethod::best_for(&KernelTypes::running().expect("the kernel's types"));
        let mut open = ObjectBuilder::default().open_memory(bytes).expect("an object file by clang");
        for mut map in open.maps_mut() {
            let plain = map.name() == name;
            if map.name().to_str().is_some_and(|map| map.ends_with("_7_1")) {
                map.set_autocreate(false).expect("the object is not loaded yet");
            } else if plain {
                rename(map.initial_value_mut().expect("a struct"), name, &own);
                if method == RegistrationMethod::Map {
                    map.set_map_flags(map.map_flags() & !BPF_F_LINK).expect("the object is not loaded yet");
                }
            }
        }
        let mut object = open.load().expect("the kernel accepts the object");
        let mut map = object.maps_mut().find(|map| map.name() == name).expect("a map with the name of the algorithm");
        let link = map.attach_struct_ops().expect("the control is registered");
        Some(Self { name: own, _link: link, object })
    }

    /// Checks that the verifier has processed fewer than `limit` instructions of each program.
    pub fn assert_verified_below(&self, limit: u32) {
        let ids: Vec<_> = self.object.progs().filter_map(|program| Program::id_from_fd(program.as_fd()).ok()).collect();
        let infos: Vec<_> = ProgInfoIter::default().filter(|info| ids.contains(&info.id)).collect();
        assert!(!ids.is_empty() && infos.len() == ids.len(), "{}: {ids:?}", self.name);
        for info in infos {
            eprintln!("{}: {}: {} instructions", self.name, info.name.to_string_lossy(), info.verified_insns);
            assert!(info.verified_insns < limit, "{}: {:?}", self.name, info.name);
        }
    }

    /// The telemetry of the connection: the words of `struct section`. `None` if none has been recorded.
    fn section(&self, stream: &TcpStream) -> Option<[u32; 12]> {
        let map = self.object.maps().find(|map| map.name() == "sections").expect("a map of sections");
        let value = map.lookup(&stream.as_raw_fd().to_ne_bytes(), MapFlags::ANY).expect("a lookup")?;
        let mut words = value.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")));
        Some(std::array::from_fn(|_| words.next().expect("twelve words")))
    }
}

/// Replaces the name at the start of `struct tcp_congestion_ops` by `own`.
fn rename(value: &mut [u8], name: &str, own: &str) {
    let field = &mut value[..16];
    assert_eq!(std::str::from_utf8(field).expect("text").trim_end_matches('\0'), name, "the registered name");
    field.fill(0);
    field[..own.len()].copy_from_slice(own.as_bytes());
}

/// Arguments of [`Network::new`] for 40 Mbit/s and a short queue.
pub const SHORT: &str = "rate 40mbit burst 5kb limit 100kb";

/// Sends `bytes` bytes through a link with this queue. Returns the telemetry of the connection after each part of 16
/// KiB and at the end. `configure` is called with the connection before the first byte.
pub fn transfer_with_telemetry(
    loaded: &LoadedControl,
    queue: &str,
    bytes: usize,
    configure: impl FnOnce(&TcpStream),
) -> Vec<[u32; 12]> {
    let network = Network::new(queue);
    let (listener, address) = network.listen();
    let mut stream = network.client.inside(|| connect(address, &loaded.name));
    configure(&stream);
    let server = thread::spawn(move || {
        let (mut accepted, _) = listener.accept().expect("a connection");
        accepted.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).expect("all bytes arrive");
        accepted.write_all(&[1]).expect("the client waits");
        received
    });
    let sent: Vec<u8> = (0..bytes).map(|place| (place % 251) as u8).collect();
    let mut telemetry = Vec::new();
    for part in sent.chunks(16 << 10) {
        stream.write_all(part).expect("the connection is open");
        telemetry.extend(loaded.section(&stream));
    }
    stream.shutdown(std::net::Shutdown::Write).expect("the connection is open");
    stream.read_exact(&mut [0]).expect("the server has received all bytes");
    assert_eq!(ekiden_sys::congestion::of_socket(&stream).expect("a TCP socket"), loaded.name);
    telemetry.extend(loaded.section(&stream));
    assert!(server.join().expect("no panic") == sent, "the received bytes differ");
    telemetry
}
