//! The lab file: hosts, links and events as a person writes them.
