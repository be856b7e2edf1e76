//! GET and HEAD of a directory: `LIST` as a page of links.
//!
//! The page is written while the list arrives, so a large directory is not held in memory. Names are untrusted: in
//! links all characters except letters, digits and `-._~` are percent-encoded, so that a name is never a scheme or a
//! path, and in text all characters with a meaning in HTML are escaped. Lines in an unknown format are shown unchanged.

use std::fmt::Write;
use std::io;

use ekiden_proto::cause::Cause;
use ekiden_proto::wire::http::{BodyFraming, Headers, Version, chunked};
use ekiden_proto::wire::{Parsed, WireError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use suppaftp::list::ListParser;
use time::OffsetDateTime;

use super::connection::{FtpConnection, Transfer, TransferCommand, socket};
use super::response::FtpResponse;
use super::url::bytes_of;
use super::{FtpFailure, FtpRequest, Method};
use crate::ingress::HandshakeReader;
use crate::ingress::ReadError as Ending;
use crate::ingress::http::forward::ClientConnection;

/// Longest line of a list, in bytes.
const MAX_LINE: usize = 8 * 1024;

/// Number of bytes of the page to collect before a write.
const PAGE_CHUNK: usize = 16 * 1024;

/// Characters to encode in the path segment of a link.
const IN_LINKS: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sends the page, or a redirect if relative links would not lead into the directory.
pub async fn list(request: &FtpRequest<'_>, server: &mut FtpConnection<'_>) -> Result<ClientConnection, FtpFailure> {
    if !request.location.path.is_empty() {
        server.enter(&request.location.path).await?;
    }
    if !request.location.has_slash() {
        return request.redirect().await;
    }
    if request.method == Method::Head {
        return request.with_idle_timeout(request.begin(response(request))).await;
    }
    // A server sends lines in text mode by default (RFC 959, 5.1).
    let transfer = server.start_transfer(TransferCommand::List).await?;
    let (connection, mut page) = request
        .with_idle_timeout(async {
            let connection = request.begin(response(request)).await?;
            let page = write_rows(request, &transfer).await?;
            Ok((connection, page))
        })
        .await?;
    // The end of the data connection is the end of the list; only the server's reply shows whether the list is
    // complete.
    server.complete(transfer, request.session.context.config.timeouts.connect).await?;
    page.push_str("</table>\n</body>\n</html>\n");
    request
        .with_idle_timeout(async {
            write_piece(request, &mut page).await?;
            if framing(request) == BodyFraming::Chunked { request.write(b"0\r\n\r\n").await } else { Ok(()) }
        })
        .await?;
    Ok(connection)
}

fn framing(request: &FtpRequest<'_>) -> BodyFraming {
    if request.version == Version::Http11 { BodyFraming::Chunked } else { BodyFraming::UntilClose }
}

fn response(request: &FtpRequest<'_>) -> FtpResponse {
    let mut headers = Headers::new();
    headers.push("Content-Type", "text/html; charset=utf-8");
    // If a name should ever evade the escaping, no script runs.
    headers.push("Content-Security-Policy", "default-src 'none'");
    FtpResponse { status: 200, headers, body: framing(request), keep_alive: request.keep_alive }
}

/// Writes the page up to the last full piece, and returns the rest.
async fn write_rows(request: &FtpRequest<'_>, transfer: &Transfer) -> Result<String, FtpFailure> {
    let mut page = page_head(request);
    let mut lines = HandshakeReader::from_stream(socket(transfer));
    loop {
        match lines.next(line).await {
            Ok(text) => row(&text, &mut page),
            Err(Ending::Gone(io::ErrorKind::UnexpectedEof)) => break,
            Err(Ending::Gone(_) | Ending::Late) => return Err(Cause::Reset.into()),
            Err(Ending::Wire(_)) => return Err(FtpFailure::Refused(502, "Malformed FTP directory listing.")),
        }
        if page.len() >= PAGE_CHUNK {
            write_piece(request, &mut page).await?;
        }
    }
    row(&lines.take_all(), &mut page);
    Ok(page)
}

async fn write_piece(request: &FtpRequest<'_>, page: &mut String) -> Result<(), FtpFailure> {
    let mut piece = std::mem::take(page);
    if framing(request) == BodyFraming::Chunked {
        piece.insert_str(0, &chunked::write_chunk_head(piece.len() as u64));
        piece.push_str("\r\n");
    }
    request.write(piece.as_bytes()).await
}

fn page_head(request: &FtpRequest<'_>) -> String {
    let name = bytes_of(&request.location.path);
    let title = escaped(&format!("{}/{}", request.location.realm(), String::from_utf8_lossy(&name)));
    let parent = if request.location.has_parent() { "<p><a href=\"../\">Parent directory</a></p>\n" } else { "" };
    format!(
        "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body>\n<h1>{title}</h1>\n{parent}<table>\n"
    )
}

/// Parses one line of the list.
fn line(bytes: &[u8]) -> Parsed<Vec<u8>> {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok((bytes[..end].to_vec(), end + 1)),
        None if bytes.len() > MAX_LINE => Err(WireError::TooLarge),
        None => Err(WireError::Incomplete),
    }
}

