//! Plots the recent history of a quantity as bars, one character wide each.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::{Sparkline, Widget};

use super::draw_text;
use crate::amount::{milliseconds, short};
use crate::answer::Direction;
use crate::history::{History, Quantity};
use crate::theme::Theme;

/// Width of the label at the left of a plot, in characters.
const LABEL_WIDTH: u16 = 30;

/// Draws a plot with the newest sample at the right. The vertical scale ends at the highest bar.
pub fn draw(history: &History, quantity: Quantity, side: Direction, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let series = history.series(quantity, side);
    draw_text(
        buffer,
        Position::new(area.x, area.y),
        &label(&series, quantity, side),
        area.width.min(LABEL_WIDTH),
        theme,
        theme.strong(),
    );
    let area = Rect { x: area.x + LABEL_WIDTH, width: area.width.saturating_sub(LABEL_WIDTH), ..area };
    let bars = bars(&series, usize::from(area.width));
    let free = usize::from(area.width) - bars.len();
    let highest = bars.iter().flatten().copied().max().unwrap_or(0).max(1);
    let data = std::iter::repeat_n(None, free).chain(bars);
    Sparkline::default().data(data).max(highest).bar_set(theme.bars()).style(theme.plot()).render(area, buffer);
}

/// Returns the label of a plot: quantity, current value and maximum.
fn label(series: &[Option<f32>], quantity: Quantity, side: Direction) -> String {
    let word = match quantity {
        Quantity::Rate => "rate",
        Quantity::Rtt => "RTT",
        Quantity::Queued => "queued",
    };
    let direction = match side {
        Direction::Down => "down",
        Direction::Up => "up",
    };
    let text = |value: Option<f32>| match (value.map(f64::from), quantity) {
        (None, _) => "-".to_owned(),
        (Some(seconds), Quantity::Rtt) => milliseconds(seconds),
        (Some(value), _) => short(value),
    };
    let now = text(series.last().copied().flatten());
    let most = text(series.iter().flatten().copied().reduce(f32::max));
    format!("{:<11} {now:>5}, most {most}", format!("{word} {direction}"))
}

/// Reduces the series to at most `width` bars, each the mean of adjacent samples. Bars are in millionths of the unit,
/// because [`Sparkline`] takes integers.
fn bars(series: &[Option<f32>], width: usize) -> Vec<Option<u64>> {
    let together = series.len().div_ceil(width.max(1)).max(1);
    let mut bars: Vec<_> = series.rchunks(together).map(mean).collect();
    bars.reverse();
    bars.truncate(width);
    bars
}

fn mean(values: &[Option<f32>]) -> Option<u64> {
    let known: Vec<f64> = values.iter().flatten().map(|value| f64::from(*value)).collect();
    (!known.is_empty()).then(|| (known.iter().sum::<f64>() / known.len() as f64 * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_average_long_histories_with_the_newest_on_the_right() {
        let series: Vec<Option<f32>> = (1..=5).map(|at| Some(at as f32)).collect();
        let plain = |bars: Vec<Option<u64>>| bars.into_iter().map(|bar| bar.map(|bar| bar / 1000)).collect::<Vec<_>>();
        assert_eq!(plain(bars(&series, 9)), [Some(1000), Some(2000), Some(3000), Some(4000), Some(5000)]);
        assert_eq!(plain(bars(&series, 3)), [Some(1000), Some(2500), Some(4500)]);
        assert_eq!(plain(bars(&[None, None, Some(4.0)], 2)), [None, Some(4000)]);
        assert_eq!(bars(&series, 0), []);
    }
}
