use super::Guards;

#[test]
fn the_migrations_make_these_guards() {
    let Guards { triggers, functions } = Guards::expected();
    let names: Vec<&str> = functions.keys().map(String::as_str).collect();
    let expected = [
        "stepgate_expect",
        "stepgate_keep_archived",
        "stepgate_keep_archived_key",
        "stepgate_keep_effects_key",
        "stepgate_keep_erasable",
        "stepgate_keep_later_key",
        "stepgate_keep_run",
        "stepgate_keep_runs_key",
        "stepgate_keep_sealed",
        "stepgate_keep_trace",
        "stepgate_number_steps",
        "stepgate_refuse",
    ];
    assert_eq!(names, expected);
    let chunks = "A CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks FOR EACH ROW \
                   EXECUTE FUNCTION stepgate_refuse('rows are never changed')";
    assert_eq!(triggers["chunks_no_update"], chunks);
    assert!(triggers["sessions_fixed"].contains("kind, ts, node_id ON sessions"));
    assert!(triggers["tool_runs_final"].contains("WHEN … EXECUTE"));
    assert_eq!(triggers.len(), 46);
}
