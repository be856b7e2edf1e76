//! vsftpd, as a server of files.

use std::path::Path;

use crate::program::{ProgramInfo, is_rootless};

/// What to install for it.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "vsftpd", package: "vsftpd", executable: "vsftpd", version_arguments: &["-v"] };

/// Serves `root` to anonymous clients on port 21.
#[must_use]
pub fn configuration(root: &Path) -> String {
    // It becomes the user `ftp` and sees `root` only, unless there is no other user to become.
    let stays = if is_rootless() { "YES" } else { "NO" };
    // Namespaces within a namespace cost it a good part of a second for each client.
    format!(
        "listen=YES\nlisten_ipv6=NO\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nlocal_enable=NO\n\
         write_enable=NO\nanon_root={root}\nsecure_chroot_dir={root}\npasv_enable=YES\nuse_sendfile=YES\n\
         xferlog_enable=NO\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nrun_as_launching_user={stays}\n",
        root = root.display()
    )
}
