//! curl as client: arguments and transfer reports.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::program::ProgramInfo;

/// Program and package of curl.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "curl", package: "curl", executable: "curl", version_arguments: &["--version"] };

/// Route of a client to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRoute {
    /// A direct connection to the server.
    Direct,
    /// Through a SOCKS5 proxy (RFC 1928).
    Socks(SocketAddr),
    /// Through an HTTP proxy, which also fetches `ftp://` URLs.
    Http(SocketAddr),
    /// Through a tunnel of an HTTP proxy (`CONNECT`, RFC 9110 section 9.3.6).
    Tunnel(SocketAddr),
    /// Through a forwarder to a fixed server; the client connects to the forwarder instead.
    Forwarder(SocketAddr),
}

/// Returns the arguments of a transfer. The body goes to stdout, the report of curl to stderr.
#[must_use]
pub fn arguments(url: &str, route: ClientRoute, timeout: Duration) -> Vec<String> {
    let seconds = format!("{:.3}", timeout.as_secs_f64());
    // --disable ignores .curlrc; --noproxy '' ignores the environment.
    let fixed = ["--disable", "--silent", "--show-error", "--fail", "--noproxy", "", "--output", "-"];
    let mut args: Vec<String> = fixed.map(str::to_owned).into();
    args.extend(["--max-time".into(), seconds, "--write-out".into(), "%{stderr}%{json}\n".into()]);
    match route {
        ClientRoute::Direct => {}
        ClientRoute::Socks(proxy) => args.extend(["--socks5-hostname".into(), proxy.to_string()]),
        ClientRoute::Http(proxy) => args.extend(["--proxy".into(), format!("http://{proxy}")]),
        ClientRoute::Tunnel(proxy) => {
            args.extend(["--proxytunnel".into(), "--proxy".into(), format!("http://{proxy}")])
        }
        ClientRoute::Forwarder(relay) => args.extend(["--connect-to".into(), format!("::{relay}")]),
    }
    args.push(url.to_owned());
    args
}

/// Exit status of curl after a timeout.
pub const TIMEOUT_EXIT_CODE: i32 = 28;

/// Transfer report of curl.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CurlReport {
    /// Exit status of curl: 0 for success.
    pub exitcode: i32,
    /// Error message; `None` after a success.
    #[serde(default)]
    pub errormsg: Option<String>,
    /// Duration of the transfer until the last byte, in seconds.
    #[serde(rename = "time_total")]
    pub seconds: f64,
    /// Time until the first byte of the response, in seconds.
    #[serde(rename = "time_starttransfer")]
    pub first_byte: f64,
    /// Size of the body, in bytes.
    #[serde(rename = "size_download")]
    pub bytes: u64,
    /// Local port of the connection; 0 from old versions of curl.
    #[serde(default, rename = "local_port")]
    pub port: u16,
}

impl CurlReport {
    /// Parses the stderr of curl: messages, if any, then one JSON object.
    ///
    /// # Errors
    /// The text has no such object. The error quotes the text.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let object = text.lines().rev().find(|line| line.starts_with('{'));
        object
            .and_then(|object| serde_json::from_str(object).ok())
            .ok_or_else(|| anyhow::anyhow!("curl printed no report of the transfer: {}", text.trim()))
    }

    /// Returns the report if the transfer succeeded.
    ///
    /// # Errors
    /// The transfer failed. The error has curl's message.
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
    fn report_after_messages_is_parsed() {
        let text = format!("curl: (18) something\n{}\n", answer(0, "null"));
        let read = CurlReport::parse(&text).unwrap().into_success().unwrap();
        assert_eq!((read.bytes, read.seconds, read.first_byte), (1_048_576, 0.050_456, 0.010_123));
    }

    #[test]
    fn curl_failure_names_its_reason() {
        let error = |text: String| CurlReport::parse(&text).and_then(CurlReport::into_success).unwrap_err().to_string();
        assert_eq!(error(answer(97, r#""SOCKS failed""#)), "curl failed with exit status 97: SOCKS failed");
        assert_eq!(error(answer(28, r#""Operation timed out""#)), "timeout: 1048576 bytes in 0.1 s");
        assert_eq!(
            error("curl: option -q: bad\n".into()),
            "curl printed no report of the transfer: curl: option -q: bad"
        );
    }

    #[test]
    fn each_route_has_its_arguments() {
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
