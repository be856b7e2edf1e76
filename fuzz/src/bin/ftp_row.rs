//! Lines of an FTP directory listing: no panic, and no name that has a special meaning in HTML or in a link.
#![no_main]

use ekiden_relay::ftp_row;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|byte| *byte == b'\n') {
        let mut page = String::new();
        ftp_row(line, &mut page);
        check(&page);
    }
});

/// Checks that a row contains only the expected tags, and a link with one path segment.
fn check(page: &str) {
    let Some(row) = page.strip_suffix("</td></tr>\n") else { return assert_eq!(page, "") };
    assert!(!row.contains(|c: char| c.is_control()), "{page:?}");
    if let Some(text) = row.strip_prefix("<tr><td colspan=\"3\"><pre>") {
        return check_text(text.strip_suffix("</pre>").expect("an end"));
    }
    let row = row.strip_prefix("<tr><td><a href=\"").expect("a link");
    let (link, row) = row.split_once("\">").expect("the end of the link");
    let link = link.strip_suffix('/').unwrap_or(link);
    assert!(link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)), "{link:?}");
    let (name, row) = row.split_once("</a></td><td>").expect("the end of the name");
    check_text(name);
    let (size, date) = row.split_once("</td><td>").expect("a date");
    assert!(size.bytes().all(|byte| byte.is_ascii_digit()), "{size:?}");
    assert!(date.bytes().all(|byte| byte.is_ascii_digit() || b"-+: ".contains(&byte)), "{date:?}");
}

fn check_text(text: &str) {
    assert!(!text.contains(['<', '>', '"', '\'']), "{text:?}");
}
