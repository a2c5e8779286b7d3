//! Messages as mail over SMTP. The text is plain; every header value is encoded by the library.

use std::time::Duration;

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_exec::servers::Secret;

use super::message::Message;
use crate::follow::Trouble;
use crate::text::{printable, shortened};

/// Longest subject, in characters.
const SUBJECT_CHARS_MAX: usize = 120;
/// Longest part of a server's answer that the operator sees, in characters.
const SAID_CHARS_MAX: usize = 200;

/// A mailbox, and the server that takes its mail.
#[derive(Clone, Debug)]
pub struct MailSettings {
    /// The server's name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is encrypted.
    pub encryption: Encryption,
    /// User name and password, where the server wants them.
    pub login: Option<(String, Secret)>,
    /// The sender.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
}

/// How the connection to a mail server is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EncryptionConfig")]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// From the first byte.
    #[default]
    Tls,
    /// After STARTTLS; a server that does not offer it gets nothing.
    StartTls,
    /// Not at all.
    None,
}

impl Encryption {
    /// The port by convention.
    pub fn port(self) -> u16 {
        match self {
            Self::Tls => 465,
            Self::StartTls => 587,
            Self::None => 25,
        }
    }
}

/// A client of one mail server.
pub(super) struct Mail {
    settings: MailSettings,
    timeout: Duration,
    from: Mailbox,
    to: Vec<Mailbox>,
}

impl Mail {
    pub(super) fn new(settings: &MailSettings, timeout: Duration) -> Result<Self, String> {
        let mailbox = |text: &String| {
            text.parse::<Mailbox>().map_err(|error| format!("`{text}` is no mail address: {error}"))
        };
        Ok(Self {
            timeout,
            from: mailbox(&settings.from)?,
            to: settings.to.iter().map(mailbox).collect::<Result<_, _>>()?,
            settings: settings.clone(),
        })
    }

    /// Why nothing can be sent now: the password is missing.
    pub(super) fn problem(&self) -> Option<String> {
        self.transport().err()
    }

    pub(super) async fn send(&self, message: &Message) -> Result<(), Trouble> {
        let letter = self.letter(message).map_err(Trouble::Refused)?;
        let transport = self.transport().map_err(Trouble::later)?;
        let sending = transport.send(letter);
        match tokio::time::timeout(self.timeout, sending).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(trouble(&error)),
            Err(_) => Err(Trouble::later("the mail server took too long")),
        }
    }

    /// Made for each message: the password may have changed.
    fn transport(&self) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
        let MailSettings { host, port, encryption, login, .. } = &self.settings;
        let parameters = || TlsParameters::new(host.clone()).map_err(|error| error.to_string());
        let tls = match encryption {
            Encryption::Tls => Tls::Wrapper(parameters()?),
            Encryption::StartTls => Tls::Required(parameters()?),
            Encryption::None => Tls::None,
        };
        let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)
            .port(*port)
            .tls(tls)
            .timeout(Some(self.timeout));
        Ok(match login {
            Some((name, password)) => {
                builder.credentials(Credentials::new(name.clone(), password.read()?)).build()
            }
            None => builder.build(),
        })
    }

    fn letter(&self, message: &Message) -> Result<Letter, String> {
        let subject = shortened(&format!("[Stepgate] {}", message.data.title), SUBJECT_CHARS_MAX);
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        let automatic = HeaderValue::new(automatic, "auto-generated".to_owned());
        let mut letter = Letter::builder()
            .from(self.from.clone())
            .subject(printable(&subject))
            .message_id(Some(format!("<{}@stepgate.invalid>", message.id)))
            .raw_header(automatic)
            .header(ContentType::TEXT_PLAIN);
        for recipient in &self.to {
            letter = letter.to(recipient.clone());
        }
        let text = format!("{}\n\n{}\n", message.data.title, message.data.text());
        letter.body(text).map_err(|error| error.to_string())
    }
}

/// The server's words, for the operator. A server that refuses for good says so by its code.
fn trouble(error: &SmtpError) -> Trouble {
    let why = shortened(&printable(&error.to_string()), SAID_CHARS_MAX);
    // Codes from 530 to 538 are about the login, which a person can put right.
    let is_login = error.status().is_some_and(|code| (530..=538).contains(&u16::from(code)));
    if error.is_permanent() && !is_login { Trouble::Refused(why) } else { Trouble::later(why) }
}

#[cfg(test)]
mod tests;
