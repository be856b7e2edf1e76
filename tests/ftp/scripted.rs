//! An FTP server with scripted faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::harness::*;

/// The behaviour of the scripted server; [`WELL_BEHAVED`] has no fault.
#[derive(Clone, Copy)]
pub struct Script {
    pub supports_epsv: bool,
    pub size: Option<usize>,
    pub sends: &'static [u8],
    pub ends_with: &'static str,
    pub passive_port: Option<u16>,
    /// The point at which the server stops responding, after it has sent all data; `None`: it sends the final reply.
    pub stalls: Option<Stall>,
}

/// A point of a data transfer after the last byte of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// The data connection stays open.
    BeforeEnd,
    /// The data connection is closed, and no reply follows.
    BeforeReply,
}

pub const WELL_BEHAVED: Script = Script {
    supports_epsv: true,
    size: Some(8),
    sends: b"contents",
    ends_with: "226 Done.",
    passive_port: None,
    stalls: None,
};

/// Starts a server with this `script`. Returns the server's address and a log of the received commands. The log also
/// has `(end of data)` when the client has closed the data connection at [`Stall::BeforeReply`], and `(gone)` at the
/// end of the control connection.
pub fn scripted(script: Script) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let commands = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&commands);
    let address = serve(move |stream| {
        run_script(script, stream, &record);
        record.lock().unwrap().push("(gone)".to_owned());
    });
    (address, commands)
}

fn run_script(script: Script, mut control: TcpStream, commands: &Mutex<Vec<String>>) {
    let lines = BufReader::new(control.try_clone().unwrap()).split(b'\n');
    let mut data: Option<(TcpListener, Option<TcpListener>)> = None;
    let _ = write!(control, "220-Two\r\n220 lines.\r\n");
    for line in lines.map_while(Result::ok) {
        // File names have no defined character set, so each byte becomes one character.
        let line: String = line.trim_ascii_end().iter().map(|byte| char::from(*byte)).collect();
        commands.lock().unwrap().push(line.clone());
        let mut passive = || {
            let (listener, address) = server();
            // A client that connects to another address of `localhost` reaches this listener and gets no data.
            let other_listener = TcpListener::bind(("::1", address.port())).ok();
            data = Some((listener, other_listener));
            script.passive_port.unwrap_or(address.port())
        };
        let reply = match line.split(' ').next().unwrap() {
            "USER" => "331 Password?".to_owned(),
            "PASS" => "230 Hello.".to_owned(),
            "TYPE" => "200 As you like.".to_owned(),
            "SIZE" => script.size.map_or("502 What?".to_owned(), |size| format!("213 {size}")),
            "MDTM" => "213 20240229123456".to_owned(),
            "EPSV" if script.supports_epsv => format!("229 Here (|||{}|)", passive()),
            // The reply has the address of another host: the client must use only the port.
            "PASV" => {
                let [high, low] = passive().to_be_bytes();
                format!("227 Here (192,0,2,1,{high},{low}).")
            }
            "CWD" => "250 Welcome.".to_owned(),
            "RETR" | "LIST" => {
                let _ = write!(control, "150 Coming.\r\n");
                let mut data = accept(&data.as_ref().expect("a passive reply").0);
                let _ = data.write_all(script.sends);
                if script.stalls == Some(Stall::BeforeReply) {
                    let _ = data.shutdown(Shutdown::Write);
                    let _ = data.read(&mut [0]);
                    commands.lock().unwrap().push("(end of data)".to_owned());
                    let _ = control.read(&mut [0]);
                    return;
                }
                if script.stalls == Some(Stall::BeforeEnd) {
                    let _ = data.read(&mut [0]);
                    return;
                }
                script.ends_with.to_owned()
            }
            "STOR" => {
                // Resets the data connection after the first bytes, as a server with a full disk does.
                let _ = write!(control, "150 Go ahead.\r\n");
                let mut data = accept(&data.as_ref().expect("a passive reply").0);
                let _ = data.read(&mut [0; 1000]);
                reset(data);
                script.ends_with.to_owned()
            }
            _ => "500 What?".to_owned(),
        };
        if write!(control, "{reply}\r\n").is_err() {
            return;
        }
    }
}
