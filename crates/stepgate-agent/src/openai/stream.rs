//! An answer that comes as a stream.

use serde_json::{Map, Value};
use stepgate_core::sse::{Parser, Unreadable};

use super::answer::{cut_off, invalid, object, text, tool_calls, usage, whole};
use super::{BODY_BYTES_MAX, ModelKey, Response, Trouble, beginning, broke_off, too_long};
use crate::envelope::ToolCall;
use crate::limits::CALLS_MAX;
use crate::model::{Completion, ModelError};
use crate::ports::Told;

const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Reads events until the end, and passes text on as it comes.
pub(super) async fn read(
    mut response: Response,
    key: &ModelKey,
    told: &Told<'_>,
) -> Result<Completion, Trouble> {
    let (mut parser, mut pieces, mut bytes) = (Parser::new(EVENT_BYTES_MAX), Pieces::of(key), 0);
    while let Some(chunk) = response.chunk().await.map_err(|it| pieces.broken(broke_off(it)))? {
        bytes += chunk.len();
        if bytes > BODY_BYTES_MAX {
            return Err(too_long());
        }
        let events = parser.feed(&chunk).map_err(|why| match why {
            Unreadable::TooLong => too_long(),
            Unreadable::NotUtf8 => invalid("it is not UTF-8").into(),
        })?;
        for event in events.into_iter().filter_map(|event| event.data) {
            if event == "[DONE]" {
                return Ok(pieces.end(told)?);
            }
            if let Some(text) = pieces.add(event.as_bytes())? {
                told(&text);
            }
        }
    }
    // Some endpoints omit the last line; if there was a finish reason, the answer is complete.
    match pieces.finish_reason {
        Some(_) => Ok(pieces.end(told)?),
        None => Err(pieces.broken("the stream broke off".to_owned())),
    }
}

/// The answer so far.
pub(super) struct Pieces<'a> {
    key: &'a ModelKey,
    completion: Completion,
    finish_reason: Option<String>,
    /// How much of the text was passed on.
    told_bytes: usize,
}

impl<'a> Pieces<'a> {
    /// An empty answer of an endpoint with this key.
    pub(super) fn of(key: &'a ModelKey) -> Self {
        Self { key, completion: Completion::default(), finish_reason: None, told_bytes: 0 }
    }

    /// Adds an event; returns the text that can be passed on now.
    pub(super) fn add(&mut self, event: &[u8]) -> Result<Option<String>, Trouble> {
        let root = object(event)?;
        if let Some(error) = root.get("error").filter(|error| !error.is_null()) {
            let said = error.get("message").and_then(Value::as_str).unwrap_or("an error");
            let said = beginning(&self.key.masked(said));
            return Err(self.broken(format!("in the stream: {said}")));
        }
        self.take(&root)?;
        // INVARIANT: the key does not begin in the text that was passed on, so only the rest is searched.
        let text = self.completion.text.as_deref().unwrap_or_default();
        let rest = text.get(self.told_bytes..).unwrap_or_default();
        let new = rest.get(..self.key.tellable(rest)).filter(|new| !new.is_empty());
        let new = new.map(str::to_owned);
        self.told_bytes += new.as_ref().map_or(0, String::len);
        Ok(new)
    }

    fn take(&mut self, root: &Map<String, Value>) -> Result<(), ModelError> {
        if let Some(model) = text(root, "model")?.filter(|model| !model.is_empty()) {
            self.completion.model = model;
        }
        if let Some(usage) = usage(root)? {
            self.completion.usage = Some(usage);
        }
        let choice = match root.get("choices").and_then(Value::as_array).map(Vec::as_slice) {
            None | Some([]) => return Ok(()),
            Some([Value::Object(choice)]) => choice,
            Some(_) => return Err(invalid("a piece of it has more than one choice")),
        };
        if let Some(reason) = text(choice, "finish_reason")? {
            self.finish_reason = Some(reason);
        }
        let Some(delta) = choice.get("delta").filter(|delta| !delta.is_null()) else {
            return Ok(());
        };
        let delta = delta.as_object().ok_or_else(|| invalid("a piece of it is no object"))?;
        self.take_calls(delta)?;
        let new = text(delta, "content")?.or(text(delta, "refusal")?);
        if let Some(new) = new.filter(|new| !new.is_empty()) {
            self.completion.text.get_or_insert_default().push_str(&new);
        }
        Ok(())
    }

    fn take_calls(&mut self, delta: &Map<String, Value>) -> Result<(), ModelError> {
        for piece in tool_calls(delta)? {
            let piece = piece.as_object().ok_or_else(|| invalid("a call's piece is no object"))?;
            let index = piece.get("index").and_then(Value::as_u64);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let index = index.ok_or_else(|| invalid("a call's piece has no `index`"))?;
            self.take_call(index, piece)?;
        }
        Ok(())
    }

    fn take_call(&mut self, index: usize, piece: &Map<String, Value>) -> Result<(), ModelError> {
        let calls = &mut self.completion.calls;
        if index > calls.len() || index > CALLS_MAX {
            return Err(invalid("its calls do not come in their order"));
        }
        if index == calls.len() {
            calls.push(ToolCall::default());
        }
        let call = calls.get_mut(index).ok_or_else(|| invalid("a call is gone"))?;
        once(&mut call.tool_call_id, text(piece, "id")?)?;
        let Some(function) = piece.get("function").and_then(Value::as_object) else {
            return Ok(());
        };
        once(&mut call.name, text(function, "name")?)?;
        if let Some(more) = text(function, "arguments")? {
            call.arguments_json.push_str(&more);
        }
        Ok(())
    }

    /// The whole answer. The text that was held back is passed on, unless the answer contains the key.
    pub(super) fn end(self, told: &Told<'_>) -> Result<Completion, ModelError> {
        let cut_off = cut_off(self.finish_reason.as_deref());
        let completion = whole(Completion { cut_off, ..self.completion })?;
        let text = completion.text.as_deref().unwrap_or_default();
        match text.get(self.told_bytes..) {
            Some(rest) if !rest.is_empty() && !self.key.is_in(&completion) => told(rest),
            Some(_) | None => {}
        }
        Ok(completion)
    }

    /// Text that was passed on cannot be taken back, so the try is not repeated after that.
    pub(super) fn broken(&self, why: String) -> Trouble {
        match self.told_bytes {
            0 => Trouble::again(why),
            _ => Trouble::Final {
                complaint: format!("the model's answer broke off: {why}"),
                error: ModelError::Unavailable("its answer broke off".to_owned()),
            },
        }
    }
}

/// A name comes once, or again unchanged.
fn once(known: &mut String, new: Option<String>) -> Result<(), ModelError> {
    match new.filter(|new| !new.is_empty()) {
        Some(new) if known.is_empty() => *known = new,
        Some(new) if *known != new => {
            return Err(invalid("a call changes its id or its name on the way"));
        }
        Some(_) | None => {}
    }
    Ok(())
}
