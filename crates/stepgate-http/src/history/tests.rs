use super::*;

#[test]
fn samples_move_on_with_time_and_the_oldest_are_dropped() {
    let mut kept = Kept::default();
    kept.advance(3);
    kept.samples[0].steps = 7;
    kept.samples[0].store_bytes = 9;
    kept.advance(5);
    let steps: Vec<u32> = kept.samples.iter().map(|sample| sample.steps).collect();
    assert_eq!(steps, [7, 0, 0]);
    // A size stays what it was until it is measured again.
    assert!(kept.samples.iter().all(|sample| sample.store_bytes == 9));
    kept.advance(1_000_000);
    assert_eq!(kept.samples.len(), SAMPLES);
    assert!(kept.samples.iter().all(|sample| sample.steps == 0));
}
