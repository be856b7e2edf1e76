//! Apache httpd as a file server.

use std::path::Path;

use crate::program::ProgramInfo;

/// Program and package of Apache httpd.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "apache", package: "apache2", executable: "apache2", version_arguments: &["-v"] };

/// Module folder of the Debian package.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Returns a configuration that serves `root` on port 80 and writes all other files to `folder`. Apache does not serve
/// as root, so it runs as `www-data`.
#[must_use]
pub fn configuration(folder: &Path, root: &Path) -> String {
    let (folder, root) = (folder.display(), root.display());
    format!(
        "LoadModule mpm_event_module {MODULES}/mod_mpm_event.so\n\
         LoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
         ServerName lab\nListen 80\nServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile {folder}/apache.pid\n\
         User www-data\nGroup www-data\nErrorLog /dev/stderr\nLogLevel warn\n\
         StartServers 1\nThreadsPerChild 25\nDocumentRoot {root}\nEnableSendfile On\n\
         <Directory {root}>\n  Require all granted\n</Directory>\n"
    )
}
