//! Special functions: the gamma function and its incomplete forms, and the normal distribution made of them.

/// The natural logarithm of the gamma function of `x` > 0: Stirling's series (Abramowitz, Stegun 6.1.40) after moving
/// `x` to where it converges (6.1.15).
#[must_use]
pub fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 15.0 {
        product *= x;
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / (1188.0 * square)) / square) / square) / square)
        / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - f64::ln(product)
}

/// The natural logarithm of the number of ways to choose `k` of `n`.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "no sample is that large")]
pub fn ln_binomial(n: u64, k: u64) -> f64 {
    let ln_factorial = |m: u64| ln_gamma(m as f64 + 1.0);
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// The regularized upper incomplete gamma function Q(a, x), for `a` > 0 and `x` >= 0: the probability that a gamma
/// variable of shape `a` is above `x`. The power series (Abramowitz, Stegun 6.5.29) below the mean, the continued
/// fraction (6.5.31) above it.
#[must_use]
pub fn gamma_q(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let scale = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 { 1.0 - scale * power_series(a, x) } else { scale * continued_fraction(a, x) }
}

/// The sum of x^n / (a (a+1) ... (a+n)).
fn power_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut next) = (1.0 / a, 1.0 / a, a);
    while term > sum * f64::EPSILON {
        next += 1.0;
        term *= x / next;
        sum += term;
    }
    sum
}

/// The continued fraction 1 / (x+1-a - 1(1-a) / (x+3-a - 2(2-a) / (x+5-a - ...))). All terms are known in advance, so
/// the fraction is evaluated from a finite depth upwards; the depth is doubled until the value converges.
fn continued_fraction(a: f64, x: f64) -> f64 {
    let taken_from = |depth: u32| {
        let level = |i: f64| x + 2.0 * i + 1.0 - a;
        let deeper = (1..=depth).rev().map(f64::from).fold(0.0, |below, i| i * (i - a) / (level(i) - below));
        1.0 / (level(0.0) - deeper)
    };
    let (mut depth, mut value) = (32, taken_from(32));
    loop {
        depth *= 2;
        let deeper = taken_from(depth);
        if (deeper - value).abs() <= value.abs() * 1e-15 || depth > 1_000_000 {
            return deeper;
        }
        value = deeper;
    }
}

/// The probability that a standard normal variable is at most `x`.
#[must_use]
pub fn normal_cdf(x: f64) -> f64 {
    let beyond = gamma_q(0.5, x * x / 2.0) / 2.0;
    if x < 0.0 { beyond } else { 1.0 - beyond }
}

/// The `x` that a standard normal variable does not exceed with the probability `p`, by bisection: -infinity at 0,
/// infinity at 1.
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    if p > 0.5 {
        // The lower tail keeps its precision where the upper tail loses it in 1 - p.
        return -normal_quantile(1.0 - p);
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let (mut below, mut above) = (-40.0, 0.0);
    loop {
        let middle = f64::midpoint(below, above);
        if middle <= below || middle >= above {
            return middle;
        }
        if normal_cdf(middle) < p { below = middle } else { above = middle }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Z_95, Z_99, Z_99_9};
    use super::*;

    fn assert_relatively_near(got: f64, wanted: f64, relative: f64) {
        assert!((got - wanted).abs() <= relative * wanted.abs(), "{got} is not {wanted}");
    }

    /// Abramowitz, Stegun, "Handbook of Mathematical Functions", table 6.1 and 6.4; factorials.
    #[test]
    fn ln_gamma_matches_published_values() {
        assert_relatively_near(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-14);
        assert_relatively_near(ln_gamma(1.5).exp(), 0.886_226_925_5, 1e-10);
        assert_relatively_near(ln_gamma(1.25).exp(), 0.906_402_477_1, 1e-10);
        assert_relatively_near(ln_gamma(21.0), 2_432_902_008_176_640_000_f64.ln(), 1e-14);
        assert!(ln_gamma(1.0).abs() < 1e-14 && ln_gamma(2.0).abs() < 1e-14);
        assert_relatively_near(ln_binomial(49, 6).exp(), 13_983_816.0, 1e-12);
    }

    /// For an integer `n`, Q(n, x) is a sum of Poisson probabilities.
    #[test]
    fn incomplete_gamma_matches_poisson_sums() {
        let poisson = |n: u32, x: f64| {
            let term = |k: u32| (f64::from(k) * x.ln() - x - ln_gamma(f64::from(k) + 1.0)).exp();
            (0..n).map(term).sum::<f64>()
        };
        for (n, x) in [(1, 0.1), (1, 3.0), (3, 1.0), (3, 12.0), (10, 9.0), (10, 11.5), (200, 180.0), (200, 230.0)] {
            assert_relatively_near(gamma_q(f64::from(n), x), poisson(n, x), 1e-11);
        }
        assert_relatively_near(gamma_q(2.5, 0.0), 1.0, 0.0);
    }

    /// Abramowitz, Stegun, table 26.1 (P(x)) and 26.2 (tail at 5).
    #[test]
    fn normal_distribution_matches_published_values() {
        assert_relatively_near(normal_cdf(0.0), 0.5, 1e-15);
        assert_relatively_near(normal_cdf(1.0), 0.841_344_746_068_543, 1e-14);
        assert_relatively_near(normal_cdf(-1.0), 0.158_655_253_931_457, 1e-13);
        assert_relatively_near(normal_cdf(2.0), 0.977_249_868_051_821, 1e-14);
        assert_relatively_near(normal_cdf(-5.0), 2.866_515_718_791_94e-7, 1e-12);
        for (z, p) in [(Z_95, 0.95), (Z_99, 0.99), (Z_99_9, 0.999)] {
            assert_relatively_near(normal_quantile(f64::midpoint(1.0, p)), z, 1e-12);
            assert_relatively_near(normal_quantile((1.0 - p) / 2.0), -z, 1e-12);
        }
        assert!(normal_quantile(0.5).abs() < 1e-15);
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    }
}
