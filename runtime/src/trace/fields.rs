//! The fields that branches read: flags and numbers among the members of a payload. In JSON they are found without
//! building a document. This module decides nothing.

use std::fmt;

use prost::bytes::Bytes;
use serde::Deserializer;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use trace::{Base, Format, Wrap};

use super::bson;
use super::error::Malformed;
use super::kernels::{Schema, called};
use super::value::{Kind, Value};

/// Returns the values of the members with these names, in the order of the names, and none for a member that the
/// payload does not have. Strings and bytes have no members, and no member is read through encryption or compression.
///
/// # Errors
/// Fails if the payload does not have its format, or if a member is neither a flag nor a whole number of 32 bits.
pub fn read_fields(
    schema: &dyn Schema,
    payload: &Bytes,
    format: Format,
    names: &[String],
) -> Result<Vec<Option<u32>>, Malformed> {
    let of = |document: Value| names.iter().map(|name| member(&document, name)).collect();
    match (format.bare(), format.without(Wrap::Message)) {
        (Some(Base::Json), _) => read_json(payload, names),
        (Some(Base::Bson), _) => of(bson::read(payload)?),
        (Some(Base::Protobuf), _) => of(schema.deserialize(payload)?),
        (_, Some(inner)) => read_fields(schema, &called(payload)?.arguments, inner, names),
        _ => Ok(vec![None; names.len()]),
    }
}

fn member(document: &Value, name: &str) -> Result<Option<u32>, Malformed> {
    let Some(value) = document.get(name) else { return Ok(None) };
    match &value.kind {
        None => Ok(Some(0)),
        Some(Kind::Flag(flag)) => Ok(Some(u32::from(*flag))),
        Some(Kind::Integer(number)) => {
            u32::try_from(*number).map(Some).map_err(|_| no_field(name, *number))
        }
        Some(Kind::Natural(number)) => Err(no_field(name, *number)),
        Some(_) => Err(no_field(name, "something else")),
    }
}

fn no_field(name: &str, found: impl fmt::Display) -> Malformed {
    Malformed::because(
        "a field",
        format!("{name} is {found}; a flag or a number from 0 to {} is read", u32::MAX),
    )
}

/// Reads the numbers in one pass over the text and stores nothing else. A value that is not an object has no members.
fn read_json(json: &[u8], names: &[String]) -> Result<Vec<Option<u32>>, Malformed> {
    let mut values = vec![None; names.len()];
    let mut reader = serde_json::Deserializer::from_slice(json);
    let is_object = json.trim_ascii_start().first() == Some(&b'{');
    if is_object && !names.is_empty() {
        let read = Members { names, values: &mut values }.deserialize(&mut reader);
        read.map_err(|error| Malformed::because("JSON with such a field", error))?;
    }
    Ok(values)
}

struct Members<'a> {
    names: &'a [String],
    values: &'a mut [Option<u32>],
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        while let Some(place) = from.next_key_seed(Place(self.names))? {
            match place {
                Some(place) => self.values[place] = Some(from.next_value_seed(Field)?),
                None => {
                    let _: IgnoredAny = from.next_value()?;
                }
            }
        }
        Ok(())
    }
}

/// Finds the index of a name among the requested names.
struct Place<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<usize>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|known| known == name))
    }
}

struct Field;

impl<'de> DeserializeSeed<'de> for Field {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u32, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for Field {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a flag or a number from 0 to {}", u32::MAX)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<u32, E> {
        Ok(u32::from(flag))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u32, E> {
        let unexpected = de::Unexpected::Unsigned(number);
        u32::try_from(number).map_err(|_| E::invalid_value(unexpected, &self))
    }

    fn visit_unit<E>(self) -> Result<u32, E> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels::{Documents, Layout, call, serialize};
    use super::*;

    fn names() -> Vec<String> {
        ["hit", "status", "absent"].map(str::to_owned).to_vec()
    }

    fn payload(json: &str) -> Bytes {
        Bytes::copy_from_slice(json.as_bytes())
    }

    #[test]
    fn every_layout_shows_the_same_fields() {
        let json = payload(r#"{"hit":true,"deep":{"status":1},"status":503,"text":"{"}"#);
        let expected = vec![Some(1), Some(503), None];
        let read = |payload: &Bytes, format: Format| {
            read_fields(&Documents, payload, format, &names()).expect("readable")
        };
        assert_eq!(read(&json, Format::new(Base::Json)), expected);
        let document = Value::from_json(&json).expect("JSON");
        let bson = bson::write(&document).expect("a map").into();
        assert_eq!(read(&bson, Format::new(Base::Bson)), expected);
        let message = serialize(&Documents, &json, Layout::Bare(Base::Json)).expect("JSON");
        assert_eq!(read(&message, Format::new(Base::Protobuf)), expected);
        let wrapped = Format::new(Base::Protobuf).within(Wrap::Message).expect("one wrap");
        assert_eq!(read(&call("f", message), wrapped), expected);
        assert_eq!(read(&json, Format::new(Base::String)), vec![None; 3]);
        assert_eq!(read(&payload("[1]"), Format::new(Base::Json)), vec![None; 3]);
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        let values = read_json(br#"{"hit":1,"hit":null,"status":4294967295}"#, &names());
        assert_eq!(values.expect("JSON"), vec![Some(0), Some(u32::MAX), None]);
    }

    #[test]
    fn what_is_no_field_is_refused_with_its_value() {
        for json in [
            r#"{"status":4294967296}"#,
            r#"{"status":-1}"#,
            r#"{"status":0.5}"#,
            r#"{"status":"200"}"#,
            r#"{"hit":[]}"#,
            r#"{"hit":true"#,
        ] {
            assert!(read_json(json.as_bytes(), &names()).is_err(), "{json}");
            if let Ok(document) = Value::from_json(json.as_bytes()) {
                let name = if json.contains("hit") { "hit" } else { "status" };
                assert!(member(&document, name).is_err(), "{json}");
            }
        }
    }
}
