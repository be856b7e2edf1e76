//! `ekiden keygen`: generates the key pair that identifies a relay.

use std::process::ExitCode;

use clap::Args;
use ekiden_proto::key::PrivateKey;

/// Generate a key pair. The output is a valid key file
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
