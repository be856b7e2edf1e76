//! The emulator as a part of the virtual kernel: the functions that `crates/lab/kernel/ekiden/emulator.c` calls.
//!
//! The kernel hands over each frame that arrives at an interface, with a `virtio_net_hdr` in front, and calls
//! [`ekiden_emulation_advance`] at the times that it returns. So no process runs and no system call is made for a packet
//! on a link. The kernel has one processor, and holds a lock during each call.
#![allow(clippy::missing_safety_doc, reason = "each function has its contract in emulator.h")]

use std::ffi::{c_int, c_void};
use std::io;

use ekiden_emulator::direction::FrameSender;
use ekiden_emulator::emulation::Emulation;
use ekiden_emulator::kernel_protocol::KernelRequest;
use ekiden_sys::packet::{OutgoingFrame, ReceivedFrame};

mod allocator;

/// The length of an Ethernet header, in bytes.
const ETHERNET_HEADER: usize = 14;
/// The version of the emulator, which `crates/lab/build.rs` sets; empty in other builds of this package.
const VERSION: Option<&str> = option_env!("EKIDEN_EMULATOR_VERSION");
/// The time of an event that never happens.
const NEVER: u64 = u64::MAX;

unsafe extern "C" {
    /// Attaches port `port` to the interface `name` of the calling process. Returns 0 or a negative error number.
    fn ekiden_port_open(device: *mut c_void, port: usize, name: *const u8, length: usize) -> c_int;
    /// Sends the frame `head` and `body` at port `port`. Returns 0 or a negative error number.
    fn ekiden_port_send(
        device: *mut c_void,
        port: usize,
        head: *const u8,
        head_length: usize,
        body: *const u8,
        body_length: usize,
    ) -> c_int;
}

/// The state behind one open file of the device.
pub struct KernelEmulator {
    /// The structure of the kernel that owns this one.
    device: *mut c_void,
    running: Option<RunningEmulation>,
    /// The answer to the last request; before the first one, the version of the emulator.
    answer: Vec<u8>,
}

struct RunningEmulation {
    emulation: Emulation,
    ports: Vec<KernelPort>,
    buffer: Box<[u8]>,
}

struct KernelPort {
    device: *mut c_void,
    index: usize,
}

impl FrameSender for KernelPort {
    fn send(&mut self, frames: &[OutgoingFrame<'_>]) -> io::Result<usize> {
        for (sent, frame) in frames.iter().enumerate() {
            let (head, body) = (frame.head, frame.body);
            // SAFETY: the slices outlive the call, and the kernel copies them.
            let result = unsafe {
                ekiden_port_send(self.device, self.index, head.as_ptr(), head.len(), body.as_ptr(), body.len())
            };
            if result < 0 {
                return if sent > 0 { Ok(sent) } else { Err(io::Error::from_raw_os_error(-result)) };
            }
        }
        Ok(frames.len())
    }
}

impl KernelEmulator {
    fn execute(&mut self, request: KernelRequest) -> Result<(), c_int> {
        self.answer = match (request, &mut self.running) {
            (KernelRequest::Start(request), None) => {
                let (links, options, ports) = request.into_parts();
                for (index, name) in ports.iter().enumerate() {
                    // SAFETY: the name outlives the call.
                    let result = unsafe { ekiden_port_open(self.device, index, name.as_ptr(), name.len()) };
                    if result < 0 {
                        return Err(-result);
                    }
                }
                let mut emulation = Emulation::new(&links, &options);
                let buffer = emulation.take_buffer();
                let ports = (0..ports.len()).map(|index| KernelPort { device: self.device, index }).collect();
                self.running = Some(RunningEmulation { emulation, ports, buffer });
                Vec::new()
            }
            (KernelRequest::Report, Some(running)) => to_json(&running.emulation.reports())?,
            (KernelRequest::Capture, Some(running)) => to_json(&running.emulation.take_capture_chunk())?,
            (KernelRequest::Records { link, from }, Some(running)) => {
                to_json(&running.emulation.records(&link, &from))?
            }
            _ => return Err(libc::EINVAL),
        };
        Ok(())
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<Vec<u8>, c_int> {
    serde_json::to_vec(value).map_err(|_| libc::EINVAL)
}

/// Creates the state of an open file. `device` is passed to the functions of the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ekiden_emulation_new(device: *mut c_void) -> *mut KernelEmulator {
    Box::into_raw(Box::new(KernelEmulator { device, running: None, answer: VERSION.unwrap_or_default().into() }))
}

/// Frees the state. `emulator` is from [`ekiden_emulation_new`], and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ekiden_emulation_free(emulator: *mut KernelEmulator) {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(emulator) });
}

/// Executes a [`KernelRequest`] in JSON. Returns 0 or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ekiden_emulation_request(
    emulator: *mut KernelEmulator,
    request: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the caller's contract: a valid emulator that no other call uses, and `length` bytes at `request`.
    let (emulator, request) = unsafe { (&mut *emulator, std::slice::from_raw_parts(request, length)) };
    let Ok(request) = serde_json::from_slice(request) else { return -libc::EINVAL };
    emulator.execute(request).map_or_else(|error| -error, |()| 0)
}

/// Returns the answer to the last request, or the version, and its length in `length`. It is valid until the next request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ekiden_emulation_answer(emulator: *const KernelEmulator, length: *mut usize) -> *const u8 {
    // SAFETY: the caller's contract: a valid emulator, and room for the length.
    let answer = unsafe { &(*emulator).answer };
    // SAFETY: as above.
    unsafe { *length = answer.len() };
    answer.as_ptr()
}

/// Returns the buffer for the next frame, and its size in `size`; null before the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ekiden_emulation_buffer(emulator: *mut KernelEmulator, size: *mut usize) -> *mut u8 {
    // SAFETY: the caller's contract: a valid emulator that no other call uses.
    let Some(running) = (unsafe { &mut (*emulator).running }) else { return std::ptr::null_mut() };
    // SAFETY: the caller's contract: room for the size.
    unsafe { *size = running.buffer.len() };
    running.buffer.as_mut_ptr()
}

/// Takes the frame of `length` bytes in the buffer, which arrived at port `port` at the time `now`. A length above the
/// size of the buffer means that the frame did not fit, and is counted as lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ekiden_emulation_receive(emulator: *mut KernelEmulator, port: usize, length: usize, now: u64) {
    // SAFETY: the caller's contract: a valid emulator that no other call uses.
    let Some(running) = (unsafe { &mut (*emulator).running }) else { return };
    let received = ReceivedFrame { length, timestamp: None };
    running.emulation.on_frame(port, &mut running.buffer, received, now, ETHERNET_HEADER);
}

/// Applies everything that is due at `now`, and returns the time of the next event, or `UINT64_MAX`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ekiden_emulation_advance(emulator: *mut KernelEmulator, now: u64) -> u64 {
    // SAFETY: the caller's contract: a valid emulator that no other call uses.
    let Some(running) = (unsafe { &mut (*emulator).running }) else { return NEVER };
    running.emulation.send_due(now, |_| now, &mut running.ports);
    running.emulation.next_deadline().map_or(NEVER, |(at, _)| at)
}
