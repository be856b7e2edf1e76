//! Markup that is well-formed by construction: elements nest as the calls that add them, and every text is escaped.

use std::fmt::{self, Display, Write};

/// A piece of HTML or SVG.
#[derive(Debug, Default)]
pub struct Markup(String);

/// Attributes of an element: name and value.
pub type Attributes<'a> = &'a [(&'a str, &'a dyn Display)];

impl Markup {
    /// Adds an element with the content that `inside` adds.
    pub fn element(&mut self, name: &str, attributes: Attributes, inside: impl FnOnce(&mut Self)) {
        self.start(name, attributes);
        self.0.push('>');
        inside(self);
        self.end(name);
    }

    /// Adds an element that contains only text.
    pub fn leaf(&mut self, name: &str, attributes: Attributes, text: &str) {
        self.element(name, attributes, |inside| inside.text(text));
    }

    /// Adds an empty element: `<circle …/>`, `<meta …/>`.
    pub fn empty(&mut self, name: &str, attributes: Attributes) {
        self.start(name, attributes);
        self.0.push_str("/>");
    }

    /// Adds text, escaped, inside the current element.
    pub fn text(&mut self, text: &str) {
        self.0.push_str(&escape(text));
    }

    /// Adds a constant, such as a style sheet or a document type, without escaping.
    pub fn constant(&mut self, text: &'static str) {
        self.0.push_str(text);
    }

    /// Adds another piece of markup.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    fn start(&mut self, name: &str, attributes: Attributes) {
        self.0.push('<');
        self.0.push_str(name);
        for (key, value) in attributes {
            let value = escape(&value.to_string());
            write!(self.0, " {key}=\"{value}\"").unwrap_or_default();
        }
    }

    fn end(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
        if BLOCKS.contains(&name) {
            self.0.push('\n');
        }
    }
}

/// Elements that end a line, so that two reports can be compared line by line.
const BLOCKS: [&str; 14] =
    ["p", "h1", "h2", "h3", "tr", "table", "section", "svg", "figure", "li", "head", "header", "details", "g"];

impl Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Escapes text, so that no browser interprets it as markup in an element or in an attribute. Control characters, which
/// XML forbids, are replaced.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            _ if letter.is_control() => safe.push('\u{fffd}'),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_nest_and_escape() {
        let mut markup = Markup::default();
        markup.element("b", &[("title", &"\"x\" & <y>")], |b| b.text("a<b>\u{7}'"));
        markup.empty("hr", &[]);
        assert_eq!(markup.to_string(), "<b title=\"&quot;x&quot; &amp; &lt;y&gt;\">a&lt;b&gt;\u{fffd}&#39;</b><hr/>");
    }
}
