//! A pseudo-terminal (pty(7)) with a program, and the contents of its screen.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::harness::{KillOnDrop, TEST_TIMEOUT};

/// A program on a terminal, which is killed when the value is dropped.
pub struct Terminal {
    /// The side of the keyboard and the screen (the master).
    master: File,
    /// The program's side, kept open so that its modes can be read after the program has ended.
    program_side: File,
    child: KillOnDrop,
    written: Receiver<Vec<u8>>,
    pub screen: Screen,
}

impl Terminal {
    /// Starts `command` on a terminal of this size, which becomes its controlling terminal: the kernel sends SIGWINCH
    /// only to processes of a controlling terminal.
    pub fn start(command: &Command, columns: u16, lines: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("the name of the terminal").into_string().expect("text");
        let open = || File::options().read(true).write(true).open(&name).expect("the terminal opens");
        let program_side = open();
        let mut on_terminal = Command::new("setsid");
        on_terminal.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => on_terminal.env(name, value),
                None => on_terminal.env_remove(name),
            };
        }
        let master = File::from(master);
        Self {
            screen: Screen::new(columns, lines),
            written: read(master.try_clone().expect("a descriptor")),
            child: {
                resize(&master, columns, lines);
                let ends = [open(), open(), open()].map(Stdio::from);
                let [stdin, stdout, stderr] = ends;
                KillOnDrop(on_terminal.stdin(stdin).stdout(stdout).stderr(stderr).spawn().expect("setsid runs"))
            },
            master,
            program_side,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends `keys` as keyboard input.
    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Changes the size of the window.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.screen.resize(columns, lines);
        resize(&self.master, columns, lines);
    }

    /// Waits until `wanted` accepts the screen.
    pub fn wait_until(&mut self, label: &str, wanted: impl Fn(&Screen) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !wanted(&self.screen) {
            match self.written.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.screen.write(&bytes),
                Err(error) => panic!("{error} while waiting for {label}; on the screen:\n{}", self.screen.text()),
            }
        }
    }

    /// Waits until the program ends by itself. Returns the exit code.
    pub fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            // The program blocks until its output is read.
            if let Ok(bytes) = self.written.recv_timeout(Duration::from_millis(5)) {
                self.screen.write(&bytes);
            }
            if let Some(status) = self.child.0.try_wait().expect("waitpid succeeds") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the program does not end; on the screen:\n{}", self.screen.text());
        }
    }

    /// Whether the terminal edits lines and echoes keys, as a shell expects.
    pub fn is_restored(&self) -> bool {
        let modes = tcgetattr(&self.program_side).expect("the modes of a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

fn resize(terminal: &File, columns: u16, lines: u16) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal has a size");
}

/// Forwards the program's output to a channel. The thread ends when no process has the terminal open.
fn read(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(count @ 1..) = master.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The screen of a terminal, which executes only the control sequences that `ekiden top` uses (ECMA-48, xterm).
pub struct Screen {
    cells: Vec<Vec<char>>,
    column: usize,
    line: usize,
    /// The incomplete part of a control sequence or a character.
    pending: Vec<u8>,
    /// Whether the alternate screen is active, which preserves the normal screen.
    pub alternate: bool,
    pub cursor_shown: bool,
    pub coloured: bool,
}

impl Screen {
    fn new(columns: u16, lines: u16) -> Self {
        let cells = vec![vec![' '; columns.into()]; lines.into()];
        let (column, line, pending) = (0, 0, Vec::new());
        Self { cells, column, line, pending, alternate: false, cursor_shown: true, coloured: false }
    }

    fn resize(&mut self, columns: u16, lines: u16) {
        self.cells.resize(lines.into(), Vec::new());
        self.cells.iter_mut().for_each(|line| line.resize(columns.into(), ' '));
    }

    pub fn text(&self) -> String {
        self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }

    pub fn line(&self, at: usize) -> String {
        self.cells[at].iter().collect::<String>().trim_end().to_owned()
    }

    pub fn has(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.pending.push(*byte);
            if self.try_execute() {
                self.pending.clear();
            }
        }
    }

    /// Executes the sequence, if it is complete.
    fn try_execute(&mut self) -> bool {
        match &self.pending[..] {
            [0x1b] | [0x1b, b'['] => false,
            [0x1b, b'[', parameters @ .., last] => {
                if !(0x40..=0x7e).contains(last) {
                    return false;
                }
                let parameters = String::from_utf8_lossy(parameters).into_owned();
                self.control(*last, &parameters);
                true
            }
            [0x1b, ..] => panic!("an unknown sequence: {:?}", self.pending),
            [b'\r'] => {
                self.column = 0;
                true
            }
            [b'\n'] => {
                self.line += 1;
                true
            }
            bytes => match std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()) {
                Some(letter) => {
                    self.put(letter);
                    true
                }
                None => false,
            },
        }
    }

    fn put(&mut self, letter: char) {
        // After the window has shrunk, the line may not exist: the next screen is drawn for the new size.
        if let Some(cell) = self.cells.get_mut(self.line).and_then(|line| line.get_mut(self.column)) {
            *cell = letter;
        }
        self.column += 1;
    }

    fn control(&mut self, last: u8, parameters: &str) {
        match (last, parameters) {
            (b'H', _) => {
                let mut place = parameters.split(';').map(|number| number.parse::<usize>().unwrap_or(1) - 1);
                (self.line, self.column) = (place.next().unwrap_or(0), place.next().unwrap_or(0));
            }
            (b'J', "2") => self.cells.iter_mut().for_each(|line| line.fill(' ')),
            (b'h' | b'l', "?1049") => self.alternate = last == b'h',
            (b'h' | b'l', "?25") => self.cursor_shown = last == b'h',
            (b'm', _) => self.coloured |= parameters.contains("38;"),
            other => panic!("an unknown control sequence: {other:?}"),
        }
    }
}
