//! curl, the client: its arguments, and what it says about a transfer.

use std::net::SocketAddrV4;
use std::time::Duration;

use serde::Deserialize;

use crate::program::ProgramInfo;

/// What to install for it.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "curl", package: "curl", executable: "curl", version_arguments: &["--version"] };

/// How a client reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRoute {
    /// By itself.
    Direct,
    /// Through a SOCKS5 proxy (RFC 1928).
    Socks(SocketAddrV4),
    /// Through an HTTP proxy; that fetches `ftp://` URLs too.
    Http(SocketAddrV4),
    /// Through an HTTP proxy that is asked for a tunnel (`CONNECT`, RFC 9110 section 9.3.6).
    Tunnel(SocketAddrV4),
    /// Through a forwarder that knows the server; the client connects to it instead.
    Forwarder(SocketAddrV4),
}

/// The arguments of one transfer: the body goes to standard output, what curl says about it to standard error.
#[must_use]
pub fn arguments(url: &str, via: ClientRoute, timeout: Duration) -> Vec<String> {
    let seconds = format!("{:.3}", timeout.as_secs_f64());
    // --disable: no .curlrc; --noproxy '': nothing of the environment.
    let fixed = ["--disable", "--silent", "--show-error", "--fail", "--noproxy", "", "--output", "-"];
    let mut all: Vec<String> = fixed.map(str::to_owned).into();
    all.extend(["--max-time".into(), seconds, "--write-out".into(), "%{stderr}%{json}\n".into()]);
    match via {
        ClientRoute::Direct => {}
        ClientRoute::Socks(proxy) => all.extend(["--socks5-hostname".into(), proxy.to_string()]),
        ClientRoute::Http(proxy) => all.extend(["--proxy".into(), format!("http://{proxy}")]),
        ClientRoute::Tunnel(proxy) => all.extend(["--proxytunnel".into(), "--proxy".into(), format!("http://{proxy}")]),
        ClientRoute::Forwarder(relay) => all.extend(["--connect-to".into(), format!("::{relay}")]),
    }
    all.push(url.to_owned());
    all
}

/// The exit status of a curl whose time was up.
pub const TIMEOUT_EXIT_CODE: i32 = 28;

/// What curl says about a transfer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CurlReport {
    /// curl's exit status: 0 is success.
    pub exitcode: i32,
    /// What went wrong, if anything.
    #[serde(default)]
    pub errormsg: Option<String>,
    /// The whole transfer, from start to the last byte, in seconds.
    #[serde(rename = "time_total")]
    pub seconds: f64,
    /// From start to the first byte of the answer, in seconds.
    #[serde(rename = "time_starttransfer")]
    pub first_byte: f64,
    /// Bytes of the body.
    #[serde(rename = "size_download")]
    pub bytes: u64,
    /// The port of its end of the connection; older ones do not say.
    #[serde(default, rename = "local_port")]
    pub port: u16,
}

impl CurlReport {
    /// Reads what curl wrote to standard error: messages, if any, then one JSON object.
    ///
    /// # Errors
    /// There is no such object; the text quotes what there is.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let object = text.lines().rev().find(|line| line.starts_with('{'));
        object
            .and_then(|object| serde_json::from_str(object).ok())
            .ok_or_else(|| anyhow::anyhow!("curl said nothing about the transfer: {}", text.trim()))
    }

    /// The same, if it says that the transfer succeeded.
    ///
    /// # Errors
    /// The transfer failed; with curl's words.
    pub fn into_success(self) -> anyhow::Result<Self> {
        match (self.exitcode, &self.errormsg) {
            (0, _) => Ok(self),
            (TIMEOUT_EXIT_CODE, _) => anyhow::bail!("timeout: {} bytes in {:.1} s", self.bytes, self.seconds),
            (code, Some(message)) => anyhow::bail!("curl failed with exit status {code}: {message}"),
            (code, None) => anyhow::bail!("curl failed with exit status {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(exitcode: i32, message: &str) -> String {
        format!(
            r#"{{"errormsg":{message},"exitcode":{exitcode},"filename_effective":null,"http_code":200,"size_download":1048576,"speed_download":9,"time_starttransfer":0.010123,"time_total":0.050456}}"#
        )
    }

    #[test]
    fn an_answer_is_read_behind_messages() {
        let text = format!("curl: (18) something\n{}\n", answer(0, "null"));
        let read = CurlReport::parse(&text).unwrap().into_success().unwrap();
        assert_eq!((read.bytes, read.seconds, read.first_byte), (1_048_576, 0.050_456, 0.010_123));
    }

    #[test]
    fn a_failure_says_why() {
        let error = |text: String| CurlReport::parse(&text).and_then(CurlReport::into_success).unwrap_err().to_string();
        assert_eq!(error(answer(97, r#""SOCKS failed""#)), "curl failed with exit status 97: SOCKS failed");
        assert_eq!(error(answer(28, r#""Operation timed out""#)), "timeout: 1048576 bytes in 0.1 s");
        assert_eq!(
            error("curl: option -q: bad\n".into()),
            "curl said nothing about the transfer: curl: option -q: bad"
        );
    }

    #[test]
    fn every_way_has_its_arguments() {
        let proxy = "10.0.0.1:1080".parse().unwrap();
        let has = |via, two: [&str; 2]| {
            arguments("http://10.0.0.2/a", via, Duration::from_secs(5)).windows(2).any(|pair| pair == two)
        };
        assert!(has(ClientRoute::Socks(proxy), ["--socks5-hostname", "10.0.0.1:1080"]));
        assert!(has(ClientRoute::Http(proxy), ["--proxy", "http://10.0.0.1:1080"]));
        assert!(has(ClientRoute::Tunnel(proxy), ["--proxytunnel", "--proxy"]));
        assert!(has(ClientRoute::Forwarder(proxy), ["--connect-to", "::10.0.0.1:1080"]));
        assert!(has(ClientRoute::Direct, ["--max-time", "5.000"]));
    }
}
