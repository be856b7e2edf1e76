//! The report as one self-contained HTML page: no script, no network, light and dark, for screen and paper.

use crate::experiment::results::{Results, Verdict};
use crate::report::chart::{class, swatch};
use crate::report::markup::Markup;
use crate::report::number::{count, counted};
use crate::report::plots::{self, Figure};
use crate::report::table::{Cell, Column, Table, Tone};
use crate::report::view::View;
use crate::report::{floors, gains, groups, paths, tables};

/// The page.
#[must_use]
pub fn html(results: &Results) -> String {
    let view = View::new(results);
    let mut page = Markup::default();
    page.constant("<!DOCTYPE html>\n");
    page.element("html", &[("lang", &"en")], |html| {
        html.element("head", &[], |head| {
            head.empty("meta", &[("charset", &"utf-8")]);
            head.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
            head.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
            head.leaf("title", &[], &format!("{}: {}", results.manifest.name, results.manifest.title));
            head.element("style", &[], |style| style.constant(include_str!("style.css")));
        });
        html.element("body", &[], |body| body.element("main", &[], |main| sections(main, &view)));
    });
    page.to_string()
}

fn sections(main: &mut Markup, view: &View) {
    let results = view.results;
    title(main, view);
    verdicts(main, view);
    warnings(main, view);
    section(main, "Expectations", &tables::outcomes(view), "");
    section(main, "Gains", &gains::table(view), gains::NOTE);
    for figure in plots::results(view) {
        draw(main, &figure);
    }
    let ratios = format!(
        "Medians over valid runs. Ratios are to {} in the same block. An interval whose confidence is not 95 % says so.",
        view.baseline()
    );
    section(main, "Results", &tables::cells(view), &ratios);
    for further in results.by_further_figures() {
        let view = View::new(&further);
        if let Some(figure) = plots::metric(&view) {
            draw(main, &figure);
        }
        section(main, &format!("Results: {}", view.metric()), &tables::cells(&view), &ratios);
    }
    section(main, "Arithmetic floors", &floors::table(view), floors::LETTERS);
    section(main, "Paths", &paths::table(view), paths::NOTE);
    section(main, "Groups", &groups::table(view), groups::NOTE);
    section(
        main,
        "Link validation",
        &tables::checks(results),
        "Measured before the first run, by other code than the emulator's.",
    );
    section(main, "Invalid runs", &tables::invalid_runs(view), "");
    let busy = tables::busy(&results.runs).unwrap_or_default();
    let note = format!("Lateness is hand-over against ideal time. All runs are summed, valid or not. {busy}");
    section(main, "Emulator", &tables::directions(&results.runs), note.trim_end());
    if let Some(figure) = plots::emulator(view) {
        draw(main, &figure);
    }
    manifest(main, results);
}

fn title(main: &mut Markup, view: &View) {
    let manifest = &view.results.manifest;
    main.element("header", &[], |header| {
        header.leaf("p", &[("class", &"eyebrow")], &manifest.name);
        header.leaf("h1", &[], &manifest.title);
        let mut facts = vec![format!("{} size", manifest.size), counted(view.results.runs.len(), "run")];
        facts.push(counted(manifest.blocks as usize, "block"));
        facts.push(manifest.started.clone());
        if let Some(source) = &manifest.source {
            facts.insert(0, format!("after {source}"));
        }
        facts.retain(|fact| !fact.trim().is_empty());
        header.leaf("p", &[("class", &"facts")], &facts.join(" · "));
    });
}

/// The answer at a glance: how many expectations hold, and whether anything can be told at all.
fn verdicts(main: &mut Markup, view: &View) {
    main.element("section", &[("class", &"verdicts"), ("aria-label", &"Verdict")], |section| {
        if let Some(why) = view.invalid() {
            section.element("p", &[("class", &"banner bad"), ("role", &"alert")], |banner| {
                banner.leaf("strong", &[], "Run invalid");
                banner.text(&format!(": {why}."));
            });
        }
        section.element("ul", &[("class", &"tiles")], |tiles| {
            let (missed, unknown) = (view.count(Verdict::Missed), view.count(Verdict::Unknown));
            tile(tiles, missed, "missed", if missed == 0 { "plain" } else { "bad" });
            if unknown > 0 {
                tile(tiles, unknown, "unknown", "unknown");
            }
            let met = if view.invalid().is_some() { "plain" } else { "good" };
            tile(tiles, view.count(Verdict::Met), "met", met);
            let runs = &view.results.runs;
            let valid = runs.iter().filter(|run| run.invalid.is_none()).count();
            tile(tiles, valid, &format!("of {} valid", counted(runs.len(), "run")), "plain");
        });
    });
}

