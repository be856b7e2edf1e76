//! `ekiden keygen`: who is this relay?

use std::process::ExitCode;

use clap::Args;
use ekiden_proto::key::PrivateKey;

/// Prints a new private key and its public key. The output is a key file, which nobody else may read:
///
///   (umask 077; ekiden keygen > /etc/ekiden/key)
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Keygen {}

impl Keygen {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let key = PrivateKey::generate();
        println!("private-key: {}", key.text().as_str());
        println!("public-key: {}", key.public());
        Ok(ExitCode::SUCCESS)
    }
}
