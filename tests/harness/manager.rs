//! A stub of a service manager such as systemd: the receiver of the messages of a service (sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, channel};

use super::{Folder, TEST_TIMEOUT};

/// A service manager. A thread reads the socket continuously, as a real manager does: the kernel queues only a few
/// datagrams (`net.unix.max_dgram_qlen`, 10 by default), and further messages would be lost.
pub struct Manager(Receiver<String>);

impl Manager {
    /// Binds the socket `notify` in this folder.
    pub fn new(folder: &Folder) -> Self {
        let socket = UnixDatagram::bind(folder.0.join("notify")).expect("a folder of the test");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok(length) = socket.recv(&mut bytes) {
                if sender.send(String::from_utf8_lossy(&bytes[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        Self(messages)
    }

    /// Waits for the next message.
    pub fn next_message(&self) -> String {
        self.0.recv_timeout(TEST_TIMEOUT).expect("a message for the manager")
    }

    /// Waits for the next message that is not a watchdog keep-alive.
    pub fn next_notification(&self) -> String {
        std::iter::repeat_with(|| self.next_message())
            .find(|message| message != "WATCHDOG=1")
            .expect("an endless iterator")
    }
}
