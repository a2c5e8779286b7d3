//! `[[notify]]`: the receivers of notifications.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepgate_core::event::EventType;
use stepgate_exec::servers::Secret;
use stepgate_gateway::notify::{
    self, ChannelSettings, Encryption, Escalation, MailSettings, NotifySettings, ReceiverSettings,
};

use super::receiver::{self, TIMEOUT_CEILING_MS, TIMEOUT_MS};
use super::secret::{Beside, SecretConfig};

/// Longest time before an expiry, or after a question: a year, as for an approval.
const WAIT_CEILING_MS: u64 = 365 * 24 * 60 * 60 * 1000;

/// One receiver of notifications.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotifyConfig {
    /// Its name: lower-case letters, digits, `-` and `_`. A receiver of a new name is told from now on.
    name: String,
    /// What it is.
    kind: KindConfig,
    /// The events that it is told of; those that need a person otherwise.
    #[serde(default)]
    events: Option<Vec<String>>,
    /// Its address, for every kind but `mail`.
    #[serde(default)]
    url: Option<String>,
    /// Its address where that is a secret, as Slack's is: from a variable or a file.
    #[serde(default)]
    secret_url: Option<SecretConfig>,
    /// The key that signs, `whsec_…`, for `webhook`: from a variable or a file.
    #[serde(default)]
    secret: Option<SecretConfig>,
    /// The access token, for `ntfy`: from a variable or a file.
    #[serde(default)]
    token: Option<SecretConfig>,
    /// The mail server, for `mail`.
    #[serde(default)]
    host: Option<String>,
    /// Its port; 465 with `tls`, 587 with `starttls`, 25 otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = u16::MAX))]
    port: Option<u16>,
    /// How the connection to the mail server is encrypted; `tls` otherwise.
    #[serde(default)]
    encryption: Option<Encryption>,
    /// The user at the mail server, with `password`.
    #[serde(default)]
    username: Option<String>,
    /// The user's password: from a variable or a file.
    #[serde(default)]
    password: Option<SecretConfig>,
    /// The sender of mail, such as `Stepgate <gate@example.com>`.
    #[serde(default)]
    from: Option<String>,
    /// The recipients of mail.
    #[serde(default)]
    to: Vec<String>,
    /// How long before an approval expires the receiver is reminded, in milliseconds; never otherwise.
    #[serde(default)]
    #[schemars(range(min = 1000, max = WAIT_CEILING_MS))]
    remind_before_ms: Option<u64>,
    /// After which time without a decision `escalate_to` is told, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 1000, max = WAIT_CEILING_MS))]
    escalate_after_ms: Option<u64>,
    /// The receivers that are told of an approval that no person has decided after `escalate_after_ms`.
    #[serde(default)]
    escalate_to: Vec<String>,
    /// How long one try may take, in milliseconds; 10,000 otherwise.
    #[serde(default)]
    #[schemars(range(min = 100, max = TIMEOUT_CEILING_MS))]
    timeout_ms: Option<u64>,
}

/// What a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum KindConfig {
    /// A webhook by the Standard Webhooks convention, signed.
    Webhook,
    /// An incoming webhook of Slack, or of what understands its JSON.
    Slack,
    /// A topic of ntfy.
    Ntfy,
    /// Mail over SMTP.
    Mail,
}

impl KindConfig {
    fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::Ntfy => "ntfy",
            Self::Mail => "mail",
        }
    }
}

/// Refuses receivers that contradict themselves or each other. Secrets are not read here.
pub(super) fn check(receivers: &[NotifyConfig]) -> anyhow::Result<()> {
    receiver::check_names("[[notify]]", receivers.iter().map(|it| it.name.as_str()))?;
    receivers.iter().try_for_each(|it| it.check(receivers).with_context(|| it.place()))
}

/// The files with secrets of receivers, which no tool server may read.
pub(crate) fn secret_files(receivers: &[NotifyConfig], base: &Path) -> Vec<PathBuf> {
    let sources =
        receivers.iter().flat_map(|it| [&it.secret_url, &it.secret, &it.token, &it.password]);
    sources.flatten().filter_map(|source| source.file(base)).collect()
}

/// The settings of every receiver; those that are escalated to know from whom.
pub(crate) fn settings(
    receivers: &[NotifyConfig],
    public_url: Option<String>,
    beside: Beside<'_>,
) -> anyhow::Result<NotifySettings> {
    let made = receivers
        .iter()
        .map(|receiver| receiver.settings(receivers, beside).with_context(|| receiver.place()));
    let settings = NotifySettings { receivers: made.collect::<anyhow::Result<_>>()?, public_url };
    notify::check(&settings).map_err(anyhow::Error::msg)?;
    Ok(settings)
}

impl NotifyConfig {
    pub(crate) fn shown(&self) -> (&str, &'static str) {
        (&self.name, self.kind.as_str())
    }

    fn place(&self) -> String {
        format!("[[notify]] `{}`", self.name)
    }

