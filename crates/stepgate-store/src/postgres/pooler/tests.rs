use super::{ServerProcess, judge};

fn answers(processes: &[i64], has_our_settings: bool) -> Vec<ServerProcess> {
    processes.iter().map(|process| ServerProcess { process: *process, has_our_settings }).collect()
}

#[test]
fn only_connections_that_keep_their_server_process_and_their_settings_are_taken() {
    let rows: [(&[i64], i64, bool, Option<&str>); 6] = [
        (&[1, 1, 1, 1], 2, true, None),
        // The last used server connection is used next.
        (&[1, 2, 2], 1, true, Some("another server connection")),
        (&[1, 1, 1], 1, true, Some("another server connection")),
        // Round robin.
        (&[1, 3, 1, 2], 2, true, Some("another server connection")),
        (&[1, 1, 2, 1], 3, true, Some("another server connection")),
        (&[1, 1, 1, 1], 2, false, Some("drops the settings")),
    ];
    for (of_first, of_second, has_our_settings, expected) in rows {
        let second = answers(&[of_second], has_our_settings);
        let found = judge(&answers(of_first, has_our_settings), &second[0]);
        match expected {
            Some(expected) => assert!(found.unwrap().contains(expected), "{of_first:?}"),
            None => assert_eq!(found, None, "{of_first:?}"),
        }
    }
}
