//! `ekiden keygen`: who is this relay?

use std::process::ExitCode;

use clap::Args;
use ekiden_proto::key::PrivateKey;

/// Makes a key; its output is a key file.
#[derive(Args)]
pub struct Keygen {}

impl Keygen {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let key = PrivateKey::generate();
        println!("private-key: {}", key.to_base64().as_str());
        println!("public-key: {}", key.public_key());
        Ok(ExitCode::SUCCESS)
    }
}