/// Adds a line to the page.
pub fn row(line: &[u8], page: &mut String) {
    let text: String = line.trim_ascii_end().iter().map(|byte| char::from(*byte)).collect();
    // Writing to a string does not fail.
    let _ = match ListParser::parse_posix(&text).or_else(|_| ListParser::parse_dos(&text)) {
        Ok(file) if [".", ".."].contains(&file.name()) => Ok(()),
        Ok(file) => {
            let slash = if file.is_directory() { "/" } else { "" };
            let name = bytes_of(file.name());
            let link = percent_encode(&name, &IN_LINKS);
            let label = escaped(&String::from_utf8_lossy(&name));
            let size = if file.is_file() { file.size().to_string() } else { String::new() };
            let date = date(file.modified().into());
            writeln!(
                page,
                "<tr><td><a href=\"{link}{slash}\">{label}{slash}</a></td><td>{size}</td><td>{date}</td></tr>"
            )
        }
        // Some servers begin the list with the number of blocks, as `ls -l` does.
        Err(_) if text.is_empty() || text.starts_with("total ") => Ok(()),
        Err(_) => {
            let label = escaped(&String::from_utf8_lossy(line.trim_ascii_end()));
            writeln!(page, "<tr><td colspan=\"3\"><pre>{label}</pre></td></tr>")
        }
    };
}

fn date(date: OffsetDateTime) -> String {
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", date.hour(), date.minute())
}

fn escaped(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => output.push_str("&amp;"),
            '<' => output.push_str("&lt;"),
            '>' => output.push_str("&gt;"),
            '"' => output.push_str("&quot;"),
            '\'' => output.push_str("&#39;"),
            c if c.is_control() => output.push('\u{fffd}'),
            c => output.push(c),
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &[u8]) -> String {
        let mut page = String::new();
        row(line, &mut page);
        page
    }

    #[test]
    fn unix_and_dos_listings_become_links() {
        let unix = shown(b"-rw-r--r--    1 0        0            1234 Nov 05  2019 a b.txt\r");
        let expected = "<td><a href=\"a%20b.txt\">a b.txt</a></td><td>1234</td><td>2019-11-05 00:00</td>";
        assert_eq!(unix, format!("<tr>{expected}</tr>\n"));
        let folder = shown(b"drwxr-xr-x    2 0        0            4096 Nov 05  2019 pub");
        assert!(folder.contains("<a href=\"pub/\">pub/</a></td><td></td>"), "{folder}");
        let link = shown(b"lrwxrwxrwx    1 0        0               3 Nov 05  2019 here -> there");
        assert!(link.contains("<a href=\"here\">here</a>"), "{link}");
        let dos = shown(b"04-08-14  03:09PM                  403 readme.txt");
        assert!(dos.contains("<a href=\"readme.txt\">readme.txt</a></td><td>403</td><td>2014-04-08 15:09"), "{dos}");
        for nothing in [b"total 12".as_slice(), b"", b"drwxr-xr-x 2 0 0 4096 Nov 05 2019 .."] {
            assert_eq!(shown(nothing), "");
        }
    }

    #[test]
    fn file_names_are_escaped_in_html_and_links() {
        let entry = |name: &[u8]| shown(&[b"-rw-r--r-- 1 0 0 1 Nov 05 2019 ", name].concat());
        for (name, link, text) in [
            ("<script>'\"&", "%3Cscript%3E%27%22%26", "&lt;script&gt;&#39;&quot;&amp;"),
            ("javascript:alert(1)", "javascript%3Aalert%281%29", "javascript:alert(1)"),
            ("//evil.example/x", "%2F%2Fevil.example%2Fx", "//evil.example/x"),
            ("a?b#c;type=d", "a%3Fb%23c%3Btype%3Dd", "a?b#c;type=d"),
            ("\u{fc}", "%C3%BC", "\u{fc}"),
        ] {
            let row = entry(name.as_bytes());
            assert!(row.contains(&format!("<a href=\"{link}\">{text}</a>")), "{row}");
        }
        // The link keeps the Latin-1 byte of a name, which the text cannot show.
        assert!(entry(b"caf\xe9").contains("<a href=\"caf%E9\">caf\u{fffd}</a>"));
        assert_eq!(
            shown(b"what <b>is</b> this"),
            "<tr><td colspan=\"3\"><pre>what &lt;b&gt;is&lt;/b&gt; this</pre></td></tr>\n"
        );
    }

    #[test]
    fn listing_lines_end_at_lf_and_are_bounded() {
        assert_eq!(line(b"ab\r\ncd"), Ok((b"ab\r".to_vec(), 4)));
        assert_eq!(line(b"ab"), Err(WireError::Incomplete));
        assert_eq!(line(&vec![b'x'; MAX_LINE + 1]), Err(WireError::TooLarge));
    }
}
