//! Tests of the documentation: each block of each page is run, parsed or checked. The comment before the block, or the
//! language of the block, selects the test.
//!
//! | block | test |
//! |---|---|
//! | `sh` after `<!-- on MACHINE, ... -->` | runs there, in the order of the page; each command must succeed |
//! | `toml`, `text` after `<!-- at MACHINE: FILE -->` | written there, keys filled in; configurations are checked at the end |
//! | `sh`, `console` | each command is known, and each `ekiden` command accepts its arguments |
//! | `toml` | `ekiden check`, after completion of a partial file |
//! | `toml` after `<!-- plan -->` | `ekiden plan` |
//! | `toml` after `<!-- lab -->`, in docs/lab.md and docs/results | parsed by the laboratory, in its own tests |
//! | `yaml` | a file of another program; not checked |
//! | `text` | a diagram or output; lines that begin with `ekiden` or a prompt are commands |
//!
//! Any other block fails. `ekiden ...` in the middle of a sentence is parsed as well. The machines of a page are
//! network namespaces with their own /etc and /run ([`machine`]); [`topologies`] defines the machines and their links.
//! On relays of recipes, ekiden is installed as a service, and `systemctl.py` runs the service as its unit specifies.
//! The section "The way back" of a recipe must restore the state before the start of the service.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod arguments;
mod cli_page;
mod code_blocks;
mod command_line;
mod configurations;
mod links;
mod machine;
mod topologies;
mod walkthrough;

use code_blocks::{Kind, pages};

#[test]
fn blocks_have_known_kinds_and_all_kinds_occur() {
    let (mut counts, mut unknown) = (std::collections::BTreeMap::new(), Vec::new());
    for page in pages() {
        for block in page.blocks() {
            match block.kind() {
                Some(kind) => *counts.entry(kind.to_string()).or_insert(0) += 1,
                None => unknown.push(format!("{}: {:?} after {:?}", block.place(), block.language, block.mark)),
            }
        }
    }
    eprintln!("blocks: {counts:?}");
    assert!(unknown.is_empty(), "blocks without a test:\n{}", unknown.join("\n"));
    let file = Kind::File { machine: String::new(), path: String::new() };
    for kind in [Kind::Run(Vec::new()), file, Kind::Parsed, Kind::Checked, Kind::Plan, Kind::Lab, Kind::Shown] {
        assert!(counts.contains_key(&kind.to_string()), "no block is {kind}: {counts:?}");
    }
}
