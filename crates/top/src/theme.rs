//! Capabilities of the terminal and styles. Without colour, words, bold and reverse still make all states distinct.

use std::env;

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

/// Capabilities of the terminal that drawing may use.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to use characters beyond ASCII.
    pub unicode: bool,
}

/// Levels of a plot in ASCII, by the darkness of the character.
const ASCII_BARS: bar::Set = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "*",
    half: "+",
    three_eighths: "+",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

impl Theme {
    /// Reads the environment: a non-empty `NO_COLOR` (no-color.org) disables colours, a UTF-8 locale (locale(7))
    /// enables characters beyond ASCII.
    #[must_use]
    pub fn from_env() -> Self {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let charset = locale.to_ascii_lowercase().replace('-', "");
        Self { colour: set("NO_COLOR").is_none(), unicode: charset.contains("utf8") }
    }

    pub(crate) fn bars(self) -> bar::Set<'static> {
        if self.unicode { bar::NINE_LEVELS } else { ASCII_BARS }
    }

    /// Returns the mark at the end of a truncated text.
    pub(crate) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    pub(crate) fn heading(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Returns the style for the heading of the sort column.
    pub(crate) fn sorted(self) -> Style {
        self.heading().add_modifier(Modifier::UNDERLINED)
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn warning(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn plot(self) -> Style {
        self.coloured(Color::Green)
    }

    fn coloured(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}
