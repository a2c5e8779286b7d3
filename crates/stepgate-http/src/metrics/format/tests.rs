use super::*;

#[test]
fn a_counter_of_the_older_format_is_named_with_its_suffix() {
    let text = "# HELP a_steps Steps, by outcome.\n# TYPE a_steps counter\na_steps_total{x=\"# HELP y\"} 1\n\
                # HELP a_open Open.\n# TYPE a_open gauge\na_open 2\n# EOF\n";
    let expected = "# HELP a_steps_total Steps, by outcome.\n# TYPE a_steps_total counter\n\
                    a_steps_total{x=\"# HELP y\"} 1\n# HELP a_open Open.\n# TYPE a_open gauge\na_open 2\n";
    assert_eq!(Format::Prometheus.of(text.to_owned()), expected);
    assert_eq!(Format::OpenMetrics.of(text.to_owned()), text);
}
