//! Apache httpd, as a server of files.

use std::path::Path;

use crate::program::ProgramInfo;

/// What to install for it.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "apache", package: "apache2", executable: "apache2", version_arguments: &["-v"] };

/// Where Debian keeps its modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// Serves `root` on port 80; everything it writes goes to `folder`. It refuses to work as root: `www-data` works for it.
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
