//! How texts are put together, and how they write numbers.

/// Appends to a text: `put!(text, "{} of {}", 1, 2)`.
#[macro_export]
macro_rules! put {
    ($text:expr, $($part:tt)*) => {
        std::fmt::Write::write_fmt(&mut $text, format_args!($($part)*))
            .expect("invariant: a String takes everything")
    };
}

/// From where on a number needs no decimals, one, two and so on.
const DECIMALS: [f64; 6] = [99.95, 9.995, 0.9995, 0.099_95, 0.009_995, 0.000_999_5];

/// Three digits that mean something; whole numbers stay whole.
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let needed = DECIMALS.iter().position(|from| value.abs() >= *from);
    format!("{value:.*}", needed.unwrap_or(DECIMALS.len()))
}

/// A ratio: near 1 the third decimal is what people look for.
pub(crate) fn ratio(value: f64) -> String {
    if value < 9.9995 {
        format!("{value:.3}")
    } else {
        shown(value)
    }
}

pub(crate) fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{} %", shown(100.0 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_mean_something() {
        for (value, text) in [
            (12_797.4, "12797"),
            (562.3, "562"),
            (99.96, "100"),
            (80.2, "80.2"),
            (9.999, "10.0"),
            (2.7, "2.70"),
            (0.9996, "1.00"),
            (0.9994, "0.999"),
            (0.11, "0.110"),
            (0.05, "0.0500"),
            (0.0017, "0.00170"),
            (0.0, "0"),
        ] {
            assert_eq!(shown(value), text);
        }
    }
}
