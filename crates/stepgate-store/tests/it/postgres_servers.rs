//! PostgreSQL itself in trouble: away, read-only, full, too new, cut off, killed.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use stepgate_core::ids::RunId;
use stepgate_core::ports::{Audits, Runs, Sessions, StoreError, Writes};
use stepgate_store::postgres::OpenError;
use stepgate_store::{PostgresOptions, PostgresStore};
use stepgate_test_postgres::{Cluster, Settings};

use crate::desk::Desk;
use crate::postgres_nodes::until;
use crate::server;

fn options() -> PostgresOptions {
    PostgresOptions { connect_wait: Duration::from_secs(3), ..PostgresOptions::default() }
}

async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    PostgresStore::open(url, options()).await
}

async fn refused(url: &str) -> OpenError {
    open(url).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn nodes_that_start_at_once_make_one_store() {
    let url = server::fresh_url();
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url).await })
        })
        .collect();
    let mut nodes = Vec::new();
    for node in opening {
        nodes.push(node.await.unwrap().unwrap());
    }
    let desk = Desk::open(Arc::new(nodes.pop().unwrap())).await;
    let step = desk.finished().await;
    for node in nodes {
        assert_eq!(node.dossier(step.id()).await, desk.store.dossier(step.id()).await);
    }
}

#[tokio::test]
async fn each_reason_not_to_open_has_its_own_error() {
    let server = server::shared();
    let database = server.database().unwrap();
    let sql = |sql: &str| server.sql(&database, sql).unwrap();

    let away = refused("postgres://postgres@127.0.0.1:1/store").await;
    assert!(matches!(away, OpenError::Away { .. }), "{away}");
    let none = refused(&server.url("nowhere")).await;
    assert!(matches!(none, OpenError::NoDatabase { .. }), "{none}");
    let plain = refused(&format!("{}?sslmode=require", server.url(&database))).await;
    assert!(matches!(plain, OpenError::Untrusted { .. }), "{plain}");
    let stranger = server.url(&database).replace("postgres@", "stranger@");
    let credentials = refused(&stranger).await;
    assert!(matches!(credentials, OpenError::Credentials { .. }), "{credentials}");
    sql("CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM public");
    let guest = refused(&server.url(&database).replace("postgres@", "guest@")).await;
    assert!(matches!(guest, OpenError::Permission { .. }), "{guest}");

    let missing = PostgresStore::open_read_only(&server.url(&database), options()).await;
    assert!(matches!(missing.map(drop), Err(OpenError::Missing { .. })));
    sql("CREATE TABLE chunks (mine int)");
    let foreign = refused(&server.url(&database)).await;
    assert!(matches!(foreign, OpenError::Foreign { .. }), "{foreign}");
    sql("DROP TABLE chunks");

    sql(&format!("ALTER DATABASE {database} SET default_transaction_read_only = on"));
    let read_only = refused(&server.url(&database)).await;
    assert!(matches!(read_only, OpenError::ReadOnly { .. }), "{read_only}");
    let writable = format!("ALTER DATABASE {database} RESET default_transaction_read_only");
    server.sql("postgres", &writable).unwrap();
    sql(&format!("ALTER DATABASE {database} SET synchronous_commit = off"));
    let lossy = refused(&server.url(&database)).await;
    assert!(matches!(lossy, OpenError::Setting { setting: "synchronous_commit", .. }), "{lossy}");
    sql(&format!("ALTER DATABASE {database} RESET synchronous_commit"));

    drop(open(&server.url(&database)).await.unwrap());
    sql("UPDATE stepgate_store SET version = 999");
    let newer = refused(&server.url(&database)).await;
    assert!(matches!(newer, OpenError::NewerVersion { found: 999, .. }), "{newer}");
    sql("UPDATE stepgate_store SET version = 1");
    let older = PostgresStore::open_read_only(&server.url(&database), options()).await;
    assert!(matches!(older.map(drop), Err(OpenError::OlderVersion { found: 1, .. })));
}

