//! curl and wget with nginx and Apache through relays, and the test networks without a relay.

use std::net::SocketAddr;
use std::process::Command;

use super::MEBI;
use super::harness::*;
use super::network::*;
use super::programs::{Daemon, client, is_any_missing, program, run_successfully};
use super::relays::*;
use super::streams::*;

/// A folder with the file `www/file` of 20 MiB.
fn folder() -> Folder {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("www")).expect("a folder of the test");
    folder.write("www/file", pattern(20 * MEBI));
    folder
}

fn nginx(folder: &Folder) -> Command {
    let place = folder.0.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off; master_process off; user root; pid nginx.pid; error_log error.log;\nevents {{ }}\n\
         http {{ {temporary} log_format from '$remote_addr'; access_log {place}/access.log from;\n\
         server {{ listen 80; listen [::]:80; root {place}/www; }} }}\n"
    );
    let path = folder.write("nginx.conf", text);
    let mut command = program("nginx", folder);
    command.args(["-e", "error.log", "-p"]).arg(&folder.0).arg("-c").arg(path);
    command
}

fn apache(folder: &Folder) -> Command {
    let place = folder.0.display();
    let modules: String = ["mpm_event", "authz_core"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let text = format!(
        "{modules}ServerRoot {place}\nServerName server\nListen [::]:80\nPidFile {place}/pid\nDefaultRuntimeDir {place}\n\
         DocumentRoot {place}/www\nErrorLog {place}/error.log\nLogFormat \"%a\" from\nCustomLog {place}/access.log from\n\
         User www-data\n"
    );
    let path = folder.write("apache.conf", text);
    let mut command = program("apache2", folder);
    command.arg("-X").arg("-f").arg(path);
    command
}

#[test]
fn curl_and_wget_download_from_nginx_and_apache() {
    if is_any_missing(&["curl", "wget", "nginx", "apache2"]) {
        return;
    }
    for (kind, server) in [(Far::Transparent, nginx as fn(&Folder) -> Command), (Far::Section, apache)] {
        let Some(mut pair) = Pair::new(kind, PairOptions::default()) else { return };
        let folder = folder();
        let mut command = server(&folder);
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let _daemon = pair.row["server"].inside(|| Daemon::start(&mut command, &folder.0, address));
        for family in BOTH {
            let address = SocketAddr::new(pair.row.left("server", family), 80);
            let url = format!("http://{address}/file");
            for arguments in [&["curl", "-gsSf"][..], &["wget", "-qO-"]] {
                let mut program = client(arguments[0], &folder);
                program.args(&arguments[1..]).arg(&url);
                let got = pair.row["client"].inside(|| run_successfully(&mut program));
                assert!(got == pattern(20 * MEBI), "{kind:?}: {} got {} bytes", arguments[0], got.len());
                pair.all_closed(address, "finished");
            }
        }
        let clients = BOTH.map(|family| pair.row.right("client", family).to_string());
        let log = std::fs::read_to_string(folder.0.join("access.log")).unwrap();
        assert!(clients.iter().all(|ip| log.lines().filter(|line| line == ip).count() == 2), "{log}");
    }
}

#[test]
fn hosts_without_relays_connect_and_see_client_addresses() {
    let Some(row) = Row::new(&["client", "near", "far", "server"]) else { return };
    for family in BOTH {
        let (listener, address) = row.server(family);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        exchange_messages(&mut client, &mut server);
        assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
        assert!(!is_relayed(&server), "{family:?}: a relay is in the path");
    }
}
