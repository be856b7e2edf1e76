//! Traffic: clients, servers and their weights.

use ekiden_proto::path::plan::{Roles, Traffic};

use super::SiteTable;
use super::values::TrafficWeight;
use crate::config::reader::TableReader;
use crate::config::value::Name;

/// Reads the traffic; by default, every client fetches from every server.
pub(super) fn read_traffic(
    file: &TableReader<'_>,
    sites: &mut SiteTable,
    is_known: &dyn Fn(usize, usize) -> bool,
) -> Vec<Traffic> {
    let mut traffic = Vec::new();
    let has_position = |sites: &SiteTable, site: usize| sites.sites[site].position.is_some();
    for reader in file.tables("traffic") {
        let end = |key| {
            let Name(name) = reader.required(key)?;
            sites.find(&reader.location_of(key), &name)
        };
        let (client, server) = (end("from"), end("to"));
        let TrafficWeight(weight) = reader.optional_or("weight", TrafficWeight(1.0));
        if let (Some(client), Some(server)) = (client, server) {
            if client == server {
                reader.error("to", "a site other than that in from");
            } else if !(is_known(client, server) || has_position(sites, client) && has_position(sites, server)) {
                reader.table_error(missing_rtt_error(sites, client, server));
            }
            traffic.push(Traffic { client, server, weight });
        }
        reader.finish();
    }
    if !file.has("traffic") {
        traffic = all_pairs(file, sites, is_known);
    }
    for Traffic { client, server, .. } in &traffic {
        sites.sites[*client].roles.client = true;
        sites.sites[*server].roles.server = true;
    }
    traffic
}

fn all_pairs(file: &TableReader<'_>, sites: &SiteTable, is_known: &dyn Fn(usize, usize) -> bool) -> Vec<Traffic> {
    let sites_with =
        |fits: fn(&Roles) -> bool| (0..sites.sites.len()).filter(move |site| fits(&sites.sites[*site].roles));
    let mut traffic = Vec::new();
    for client in sites_with(|roles| roles.client) {
        for server in sites_with(|roles| roles.server).filter(|server| *server != client) {
            let placed = sites.sites[client].position.is_some() && sites.sites[server].position.is_some();
            if !is_known(client, server) && !placed {
                file.error("rtt", missing_rtt_error(sites, client, server));
            }
            traffic.push(Traffic { client, server, weight: 1.0 });
        }
    }
    if traffic.is_empty() {
        file.error("traffic", "[[traffic]] with from and to, or sites with role = \"client\" and \"server\"");
    }
    traffic
}

fn missing_rtt_error(sites: &SiteTable, client: usize, server: usize) -> String {
    format!(
        "the round trip of {}, or the position of both sites: the prediction needs one of these",
        sites.pair_names(client, server)
    )
}
