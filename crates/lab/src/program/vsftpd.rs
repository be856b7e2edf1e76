//! vsftpd as a file server.

use std::path::Path;

use crate::program::{ProgramInfo, is_rootless};

/// Program and package of vsftpd.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "vsftpd", package: "vsftpd", executable: "vsftpd", version_arguments: &["-v"] };

/// Returns a configuration that serves `root` to anonymous clients on port 21.
#[must_use]
pub fn configuration(root: &Path) -> String {
    // vsftpd changes to the user `ftp` and chroots to `root`, unless no other user is mapped.
    let keeps_user = if is_rootless() { "YES" } else { "NO" };
    // Isolation is off, because nested namespaces take vsftpd a significant part of a second per client.
    format!(
        "listen=YES\nlisten_ipv6=NO\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nlocal_enable=NO\n\
         write_enable=NO\nanon_root={root}\nsecure_chroot_dir={root}\npasv_enable=YES\nuse_sendfile=YES\n\
         xferlog_enable=NO\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nrun_as_launching_user={keeps_user}\n",
        root = root.display()
    )
}
