//! Formats numbers for people, in messages and tables.

/// Formats a number with five significant digits and thousands separators. From 10^12 on, and below 10^-4, it uses
/// powers of ten.
pub fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "inf".to_owned();
    }
    if value != 0.0 && !(1e-4..1e12).contains(&value.abs()) {
        let text = format!("{value:.4e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let decimals = if value.abs() >= 1e4 || value.fract() == 0.0 {
        0
    } else {
        (4 - value.abs().log10().floor() as i32).clamp(0, 8) as usize
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = rest.trim_end_matches('0');
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        let expected = [
            (0.0, "0"),
            (425.0, "425"),
            (0.165844, "0.16584"),
            (2.3e9, "2,300,000,000"),
            (12_345.6, "12,346"),
            (-1_234.5, "-1,234.5"),
            (1e13, "1e13"),
            (2.27e-5, "2.27e-5"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in expected {
            assert_eq!(plain(value), text);
        }
    }
}
