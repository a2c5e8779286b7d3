//! The PostgreSQL that the tests share. It ends with the process.

use std::sync::LazyLock;

use stepgate_cluster::{Cluster, Settings};

static SERVER: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(&Settings::default()).unwrap());

/// The server that all tests share.
pub(crate) fn shared() -> &'static Cluster {
    &SERVER
}

/// The URL of an empty database.
pub(crate) fn fresh_url() -> String {
    let server = shared();
    server.url(&server.database().unwrap())
}
