use super::*;

#[test]
fn a_signature_is_that_of_the_convention() {
    let key = signing_key(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")).unwrap();
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let signed = signature(&key, id, 1_614_265_330, r#"{"test": 2432232314}"#).unwrap();
    assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn a_key_that_is_none_is_refused_without_being_repeated() {
    for key in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_short", "whsec_c2hvcnQ="] {
        let error = signing_key(&Secret::new(key)).unwrap_err();
        assert!(error.contains("openssl rand") && !error.contains(key), "{error}");
    }
}

#[test]
fn an_address_that_is_none_is_refused_without_being_repeated() {
    for url in ["hooks.example/T/secret", "ftp://hooks.example/T/secret"] {
        let error = address(&Secret::new(url)).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
