//! Random levels of a factor: many similar labs, each with its own delays, rates and losses. The same seed always gives
//! the same levels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::factor::{FactorLevel, QuickRule};
use ekiden_emulator::rng::SeededRng;

/// `[factor.drawn]`: the number of levels, and the values to draw for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomLevels {
    /// The number of levels.
    pub levels: u32,
    /// Number of levels, from the first on, that are part of the quick size.
    pub quick: u32,
    /// The seed of the draws.
    pub seed: u64,
    /// Dotted keys of the rest of the file, and the sources of their values.
    pub set: BTreeMap<String, ValueSource>,
}

/// The source of a drawn value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "{ from = LOW, to = HIGH } with two numbers, or two quantities of one unit, or { one_of = [...] }"
)]
pub enum ValueSource {
    /// A number or a quantity from a range.
    Range(ValueRange),
    /// One value of a list, all with equal probability.
    OneOf(ValueChoice),
}

/// The range that a value is drawn from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueRange {
    /// The lower end, inclusive.
    pub from: Value,
    /// The upper end, inclusive.
    pub to: Value,
    /// Whether the distribution is uniform in the logarithm of the value, rather than in the value.
    #[serde(default)]
    pub log: bool,
}

/// The list that a value is drawn from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueChoice {
    /// The values, all with equal probability.
    pub one_of: Vec<Value>,
}

/// A number and its unit; the unit is empty for a bare number.
struct Quantity<'a> {
    number: f64,
    unit: &'a str,
}

/// Returns the text of an experiment file with `seed` as the seed of all drawn factors, and without comments.
///
/// # Errors
/// The text is not valid TOML, or no factor is drawn.
pub fn with_seed(text: &str, seed: u64) -> anyhow::Result<String> {
    let mut document: Table = text.parse()?;
    let factors = document.get_mut("factor").and_then(Value::as_array_mut).into_iter().flatten();
    let mut count = 0;
    for drawn in factors.filter_map(|factor| factor.get_mut("drawn")?.as_table_mut()) {
        drawn.insert("seed".into(), Value::Integer(seed.try_into()?));
        count += 1;
    }
    anyhow::ensure!(count > 0, "the experiment has no factor with drawn levels");
    Ok(toml::to_string(&document)?)
}

impl RandomLevels {
    /// Draws the levels of the factor `factor`, which are named `1`, `2`, ... Each value depends only on the seed, the
    /// factor, the key and the number of the level, so further keys or levels do not change the other values.
    ///
    /// # Errors
    /// All settings that no value can be drawn from.
    pub fn draw(&self, factor: &str) -> Result<Vec<FactorLevel>, Vec<String>> {
        let mut mistakes = Vec::new();
        if self.levels == 0 || self.quick > self.levels {
            mistakes
                .push(format!("factor {factor}: drawn: expected levels of at least 1, and quick of at most levels"));
        }
        let wrong = self.set.iter().filter(|(_, from)| from.draw(0.0).is_none());
        mistakes.extend(wrong.map(|(key, _)| {
            format!(
                "factor {factor}: drawn: {key:?}: expected from and to as two numbers, or two quantities of one unit, \
                 the smaller first, and above 0 with log = true; or one_of with at least one value"
            )
        }));
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let rng = SeededRng::new(self.seed).derive(factor);
        let level = |number: u32| {
            let value = |(key, from): (&String, &ValueSource)| {
                Some((key.clone(), from.draw(rng.derive(key).uniform(number.into()))?))
            };
            let set: Table = self.set.iter().filter_map(value).collect();
            FactorLevel { name: number.to_string(), set, quick: QuickRule::Fixed(number <= self.quick) }
        };
        Ok((1..=self.levels).map(level).collect())
    }
}

impl ValueSource {
    /// Returns the value for the uniform random number `chance` from 0 to 1; `None` if no value can be drawn.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a list"
    )]
    fn draw(&self, chance: f64) -> Option<Value> {
        match self {
            Self::OneOf(ValueChoice { one_of }) => one_of.get((chance * one_of.len() as f64) as usize).cloned(),
            Self::Range(range) => range.draw(chance),
        }
    }
}

impl ValueRange {
    fn draw(&self, chance: f64) -> Option<Value> {
        let (from, to) = (Quantity::parse(&self.from)?, Quantity::parse(&self.to)?);
        let is_possible = from.unit == to.unit && from.number <= to.number && (!self.log || from.number > 0.0);
        let number = if self.log {
            from.number * (to.number / from.number).powf(chance)
        } else {
            from.number + (to.number - from.number) * chance
        };
        is_possible.then(|| from.with_number(number))
    }
}

impl<'a> Quantity<'a> {
    fn parse(value: &'a Value) -> Option<Self> {
        match value {
            Value::Float(number) => Some(Self { number: *number, unit: "" }),
            #[allow(clippy::cast_precision_loss, reason = "what people write")]
            Value::Integer(number) => Some(Self { number: *number as f64, unit: "" }),
            Value::String(text) => {
                let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
                Some(Self { number: text[..end].parse().ok()?, unit: &text[end..] })
            }
            _ => None,
        }
    }

