//! Decimal numbers without rounding errors.

/// Maximum number of digits, not counting the point: as many as the largest 64-bit number has.
const MAX_DIGITS: usize = 20;

/// Splits a text into a number and its unit, and trims the spaces around either.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    Some((number, unit.trim_start()))
}

/// The number `digits` divided by ten to the power of `places`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    digits: u64,
    places: u32,
}

impl Decimal {
    /// Parses `12`, `1.5` or `.5`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let both = [whole, fraction].concat();
        let ends_well = !text.ends_with('.');
        if both.is_empty() || both.len() > MAX_DIGITS || !ends_well {
            return None;
        }
        if !both.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            digits: both.parse().ok()?,
            places: u32::try_from(fraction.len()).ok()?,
        })
    }

    /// Returns the number times `unit`, rounded down, or `None` if it exceeds 64 bits.
    pub(super) fn times(self, unit: u64) -> Option<u64> {
        let product = u128::from(self.digits) * u128::from(unit);
        u64::try_from(product / 10u128.pow(self.places)).ok()
    }

    pub(super) fn is_zero(self) -> bool {
        self.digits == 0
    }

    pub(super) fn is_whole(self) -> bool {
        u128::from(self.digits).is_multiple_of(10u128.pow(self.places))
    }
}

/// Formats `value` in the largest of `units` that is not larger than it; `units` are listed largest first. The result
/// is exact, or rounded to `precision` decimal places.
pub(super) fn format_in_units(
    value: u128,
    units: &[(u64, &str)],
    precision: Option<usize>,
) -> String {
    let fits = units.iter().find(|&&(unit, _)| u128::from(unit) <= value);
    let Some(&(unit, name)) = fits.or(units.last()) else {
        return value.to_string();
    };
    let unit = u128::from(unit);
    let places = unit.ilog10() as usize;
    let kept = precision.map_or(places, |precision| precision.min(places));
    let dropped = 10u128.pow(u32::try_from(places - kept).unwrap_or(0));
    // Rounds half a unit up.
    let value = (value + dropped / 2) / dropped;
    let unit = unit / dropped;
    let (whole, fraction) = (value / unit, value % unit);
    if kept == 0 {
        return format!("{whole}{name}");
    }
    let fraction = format!("{fraction:0kept$}");
    let number = format!("{whole}.{fraction}");
    let number = match precision {
        Some(_) => &number,
        None => number.trim_end_matches('0').trim_end_matches('.'),
    };
    format!("{number}{name}")
}
