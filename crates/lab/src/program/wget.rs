//! wget as client. It has no machine-readable report of transfer times.

use std::time::Duration;

use crate::program::ProgramInfo;
use crate::program::curl::ClientRoute;

/// Program and package of wget.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "wget", package: "wget", executable: "wget", version_arguments: &["--version"] };

/// Returns the arguments of a transfer. The body goes to stdout, messages to stderr. `timeout` bounds the time without
/// data.
///
/// # Errors
/// wget does not support the route.
pub fn arguments(url: &str, route: ClientRoute, timeout: Duration) -> anyhow::Result<Vec<String>> {
    // --no-config ignores wgetrc; --no-hsts avoids a file in the user's home.
    let fixed = ["--no-config", "--no-hsts", "--no-verbose", "--tries=1", "--output-document=-"];
    let mut args: Vec<String> = fixed.map(str::to_owned).into();
    args.push(format!("--timeout={:.3}", timeout.as_secs_f64()));
    match route {
        ClientRoute::Direct => args.push("--no-proxy".into()),
        ClientRoute::Http(proxy) => {
            args.extend(["--execute=use_proxy=on".into(), format!("--execute=http_proxy=http://{proxy}/")]);
        }
        ClientRoute::Socks(_) | ClientRoute::Tunnel(_) | ClientRoute::Forwarder(_) => {
            anyhow::bail!("wget supports only HTTP proxies: set agent = \"curl\"");
        }
    }
    args.push(url.to_owned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_routes_have_arguments_and_others_are_refused() {
        let proxy = "10.0.0.1:3128".parse().unwrap();
        let arguments_for = |via| arguments("http://10.0.0.2/a", via, Duration::from_millis(2500));
        let direct = arguments_for(ClientRoute::Direct).unwrap();
        assert!(direct.contains(&"--timeout=2.500".to_owned()) && direct.contains(&"--no-proxy".to_owned()));
        assert_eq!(direct.last().map(String::as_str), Some("http://10.0.0.2/a"));
        assert!(
            arguments_for(ClientRoute::Http(proxy))
                .unwrap()
                .contains(&"--execute=http_proxy=http://10.0.0.1:3128/".to_owned())
        );
        let error = arguments_for(ClientRoute::Socks(proxy)).unwrap_err().to_string();
        assert!(error.contains("agent = \"curl\""), "{error}");
    }
}
