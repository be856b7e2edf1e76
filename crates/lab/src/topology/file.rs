//! The lab file: hosts, links and events as a person writes them.

/// The keys.
pub const LAB_KEYS: &[&str] = &["name", "seed", "mode", "backend", "host", "link", "event"];

/// Reads.
///
/// # Errors
/// All.
pub fn parse(_table: &toml::Table) -> Result<crate::topology::Lab, Vec<String>> {
    Err(vec!["not yet".into()])
}
