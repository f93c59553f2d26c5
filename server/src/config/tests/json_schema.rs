//! Compares docs/operating/rebate.schema.json, with which editors check a configuration, with the tables of keys.
//!
//! `REBATE_RECORD=write cargo test -p server --lib json_schema` writes it again.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::reference::{SOURCES, meanings};
use super::*;
use crate::config::keys::Kind;

#[test]
fn the_schema_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operating/rebate.schema.json");
    let wanted = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("REBATE_RECORD").is_some_and(|mode| mode == "write") {
        fs::write(&path, wanted).unwrap();
        return;
    }
    let found = fs::read_to_string(&path).unwrap();
    assert!(found == wanted, "the top of this test says how to write the schema again");
}

fn schema() -> Value {
    let sections: Map<String, Value> = SOURCES
        .into_iter()
        .map(|(section, source)| {
            let fields: Map<String, Value> = meanings(section, source)
                .into_iter()
                .map(|(key, meaning)| (key.field().to_owned(), field(key, &meaning)))
                .collect();
            let section_schema =
                json!({"type": "object", "additionalProperties": false, "properties": fields});
            (section.to_owned(), section_schema)
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rebate's configuration",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

fn field(key: &Key, meaning: &str) -> Value {
    let mut field = values(&key.kind);
    field["description"] = json!(format!("{meaning}\n\nGive {}.", key.kind.valid()));
    let defaults = to_table(&Config::default()).unwrap();
    // The number of threads depends on the machine.
    if let Some(default) = lookup(&defaults, key).filter(|_| key.name != "server.threads") {
        field["default"] = json!(default);
    }
    field
}

/// Returns the schema of the values of a kind. What only the parser of an address can tell is a string here.
fn values(kind: &Kind) -> Value {
    match kind {
        Kind::Mode => json!({"type": "integer", "minimum": 0, "maximum": 0o777}),
        Kind::Count(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Bytes(min, max) => json!({
            "type": ["string", "integer"],
            "pattern": "^[0-9]+ ?([kKmMgG]([iI]?[bB])?|[bB])?$",
            "minimum": min.0,
            "maximum": max.0,
        }),
        Kind::Share => json!({"type": "number", "minimum": 0, "maximum": 1}),
        Kind::Switch => json!({"type": "boolean"}),
        Kind::Choice(words) => json!({"enum": words}),
        Kind::Choices(words) => json!({"type": "array", "items": {"enum": words}}),
        Kind::Addresses
        | Kind::GrpcAddresses
        | Kind::CompressionAddresses
        | Kind::Names
        | Kind::Hosts => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Path
        | Kind::Address
        | Kind::GrpcAddress
        | Kind::Name
        | Kind::StoreUrl
        | Kind::NumaNode => json!({"type": "string"}),
    }
}
