//! Renders the report as one self-contained HTML page: without scripts and network access, in light and dark colours,
//! for screen and paper.

use crate::experiment::collect::results::{ExpectationVerdict, Results};
use crate::report::chart::{draw_swatch, style_class};
use crate::report::markup::Markup;
use crate::report::number::{format_count, pluralized};
use crate::report::plots::{self, ChartGroup};
use crate::report::table::{CellKind, Column, ReportTable, TableCell};
use crate::report::view::ReportView;
use crate::report::{floors, gains, paths, tables};

/// Renders the whole page as one HTML file.
#[must_use]
pub fn render_html(results: &Results) -> String {
    let view = ReportView::new(results);
    let title = format!("{}: {}", results.manifest.name, results.manifest.title);
    draw_page(&title, |main| draw_sections(main, &view))
}

/// Renders a whole HTML file with this title and content.
pub(super) fn draw_page(title: &str, content: impl FnOnce(&mut Markup)) -> String {
    let mut page = Markup::default();
    page.constant("<!DOCTYPE html>\n");
    page.element("html", &[("lang", &"en")], |html| {
        html.element("head", &[], |head| {
            head.empty("meta", &[("charset", &"utf-8")]);
            head.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
            head.empty("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
            head.leaf("title", &[], title);
            head.element("style", &[], |style| style.constant(include_str!("style.css")));
        });
        html.element("body", &[], |body| body.element("main", &[], content));
    });
    page.to_string()
}

fn draw_sections(main: &mut Markup, view: &ReportView) {
    let results = view.results;
    draw_title(main, view);
    draw_verdict_tiles(main, view);
    draw_warnings(main, view);
    draw_section(main, "Expectations", &tables::outcomes(view), "");
    draw_section(main, "Gains", &gains::table(view), gains::NOTE);
    for figure in plots::result_charts(view) {
        draw_group(main, &figure);
    }
    let ratios = format!(
        "Medians over valid runs. Ratios are to {} in the same block. Fewer than six values have no 95 % interval; their range is shown.",
        view.baseline()
    );
    draw_section(main, "Results", &tables::cells(view), &ratios);
    for further in results.by_extra_metrics() {
        let view = ReportView::new(&further);
        if let Some(figure) = plots::metric_charts(&view) {
            draw_group(main, &figure);
        }
        draw_section(main, &format!("Results: {}", view.metric_name()), &tables::cells(&view), &ratios);
    }
    draw_section(main, "Arithmetic floors", &floors::table(view), floors::FORMULA_LEGEND);
    draw_section(main, "Paths", &paths::table(view), paths::NOTE);
    draw_section(main, "Groups", &tables::table(view), tables::NOTE);
    draw_section(
        main,
        "Link validation",
        &tables::checks(results),
        "Measured before the first run, by other code than the emulator's.",
    );
    draw_section(main, "Invalid runs", &tables::invalid_runs(view), "");
    let busy = tables::cpu_summary(&results.runs).unwrap_or_default();
    let note = format!("Lateness is hand-over against ideal time. All runs are summed, valid or not. {busy}");
    draw_section(main, "Emulator", &tables::directions(&results.runs), note.trim_end());
    if let Some(figure) = plots::emulator_charts(view) {
        draw_group(main, &figure);
    }
    draw_manifest(main, results);
}

fn draw_title(main: &mut Markup, view: &ReportView) {
    let manifest = &view.results.manifest;
    main.element("header", &[], |header| {
        header.leaf("p", &[("class", &"eyebrow")], &manifest.name);
        header.leaf("h1", &[], &manifest.title);
        let mut facts = vec![format!("{} size", manifest.size), pluralized(view.results.runs.len(), "run")];
        facts.push(pluralized(manifest.blocks as usize, "block"));
        facts.push(manifest.started.clone());
        if let Some(source) = &manifest.source {
            facts.insert(0, format!("after {source}"));
        }
        facts.retain(|fact| !fact.trim().is_empty());
        header.leaf("p", &[("class", &"facts")], &facts.join(" · "));
    });
}

/// Draws the numbers of missed, unknown and met expectations and of valid runs, and a banner if the results are
/// invalid.
fn draw_verdict_tiles(main: &mut Markup, view: &ReportView) {
    main.element("section", &[("class", &"verdicts"), ("aria-label", &"Verdict")], |section| {
        if let Some(why) = view.invalid_reason() {
            section.element("p", &[("class", &"banner bad"), ("role", &"alert")], |banner| {
                banner.leaf("strong", &[], "Run invalid");
                banner.text(&format!(": {why}."));
            });
        }
        section.element("ul", &[("class", &"tiles")], |tiles| {
            let (missed, unknown) = (
                view.count_with_verdict(ExpectationVerdict::Missed),
                view.count_with_verdict(ExpectationVerdict::Unknown),
            );
            draw_tile(tiles, missed, "missed", if missed == 0 { "plain" } else { "bad" });
            if unknown > 0 {
                draw_tile(tiles, unknown, "unknown", "unknown");
            }
            let met = if view.invalid_reason().is_some() { "plain" } else { "good" };
            draw_tile(tiles, view.count_with_verdict(ExpectationVerdict::Met), "met", met);
            let runs = &view.results.runs;
            let valid = runs.iter().filter(|run| run.invalid.is_none()).count();
            draw_tile(tiles, valid, &format!("of {} valid", pluralized(runs.len(), "run")), "plain");
        });
    });
}

fn draw_tile(tiles: &mut Markup, number: usize, what: &str, tone: &str) {
    tiles.element("li", &[("class", &format!("tile {tone}"))], |tile| {
        tile.leaf("span", &[("class", &"big")], &format_count(number as u64));
        tile.text(" ");
        tile.leaf("span", &[], what);
    });
}

fn draw_warnings(main: &mut Markup, view: &ReportView) {
    let warnings = view.warnings();
    if warnings.is_empty() {
        return;
    }
    main.element("section", &[("class", &"warnings")], |section| {
        section.leaf("h2", &[], &pluralized(warnings.len(), "warning"));
        section.element("ul", &[], |list| warnings.iter().for_each(|warning| list.leaf("li", &[], warning)));
    });
}

pub(super) fn draw_section(main: &mut Markup, heading: &str, table: &ReportTable, note: &str) {
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

fn draw_table(html: &mut Markup, table: &ReportTable, label: &str) {
    // A wide table scrolls separately from the page, also by keyboard.
    html.element(
        "div",
        &[("class", &"scroll"), ("tabindex", &"0"), ("role", &"region"), ("aria-label", &label)],
        |html| {
            html.element("table", &[], |html| {
                html.element("thead", &[], |head| {
                    head.element("tr", &[], |row| table.columns.iter().for_each(|column| draw_head_cell(row, column)));
                });
                html.element("tbody", &[], |body| table.rows.iter().for_each(|row| draw_row(body, row, table)));
            });
        },
    );
}

fn draw_head_cell(row: &mut Markup, column: &Column) {
    let class = if column.numeric { "number" } else { "text" };
    row.leaf("th", &[("scope", &"col"), ("class", &class)], &column.title);
}

/// Number of characters above which a cell has a minimum width, even if the table then has to scroll.
const LONG_TEXT: usize = 28;

fn draw_row(body: &mut Markup, cells: &[TableCell], table: &ReportTable) {
    let repeated = cells.iter().filter(|cell| cell.kind == CellKind::Repeated).count();
    let group = match repeated {
        0 => "first",
        _ if repeated == table.groups => "again",
        _ => "inner",
    };
    body.element("tr", &[("class", &group)], |row| {
        for (cell, column) in cells.iter().zip(&table.columns) {
            let align = if column.numeric { "number" } else { "text" };
            let long = if cell.text.chars().count() > LONG_TEXT { " long" } else { "" };
            let class = format!("{align}{long} {}", cell_class(cell.kind));
            row.element("td", &[("class", &class.trim_end())], |html| {
                if let CellKind::Treatment(style) = cell.kind {
                    draw_swatch(html, style);
                }
                html.text(&cell.text);
            });
        }
    });
}

const fn cell_class(tone: CellKind) -> &'static str {
    match tone {
        CellKind::Plain => "",
        CellKind::Good => "good",
        CellKind::Bad => "bad",
        CellKind::Unknown => "unknown",
        CellKind::Repeated => "repeated",
        CellKind::Treatment(_) => "series",
    }
}

pub(super) fn draw_group(main: &mut Markup, figure: &ChartGroup) {
    main.element("section", &[], |section| {
        section.leaf("h2", &[], &figure.heading);
        section.leaf("p", &[("class", &"note")], &figure.note);
        if !figure.legend.is_empty() {
            section.element("ul", &[("class", &"legend")], |list| {
                for (style, name) in &figure.legend {
                    list.element("li", &[("class", &style_class(*style))], |item| {
                        draw_swatch(item, *style);
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

fn draw_manifest(main: &mut Markup, results: &Results) {
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
                draw_list(lists, heading, pairs);
            }
        });
        section.element("details", &[], |details| {
            details.leaf("summary", &[], "Experiment file, with every default filled in");
            details.leaf("pre", &[("tabindex", &"0")], &manifest.file);
        });
    });
}

fn draw_list(lists: &mut Markup, heading: &str, pairs: &[(String, String)]) {
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
