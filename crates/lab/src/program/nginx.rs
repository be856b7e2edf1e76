//! nginx, as a server of files.

use std::path::Path;

use crate::program::About;

/// What to install for it.
pub const ABOUT: About = About { name: "nginx", package: "nginx-light", executable: "nginx", version: &["-v"] };

/// Serves `root` on port 80; everything it writes goes to `folder`.
#[must_use]
pub fn configuration(folder: &Path, root: &Path) -> String {
    let (folder, root) = (folder.display(), root.display());
    // Bodies are stored nowhere, but it makes these folders when it starts.
    let scratch: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {folder}/nginx-{kind};\n"))
        .concat();
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  default_type application/octet-stream;\n{scratch}\
         \x20 server {{ listen 80; root {root}; }}\n}}\n"
    )
}
