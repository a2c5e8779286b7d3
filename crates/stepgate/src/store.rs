//! Where the store is: a file of the data directory, or a PostgreSQL that several nodes share.

use std::sync::Arc;

use anyhow::bail;
use stepgate_core::ports::Store;
use stepgate_store::{PostgresOptions, PostgresStore, SqliteStore};

use crate::config::Config;
use crate::data_dir::DataDir;
use crate::hub::Hub;

/// Opens the store to write, as the configuration says, and lets the hub know what it writes.
pub(crate) async fn open(
    data: &DataDir,
    config: &Config,
    hub: &Arc<Hub>,
) -> anyhow::Result<Arc<dyn Store>> {
    let hub = Arc::clone(hub);
    Ok(match data.store_url(config)? {
        None => {
            let store = SqliteStore::open(&data.database(), Default::default())?;
            Arc::new(store.announcing_to(hub))
        }
        Some(url) => {
            let store = PostgresStore::open(&url, config.postgres_options()).await?;
            Arc::new(store.announcing_to(hub))
        }
    })
}

/// Opens the store to read, without recovery, whoever else has it open.
pub(crate) async fn read(data: &DataDir) -> anyhow::Result<Arc<dyn Store>> {
    let config = data.load_config()?;
    if let Some(url) = data.store_url(&config)? {
        let options: PostgresOptions = config.postgres_options();
        return Ok(Arc::new(PostgresStore::open_read_only(&url, options).await?));
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
    Ok(Arc::new(SqliteStore::open_read_only(&data.database())?))
}
