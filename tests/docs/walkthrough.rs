//! Runs the pages on the machines that they describe, from the first block to the last.

use crate::code_blocks::{Block, Kind, Page, pages};
use crate::machine::Machine;
use crate::topologies::{TOPOLOGIES, Topology, machine_named, shared_files};

/// The section that removes the service. Its blocks run last.
const WAY_BACK: &str = "The way back";

const DROP_INS: &str = "/etc/systemd/system/ekiden.service.d";

/// Runs the blocks of a page. Returns their number; `None` without the permission to create machines or change users.
fn follow_page(page: &Page, topology: &Topology) -> Option<usize> {
    let shared = shared_files();
    let mut machines = topology.start(&shared)?;
    let before: Option<Vec<_>> =
        topology.relays.iter().map(|name| machine_named(&mut machines, name).install()).collect();
    let before = before?;
    let (way_back, set_up): (Vec<_>, Vec<_>) = page.blocks().into_iter().partition(|block| block.section == WAY_BACK);
    let mut done = run(&set_up, topology, &mut machines);
    for block in &set_up {
        if let (Some(Kind::File { machine, path }), "toml") = (block.kind(), block.language) {
            machine_named(&mut machines, &machine).run(&format!("ekiden check {path}"));
        }
    }
    for (machine, proof) in topology.proofs {
        machine_named(&mut machines, machine).run_until(proof);
    }
    for name in topology.relays {
        let machine = machine_named(&mut machines, name);
        machine.run("systemctl is-active ekiden");
        let (state, page) = (machine.state(), &page.name);
        let relays: Vec<_> = state.lines().filter(|line| line.contains("ekiden run")).collect();
        let users: Vec<_> = relays.iter().map(|line| line.split_whitespace().nth(2)).collect();
        assert_eq!(users, [Some("ekiden")], "{page}: the relays on {name}: {relays:?}");
    }
    done += run(&way_back, topology, &mut machines);
    for (name, before) in topology.relays.iter().zip(before) {
        let after = machine_named(&mut machines, name).state();
        let (left, lost) = (lines_only_in(&after, &before), lines_only_in(&before, &after));
        assert!(
            left.is_empty() && lost.is_empty(),
            "{}: on {name}, left behind: {left:#?}, lost: {lost:#?}",
            page.name
        );
    }
    Some(done)
}

fn lines_only_in<'a>(text: &'a str, other: &str) -> Vec<&'a str> {
    text.lines().filter(|line| other.lines().all(|known| known != *line)).collect()
}

