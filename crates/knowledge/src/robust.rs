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

/// Quantile of sorted values by linear interpolation; `None` without values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    let below = position as usize;
    let above = (below + 1).min(last);
    let part = position - below as f64;
    Some(sorted[below] + part * (sorted[above] - sorted[below]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles() {
        assert!((median(&mut [3.0, 1.0, 9.0]) - 3.0).abs() < 1e-12);
        assert!((median(&mut [4.0, 1.0]) - 2.5).abs() < 1e-12);
        assert!((median(&mut [7.0]) - 7.0).abs() < 1e-12);
        assert_eq!(quantile(&[0.0, 1.0, 2.0], 0.25), Some(0.5));
        assert_eq!(quantile(&[5.0], 0.9), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
