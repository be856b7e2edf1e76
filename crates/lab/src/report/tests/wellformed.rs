//! A check that markup is well-formed, independent of the code that writes it.

/// The first error of a page, if there is one: a tag that is not closed or not open, an attribute without quotes, a
/// bare ampersand. Stricter than HTML: elements without content must close themselves.
pub fn first_error(page: &str) -> Option<String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n")?;
    let mut open: Vec<&str> = Vec::new();
    while let Some(start) = rest.find('<') {
        if let Some(text) = bad_text(&rest[..start]) {
            return Some(format!("bare & in {text:?}"));
        }
        let tag = &rest[start + 1..];
        let Some(end) = tag.find('>') else { return Some(format!("no end: {tag:.40}")) };
        let tag = &tag[..end];
        rest = &rest[start + end + 2..];
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(last) if last == name => {}
                last => return Some(format!("</{name}> closes {last:?}")),
            }
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        if !name.chars().all(|letter| letter.is_ascii_alphanumeric()) || !has_valid_attributes(attributes) {
            return Some(format!("bad tag {tag:?}"));
        }
        if !empty {
            open.push(name);
        }
    }
    open.pop().map(|name| format!("<{name}> is never closed"))
}

fn has_valid_attributes(attributes: &str) -> bool {
    let pieces: Vec<&str> = attributes.split('"').collect();
    let (last, pairs) = pieces.split_last().unwrap();
    let names: Vec<&str> = pairs.iter().step_by(2).map(|name| name.trim()).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    last.is_empty()
        && pairs.len().is_multiple_of(2)
        && unique.len() == names.len()
        && names.iter().all(|name| name.ends_with('=') && !name.contains(' '))
        && pairs.iter().skip(1).step_by(2).all(|value| bad_text(value).is_none())
}

fn bad_text(text: &str) -> Option<&str> {
    let references = ["amp;", "lt;", "gt;", "quot;", "#39;"];
    let good = |rest: &str| references.iter().any(|reference| rest.starts_with(reference));
    (!text.split('&').skip(1).all(good)).then_some(text)
}

#[test]
fn malformed_pages_are_detected() {
    let page = |body: &str| first_error(&format!("<!DOCTYPE html>\n{body}"));
    assert_eq!(page("<p class=\"x\">a &amp; b<hr/></p>"), None);
    for body in ["<p>", "<p></b>", "<p x=1></p>", "a & b<p></p>", "<p x=\"1\" x=\"2\"></p>", "<p x=\"1></p>"] {
        assert!(page(body).is_some(), "{body}");
    }
}
