use super::*;

#[test]
fn a_process_is_read_also_where_its_name_looks_like_more_fields() {
    let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 8 0 300 4096000 25 18446744073709551615 1";
    let stat = Stat::parse(stat, 100, 4096, Some(1000)).unwrap();
    assert!((stat.cpu_seconds - 2.0).abs() < f64::EPSILON);
    assert_eq!((stat.virtual_bytes, stat.resident_bytes), (4_096_000, 102_400));
    assert_eq!(stat.start_time_seconds, Some(1003.0));
    assert!(Stat::parse("7 (x) S 1", 100, 4096, None).is_none());
    assert_eq!(booted_at("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000));
}
