//! Files by TLS.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::Stdio;

use crate::harness::*;
use crate::scene::*;

/// By TLS as a browser does: a certificate that the system does not trust is told, one that it trusts is fine.
#[test]
fn https_is_fetched_by_tls() {
    let folder = Folder::new();
    let (certificate, private) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
        .arg(&private)
        .arg("-out")
        .arg(&certificate)
        .output();
    if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        eprintln!("skipped: no openssl");
        return;
    }
    assert!(made.unwrap().status.success());
    let port = free_port();
    let mut nginx = match nginx(&folder, port) {
        Ok(nginx) => nginx,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    let url = format!("https://localhost:{port}/file");
    let stranger = probe(&[&url, "--json"]);
    let error = candidate(&json(&stranger), "direct")["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.starts_with("no TLS: "), "{error:?}");
    let output = ekiden().args(["probe", &url, "--json", "--count", "1"]).env("SSL_CERT_FILE", &certificate).output();
    let report = json(&output.unwrap());
    let _ = nginx.kill();
    let _ = nginx.wait();
    let direct = candidate(&report, "direct");
    assert_eq!(direct["bytes"].as_u64(), Some(2 << 20), "twice 1 MiB: {direct:#}");
}

/// nginx with a file of 1 MiB, by TLS, in the foreground.
fn nginx(folder: &Folder, port: u16) -> Result<std::process::Child, String> {
    folder.write("file", vec![b'x'; 1 << 20]);
    let here = folder.0.display();
    let config = folder.write(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {here}/pid; error_log {here}/log; events {{}}\nhttp {{ access_log off;\n\
             client_body_temp_path {here}/b; proxy_temp_path {here}/p; fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u;\n\
             scgi_temp_path {here}/s;\nserver {{ listen 127.0.0.1:{port} ssl; listen [::1]:{port} ssl; root {here};\n\
             ssl_certificate {here}/cert.pem; ssl_certificate_key {here}/key.pem; }} }}\n"
        ),
    );
    let mut nginx = std::process::Command::new("nginx");
    nginx.arg("-c").arg(config).arg("-e").arg(folder.0.join("log")).stderr(Stdio::null());
    let child = nginx.spawn().map_err(|error| format!("no nginx: {error}"))?;
    eventually("nginx to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
    Ok(child)
}
