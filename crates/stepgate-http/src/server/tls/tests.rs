use std::fs;
use std::process::Command;

use super::*;

/// Writes a self-signed certificate to `gate.pem` and `gate.key`.
fn write_pair(directory: &Path) -> PairFiles {
    let files =
        PairFiles { certificate: directory.join("gate.pem"), key: directory.join("gate.key") };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=gate"]);
    openssl.arg("-keyout").arg(&files.key).arg("-out").arg(&files.certificate);
    assert!(openssl.output().unwrap().status.success());
    files
}

#[test]
fn a_pair_is_taken_once_it_lies_still_and_a_broken_one_is_told_of_once() {
    let directory = tempfile::tempdir().unwrap();
    let files = write_pair(directory.path());
    let first = fs::read(&files.certificate).unwrap();
    let tls = Tls::load(files.clone()).unwrap();
    let mut renewal = Renewal::of(&tls);
    let nothing: [String; 0] = [];
    assert_eq!(renewal.look_again(&tls), nothing);

    let before = tls.described();
    write_pair(directory.path());
    assert_eq!(renewal.look_again(&tls), nothing, "it may be half of a pair");
    let renewed = renewal.look_again(&tls);
    assert!(before.starts_with(&format!("`{}`, which ends at ", files.certificate.display())));
    assert_eq!(renewed, [format!("certificate renewed: {}, for new connections", tls.described())]);
    assert_eq!(renewal.look_again(&tls), nothing);

    // The first certificate, with the second key.
    fs::write(&files.certificate, first).unwrap();
    assert_eq!(renewal.look_again(&tls), nothing);
    let [kept] = renewal.look_again(&tls).try_into().unwrap();
    assert_eq!(
        kept,
        format!(
            "certificate not renewed, the one before stays in force: `{}` is not the key of the \
             certificate in `{}`: name the two files of one pair",
            files.key.display(),
            files.certificate.display()
        )
    );
    assert_eq!(renewal.look_again(&tls), nothing);
    fs::remove_file(&files.certificate).unwrap();
    assert_eq!(renewal.look_again(&tls), nothing);
    let [gone] = renewal.look_again(&tls).try_into().unwrap();
    assert!(gone.contains("cannot read") && gone.contains("gate.pem"), "{gone}");
    assert_eq!(renewal.look_again(&tls), nothing);
}

#[test]
fn a_file_that_is_too_large_or_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let files = write_pair(directory.path());
    let refused = |files: &PairFiles| Tls::load(files.clone()).map(drop).unwrap_err().to_string();
    let fits = usize::try_from(PEM_BYTES_MAX).unwrap();
    let text = fs::read_to_string(&files.certificate).unwrap();
    for (length, is_taken) in [(fits - 1, true), (fits, true), (fits + 1, false)] {
        let padded = format!("{text}{}", "\n".repeat(length - text.len()));
        fs::write(&files.certificate, padded).unwrap();
        assert_eq!(Tls::load(files.clone()).is_ok(), is_taken, "{length}");
    }
    assert!(refused(&files).ends_with("gate.pem` has more than 1048576 bytes"));
    let files = PairFiles { certificate: directory.path().to_owned(), ..files };
    assert!(refused(&files).ends_with("is not a file"));
}

#[test]
fn a_certificate_that_ends_soon_or_begins_later_is_found() {
    const HOUR: u64 = 60 * 60;
    let directory = tempfile::tempdir().unwrap();
    // It is valid for two days, from about now on.
    let tls = Tls::load(write_pair(directory.path())).unwrap();
    let now = SystemTime::now();
    for (at, found) in [
        (now - Duration::from_secs(HOUR), Some("check the clock")),
        (now + Duration::from_secs(HOUR), None),
        (now + Duration::from_secs(31 * HOUR), None),
        (now + Duration::from_secs(33 * HOUR), Some("in 0 days: renew it")),
        // That it has ended is a warning of its own.
        (now + Duration::from_secs(49 * HOUR), None),
    ] {
        let trouble = tls.trouble_at(at);
        assert_eq!(trouble.is_some(), found.is_some(), "{trouble:?}");
        assert!(trouble.unwrap_or_default().contains(found.unwrap_or_default()));
    }
}