/// Runs the scripts and writes the files of `blocks`. Returns their number.
fn run(blocks: &[Block<'_>], topology: &Topology, machines: &mut [Machine]) -> usize {
    let mut done = 0;
    for block in blocks {
        match block.kind() {
            Some(Kind::Run(names)) => {
                for name in names {
                    let script = fill_placeholders(&block.text, topology, machines);
                    let (succeeded, output) = machine_named(machines, &name).try_run(&script);
                    assert!(succeeded, "{} on {name}: {script}\noutput: {output}", block.place());
                }
            }
            Some(Kind::File { machine, path }) => {
                let text = fill_placeholders(&block.text, topology, machines);
                machine_named(machines, &machine).run(&format!("cat > {path} <<'END'\n{text}END\n"));
            }
            _ => continue,
        }
        done += 1;
    }
    done
}

/// Replaces placeholders in a text by the public keys that the machines have created so far.
fn fill_placeholders(text: &str, topology: &Topology, machines: &mut [Machine]) -> String {
    let mut text = text.to_owned();
    for (words, machine) in topology.keys.iter().filter(|(words, _)| text.contains(words)).copied().collect::<Vec<_>>()
    {
        let key =
            machine_named(machines, machine).run("cat /etc/ekiden/key key 2>/dev/null | sed -n 's/^public-key: //p'");
        assert_eq!(key.lines().count(), 1, "public keys on {machine} for {words}: {key:?}");
        text = text.replace(words, key.trim());
    }
    text
}

/// Runs one page: each page has its own test, so that the pages run in parallel.
fn test_page(page: &str) {
    let pages = pages();
    let page = pages.iter().find(|candidate| candidate.name == page).unwrap_or_else(|| panic!("no page {page}"));
    let topology = TOPOLOGIES.iter().find(|topology| topology.page == page.name).expect("a topology");
    if let Some(done) = follow_page(page, topology) {
        eprintln!("{}: {done} blocks done", page.name);
        assert!(done > 3, "{}: only {done} blocks", page.name);
    }
}

#[test]
fn quick_start_page_runs() {
    test_page("docs/quick-start.md");
}

#[test]
fn home_relay_recipe_runs() {
    test_page("docs/recipes/home-relay.md");
}

#[test]
fn middle_relay_recipe_runs() {
    test_page("docs/recipes/middle-relay.md");
}

#[test]
fn transparent_pair_recipe_runs() {
    test_page("docs/recipes/transparent-pair.md");
}

#[test]
fn satellite_recipe_runs() {
    test_page("docs/recipes/satellite.md");
}

#[test]
fn topologies_exist_for_exactly_the_pages_with_machines() {
    for page in pages() {
        let has_machines =
            page.blocks().iter().any(|block| matches!(block.kind(), Some(Kind::Run(_) | Kind::File { .. })));
        let has_topology = TOPOLOGIES.iter().any(|topology| topology.page == page.name);
        assert_eq!(has_machines, has_topology, "{}", page.name);
    }
}

#[test]
fn relay_recipes_have_a_check_and_remove_every_relay() {
    for page in pages().iter().filter(|page| page.name.starts_with("docs/recipes/")) {
        let Some(topology) = TOPOLOGIES.iter().find(|topology| topology.page == page.name) else { continue };
        assert!(!topology.relays.is_empty(), "{}: no relay runs as a service", page.name);
        let blocks = page.blocks();
        let machines = |section: &str| -> Vec<String> {
            let kinds = blocks.iter().filter(|block| block.section == section).map(Block::kind);
            kinds
                .filter_map(|kind| if let Some(Kind::Run(names)) = kind { Some(names) } else { None })
                .flatten()
                .collect()
        };
        assert!(!machines("Check that it works").is_empty(), "{}: no block checks the setup", page.name);
        assert_eq!(machines(WAY_BACK), topology.relays, "{}", page.name);
    }
}

/// The stand-in for systemctl rejects verbs and settings that it does not implement, and gives the service only the
/// privileges of its unit.
#[test]
fn systemctl_stand_in_follows_the_unit_file() {
    let shared = shared_files();
    let topology =
        TOPOLOGIES.iter().find(|topology| topology.page == "docs/recipes/middle-relay.md").expect("a topology");
    let Some(mut machines) = topology.start(&shared) else { return };
    let machine = machine_named(&mut machines, "relay");
    if machine.install().is_none() {
        return;
    }
    for unknown in ["status ekiden", "enable --force ekiden", "start nginx", "--user start ekiden", "is-active", ""] {
        assert!(!machine.try_run(&format!("systemctl {unknown}")).0, "systemctl {unknown} succeeds");
    }
    let drop_in =
        |text: &str| format!("mkdir -p {DROP_INS}; echo '{text}' > {DROP_INS}/needs.conf; systemctl daemon-reload");
    assert!(!machine.try_run(&drop_in("[Service]\nRootDirectory=/srv")).0, "an unknown setting is accepted");
    let capabilities = "sed -n 's/^Cap\\(Eff\\|Bnd\\|Amb\\):.0*//p' /proc/$(pidof ekiden)/status | tr '\n' ' '";
    machine.run(&drop_in("[Service]"));
    machine.run("systemctl restart ekiden");
    assert_eq!(machine.run(capabilities).trim(), "");
    let network = "[Service]\nAmbientCapabilities=CAP_NET_ADMIN\nCapabilityBoundingSet=CAP_NET_ADMIN";
    machine.run(&drop_in(network));
    machine.run("systemctl restart ekiden");
    assert_eq!(machine.run(capabilities).trim(), "1000 1000 1000");
    machine.run("echo nonsense >> /etc/ekiden/ekiden.toml");
    assert!(!machine.try_run("systemctl reload ekiden").0, "the reload of a wrong configuration succeeds");
    assert!(!machine.try_run("systemctl restart ekiden").0, "a start with a wrong configuration succeeds");
    assert_eq!(machine.try_run("systemctl is-active ekiden"), (false, "inactive\n".to_owned()));
}
