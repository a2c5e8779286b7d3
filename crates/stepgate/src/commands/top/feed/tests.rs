use super::*;

#[test]
fn a_metric_is_summed_over_its_labels_and_no_other_is_counted() {
    let metrics = "# TYPE stepgate_steps counter\n\
                   stepgate_steps_total{outcome=\"SUCCESS\"} 40\n\
                   stepgate_steps_total{outcome=\"DENIED\"} 2\n\
                   stepgate_steps_total_more 7\n\
                   stepgate_steps_running 3\n";
    assert_eq!(sum(metrics, "stepgate_steps_total"), 42);
    assert_eq!(sum(metrics, "stepgate_steps_running"), 3);
    assert_eq!(sum(metrics, "stepgate_other"), 0);
}
