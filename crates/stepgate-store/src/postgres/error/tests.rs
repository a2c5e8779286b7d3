use super::{OpenError, while_opening};

/// No server listens there: the test frees the port and does not listen on it again.
#[tokio::test]
async fn a_server_that_is_away_is_named_so() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://nobody@127.0.0.1:{}/none", free.port());
    let error = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.map(drop).unwrap_err();
    let told = while_opening("there", &error);
    assert!(matches!(told, OpenError::Away { .. }), "{told:?}");
    assert!(told.to_string().starts_with("PostgreSQL at `there` does not answer ("), "{told}");
}
