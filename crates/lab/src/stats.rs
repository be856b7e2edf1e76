//! Statistics: order-statistic and bootstrap confidence intervals, Wilson, Kolmogorov-Smirnov, chi-square.
