//! Opens the store: a file in the data directory, or a PostgreSQL database that several nodes share.

use std::sync::Arc;

use anyhow::bail;
use stepgate_core::ports::Store;
use stepgate_core::time::Timestamp;
use stepgate_store::{PostgresOptions, PostgresStore, SqliteStore};

use crate::data_dir::DataDir;

/// Opens the store for reading, without recovery, even if other processes have it open.
pub(crate) async fn read(data: &DataDir) -> anyhow::Result<Arc<dyn Store>> {
    let config = data.load_config()?;
    if let Some(url) = data.store_url(&config)? {
        let options: PostgresOptions = config.postgres_options();
        let store = PostgresStore::open_read_only(&url, options).await?;
        return Ok(Arc::new(store.with_payload_keys(data.payload_keys(&config)?)));
    }
    if !data.database().exists() {
        if let Some(holder) = data.holder() {
            bail!(
                "`{}` is held by {holder}, and its store is elsewhere: name it with --store, or in \
                 STEPGATE_STORE",
                data.root().display()
            );
        }
        bail!(
            "there is nothing in `{0}` yet: a first step creates it, for example \
             `stepgate --data {0} run LIST_FILES path=/sandbox/`",
            data.root().display()
        );
    }
    let store = SqliteStore::open_read_only(&data.database())?;
    Ok(Arc::new(store.with_payload_keys(data.payload_keys(&config)?)))
}

/// What the clock of the store's database says; none where the store is a file.
pub(crate) async fn clock(data: &DataDir) -> anyhow::Result<Option<Timestamp>> {
    let config = data.load_config()?;
    let Some(url) = data.store_url(&config)? else { return Ok(None) };
    let store = PostgresStore::open_read_only(&url, config.postgres_options()).await?;
    Ok(Some(store.now().await?))
}
