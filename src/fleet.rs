//! `ekiden fleet`: issues the certificates of a fleet and lists its relays.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use ekiden_proto::addr::Target;
use ekiden_proto::fleet::{Certificate, CertificateRequest, SignedCertificate, SigningKey};
use ekiden_proto::key::PrivateKey;
use ekiden_relay::{admin, status};

use crate::admin_address::AdminArgs;

const DAY: u64 = 24 * 60 * 60;

/// Manage a fleet of relays: keys, certificates, members
#[derive(Args)]
pub struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Subcommand)]
enum FleetCommand {
    /// Generate a signing key for a fleet and print it; to save it: (umask 077; ekiden fleet keygen > FILE)
    Keygen,
    /// Print a relay's certificate request, which contains its public keys
    Request(RequestArgs),
    /// Sign a relay's certificate request and print the certificate
    Sign(SignArgs),
    /// List the relays of the fleet that a running relay knows
    List(ListRelays),
}

#[derive(Args)]
struct RequestArgs {
    /// File with the relay's private key, made by `ekiden keygen`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(Args)]
struct SignArgs {
    /// File with the fleet's private key, made by `ekiden fleet keygen`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Name of the relay in the fleet
    #[arg(long)]
    name: String,
    /// Address at which other relays reach the relay's section listener
    #[arg(long, value_name = "HOST:PORT")]
    address: Target,
    /// Validity of the certificate in days from now
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
    /// The output of `ekiden fleet request` on the relay
    request: CertificateRequest,
}

#[derive(Args)]
struct ListRelays {
    /// Print the complete answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    relay: AdminArgs,
}

impl FleetArgs {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.command {
            FleetCommand::Keygen => print!("{}", SigningKey::generate().to_key_file().as_str()),
            FleetCommand::Request(asks) => println!("{}", asks.create_request()?),
            FleetCommand::Sign(sign) => print!("{}", sign.create_certificate()?),
            FleetCommand::List(list) => list.show()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RequestArgs {
    fn create_request(self) -> anyhow::Result<CertificateRequest> {
        let key = PrivateKey::from_file(&read_private_file(&self.key)?);
        key.map(|key| CertificateRequest::for_relay(&key))
            .with_context(|| format!("{}: expected a relay's key", self.key.display()))
    }
}

impl SignArgs {
    fn create_certificate(self) -> anyhow::Result<SignedCertificate> {
        let Self { key, name, address, days, request } = self;
        let fleet = SigningKey::from_file(&read_private_file(&key)?).with_context(|| format!("{}", key.display()))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let CertificateRequest { key, verify_key: signing } = request;
        let (not_before, not_after) = (now, now + days * DAY);
        let certificate =
            Certificate { fleet: fleet.verify_key(), name, address, key, verify_key: signing, not_before, not_after };
        let issued = certificate.sign(&fleet);
        // `sign` does not check the name: parsing the certificate again does.
        SignedCertificate::parse(&issued.to_string())
            .context("--name: expected 1 to 64 letters, digits, '.', '_' or '-' (and HOST:PORT as --address)")
    }
}

impl ListRelays {
    fn show(self) -> anyhow::Result<()> {
        let address = self.relay.admin_address()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime
            .block_on(admin::fetch(&address, "/api/fleet"))
            .with_context(|| format!("no relay answers at {address} (is `ekiden run` up?)"))?;
        if self.json {
            print!("{answer}");
        } else {
            print!(
                "{}",
                status::fleet::table(&answer)
                    .context("this relay is not in a fleet: its configuration has no [fleet]")?
            );
        }
        Ok(())
    }
}

/// Reads a file with a private key, at most 4 KiB. Refuses a file that group or others can access.
fn read_private_file(path: &Path) -> anyhow::Result<String> {
    const LONGEST: u64 = 4 << 10;
    let file = std::fs::File::open(path).with_context(|| format!("{}", path.display()))?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        bail!("{path}: others can read this private key: chmod 600 {path}", path = path.display());
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).with_context(|| format!("{}", path.display()))?;
    Ok(text)
}
