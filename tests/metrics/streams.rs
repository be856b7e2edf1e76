//! Streams that flow for as long as a test wants them to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;

use crate::harness::*;

/// Bytes one way, again and again, until the receiver is gone; returns how many were written.
pub fn flood(mut to: TcpStream) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let piece = pattern(16 * 1024);
        let mut sent = 0;
        while let Ok(count) = to.write(&piece) {
            sent += count as u64;
        }
        let _ = to.shutdown(Shutdown::Both);
        sent
    })
}

/// Reads all that comes, until the sender is gone.
pub fn drain(mut from: TcpStream) -> JoinHandle<()> {
    std::thread::spawn(move || while from.read(&mut [0; 65_536]).is_ok_and(|count| count > 0) {})
}
