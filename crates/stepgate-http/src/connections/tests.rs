use super::*;

fn network(last: u8) -> Option<Network> {
    Some(Network::of([192, 0, 2, last].into()))
}

/// The ids of the open connections.
fn open(connections: &Connections) -> Vec<u64> {
    let mut ids: Vec<_> = lock::locked(&connections.rows).open.keys().copied().collect();
    ids.sort_unstable();
    ids
}

#[test]
fn at_the_limit_the_oldest_unknown_goes_first_then_the_one_unused_for_longest_and_none_in_use() {
    let connections = Connections::new(4, 4);
    let add = |last| connections.add(network(last));
    let ((a, None), (b, None), (c, None), (d, None)) =
        (add(1).unwrap(), add(2).unwrap(), add(3).unwrap(), add(4).unwrap())
    else {
        panic!("there is a place for each");
    };
    let [a_id, b_id, c_id, d_id] = [&a, &b, &c, &d].map(|it| it.0.id);
    let in_use = a.connection().use_it();
    drop(d.connection().use_it());
    drop(c.connection().use_it());
    // Unknown: b. Unused since: d, then c. In use: a.
    let mut added = Vec::new();
    for gone in [b_id, d_id, c_id] {
        let (connection, limit) = add(5).unwrap();
        // It is known, and in use.
        added.push((connection.connection().use_it(), connection));
        assert_eq!(limit, Some(Limit::Connections));
        assert!(!open(&connections).contains(&gone), "{gone}");
    }
    assert!(open(&connections).contains(&a_id));
    assert_eq!(add(6).err(), Some(Full));
    drop(in_use);
    assert!(add(6).is_ok());
    assert!(!open(&connections).contains(&a_id));
}

#[test]
fn an_address_at_its_share_of_unknown_ones_loses_its_own_oldest() {
    let connections = Connections::new(10, 2);
    let other = connections.add(network(1)).unwrap().0;
    let rows = [None, None, Some(Limit::ConnectionsOfAddress), Some(Limit::ConnectionsOfAddress)];
    let mut kept = Vec::new();
    for expected in rows {
        let (connection, limit) = connections.add(network(2)).unwrap();
        assert_eq!(limit, expected);
        kept.push(connection);
    }
    let expected = [&other, &kept[2], &kept[3]].map(|it| it.0.id);
    assert_eq!(open(&connections), expected);
    // Those that have shown a token count no longer.
    let _in_use: Vec<_> = kept.iter().map(|it| it.connection().use_it()).collect();
    assert_eq!(connections.add(network(2)).unwrap().1, None);
}

#[test]
fn the_socket_has_no_share_of_an_address() {
    let connections = Connections::new(3, 1);
    let kept: Vec<_> = (0..3).map(|_| connections.add(None).unwrap()).collect();
    assert!(kept.iter().all(|(_, limit)| limit.is_none()));
}

#[test]
fn a_connection_that_is_over_leaves_nothing_behind() {
    let connections = Connections::new(3, 3);
    for _ in 0..2 {
        let (connection, _) = connections.add(network(1)).unwrap();
        let known = connection.connection();
        let in_use = known.use_it();
        drop(connection);
        // A stream may be dropped after its connection, and a request may begin while it is given up.
        drop(in_use);
        drop(known.use_it());
    }
    let rows = lock::locked(&connections.rows);
    assert_eq!((rows.open.len(), rows.unknown.len(), rows.unknown_of.len()), (0, 0, 0));
    assert_eq!(rows.idle.len(), 0);
}

#[tokio::test]
async fn a_connection_that_gives_way_ends() {
    let connections = Connections::new(1, 1);
    let (connection, _) = connections.add(network(1)).unwrap();
    let known = connection.connection();
    let task = tokio::spawn(async move {
        let _connection = connection;
        std::future::pending::<()>().await;
    });
    known.runs_in(task.abort_handle());
    connections.make_room().unwrap();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(connections.make_room(), Err(Full));
}