fn tile(tiles: &mut Markup, number: usize, what: &str, tone: &str) {
    tiles.element("li", &[("class", &format!("tile {tone}"))], |tile| {
        tile.leaf("span", &[("class", &"big")], &count(number as u64));
        tile.text(" ");
        tile.leaf("span", &[], what);
    });
}

fn warnings(main: &mut Markup, view: &View) {
    let warnings = view.warnings();
    if warnings.is_empty() {
        return;
    }
    main.element("section", &[("class", &"warnings")], |section| {
        section.leaf("h2", &[], &counted(warnings.len(), "warning"));
        section.element("ul", &[], |list| warnings.iter().for_each(|warning| list.leaf("li", &[], warning)));
    });
}

fn section(main: &mut Markup, heading: &str, table: &Table, note: &str) {
    if table.rows.is_empty() {
        return;
    }
    main.element("section", &[], |section| {
        section.leaf("h2", &[], heading);
        if !note.is_empty() {
            section.leaf("p", &[("class", &"note")], note);
        }
        draw_table(section, table, heading);
    });
}

fn draw_table(html: &mut Markup, table: &Table, label: &str) {
    // A wide table scrolls by itself, and by keyboard too.
    html.element(
        "div",
        &[("class", &"scroll"), ("tabindex", &"0"), ("role", &"region"), ("aria-label", &label)],
        |html| {
            html.element("table", &[], |html| {
                html.element("thead", &[], |head| {
                    head.element("tr", &[], |row| table.columns.iter().for_each(|column| head_cell(row, column)));
                });
                html.element("tbody", &[], |body| table.rows.iter().for_each(|row| draw_row(body, row, table)));
            });
        },
    );
}

fn head_cell(row: &mut Markup, column: &Column) {
    let class = if column.numeric { "number" } else { "text" };
    row.leaf("th", &[("scope", &"col"), ("class", &class)], &column.title);
}

/// Text of more letters than this needs room, even where the table then has to scroll.
const LONG: usize = 28;

fn draw_row(body: &mut Markup, cells: &[Cell], table: &Table) {
    let repeated = cells.iter().filter(|cell| cell.tone == Tone::Repeated).count();
    let group = match repeated {
        0 => "first",
        _ if repeated == table.groups => "again",
        _ => "inner",
    };
    body.element("tr", &[("class", &group)], |row| {
        for (cell, column) in cells.iter().zip(&table.columns) {
            let align = if column.numeric { "number" } else { "text" };
            let long = if cell.text.chars().count() > LONG { " long" } else { "" };
            let class = format!("{align}{long} {}", tone(cell.tone));
            row.element("td", &[("class", &class.trim_end())], |html| {
                if let Tone::Series(style) = cell.tone {
                    swatch(html, style);
                }
                html.text(&cell.text);
            });
        }
    });
}

const fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Unknown => "unknown",
        Tone::Repeated => "repeated",
        Tone::Series(_) => "series",
    }
}

fn draw(main: &mut Markup, figure: &Figure) {
    main.element("section", &[], |section| {
        section.leaf("h2", &[], &figure.heading);
        section.leaf("p", &[("class", &"note")], &figure.note);
        if !figure.legend.is_empty() {
            section.element("ul", &[("class", &"legend")], |list| {
                for (style, name) in &figure.legend {
                    list.element("li", &[("class", &class(*style))], |item| {
                        swatch(item, *style);
                        item.text(name);
                    });
                }
            });
        }
        section.element("div", &[("class", &"charts")], |charts| {
            for chart in &figure.charts {
                charts.element("figure", &[], |html| {
                    html.leaf("figcaption", &[], &chart.title);
                    html.append(&chart.svg);
                });
            }
        });
    });
}

fn manifest(main: &mut Markup, results: &Results) {
    let manifest = &results.manifest;
    let identity = tables::identity(results);
    main.element("section", &[], |section| {
        section.leaf("h2", &[], "Manifest");
        section.element("div", &[("class", &"lists")], |lists| {
            let all = [
                ("Experiment", &identity),
                ("Machine", &manifest.machine),
                ("Programs", &manifest.programs),
                ("Settings", &manifest.settings),
            ];
            for (heading, pairs) in all.into_iter().filter(|(_, pairs)| !pairs.is_empty()) {
                list(lists, heading, pairs);
            }
        });
        section.element("details", &[], |details| {
            details.leaf("summary", &[], "Experiment file, with every default filled in");
            details.leaf("pre", &[("tabindex", &"0")], &manifest.file);
        });
    });
}

fn list(lists: &mut Markup, heading: &str, pairs: &[(String, String)]) {
    lists.element("div", &[], |html| {
        html.leaf("h3", &[], heading);
        html.element("dl", &[], |list| {
            for (name, value) in pairs {
                list.element("div", &[], |pair| {
                    pair.leaf("dt", &[], name);
                    pair.leaf("dd", &[], value);
                });
            }
        });
    });
}