    /// Returns `number` in the unit of this quantity, rounded as a lab file requires: to a whole number in the smallest
    /// units, else to three decimals. A number without a unit is rounded to six decimals.
    fn with_number(&self, number: f64) -> Value {
        if self.unit.is_empty() {
            return Value::Float((number * 1e6).round() / 1e6);
        }
        let steps = if matches!(self.unit.trim_start(), "us" | "bit/s" | "B" | "pkt") { 1.0 } else { 1e3 };
        Value::String(format!("{}{}", (number * steps).round() / steps, self.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_levels(set: &str) -> RandomLevels {
        toml::from_str(&format!("levels = 200\nquick = 3\nseed = 5\nset = {{ {set} }}")).unwrap()
    }

    fn values(set: &str) -> Vec<Value> {
        let levels = random_levels(set).draw("topology").unwrap();
        levels.iter().map(|level| level.set.values().next().unwrap().clone()).collect()
    }

    #[test]
    fn drawn_quantities_stay_in_their_range_and_keep_their_unit() {
        let values = values(r#""link.a.delay" = { from = "10ms", to = "40ms" }"#);
        let numbers: Vec<f64> =
            values.iter().map(|value| value.as_str().unwrap().strip_suffix("ms").unwrap().parse().unwrap()).collect();
        assert!(numbers.iter().all(|number| (10.0..=40.0).contains(number)));
        let mean = numbers.iter().sum::<f64>() / 200.0;
        assert!((22.0..28.0).contains(&mean), "{mean}");
        assert!(values.iter().all(|value| value.as_str().unwrap().len() <= "12.345ms".len()), "three decimals");
    }

    #[test]
    fn draws_in_the_smallest_units_are_whole_numbers() {
        for unit in ["us", "bit/s", "B", "pkt"] {
            for value in values(&format!("a = {{ from = \"10{unit}\", to = \"40{unit}\" }}")) {
                let number = value.as_str().unwrap().strip_suffix(unit).unwrap();
                assert!(number.parse::<u32>().is_ok(), "{value}");
            }
        }
    }

    #[test]
    fn log_draws_are_uniform_over_decades() {
        let values = values("\"link.a.loss.p\" = { from = 0.0001, to = 0.01, log = true }");
        let small = values.iter().filter(|value| value.as_float().unwrap() < 0.001).count();
        assert!((80..120).contains(&small), "{small} of 200 in the lower decade of two");
    }

    #[test]
    fn a_draw_depends_on_its_key_and_number_only() {
        let one = random_levels("a = { from = 0, to = 1 }").draw("x").unwrap();
        let more = RandomLevels { levels: 300, ..random_levels("a = { from = 0, to = 1 }, b = { one_of = [1, 2] }") }
            .draw("x")
            .unwrap();
        assert!(one.iter().zip(&more).all(|(one, more)| one.set["a"] == more.set["a"]));
        assert_ne!(one[0].set["a"], one[1].set["a"]);
        assert_ne!(random_levels("a = { from = 0, to = 1 }").draw("y").unwrap()[0].set["a"], one[0].set["a"]);
        let both: Vec<i64> = more.iter().map(|level| level.set["b"].as_integer().unwrap()).collect();
        assert!(both.contains(&1) && both.contains(&2));
        assert_eq!(more.iter().filter(|level| level.quick == QuickRule::Fixed(true)).count(), 3);
    }

    #[test]
    fn another_seed_draws_other_levels_of_the_same_factor() {
        let text = "[[factor]]\nname = \"x\"\n[factor.drawn]\nlevels = 2\nquick = 1\nseed = 3\n[factor.drawn.set]\n\
                    \"link.a.delay\" = { from = \"1ms\", to = \"9ms\" }\n";
        let drawn = |text: &str| {
            let document: Table = text.parse().unwrap();
            let drawn: RandomLevels = document["factor"][0]["drawn"].clone().try_into().unwrap();
            drawn.draw("x").unwrap()
        };
        let other = drawn(&with_seed(text, 4).unwrap());
        assert_eq!(drawn(&with_seed(text, 3).unwrap()), drawn(text));
        assert_ne!(other, drawn(text));
        assert!(with_seed("name = \"x\"", 4).is_err());
    }

    #[test]
    fn invalid_draws_are_rejected() {
        for wrong in [
            r#"a = { from = "1ms", to = "2s" }"#,
            r#"a = { from = "2ms", to = "1ms" }"#,
            r#"a = { from = "fast", to = "slow" }"#,
            "a = { from = 0, to = 1, log = true }",
            "a = { one_of = [] }",
        ] {
            let mistakes = random_levels(wrong).draw("t").unwrap_err();
            assert!(mistakes[0].starts_with("factor t: drawn: \"a\": expected from and to"), "{wrong}: {mistakes:?}");
        }
        let none = RandomLevels { quick: 201, ..random_levels("a = { one_of = [1] }") };
        assert_eq!(
            none.draw("t").unwrap_err(),
            ["factor t: drawn: expected levels of at least 1, and quick of at most levels"]
        );
    }
}
