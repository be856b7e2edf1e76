//! Files for servers, and the comparison of received data with them. Every block contains its offset in the file.
//!
//! A comparison with the file takes a tenth of the CPU time of a cryptographic digest, so that the check uses little of
//! the machine under test, and it yields the offset of the first difference.

use std::fs::{File, Permissions};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use ekiden_emulator::rng::SeededRng;

const BLOCK: usize = 4096;
const PERIOD: usize = 1 << 20;

/// A file for servers. The content does not compress: random data with a period of 1 MiB, with a different offset in
/// every block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Folder of the file.
    pub folder: PathBuf,
    /// File name, from the size.
    pub name: String,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

impl Content {
    /// Creates the file in `folder`, readable by all users, unless it exists.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(folder: &Path, bytes: u64) -> anyhow::Result<Self> {
        let content = Self { folder: folder.to_owned(), name: format!("{bytes}.bin"), bytes };
        let path = content.path();
        if !path.exists() {
            let file = File::create(&path).with_context(|| path.display().to_string())?;
            write_content(BufWriter::with_capacity(PERIOD, file), bytes)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o444))?;
        }
        Ok(content)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Opens the file for a comparison with received data.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn comparison(&self) -> anyhow::Result<ContentComparison<File>> {
        Ok(ContentComparison::new(File::open(self.path())?))
    }
}

fn write_content(mut to: impl Write, bytes: u64) -> std::io::Result<()> {
    let rng = SeededRng::new(0).derive("content");
    let mut block: Vec<u8> = (0..(PERIOD / 8) as u64).flat_map(|word| rng.bits(word).to_le_bytes()).collect();
    let mut at = 0_u64;
    while at < bytes {
        for (number, part) in (0_u64..).zip(block.chunks_mut(BLOCK)) {
            part[..8].copy_from_slice(&(at + number * BLOCK as u64).to_le_bytes());
        }
        let rest = usize::try_from(bytes - at).unwrap_or(PERIOD).min(PERIOD);
        to.write_all(&block[..rest])?;
        at += rest as u64;
    }
    to.flush()
}

/// Compares received data with the expected content, chunk by chunk.
#[derive(Debug)]
pub struct ContentComparison<R> {
    expected: R,
    buffer: Vec<u8>,
    offset: u64,
}

impl<R: Read> ContentComparison<R> {
    /// Creates a comparison with the content of `expected`.
    pub const fn new(expected: R) -> Self {
        Self { expected, buffer: Vec::new(), offset: 0 }
    }

    /// Compares the next chunk.
    ///
    /// # Errors
    /// The chunk differs, or exceeds the expected content.
    pub fn compare(&mut self, arrived: &[u8]) -> anyhow::Result<()> {
        self.buffer.resize(arrived.len(), 0);
        self.expected.read_exact(&mut self.buffer).map_err(|_| anyhow::anyhow!("more data arrived than was sent"))?;
        if self.buffer != arrived {
            let same = self.buffer.iter().zip(arrived).take_while(|(a, b)| a == b).count();
            anyhow::bail!("received data differs from sent data at byte {}", self.offset + same as u64);
        }
        self.offset += arrived.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: u64) -> Vec<u8> {
        let mut all = Vec::new();
        write_content(&mut all, bytes).unwrap();
        all
    }

    #[test]
    fn all_content_blocks_are_distinct() {
        let all = content(3 * PERIOD as u64 + 5);
        assert_eq!(all.len(), 3 * PERIOD + 5);
        let blocks: std::collections::BTreeSet<&[u8]> = all.chunks(BLOCK).collect();
        assert_eq!(blocks.len(), all.len().div_ceil(BLOCK));
    }

    #[test]
    fn difference_is_reported_at_its_offset() {
        let all = content(10_000);
        let mut comparison = ContentComparison::new(all.as_slice());
        comparison.compare(&all[..5_000]).unwrap();
        let mut wrong = all[5_000..].to_vec();
        wrong[1_234] ^= 1;
        assert_eq!(
            comparison.compare(&wrong).unwrap_err().to_string(),
            "received data differs from sent data at byte 6234"
        );
    }

    #[test]
    fn excess_data_is_an_error() {
        let all = content(100);
        let mut comparison = ContentComparison::new(&all[..99]);
        assert_eq!(comparison.compare(&all).unwrap_err().to_string(), "more data arrived than was sent");
    }
}
