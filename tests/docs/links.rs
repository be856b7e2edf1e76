//! The targets of links between pages exist: the file, and the heading.

use std::path::{Component, Path, PathBuf};

use crate::code_blocks::{Page, pages, root};

/// Returns the fragment of links to a heading, as GitHub forms it.
fn anchor(heading: &str) -> String {
    let kept = |character: &char| character.is_alphanumeric() || matches!(character, '-' | '_' | ' ');
    heading.trim_start_matches(['#', ' ']).to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// Returns the targets of links, with their line numbers.
fn links(page: &Page) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in page.prose() {
        links.extend(line.split("](").skip(1).filter_map(|rest| Some((number, rest.split_once(')')?.0))));
    }
    links
}

/// Resolves `..`: `docs/recipes/../lab.md` is `docs/lab.md`.
fn resolve(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            other => whole.push(other),
        }
    }
    whole
}

/// Checks a link of a page; the error is the reason.
fn check_link(page: &Page, link: &str) -> Result<(), String> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(&page.name).parent().expect("a file is in a folder");
    let target = if path.is_empty() { PathBuf::from(&page.name) } else { resolve(&folder.join(path)) };
    let file = root().join(&target);
    if !file.exists() {
        return Err(format!("{} is not there", target.display()));
    }
    if heading.is_empty() {
        return Ok(());
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let is_there = text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
    is_there.then_some(()).ok_or_else(|| format!("{} has no heading {heading}", target.display()))
}

#[test]
fn every_link_has_an_existing_target() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in &pages() {
        for (line, link) in links(page).into_iter().filter(|(_, link)| !link.contains("://")) {
            count += 1;
            if let Err(why) = check_link(page, link) {
                wrong.push(format!("{}:{line}: {why}", page.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} links were found");
}

#[test]
fn broken_links_are_detected() {
    let page = Page { name: "docs/recipes/x.md".to_owned(), text: String::new() };
    assert!(check_link(&page, "../lab.md").is_ok());
    for wrong in ["lab.md", "../lab.md#no-such-heading", "../../nowhere/"] {
        assert!(check_link(&page, wrong).is_err(), "{wrong}");
    }
}
