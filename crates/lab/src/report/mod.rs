//! What came of an experiment, for people: HTML, Markdown, JSON.
