//! x
use clap::Args;
#[derive(Args)]
pub struct Doctor {}
impl Doctor {
    pub fn execute(self) -> anyhow::Result<std::process::ExitCode> {
        Ok(std::process::ExitCode::SUCCESS)
    }
}
