//! Requests of web pages to the admin listener, and the security headers of its responses.

use crate::fixture::{Fixture, TOKEN};

const EVIL: &str = "http://evil.example";

/// All paths whose responses contain data of the relay.
const DATA_PATHS: [&str; 6] = ["/metrics", "/api/sessions", "/api/paths", "/api/fleet", "/api/events", "/api/stream"];

#[test]
fn cross_origin_requests_are_refused_even_with_the_token() {
    let (open, with_token) = (Fixture::open(), Fixture::with_token(""));
    let bearer = format!("Authorization: Bearer {TOKEN}");
    for path in ["/", "/app.js", "/api/access"].iter().chain(&DATA_PATHS) {
        for line in [
            format!("Origin: {EVIL}"),
            "Origin: null".to_owned(),
            format!("Origin: http://{}", open.clients),
            "Sec-Fetch-Site: cross-site".to_owned(),
            "Sec-Fetch-Site: same-site".to_owned(),
        ] {
            let answer = open.get(path, &[&line]);
            assert_eq!(answer.status, 403, "{path} {line}");
            assert!(answer.body.contains("page of another origin"), "{}", answer.body);
            assert_eq!(with_token.get(path, &[&line, &bearer]).status, 403, "{path} {line}");
        }
    }
    let own = format!("Origin: http://{}", open.admin);
    assert_eq!(open.get("/api/sessions", &[&own, "Sec-Fetch-Site: same-origin"]).status, 200);
}

#[test]
fn foreign_host_names_are_refused_even_with_the_token() {
    let with_token = Fixture::with_token("hosts = [\"relay.example\"]");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    for (host, status) in [
        ("Host: evil.example", 403),
        ("Host: 127.0.0.1.evil.example", 403),
        ("Host: relay.example:9090", 200),
        ("Host: RELAY.example", 200),
        ("Host: localhost", 200),
        ("Host: 192.0.2.7", 200),
    ] {
        let answer = with_token.request("GET", "/api/sessions", &[host, &bearer]);
        assert_eq!(answer.status, status, "{host}");
        assert_eq!(answer.body.contains("unknown host name"), status == 403, "{}", answer.body);
    }
    let open = Fixture::open();
    assert_eq!(open.request("GET", "/", &["Host: 192.0.2.7"]).status, 403, "an open listener refuses other addresses");
}

#[test]
fn every_response_has_the_security_headers() {
    let fixture = Fixture::open();
    for path in ["/", "/style.css", "/api/sessions", "/nothing"] {
        let head = fixture.get(path, &[]).head;
        for line in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'",
            "frame-ancestors 'none'",
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
        ] {
            assert!(head.contains(line), "{path} has no {line} in\n{head}");
        }
    }
    assert!(fixture.get("/", &[]).head.contains("content-type: text/html"), "the page is HTML");
}

/// The Content-Security-Policy forbids resources of other origins, so the page would not work with them.
#[test]
fn page_refers_to_no_external_resources() {
    let fixture = Fixture::open();
    let page = fixture.get("/", &[]).body;
    let mut files: Vec<String> = vec!["/app.js".into(), "/style.css".into(), "/icon.svg".into()];
    assert!(files.iter().all(|file| page.contains(file.as_str())), "{page}");
    let mut seen = Vec::new();
    while let Some(file) = files.pop() {
        let answer = fixture.get(&file, &[]);
        assert_eq!(answer.status, 200, "{file}");
        for forbidden in ["http:", "https:", "url(", "innerHTML", "eval("] {
            let text = answer.body.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains(forbidden), "{forbidden} in {file}");
        }
        let imports = answer.body.lines().filter_map(|line| line.split_once(" from \"./"));
        files.extend(
            imports.map(|(_, name)| format!("/{}", name.trim_end_matches("\";"))).filter(|f| !seen.contains(f)),
        );
        seen.push(file);
    }
    assert!(seen.len() > 8 && !page.contains("style="), "{seen:?}");
}

#[test]
fn unknown_path_lists_the_available_paths() {
    let fixture = Fixture::open();
    let answer = fixture.get("/metric", &[]);
    assert_eq!(answer.status, 404);
    assert!(DATA_PATHS.iter().all(|path| answer.body.contains(path)), "{}", answer.body);
    let host = format!("Host: {}", fixture.admin);
    let answer = fixture.request("POST", "/api/sessions", &[&host, "Content-Length: 0"]);
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: get"), "{}", answer.head);
}
