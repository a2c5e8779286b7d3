use super::{Address, PostgresOptions, without_password};
use crate::postgres::OpenError;

#[test]
fn a_url_is_shown_without_its_password() {
    let rows = [
        ("postgres://me:secret@db:5432/store", "postgres://me@db:5432/store"),
        ("postgres://me@db/store?sslmode=require", "postgres://me@db/store"),
        ("postgres://db/store?password=secret", "postgres://db/store"),
        ("postgres://me:se%40cret@db/store", "postgres://me@db/store"),
        ("host=db password=secret", "a text that is no URL"),
    ];
    for (url, shown) in rows {
        assert_eq!(without_password(url), shown);
    }
}

#[test]
fn a_text_that_is_no_url_of_postgres_is_refused() {
    let options = PostgresOptions::default();
    for url in ["postgres://", "postgres:///store", "postgres://db:port/store", "nonsense"] {
        let refused = Address::of(url, &options).map(drop);
        assert!(matches!(refused, Err(OpenError::Url { .. })), "{url}: {refused:?}");
    }
    for url in ["postgres://me@db/store", "postgresql://me@db,other:6000/store?sslmode=verify-full"]
    {
        Address::of(url, &options).unwrap();
    }
}