    fn check(&self, receivers: &[Self]) -> anyhow::Result<()> {
        self.event_types()?;
        self.refuse_foreign_keys()?;
        match (self.escalate_after_ms, self.escalate_to.is_empty()) {
            (Some(_), false) | (None, true) => {}
            (Some(_), true) => bail!("escalate_after_ms needs escalate_to: who is told then?"),
            (None, false) => bail!("escalate_to needs escalate_after_ms: after which time?"),
        }
        for name in &self.escalate_to {
            ensure!(*name != self.name, "escalate_to names the receiver itself");
            let is_there = receivers.iter().any(|other| other.name == *name);
            ensure!(is_there, "escalate_to: there is no [[notify]] with the name `{name}`");
        }
        let told = self.escalate_to.iter().collect::<BTreeSet<_>>();
        ensure!(told.len() == self.escalate_to.len(), "escalate_to names a receiver twice");
        Ok(())
    }

    /// Refuses a key that means nothing for this kind: most likely the kind is wrong.
    fn refuse_foreign_keys(&self) -> anyhow::Result<()> {
        use KindConfig::{Mail, Ntfy, Slack, Webhook};
        let has_url = self.url.is_some() || self.secret_url.is_some();
        let mail = [Mail].as_slice();
        let keys = [
            ("url", has_url, [Webhook, Slack, Ntfy].as_slice()),
            ("secret", self.secret.is_some(), [Webhook].as_slice()),
            ("token", self.token.is_some(), [Ntfy].as_slice()),
            ("host", self.host.is_some(), mail),
            ("port", self.port.is_some(), mail),
            ("encryption", self.encryption.is_some(), mail),
            ("username", self.username.is_some(), mail),
            ("password", self.password.is_some(), mail),
            ("from", self.from.is_some(), mail),
            ("to", !self.to.is_empty(), mail),
        ];
        for (key, is_there, kinds) in keys {
            let kind = self.kind.as_str();
            ensure!(!is_there || kinds.contains(&self.kind), "`{key}` is not for kind `{kind}`");
        }
        Ok(())
    }

    fn event_types(&self) -> anyhow::Result<Vec<EventType>> {
        let Some(names) = &self.events else {
            let default = notify::notifiable().filter(|it| it.is_default);
            return Ok(default.map(|it| it.event_type).collect());
        };
        let known = |name: &String| {
            let known = notify::notifiable_named(name).map(|it| it.event_type);
            known.with_context(|| {
                let all: Vec<_> = notify::notifiable().map(|it| it.event_type.as_str()).collect();
                format!("there is no event `{name}` to be told of: use {}", all.join(", "))
            })
        };
        names.iter().map(known).collect()
    }

    fn settings(&self, receivers: &[Self], beside: Beside<'_>) -> anyhow::Result<ReceiverSettings> {
        let escalations = receivers.iter().filter(|from| from.escalate_to.contains(&self.name));
        let escalations = escalations.filter_map(|from| {
            let after = Duration::from_millis(from.escalate_after_ms?);
            Some(Escalation { from: from.name.clone(), after })
        });
        Ok(ReceiverSettings {
            name: self.name.clone(),
            channel: self.channel(beside)?,
            events: self.event_types()?,
            remind_before: self.remind_before_ms.map(Duration::from_millis),
            escalations: escalations.collect(),
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS)),
        })
    }

    fn channel(&self, beside: Beside<'_>) -> anyhow::Result<ChannelSettings> {
        let secret = |key: &str, source: &SecretConfig| receiver::secret(key, source, beside);
        let url = || receiver::address(self.url.as_deref(), self.secret_url.as_ref(), beside);
        Ok(match self.kind {
            KindConfig::Webhook => {
                let key = self.secret.as_ref().context(
                    "a webhook needs a `secret` that signs: `secret = { file = \"webhook.key\" }`",
                )?;
                ChannelSettings::Webhook { url: url()?, key: secret("secret", key)? }
            }
            KindConfig::Slack => ChannelSettings::Slack { url: url()? },
            KindConfig::Ntfy => {
                let token =
                    self.token.as_ref().map(|source| secret("token", source)).transpose()?;
                ChannelSettings::Ntfy { url: url()?, token }
            }
            KindConfig::Mail => {
                let password = self.password.as_ref();
                let password = password.map(|source| secret("password", source)).transpose()?;
                ChannelSettings::Mail(self.mail(password)?)
            }
        })
    }

    fn mail(&self, password: Option<Secret>) -> anyhow::Result<MailSettings> {
        let encryption = self.encryption.unwrap_or_default();
        ensure!(!self.to.is_empty(), "mail needs `to`: who gets it?");
        let login = match (&self.username, password) {
            (Some(name), Some(password)) => {
                ensure!(
                    encryption != Encryption::None,
                    "a password would be read on the way: use `encryption = \"tls\"` or `starttls`"
                );
                Some((name.clone(), password))
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => bail!("`username` and `password` go together"),
        };
        Ok(MailSettings {
            host: self.host.clone().context("mail needs `host`: which server takes it?")?,
            port: self.port.unwrap_or(encryption.port()),
            encryption,
            login,
            from: self.from.clone().context("mail needs `from`: who sends it?")?,
            to: self.to.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
