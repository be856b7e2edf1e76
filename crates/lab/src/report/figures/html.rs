//! One HTML page with the charts of all published figures.

use super::{circumstances, verdict_line};
use crate::experiment::judge::figures::PublishedFigures;
use crate::report::markup::Markup;
use crate::report::page::{draw_group, draw_page, draw_section};
use crate::report::view::ReportView;
use crate::report::{gains, plots, tables};

/// The page, with a table of contents.
#[must_use]
pub fn render_figures_html(all: &[&PublishedFigures]) -> String {
    draw_page("ekiden: results of the laboratory", |main| {
        main.element("header", &[], |header| {
            header.leaf("h1", &[], "Results of the laboratory");
            let facts = "Medians of valid runs of the full size, with 95 % confidence intervals.";
            header.leaf("p", &[("class", &"facts")], facts);
        });
        main.element("ul", &[], |list| {
            for figures in all {
                let (name, title) = (&figures.manifest.name, &figures.manifest.title);
                list.element("li", &[], |item| item.leaf("a", &[("href", &format!("#{name}"))], title));
            }
        });
        all.iter().for_each(|figures| draw_experiment(main, figures));
    })
}

fn draw_experiment(main: &mut Markup, figures: &PublishedFigures) {
    let results = figures.to_results();
    let view = ReportView::new(&results);
    let manifest = &figures.manifest;
    main.element("header", &[("id", &manifest.name)], |header| {
        header.leaf("p", &[("class", &"eyebrow")], &manifest.name);
        header.leaf("h1", &[], &manifest.title);
        header.leaf("p", &[("class", &"facts")], &format!("{}. {}", verdict_line(&view), circumstances(figures)));
    });
    if let Some(charts) = plots::metric_charts(&view) {
        draw_group(main, &charts);
    }
    for further in results.by_extra_metrics() {
        if let Some(charts) = plots::metric_charts(&ReportView::new(&further)) {
            draw_group(main, &charts);
        }
    }
    draw_section(main, "Expectations", &tables::outcomes(&view), "");
    draw_section(main, "Gains", &gains::table(&view), gains::NOTE);
}