/// As one does that is stopped or cut off.
#[tokio::test]
async fn a_server_that_takes_connections_and_never_answers_does_not_keep_the_next_one_from_being_used()
 {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = server::fresh_url();
    let named = format!("@127.0.0.1:{},", silent.local_addr().unwrap().port());
    let url = url.replacen('@', &named, 1) + "&target_session_attrs=read-write";
    let options = PostgresOptions { connect_wait: Duration::from_secs(4), ..options() };
    let store = PostgresStore::open(&url, options.clone()).await.unwrap();
    let desk = Desk::open(Arc::new(store)).await;
    let finished = desk.finished().await;
    let reader = PostgresStore::open_read_only(&url, options).await.unwrap();
    assert!(reader.dossier(finished.id()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_store_opened_to_read_is_of_one_moment_and_writes_nothing() {
    let url = server::fresh_url();
    let desk = Desk::open(Arc::new(open(&url).await.unwrap())).await;
    let before = desk.finished().await;
    // As a URL says that names several servers, of which one writes.
    let to_writer = format!("{url}&target_session_attrs=read-write");
    let reader = PostgresStore::open_read_only(&to_writer, options()).await.unwrap();
    let counts = reader.counts().await.unwrap();
    let after = desk.finished().await;
    assert_eq!(reader.counts().await, Ok(counts));
    assert_eq!(reader.dossier(after.id()).await, Ok(None));
    assert!(reader.dossier(before.id()).await.unwrap().is_some());
    let read_only = Err(StoreError::Unavailable("opened read-only".into()));
    assert_eq!(reader.commit(desk.step().opening()).await, read_only);
    assert!(reader.next_step_index(desk.session).await.is_err());
}

#[tokio::test]
async fn a_trigger_that_is_dropped_disabled_or_changed_is_named() {
    let schema = server::fresh_schema();
    let url = server::url_of(&schema);
    drop(open(&url).await.unwrap());
    let sql = |sql: &str| {
        let sql = format!("SET search_path = {schema}; {sql}");
        server::shared().sql("postgres", &sql).unwrap()
    };
    let damage = || async {
        let store = PostgresStore::open_read_only(&url, options()).await.unwrap();
        store.damage().await.unwrap()
    };
    assert_eq!(damage().await, [] as [&str; 0]);
    let create = "CREATE TRIGGER chunks_no_update BEFORE UPDATE ON chunks FOR EACH ROW
                  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
                  ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_update";
    let rows = [
        (
            "DROP TRIGGER chunks_no_update ON chunks",
            create,
            "the trigger chunks_no_update is missing",
        ),
        (
            "ALTER TABLE chunks DISABLE TRIGGER chunks_no_update",
            "ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_update",
            "the trigger chunks_no_update was changed or disabled",
        ),
        (
            "DROP TRIGGER chunks_no_update ON chunks;
             CREATE TRIGGER chunks_no_update BEFORE UPDATE OF packed ON chunks FOR EACH ROW
             EXECUTE FUNCTION stepgate_refuse('rows are never changed');
             ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_update",
            &format!("DROP TRIGGER chunks_no_update ON chunks; {create}"),
            "the trigger chunks_no_update was changed or disabled",
        ),
        (
            "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             CREATE TRIGGER quiet BEFORE INSERT ON chunks FOR EACH ROW EXECUTE FUNCTION quiet()",
            "DROP TRIGGER quiet ON chunks; DROP FUNCTION quiet()",
            "the trigger quiet is not one of ours",
        ),
        (
            "CREATE OR REPLACE FUNCTION stepgate_refuse() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN RETURN NEW; END'",
            "",
            "the function stepgate_refuse was changed or disabled",
        ),
    ];
    for (change, back, what) in rows {
        sql(change);
        assert_eq!(damage().await, [what]);
        sql(back);
    }
}

/// What the server says while it is open, as a trigger says it in its place.
#[tokio::test]
async fn a_server_that_is_full_or_read_only_is_unavailable_and_recovers() {
    let schema = server::fresh_schema();
    let desk = Desk::open(Arc::new(open(&server::url_of(&schema)).await.unwrap())).await;
    let sql = |sql: &str| {
        let sql = format!("SET search_path = {schema}; {sql}");
        server::shared().sql("postgres", &sql).unwrap()
    };
    for (code, said) in [("53100", "disk"), ("25006", "read-only")] {
        sql(&format!(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$;
             CREATE TRIGGER fail BEFORE INSERT ON chunks EXECUTE FUNCTION fail()"
        ));
        let mut step = desk.step();
        let opening = step.opening();
        match desk.store.commit(opening.clone()).await {
            Err(StoreError::Unavailable(why)) => assert!(why.contains(said), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(desk.store.dossier(step.id()).await, Ok(None));
        sql("DROP TRIGGER fail ON chunks; DROP FUNCTION fail()");
        assert_eq!(desk.store.commit(opening).await, Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_begins_to_lose_what_it_acknowledges_is_written_to_no_more() {
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let database = cluster.database().unwrap();
    let desk = Desk::open(Arc::new(open(&cluster.url(&database)).await.unwrap())).await;
    let sql = |sql: &str| cluster.sql("postgres", sql).unwrap();
    let settings = [
        // Seen by a connection that is there already, and by one that is made anew.
        ("ALTER SYSTEM", "SELECT pg_reload_conf()".to_owned()),
        (
            &format!("ALTER DATABASE {database}"),
            format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = '{database}'"
            ),
        ),
    ];
    for (whose, take_effect) in settings {
        desk.finished().await;
        sql(&format!("{whose} SET synchronous_commit = off"));
        sql(&take_effect);
        let mut step = desk.step();
        let mut opening = step.opening();
        until("the server is written to", async || {
            match desk.store.commit(opening.clone()).await {
                Err(StoreError::Unavailable(why)) => why.contains("synchronous_commit"),
                // The server takes a new setting when it likes.
                Ok(()) => {
                    step = desk.step();
                    opening = step.opening();
                    false
                }
                Err(other) => panic!("{other}"),
            }
        })
        .await;
        assert_eq!(desk.store.dossier(step.id()).await, Ok(None));
        sql(&format!("{whose} RESET synchronous_commit"));
        sql(&take_effect);
        until("the server is not written to again", async || {
            desk.store.commit(opening.clone()).await.is_ok()
        })
        .await;
        assert!(desk.store.dossier(step.id()).await.unwrap().is_some());
    }
}

/// Nodes that write in one session, where the database is set up for something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_isolation_that_a_database_is_set_to_changes_nothing() {
    for isolation in ["repeatable read", "serializable"] {
        let database = server::shared().database().unwrap();
        let set = format!("ALTER DATABASE {database} SET default_transaction_isolation");
        server::shared().sql("postgres", &format!("{set} = '{isolation}'")).unwrap();
        let url = server::shared().url(&database);
        let desk = Desk::open(Arc::new(open(&url).await.unwrap())).await;
        let other = Desk { store: Arc::new(open(&url).await.unwrap()), ..desk.clone() };
        let mut tasks = Vec::new();
        for number in 0..16 {
            let desk = if number % 2 == 0 { desk.clone() } else { other.clone() };
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    desk.store.next_step_index(desk.session).await.unwrap();
                    desk.finished().await;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_has_as_many_connections_as_the_documentation_says() {
    let schema = server::fresh_schema();
    let (url, node_id) = (server::url_of(&schema), format!("counted {schema}"));
    let named = PostgresOptions { node_id: node_id.clone(), readers_max: 2, ..options() };
    let desk = Desk::open(Arc::new(PostgresStore::open(&url, named).await.unwrap())).await;
    let step = desk.finished().await;
    let reading: Vec<_> = (0..40)
        .map(|_| {
            let (desk, run_id) = (desk.clone(), step.id());
            tokio::spawn(async move {
                for _ in 0..20 {
                    desk.store.dossier(run_id).await.unwrap();
                    desk.store.next_step_index(desk.session).await.unwrap();
                }
                desk.finished().await;
            })
        })
        .collect();
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stepgate {node_id}'"
    );
    while reading.iter().any(|task| !task.is_finished()) {
        let found: usize = server::shared().sql("postgres", &count).unwrap().parse().unwrap();
        assert!(found <= 2 + 5, "{found}");
        tokio::task::yield_now().await;
    }
    for task in reading {
        task.await.unwrap();
    }
}

/// Every answer is true, whatever happens to the connections: what was said to be written is there, and
/// what was said not to be is not.
async fn answers_are_true(desk: &Desk, steps: usize) -> (usize, usize) {
    let mut tasks = Vec::new();
    for _ in 0..steps {
        let desk = desk.clone();
        tasks.push(tokio::spawn(async move {
            let mut step = desk.step();
            (step.id(), desk.store.commit(step.opening()).await)
        }));
    }
    let (mut written, mut refused) = (0, 0);
    for task in tasks {
        let (run_id, answer): (RunId, _) = task.await.unwrap();
        let is_there = until_read(desk, run_id).await;
        match answer {
            Ok(()) => {
                assert!(is_there, "{run_id} was acknowledged");
                written += 1;
            }
            Err(StoreError::Unavailable(_)) => {
                assert!(!is_there, "{run_id} was said not to be written");
                refused += 1;
            }
            Err(StoreError::AnswerLost(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    (written, refused)
}

async fn until_read(desk: &Desk, run_id: RunId) -> bool {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match desk.store.dossier(run_id).await {
            Ok(dossier) => return dossier.is_some(),
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_lose_and_repeat_nothing() {
    let schema = server::fresh_schema();
    let url = server::url_of(&schema);
    let named = PostgresOptions { node_id: schema.clone(), ..options() };
    let store = PostgresStore::open(&url, named).await.unwrap();
    let desk = Desk::open(Arc::new(store)).await;
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'stepgate {schema}'"
    );
    let mut written = 0;
    for _ in 0..15 {
        let cut = cut.clone();
        let cutting = tokio::task::spawn_blocking(move || server::shared().sql("postgres", &cut));
        written += answers_are_true(&desk, 20).await.0;
        cutting.await.unwrap().unwrap();
    }
    assert!(written > 0);
    let (written_after, refused) = answers_are_true(&desk, 20).await;
    assert_eq!((written_after, refused), (20, 0));
    assert_eq!(desk.store.counts().await.unwrap().events, 2 + desk.head().await.number);
}

/// Sends a signal to every process of a server.
fn signal_all(cluster: &Cluster, signal: &str) {
    let data = cluster.directory().join("data");
    let is_its = |process: &std::fs::DirEntry| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|directory| directory == data)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(is_its);
    let mut kill = std::process::Command::new("kill");
    kill.arg(signal).args(processes.map(|process| process.file_name()));
    assert!(kill.status().unwrap().success());
}

/// Lets a server go on that was stopped, however the test ends: only so does it end.
struct Stopped<'a>(&'a Cluster);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        signal_all(self.0, "-CONT");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_a_server_that_is_silent_are_told_so_together() {
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let hasty = PostgresOptions {
        connect_wait: Duration::from_secs(1),
        answer_wait: Duration::from_secs(4),
        batch_jobs_max: 4,
        ..PostgresOptions::default()
    };
    let desk = Desk::open(Arc::new(PostgresStore::open(&url, hasty).await.unwrap())).await;
    desk.finished().await;
    let mut answers = Vec::new();
    {
        signal_all(&cluster, "-STOP");
        let _stopped = Stopped(&cluster);
        let begun = tokio::time::Instant::now();
        let mut tasks = Vec::new();
        for number in 0..24 {
            let desk = desk.clone();
            tasks.push(tokio::spawn(async move {
                let mut step = desk.step();
                let answer = match number % 3 {
                    0 => desk.store.next_step_index(desk.session).await.map(drop),
                    _ => desk.store.commit(step.opening()).await,
                };
                (step.id(), answer)
            }));
        }
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        // The wait itself, the look for what became of the first batch, and a slow machine.
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(12), "{took:?}");
    }
    until("the server does not answer again", async || {
        let mut step = desk.step();
        desk.store.commit(step.opening()).await.is_ok()
    })
    .await;
    for (run_id, answer) in answers {
        match answer {
            // It was sent, and the server may have done it when it went on.
            Err(StoreError::AnswerLost(_)) => {}
            Err(StoreError::Unavailable(_)) => {
                assert_eq!(desk.store.dossier(run_id).await, Ok(None));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The server processes of a node, stopped: it has connections that never answer, and can open others. They go on
/// however the test ends: only so does the server.
struct Stranded(Vec<String>);

impl Stranded {
    fn of(cluster: &Cluster, node_id: &str) -> Self {
        let of_node = format!(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'stepgate {node_id}'"
        );
        let found = cluster.sql("postgres", &of_node).unwrap();
        let stranded = Self(found.lines().map(str::to_owned).collect());
        stranded.signal("-STOP");
        stranded
    }

    fn signal(&self, signal: &str) {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.arg(signal).args(&self.0).status().unwrap().success());
    }
}

impl Drop for Stranded {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// A store with so many connections that read, all of them open.
async fn with_readers(cluster: &Cluster, options: PostgresOptions) -> Arc<PostgresStore> {
    let url = cluster.url(&cluster.database().unwrap());
    let store = Arc::new(PostgresStore::open(&url, options.clone()).await.unwrap());
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stepgate {}'",
        options.node_id
    );
    let opened = || cluster.sql("postgres", &count).unwrap().parse::<usize>().unwrap();
    // The listener, and one for the node itself.
    until("the pool is not full", async || {
        let store = || Arc::clone(&store);
        let reading: Vec<_> = (0..4 * options.readers_max)
            .map(|_| {
                let store = store();
                tokio::spawn(async move { store.run_ids(None, 1).await.map(drop) })
            })
            .collect();
        for read in reading {
            read.await.unwrap().unwrap();
        }
        opened() >= options.readers_max + 2
    })
    .await;
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_do_not_wait_leave_no_silent_connection_to_the_next_ones() {
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let named = PostgresOptions { node_id: "hasty".into(), readers_max: 4, ..options() };
    let store = with_readers(&cluster, named).await;
    let _stranded = Stranded::of(&cluster, "hasty");
    let mut tries = 0;
    until("readers are only given connections that never answer", async || {
        tries += 1;
        let read = tokio::time::timeout(Duration::from_millis(500), store.run_ids(None, 1)).await;
        matches!(read, Ok(Ok(_)))
    })
    .await;
    assert!(tries <= 4 + 1, "{tries}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_silent_for_long_takes_the_idle_ones_with_it() {
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let patience = Duration::from_secs(3);
    let named = PostgresOptions {
        node_id: "patient".into(),
        readers_max: 4,
        answer_wait: patience,
        ..options()
    };
    let store = with_readers(&cluster, named).await;
    let _stranded = Stranded::of(&cluster, "patient");
    let silent = store.run_ids(None, 1).await;
    assert!(matches!(silent, Err(StoreError::Unavailable(_))), "{silent:?}");
    assert_eq!(store.run_ids(None, 1).await, Ok(vec![]));
}

/// As after a failover behind one address: the connection was opened while the server did not write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_read_only_is_not_asked_again() {
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let database = cluster.database().unwrap();
    let desk = Desk::open(Arc::new(open(&cluster.url(&database)).await.unwrap())).await;
    desk.store.next_step_index(desk.session).await.unwrap();
    let sql = |sql: &str| cluster.sql("postgres", sql).unwrap();
    sql(&format!("ALTER DATABASE {database} SET default_transaction_read_only = on"));
    sql(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    ));
    until("it does not say that it is read-only", async || {
        match desk.store.next_step_index(desk.session).await {
            Err(StoreError::Unavailable(why)) => why.contains("read-only"),
            other => panic!("{other:?}"),
        }
    })
    .await;
    sql(&format!("ALTER DATABASE {database} RESET default_transaction_read_only"));
    assert!(desk.store.next_step_index(desk.session).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_gives_no_step_index_again() {
    let mut cluster = Cluster::start(&Settings::default()).unwrap();
    let url = cluster.url(&cluster.database().unwrap());
    let desk = Desk::open(Arc::new(open(&url).await.unwrap())).await;
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..5 {
            let next = desk.store.next_step_index(desk.session).await.unwrap();
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        cluster = tokio::task::spawn_blocking(move || {
            cluster.crash().unwrap();
            cluster.resume().unwrap();
            cluster
        })
        .await
        .unwrap();
        // One that was never told what the others were given.
        let other = open(&url).await.unwrap();
        let next = other.next_step_index(desk.session).await.unwrap();
        assert!(next > last, "{next} after {last}");
        last = next;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while desk.store.next_step_index(desk.session).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(&Settings::default()).unwrap();
    let database = cluster.database().unwrap();
    let desk = Desk::open(Arc::new(open(&cluster.url(&database)).await.unwrap())).await;
    for crash in [true, false] {
        let working = {
            let desk = desk.clone();
            tokio::spawn(async move {
                let mut written = 0;
                for _ in 0..6 {
                    written += answers_are_true(&desk, 10).await.0;
                }
                written
            })
        };
        cluster = tokio::task::spawn_blocking(move || {
            match crash {
                true => cluster.crash().unwrap(),
                false => cluster.stop().unwrap(),
            }
            cluster.resume().unwrap();
            cluster
        })
        .await
        .unwrap();
        assert!(working.await.unwrap() > 0);
    }
    let (written, refused) = answers_are_true(&desk, 10).await;
    assert_eq!((written, refused), (10, 0));
    let counts = desk.store.counts().await.unwrap();
    assert_eq!(counts.runs, desk.head().await.number);
}
