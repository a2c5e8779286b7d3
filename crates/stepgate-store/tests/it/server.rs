//! The PostgreSQL that the tests share. It ends with the process.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use stepgate_test_postgres::{Cluster, Settings};

static SERVER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(&Settings::default()).unwrap());

/// The server that all tests share.
pub(crate) fn shared() -> &'static Cluster {
    &SERVER
}

/// The name of an empty schema, which is made faster than a database.
pub(crate) fn fresh_schema() -> String {
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);
    let schema = format!("s{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
    shared().sql("postgres", &format!("CREATE SCHEMA {schema}")).unwrap();
    schema
}

/// The URL of a schema.
pub(crate) fn url_of(schema: &str) -> String {
    shared().url(&format!("postgres?options=-csearch_path%3D{schema}"))
}

/// The URL of an empty schema.
pub(crate) fn fresh_url() -> String {
    url_of(&fresh_schema())
}
