//! What the terminal can show, and styles for it. Without colour everything is still told apart by words, bold and
//! reverse.

use std::env;

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

/// What may be used to draw.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// Colours.
    pub colour: bool,
    /// Characters beyond ASCII.
    pub unicode: bool,
}

/// Levels of a plot by how dark a character is.
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
    /// As the environment says: `NO_COLOR` (no-color.org) when it is not empty, and the locale (locale(7)).
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

    /// What stands for the rest of a text that does not fit.
    pub(crate) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    pub(crate) fn heading(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// The heading of the column that is sorted by.
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
