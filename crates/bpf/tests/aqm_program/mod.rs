//! Loads the tc program of `ekiden aqm`, and its input for a test run.

use ekiden_bpf::aqm::Error;
use ekiden_testing::skipped;
use libbpf_rs::{Object, ProgramType};

/// Length of `struct __sk_buff`, and the offsets of the fields that a test run sets.
const CONTEXT: usize = 192;
const INGRESS: usize = 36;
const WIRE_LEN: usize = 160;

/// Loads an object. `None`, with a printed reason, where this process may not load any program of tc. A kernel that
/// loads programs and rejects the object fails the test.
pub fn load_if_supported(load: impl FnOnce() -> Result<Object, Error>) -> Option<Object> {
    if !ProgramType::SchedCls.is_supported().unwrap_or(false) {
        skipped("the kernel loads no programs of this process");
        return None;
    }
    Some(load().unwrap_or_else(|error| panic!("{error}")))
}

/// The `struct __sk_buff` of a packet of `wire_len` bytes that this host forwards or sends itself.
pub fn context_of(wire_len: usize, forwarded: bool) -> Vec<u8> {
    let mut context = vec![0; CONTEXT];
    context[INGRESS..INGRESS + 4].copy_from_slice(&u32::from(forwarded).to_ne_bytes());
    context[WIRE_LEN..WIRE_LEN + 4].copy_from_slice(&(wire_len as u32).to_ne_bytes());
    context
}

/// An IPv4 header with ports behind it, 100 bytes in all. `fragment` is the field with the flags and the offset.
pub fn ipv4(protocol: u8, fragment: u16, ecn: u8, options: usize) -> Vec<u8> {
    let mut packet = vec![0x45 + (options / 4) as u8, ecn, 0, 100, 0, 0];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 1, 0, 1, 10, 2, 0, 2]);
    packet.extend(vec![1; options]);
    packet.extend([0x1f, 0x90, 0x00, 0x50]);
    packet.resize(100, 0);
    packet
}
