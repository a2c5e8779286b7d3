//! Events as log records of OpenTelemetry: OTLP/HTTP in its JSON encoding.

use reqwest::Response;
use serde_json::{Value, json};

use super::line::{Level, Line};
use crate::follow::Trouble;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

pub(super) fn body(lines: &[Line]) -> String {
    let records: Vec<Value> = lines.iter().map(record).collect();
    json!({ "resourceLogs": [{
        "resource": { "attributes": [attribute("service.name", "stepgate")] },
        "scopeLogs": [{
            "scope": { "name": "stepgate.audit", "version": env!("CARGO_PKG_VERSION") },
            "logRecords": records,
        }],
    }] })
    .to_string()
}

fn record(line: &Line) -> Value {
    let (number, text) = match line.level {
        Level::Warning => (13, "WARN"),
        Level::Notice => (10, "INFO2"),
        Level::Info => (9, "INFO"),
    };
    json!({
        // 64 bits are strings in this encoding.
        "timeUnixNano": format!("{}000000", line.ts.as_millisecond()),
        "severityNumber": number,
        "severityText": text,
        "eventName": line.event_type.as_str(),
        "body": { "stringValue": line.text },
        "attributes": [
            attribute("event.name", line.event_type.as_str()),
            { "key": "stepgate.position", "value": { "intValue": line.position.to_string() } },
        ],
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// A collector may answer with success and have rejected records. It does not say which: the batch is sent again in
/// parts, so that one record holds up only itself and what comes after it.
pub(super) async fn judge(mut response: Response) -> Result<(), Trouble> {
    let mut answer = Vec::new();
    let broken = |error: reqwest::Error| {
        Trouble::later(format!("its answer broke off: {}", error.without_url()))
    };
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        answer.extend_from_slice(&chunk);
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(Trouble::later("its answer is too long"));
        }
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let rejected = answer.pointer("/partialSuccess/rejectedLogRecords").unwrap_or(&Value::Null);
    let is_none = rejected.is_null() || rejected == &json!(0) || rejected == &json!("0");
    match is_none {
        true => Ok(()),
        false => Err(Trouble::Refused(format!("it rejected {rejected} records"))),
    }
}
