//! Statistics that one outlier cannot move far.

/// Median; the mean of the middle two of an even number. The values are reordered.
///
/// # Panics
/// If there is no value.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let (half, last) = (values.len() / 2, values.len() - 1);
    let low = values[last / 2];
    0.5 * (low + values[half])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles() {
        assert!((median(&mut [3.0, 1.0, 9.0]) - 3.0).abs() < 1e-12);
        assert!((median(&mut [4.0, 1.0]) - 2.5).abs() < 1e-12);
        assert!((median(&mut [7.0]) - 7.0).abs() < 1e-12);
    }
}
