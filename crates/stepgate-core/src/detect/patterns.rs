//! The built-in patterns. Those with a fixed beginning, or with a checksum, are preferred: a detector that cries too often is
//! turned off.

use std::sync::LazyLock;

use regex::Regex;

use super::checksums::{any, is_card, is_iban, is_social_security};

/// The group of what gives access.
pub(super) const SECRETS: &str = "secrets";
/// The group of what tells who a person is.
pub(super) const PERSONAL: &str = "personal";

/// A built-in pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    text: &'static str,
    compiled: LazyLock<Regex>,
    /// What a match must be besides.
    is_real: fn(&str) -> bool,
}

impl Pattern {
    /// Its text with word borders and digits of ASCII alone. With those of Unicode the engine would be much slower.
    pub(super) fn ascii(&self) -> String {
        ascii(self.text)
    }

    pub(super) fn finds(&self, text: &str) -> bool {
        self.compiled.find_iter(text).any(|found| (self.is_real)(found.as_str()))
    }
}

macro_rules! patterns {
    ($($group:ident $name:literal $pattern:literal $is_real:ident,)*) => {
        [$(Pattern {
            name: $name,
            group: $group,
            text: $pattern,
            compiled: LazyLock::new(|| compiled($pattern)),
            is_real: $is_real,
        },)*]
    };
}

#[expect(clippy::expect_used, reason = "constant patterns, which a test compiles")]
fn compiled(pattern: &str) -> Regex {
    Regex::new(&ascii(pattern)).expect("a valid pattern")
}

fn ascii(pattern: &str) -> String {
    pattern.replace(r"\b", r"(?-u:\b)").replace(r"\d", "[0-9]")
}

/// All of them. The formats are those that the issuers document.
pub(super) static ALL: [Pattern; 27] = patterns![
    SECRETS "private_key" r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-[23]:" any,
    SECRETS "age_key" r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b" any,
    SECRETS "aws_key" r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b" any,
    SECRETS "aws_secret" r#"(?i)\baws_?(?:secret)?_?(?:access)?_?(?:secret)?_?key["']?\s{0,3}[:=]\s{0,3}["']?[0-9a-z/+]{40}\b"# any,
    SECRETS "azure_key" r"\b(?:AccountKey|SharedAccessKey)=[0-9A-Za-z+/]{40,}={0,2}" any,
    SECRETS "google_key" r"\bAIza[0-9A-Za-z_-]{35}\b" any,
    SECRETS "google_token" r"\bya29\.[0-9A-Za-z_-]{20,}" any,
    SECRETS "github_token" r"\b(?:gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{22,})\b" any,
    SECRETS "gitlab_token" r"\bgl(?:pat|dt|rt|ptt|cbt|soat)-[0-9A-Za-z_-]{20,}" any,
    SECRETS "slack_token" r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}|\bxapp-\d-[0-9A-Za-z-]{20,}" any,
    SECRETS "slack_webhook" r"https://hooks\.slack\.com/(?:services|workflows)/[0-9A-Za-z/_-]{20,}" any,
    SECRETS "discord_token" r"\b[MNO][0-9A-Za-z_-]{23,27}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{27,}" any,
    SECRETS "telegram_token" r"\b\d{8,10}:AA[0-9A-Za-z_-]{33}\b" any,
    SECRETS "stripe_key" r"\b(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{16,}\b|\bwhsec_[0-9A-Za-z+/=]{24,}" any,
    SECRETS "openai_key" r"\bsk-(?:proj-|svcacct-|admin-)?[0-9A-Za-z_-]{32,}" any,
    SECRETS "anthropic_key" r"\bsk-ant-[0-9A-Za-z_-]{24,}" any,
    SECRETS "hugging_face_token" r"\bhf_[0-9A-Za-z]{30,}\b" any,
    SECRETS "npm_token" r"\bnpm_[0-9A-Za-z]{36}\b" any,
    SECRETS "pypi_token" r"\bpypi-AgEIcHlwaS5vcmc[0-9A-Za-z_-]{50,}" any,
    SECRETS "sendgrid_key" r"\bSG\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z_-]{43}\b" any,
    SECRETS "jwt" r"\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}" any,
    SECRETS "password_in_url" r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/@]{1,64}:[^\s:/@]{3,128}@[0-9A-Za-z.\[-]" any,
    PERSONAL "email_address" r"\b[0-9A-Za-z][0-9A-Za-z._%+'-]{0,63}@(?:[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?\.)+[A-Za-z]{2,24}\b" any,
    PERSONAL "iban" r"\b[A-Z]{2}\d{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,3})?\b" is_iban,
    PERSONAL "payment_card" r"\b[2-6]\d{3}(?:[ -]?\d{2,6}){2,4}\b" is_card,
    PERSONAL "phone_number" r"(?:^|[^0-9A-Za-z+])\+[1-9]\d{0,2}(?:[ .()/-]{0,2}\d){7,12}\b" any,
    PERSONAL "us_social_security" r"\b\d{3}-\d{2}-\d{4}\b" is_social_security,
];
