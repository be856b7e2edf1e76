//! Runs the pages on the machines that they describe, from the first block to the last.

use crate::fence::{Kind, Page, pages};
use crate::machine::Machine;
use crate::worlds::{WORLDS, World, named, place};

/// Runs the blocks of a page, and returns their number; `None` without the permission to create machines.
fn follow(page: &Page, world: &World) -> Option<usize> {
    let place = place();
    let mut machines = world.start(&place)?;
    let (mut done, mut configurations) = (0, Vec::new());
    for block in page.blocks() {
        match block.kind() {
            Some(Kind::Run(names)) => {
                for name in names {
                    let script = filled(&block.text, world, &mut machines);
                    let (well, said) = named(&mut machines, &name).try_run(&script);
                    assert!(well, "{} on {name}: {script}\nsaid: {said}", block.place());
                }
            }
            Some(Kind::File { machine, path }) => {
                let text = filled(&block.text, world, &mut machines);
                named(&mut machines, &machine).run(&format!("cat > {path} <<'END'\n{text}END\n"));
                if block.language == "toml" {
                    configurations.push((machine, path));
                }
            }
            _ => continue,
        }
        done += 1;
    }
    for (machine, path) in configurations {
        named(&mut machines, &machine).run(&format!("ekiden check {path}"));
    }
    for (machine, proof) in world.proofs {
        named(&mut machines, machine).run_until(proof);
    }
    Some(done)
}

/// Replaces placeholders in a text by the public keys that the machines have created so far.
fn filled(text: &str, world: &World, machines: &mut [Machine]) -> String {
    let mut text = text.to_owned();
    for (words, machine) in world.keys.iter().filter(|(words, _)| text.contains(words)).copied().collect::<Vec<_>>() {
        let key = named(machines, machine).run("cat /etc/ekiden/key key 2>/dev/null | sed -n 's/^public-key: //p'");
        text = text.replace(words, key.trim());
    }
    text
}

/// One test for each page, so that the pages run in parallel.
fn followed(page: &str) {
    let pages = pages();
    let page = pages.iter().find(|one| one.name == page).unwrap_or_else(|| panic!("no page {page}"));
    let world = WORLDS.iter().find(|world| world.page == page.name).expect("a world");
    if let Some(done) = follow(page, world) {
        eprintln!("{}: {done} blocks done", page.name);
        assert!(done > 3, "{}: only {done} blocks", page.name);
    }
}

#[test]
fn quick_start() {
    followed("docs/quick-start.md");
}

#[test]
fn home_relay() {
    followed("docs/recipes/home-relay.md");
}

#[test]
fn middle_relay() {
    followed("docs/recipes/middle-relay.md");
}

#[test]
fn transparent_pair() {
    followed("docs/recipes/transparent-pair.md");
}

#[test]
fn satellite() {
    followed("docs/recipes/satellite.md");
}

#[test]
fn every_page_with_machines_has_a_world() {
    for page in pages() {
        let has_machines =
            page.blocks().iter().any(|block| matches!(block.kind(), Some(Kind::Run(_) | Kind::File { .. })));
        let has_world = WORLDS.iter().any(|world| world.page == page.name);
        assert_eq!(has_machines, has_world, "{}", page.name);
    }
}
