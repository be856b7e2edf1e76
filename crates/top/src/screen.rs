//! The terminal: taken whole, and given back as it was, whatever happens.

use std::io::{self, IsTerminal};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc;

use crate::app::App;
use crate::draw::draw;
use crate::run::TopError;

/// The terminal, for as long as this lives. A panic gives it back as well, before it is told of.
pub struct Screen(DefaultTerminal);

/// Keys that nobody has taken yet: a hand is slower than this, and a paste may wait in the terminal.
const MAX_PENDING_KEYS: usize = 64;

impl Screen {
    /// Takes it.
    ///
    /// # Errors
    /// When there is none, or none that can place text.
    pub fn open() -> Result<Self, TopError> {
        check_terminal()?;
        let taken = ratatui::try_init().map(Self);
        taken.map_err(|error| {
            // Half of it may have been done; and what cannot be undone is what the error tells of.
            let _ = ratatui::try_restore();
            TopError::Terminal(error)
        })
    }

    /// Draws, as far as it differs from what is there.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, app: &mut App) -> Result<(), TopError> {
        self.0.draw(|frame| draw(app, frame.area(), frame.buffer_mut())).map_err(TopError::Terminal)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing any more.
        let _ = ratatui::try_restore();
    }
}

/// Whether text can be placed: both ends are a terminal (isatty(3)), and it is not a dumb one (term(7)).
fn check_terminal() -> Result<(), TopError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    match std::env::var("TERM") {
        Ok(term) if !term.is_empty() && term != "dumb" => Ok(()),
        other => Err(TopError::DumbTerminal(other.unwrap_or_default())),
    }
}

/// What comes from the keyboard, and new sizes. The channel ends when the terminal is gone.
///
/// Reading waits for ever and cannot be called off, so it has a thread, which ends with the process.
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

/// How large one screen is: as the terminal, or as `DROP_COLUMNS` and `LINES` say, or 80 by 24.
#[must_use]
pub fn screen_size() -> (u16, u16) {
    let told = |name, otherwise| {
        let told = std::env::var(name).ok().and_then(|value| value.parse().ok());
        told.filter(|size| (1..=1000).contains(size)).unwrap_or(otherwise)
    };
    let terminal = io::stdout().is_terminal().then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    terminal
        .filter(|(width, height)| *width > 0 && *height > 0)
        .unwrap_or_else(|| (told("COLUMNS", 80), told("LINES", 24)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Tells the test from the process that it starts.
    const INSIDE: &str = "EKIDEN_TOP_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_told_of() {
        if std::env::var_os(INSIDE).is_some() {
            let _screen = Screen::open().expect("a terminal");
            panic!("on purpose");
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal of our own");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal of our own");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("text");
        let terminal = || File::options().read(true).write(true).open(&name).expect("a terminal of our own");
        let ours = terminal();
        let before = tcgetattr(&ours).expect("its modes").local_modes;
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "screen::tests::a_panic_gives_the_terminal_back_before_it_is_told_of", "--nocapture"])
            .env(INSIDE, "1")
            .env("TERM", "xterm")
            .stdin(Stdio::from(terminal()))
            .stdout(Stdio::from(terminal()))
            .stderr(Stdio::from(terminal()))
            .spawn()
            .expect("this test runs");
        assert!(!child.wait().expect("it ends").success(), "it panics");
        let after = tcgetattr(&ours).expect("its modes").local_modes;
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO) && before == after, "{before:?} {after:?}");
        drop(ours);
        let (mut said, mut master) = (Vec::new(), File::from(master));
        // Reading ends with EIO when nobody has the other end any more.
        let _ = master.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("no {text:?} in {said:?}"));
        assert!(place("\x1b[?1049h") < place("\x1b[?1049l"), "{said:?}");
        assert!(place("\x1b[?1049l") < place("on purpose"), "what went wrong is not lost: {said:?}");
    }
}
