//! The loudspeaker: it remembers its volumes, and the keys under which it has acted, in a file that is
//! replaced as a whole. So it acts once per key, however often it is asked and whenever it is killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(crate) const SET_VOLUME: &str = "set_volume";
pub(crate) const VOLUME: &str = "get_volume";

/// The rooms that have a loudspeaker. The schema does not name them, so that a call can also fail after
/// the gate let it pass.
const ROOMS: [&str; 3] = [LIVING_ROOM, "kitchen", "bedroom"];

/// The room where none is named, and how loud one is that was never set.
const LIVING_ROOM: &str = "living room";
const VOLUME_AT_FIRST: u64 = 10;

/// Most keys that are remembered. Beyond it nothing is done: to forget a key would be to act twice.
const KEYS_MAX: usize = 100_000;

pub(crate) fn tools() -> Value {
    let room = json!({ "type": "string", "minLength": 1, "maxLength": 64 });
    let volume = json!({ "type": "integer", "minimum": 0, "maximum": 100 });
    let wanted =
        json!({ "type": "integer", "minimum": 0, "maximum": 100, "default": VOLUME_AT_FIRST });
    let output = json!({
        "type": "object",
        "properties": { "room": room, "volume": volume },
        "required": ["room", "volume"],
    });
    json!([
        {
            "name": SET_VOLUME,
            "title": "Set the volume",
            "description": "Sets the volume of the loudspeaker in a room; without one, to what it was at first.",
            "inputSchema": {
                "type": "object",
                "properties": { "volume": wanted, "room": room },
                "additionalProperties": false,
            },
            "outputSchema": output,
            "annotations": { "idempotentHint": true },
        },
        {
            "name": VOLUME,
            "title": "Volume",
            "description": "Tells how loud the loudspeaker in a room is.",
            "inputSchema": {
                "type": "object",
                "properties": { "room": room },
                "additionalProperties": false,
            },
            "outputSchema": output,
            "annotations": { "readOnlyHint": true },
        },
    ])
}

/// What the loudspeaker remembers.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    /// How often it really did something.
    effects: u64,
    /// How loud it is, by room.
    volumes: BTreeMap<String, u64>,
    /// What it answered, by key.
    keys: BTreeMap<String, Value>,
}

/// The loudspeaker.
pub(crate) struct Speaker {
    path: PathBuf,
}

impl Speaker {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Sets the volume, once per key.
    pub(crate) fn set_volume(
        &self,
        args: &Map<String, Value>,
        key: Option<&str>,
    ) -> Result<Value, String> {
        let volume = match args.get("volume") {
            None => Some(VOLUME_AT_FIRST),
            Some(given) => given.as_u64().filter(|loud| *loud <= 100),
        };
        let Some(volume) = volume else {
            return Err("volume must be an integer from 0 to 100".to_owned());
        };
        let room = room(args)?;
        let mut memory = self.read()?;
        if let Some(said) = key.and_then(|key| memory.keys.get(key)) {
            return Ok(said.clone());
        }
        if memory.keys.len() >= KEYS_MAX {
            return Err("no more keys can be remembered".to_owned());
        }
        let said = json!({ "room": room, "volume": volume });
        memory.effects += 1;
        memory.volumes.insert(room.to_owned(), volume);
        if let Some(key) = key {
            memory.keys.insert(key.to_owned(), said.clone());
        }
        self.write(&memory).map_err(|error| format!("the state cannot be written: {error}"))?;
        Ok(said)
    }

    /// How loud it is.
    pub(crate) fn volume(&self, args: &Map<String, Value>) -> Result<Value, String> {
        let room = room(args)?;
        let volume = self.read()?.volumes.get(room).copied().unwrap_or(VOLUME_AT_FIRST);
        Ok(json!({ "room": room, "volume": volume }))
    }

    fn read(&self) -> Result<Memory, String> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| format!("the state cannot be read: {error}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Memory::default()),
            Err(error) => Err(format!("the state cannot be read: {error}")),
        }
    }

    /// Replaces the file as a whole: the effect and its key are remembered together or not at all.
    fn write(&self, memory: &Memory) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(memory)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

fn room(args: &Map<String, Value>) -> Result<&str, String> {
    let room = args.get("room").and_then(Value::as_str).unwrap_or(LIVING_ROOM);
    match ROOMS.contains(&room) {
        true => Ok(room),
        false => Err(format!("there is no loudspeaker in `{room}`: try {}", ROOMS.join(", "))),
    }
}
