//! The SQLite databases of the relay, and the threads that write them. No session waits for a database.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

/// The path that SQLite uses for a database in memory.
const IN_MEMORY: &str = ":memory:";

/// Time to wait for the lock of another process on a database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a database, creates it if it is missing, and executes `schema`. The size is limited to `max_pages` pages of 4
/// KiB. A new database has mode 600; SQLite gives the journal the permissions of the database.
///
/// # Errors
/// Errors of SQLite, for example if the file is not a database.
pub fn open(file: &Path, schema: &str, max_pages: u32) -> rusqlite::Result<Connection> {
    if file != Path::new(IN_MEMORY) {
        // Opening the database below fails with the same error, and reports it with the name of the file.
        let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    }
    let database = Connection::open(file)?;
    database.busy_timeout(BUSY_TIMEOUT)?;
    database.pragma_update(None, "max_page_count", max_pages)?;
    database.execute_batch(schema)?;
    Ok(database)
}

/// A thread that calls a function periodically, and once more at its end.
#[derive(Debug)]
pub struct WriterThread {
    thread: JoinHandle<()>,
    /// Dropping it stops the thread.
    stop_sender: Sender<()>,
}

impl WriterThread {
    /// Starts a thread that calls `write`, which returns the pause before the next call.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(name: &str, mut write: impl FnMut() -> Duration + Send + 'static) -> io::Result<Self> {
        let (stop_sender, stopped) = channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let pause = write();
                if stopped.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                    write();
                    return;
                }
            }
        })?;
        Ok(Self { thread, stop_sender })
    }

    /// Stops the thread after a last call of its function, and waits for its end.
    pub fn stop(self) {
        drop(self.stop_sender);
        // A thread that panicked has ended as well.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_size_is_bounded() {
        let database = open(Path::new(IN_MEMORY), "", 16).unwrap();
        let most = database.query_row("PRAGMA max_page_count", [], |row| row.get(0));
        assert_eq!(most, Ok(16));
    }

    /// SQLite makes a database that every user can read, unless the umask prevents it.
    #[test]
    fn new_database_is_accessible_to_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("ekiden-database-{}.db", std::process::id()));
        let database = open(&file, "", 16);
        let mode = std::fs::metadata(&file).map(|metadata| metadata.permissions().mode() & 0o777);
        std::fs::remove_file(&file).unwrap();
        assert_eq!((database.is_ok(), mode.unwrap()), (true, 0o600));
    }
}
