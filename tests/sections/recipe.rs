//! docs/recipes/home-relay.md, followed literally: its files are valid, and the setup works.

use std::path::PathBuf;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

const RECIPE: &str = include_str!("../../docs/recipes/home-relay.md");

/// The files of the recipe, with paths and keys of the test. The first line of each file states its purpose.
struct Setup {
    sites: [Site; 2],
}

impl Setup {
    fn new() -> Self {
        let sites = [Site::new(), Site::new()];
        sites[1].folder.write("peers", sites[0].filled(&block("text", "/etc/ekiden/peers"), &sites));
        Self { sites }
    }

    /// Writes the configuration of the home relay (0) or of the relay in the middle (1).
    fn write(&self, at: usize, change: impl Fn(String) -> String) -> PathBuf {
        let purpose = ["on the home relay", "on the relay in the middle"][at];
        let text = self.sites[at].filled(&block("toml", purpose), &self.sites);
        self.sites[at].folder.write("ekiden.toml", change(text))
    }
}

impl Site {
    /// A file of the recipe with the paths and keys of this site.
    fn filled(&self, text: &str, sites: &[Self; 2]) -> String {
        text.replace("/etc/ekiden/key", &self.key.file.display().to_string())
            .replace("/etc/ekiden/peers", &self.folder.0.join("peers").display().to_string())
            .replace("PUBLIC-KEY-OF-THE-HOME-RELAY", &sites[0].key.public)
            .replace("PUBLIC-KEY-OF-THE-RELAY-IN-THE-MIDDLE", &sites[1].key.public)
    }
}

/// The block of this language with `first_line` in its first line.
fn block(language: &str, first_line: &str) -> String {
    let blocks = RECIPE.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(language));
    let mut found =
        blocks.filter(|block| block.trim_start().lines().next().is_some_and(|line| line.contains(first_line)));
    let text = found.next().unwrap_or_else(|| panic!("no {language} block of {first_line}"));
    assert!(found.next().is_none(), "two {language} blocks of {first_line}");
    text.trim_start().to_owned()
}

#[test]
fn recipe_files_are_valid() {
    let setup = Setup::new();
    for at in [0, 1] {
        let file = setup.write(at, |text| text);
        let output = ekiden().arg("check").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(RECIPE.matches("```toml").count(), 2, "the recipe has a block without a check");
}

#[test]
fn recipe_setup_works() {
    let setup = Setup::new();
    let middle = setup.sites[1].address.to_string();
    let door = "127.0.0.1:0";
    let _relay = start(&setup.write(1, |text| text.replace("0.0.0.0:7000", &middle)));
    let home = |text: String| text.replace("relay.example:7000", &middle).replace("192.168.1.2:1080", door);
    let mut home = start(&setup.write(0, home));
    assert_echo(&mut socks5(home.address(), echo_server()).unwrap());
    let closed = home.closed();
    assert_eq!(closed["path"], "by-middle");
    let (mut client, mut server) = pair(&home);
    exchange_messages(&mut client, &mut server);
    let table = home.status(&[]);
    assert!(table.contains("by-middle"), "{table}");
    assert!(RECIPE.contains("grep ekiden_ready") && home.ask("/metrics").contains("\nekiden_ready"));
}
