//! The terminal: switched to the alternate screen and raw mode, and restored on drop and on panic.

use std::io::{self, IsTerminal};

use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::{Rect, Size};
use tokio::sync::mpsc;

use crate::TopError;

/// Owns the terminal and restores it on drop. A panic restores the terminal before its message is printed.
pub struct Screen(DefaultTerminal);

/// Capacity of the key channel. Typing is slower than the reader; the rest of a paste waits in the terminal.
const MAX_PENDING_KEYS: usize = 64;

impl Screen {
    /// Switches the terminal to the alternate screen and raw mode.
    ///
    /// # Errors
    /// Fails if standard input or output is no terminal, or if the terminal cannot position text.
    pub fn open() -> Result<Self, TopError> {
        check_terminal()?;
        ratatui::try_init().map(Self).map_err(|error| {
            // A part of the setup may be done. A failure to undo it has the cause that the error reports.
            let _ = ratatui::try_restore();
            TopError::Terminal(error)
        })
    }

    /// Draws a frame with `draw`, and writes only the cells that differ from the last frame.
    ///
    /// # Errors
    /// Fails if writing to the terminal fails.
    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> Result<(), TopError> {
        self.0.draw(|frame| draw(frame.area(), frame.buffer_mut())).map_err(TopError::Terminal)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error means that the terminal is gone, and there is nothing to restore.
        let _ = ratatui::try_restore();
    }
}

/// Checks that standard input and output are terminals (isatty(3)) that can position text: TERM is not `dumb`
/// (term(7)).
fn check_terminal() -> Result<(), TopError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    match std::env::var("TERM") {
        Ok(term) if !term.is_empty() && term != "dumb" => Ok(()),
        other => Err(TopError::DumbTerminal(other.unwrap_or_default())),
    }
}

/// Starts to read keyboard and resize events. The channel closes when reading from the terminal fails.
///
/// `event::read` blocks and cannot be cancelled, so it runs in a thread that ends with the process.
pub fn key_events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(MAX_PENDING_KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the width and height of the terminal in characters, else those of the environment variables `COLUMNS` and
/// `LINES`, else 80 by 24.
#[must_use]
pub fn screen_size() -> Size {
    let from_env = |name, default| {
        let size = std::env::var(name).ok().and_then(|value| value.parse().ok());
        size.filter(|size| (1..=1000).contains(size)).unwrap_or(default)
    };
    let terminal = io::stdout().is_terminal().then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    terminal
        .filter(|(width, height)| *width > 0 && *height > 0)
        .map_or_else(|| Size::new(from_env("COLUMNS", 80), from_env("LINES", 24)), Size::from)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Set in the environment of the child process that the test starts.
    const INSIDE: &str = "EKIDEN_TOP_PANICS";

    #[test]
    fn panic_restores_the_terminal_before_its_message() {
        if std::env::var_os(INSIDE).is_some() {
            let _screen = Screen::open().expect("a terminal");
            panic!("on purpose");
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal of the test");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal of the test");
        let name = ptsname(&master, Vec::new()).expect("the name of the terminal").into_string().expect("text");
        let terminal = || File::options().read(true).write(true).open(&name).expect("a terminal of the test");
        let ours = terminal();
        let before = tcgetattr(&ours).expect("the modes of the terminal").local_modes;
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "screen::tests::panic_restores_the_terminal_before_its_message", "--nocapture"])
            .env(INSIDE, "1")
            .env("TERM", "xterm")
            .stdin(Stdio::from(terminal()))
            .stdout(Stdio::from(terminal()))
            .stderr(Stdio::from(terminal()))
            .spawn()
            .expect("this test runs");
        // The child blocks while the terminal's buffer is full. Reading ends with EIO after the last descriptor of the
        // other side is closed (pty(7)).
        let reader = std::thread::spawn(move || {
            let mut output = Vec::new();
            let _ = File::from(master).read_to_end(&mut output);
            output
        });
        assert!(!child.wait().expect("wait for the child").success(), "the child must panic");
        let after = tcgetattr(&ours).expect("the modes of the terminal").local_modes;
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO) && before == after, "{before:?} {after:?}");
        drop(ours);
        let output = reader.join().expect("the output of the child");
        let output = String::from_utf8_lossy(&output);
        let place = |text: &str| output.find(text).unwrap_or_else(|| panic!("no {text:?} in {output:?}"));
        assert!(place("\x1b[?1049h") < place("\x1b[?1049l"), "{output:?}");
        assert!(
            place("\x1b[?1049l") < place("on purpose"),
            "the panic message must be outside of the alternate screen: {output:?}"
        );
    }
}
