use stepgate_core::ids::RunId;

use super::*;

#[test]
fn an_id_its_beginning_and_last_are_told_apart_and_the_rest_is_refused() {
    const ID: &str = "0198b2c4-7a51-7cc0-9f2e-2f6a4a6f8f10";
    let named = |text: &str| text.parse::<Named<RunId>>();
    assert_eq!(named("last").unwrap(), Named::Last);
    assert_eq!(named(ID).unwrap(), Named::Whole(ID.parse().unwrap()));
    let beginning = Named::Beginning(IdPrefix::parse("0198b2c4").unwrap());
    assert_eq!(named("0198B2C4").unwrap(), beginning);
    for refused in ["", "0198b2c", "LAST", "latest", "0198b2c4/../x", "%", "00000000 "] {
        assert!(named(refused).is_err(), "{refused}");
    }
}
