use super::*;

#[test]
fn a_plot_spans_its_width_and_its_highest_value_touches_the_top() {
    let plot = Plot::of("x", vec![0.0, 5.0, 10.0], |value| format!("{value}"));
    assert_eq!(plot.line, "M0.0 58.0L150.0 30.0L300.0 2.0");
    assert_eq!((plot.present.as_str(), plot.highest.as_str()), ("10", "10"));
    let flat = Plot::of("x", vec![0.0, 0.0], |value| format!("{value}"));
    assert_eq!(flat.line, "M0.0 58.0L300.0 58.0");
}
