//! Comparison of tensors: relative to the reference's largest value, with the worst place named.

/// `max |got − want| / max |want|`, and where it is.
pub fn worst(got: &[f32], want: &[f32]) -> (f64, usize) {
    assert_eq!(got.len(), want.len(), "lengths differ");
    let scale = want.iter().fold(0f64, |m, w| m.max(f64::from(w.abs()))).max(f64::MIN_POSITIVE);
    let mut worst = (0.0, 0);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - f64::from(*w)).abs() / scale;
        // NaN is the worst error there is.
        if error > worst.0 || error.is_nan() {
            worst = (if error.is_nan() { f64::INFINITY } else { error }, i);
        }
    }
    worst
}

/// Asserts `max |got − want| ≤ tolerance · max |want|`.
#[track_caller]
pub fn close(what: &str, got: &[f32], want: &[f32], tolerance: f64) {
    let (error, at) = worst(got, want);
    assert!(
        error <= tolerance,
        "{what}: error {error:.2e} of the largest at {at} (got {}, want {}), tolerance {tolerance:.1e}",
        got[at],
        want[at]
    );
}

/// Asserts that every bit is the same.
#[track_caller]
pub fn identical(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    if let Some(i) = (0..got.len()).find(|i| got[*i].to_bits() != want[*i].to_bits()) {
        panic!("{what}: differs first at {i}: got {}, want {}", got[i], want[i]);
    }
}
