//! The schemas of the document, from the Rust types.
//!
//! What a request may leave out and what an answer leaves out can differ for one type, so there are two generators.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// Makes the schema of one type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

pub(crate) fn reference<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(crate) fn inline<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// The schemas so far.
pub(crate) struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Schemas {
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let answers = settings.clone().for_serialize().into_generator();
        Self { requests: settings.for_deserialize().into_generator(), answers }
    }

    /// A type that the gateway reads.
    pub(crate) fn read(&mut self, schema: SchemaOf) -> Schema {
        schema(&mut self.requests)
    }

    /// A type that the gateway writes.
    pub(crate) fn written(&mut self, schema: SchemaOf) -> Schema {
        schema(&mut self.answers)
    }

    /// Every schema by its name. A type that is read and written has one name, so its two schemas must be equal: a
    /// test compares them.
    pub(crate) fn finish(mut self) -> Map<String, Value> {
        let mut all = self.answers.take_definitions(true);
        for (name, schema) in self.requests.take_definitions(true) {
            debug_assert!(
                all.get(&name).is_none_or(|written| *written == schema),
                "`{name}` is read and written differently: its two forms need two names"
            );
            all.entry(name).or_insert(schema);
        }
        all.sort_keys();
        all
    }
}
