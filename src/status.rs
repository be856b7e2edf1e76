//! `ekiden status`: shows sessions and pipes of a running relay. [`AdminArgs`] finds its admin address.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use ekiden_relay::config::{AdminBind, AdminConfig, AdminToken, read};
use ekiden_relay::{admin, status};

/// Show the sessions and pipes of a running relay
#[derive(Args)]
pub struct Status {
    /// Print the complete answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    relay: AdminArgs,
}

/// The admin address of a running relay.
#[derive(Args)]
pub struct AdminArgs {
    /// Admin address of the relay: 127.0.0.1:PORT or unix:PATH; default: the default of `ekiden run`
    #[arg(long, value_name = "ADDR", env = "EKIDEN_ADMIN")]
    admin: Option<String>,
    /// Configuration file of the relay, to read the admin address from
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
    /// File with the admin token, if the relay requires one and -c does not name it
    #[arg(long, value_name = "FILE", env = "EKIDEN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

const PORT_ZERO: &str = "[admin] bind has port 0, so the port is only in the relay's log: look there for \"listening \
    listener=admin\", and pass that address with --admin";

impl Status {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let address = self.relay.admin_address()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime
            .block_on(admin::fetch(&address, "/api/sessions"))
            .with_context(|| format!("no relay answers at {address} (is `ekiden run` up?)"))?;
        if self.json {
            print!("{answer}");
        } else {
            print!("{}", status::table(&answer)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl AdminArgs {
    /// Returns the admin address from the command line, else from the configuration, else the default.
    pub fn admin_address(&self) -> anyhow::Result<AdminConfig> {
        let written = match (&self.admin, &self.config) {
            (Some(text), _) => read::parse_admin_address(text)
                .map_err(|expected| anyhow::anyhow!("--admin {text}: expected {expected}"))?,
            (None, Some(file)) => read::load(Some(file), &read::Flags::default())?.admin,
            (None, None) => read::default_admin(),
        };
        ensure!(!matches!(written.bind, AdminBind::Tcp(address) if address.port() == 0), PORT_ZERO);
        let is_default = self.admin.is_none() && written == read::default_admin();
        let mut admin = if is_default { default_admin(written, Path::new(SERVICE_SOCKET)) } else { written };
        if let Some(file) = &self.token_file {
            admin.token = Some(read_token(file).with_context(|| format!("--token-file {}", file.display()))?);
        }
        Ok(admin)
    }
}

fn read_token(file: &Path) -> anyhow::Result<AdminToken> {
    let text = std::fs::read_to_string(file)?;
    AdminToken::parse(&text).map_err(|expected| anyhow::anyhow!("expected {expected}"))
}

/// The admin socket of a relay started by systemd/ekiden.service.
const SERVICE_SOCKET: &str = "/run/ekiden/ekiden.sock";

/// Returns the socket of a relay that this user started by hand, or that of the service if only its socket exists.
fn default_admin(own: AdminConfig, service: &Path) -> AdminConfig {
    let is_there = |admin: &AdminConfig| matches!(&admin.bind, AdminBind::Unix(path) if path.exists());
    if !is_there(&own) && service.exists() { AdminBind::Unix(service.to_owned()).into() } else { own }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;

    #[test]
    fn the_service_is_found_where_nothing_else_is() {
        let folder = std::env::temp_dir().join(format!("ekiden-where-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let at = |name| AdminConfig::from(AdminBind::Unix(folder.join(name)));
        let (own, service) = (at("own"), folder.join("service"));
        let mut found = vec![default_admin(own.clone(), &service)];
        std::fs::write(&service, "").unwrap();
        found.push(default_admin(own.clone(), &service));
        std::fs::write(folder.join("own"), "").unwrap();
        found.push(default_admin(own.clone(), &service));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [own.clone(), at("service"), own]);
    }
}
