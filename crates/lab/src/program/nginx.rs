//! nginx as a file server.

use std::net::IpAddr;
use std::path::Path;

use ekiden_proto::units::Rate;

use crate::program::ProgramInfo;

/// Program and package of nginx.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "nginx", package: "nginx-light", executable: "nginx", version_arguments: &["-v"] };

/// Returns a configuration that serves `root` on port 80 of the address family of `own`, with an optional limit `rate`
/// per connection, and writes all other files to `folder`.
#[must_use]
pub fn configuration(own: IpAddr, folder: &Path, root: &Path, rate: Option<Rate>) -> String {
    let (folder, root) = (folder.display(), root.display());
    // nginx creates these folders on startup, even if it stores no bodies.
    let scratch: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {folder}/nginx-{kind};\n"))
        .concat();
    let listen = if own.is_ipv6() { "[::]:80" } else { "80" };
    let limit = rate.map_or_else(String::new, |rate| format!(" limit_rate {};", rate.bytes_per_second()));
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  default_type application/octet-stream;\n{scratch}\
         \x20 server {{ listen {listen}; root {root};{limit} }}\n}}\n"
    )
}
