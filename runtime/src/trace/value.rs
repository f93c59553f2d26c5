//! A document: the common content of JSON, BSON and our protobuf message. Every transformation goes through
//! this form. The form is the protobuf message itself, so that serializing needs no second tree. Nesting is
//! limited where a document is created, so that every written document can be read again.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost::bytes::Bytes;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Deserializer, Serialize, Serializer};

use super::error::Malformed;

/// A value of a document. A value without a kind is null. docs/traces.md describes the message.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    /// The kind of the value.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8")]
    pub kind: Option<Kind>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// True or false.
    #[prost(bool, tag = "1")]
    Flag(bool),
    /// A whole number.
    #[prost(sint64, tag = "2")]
    Integer(i64),
    /// A whole number above the largest [`Kind::Integer`].
    #[prost(uint64, tag = "3")]
    Natural(u64),
    /// Any other number.
    #[prost(double, tag = "4")]
    Number(f64),
    /// Text.
    #[prost(string, tag = "5")]
    Text(String),
    /// Bytes. In JSON they are `{"$binary": {"base64": ..., "subType": "00"}}`, like in BSON's JSON form.
    #[prost(bytes = "bytes", tag = "6")]
    Data(Bytes),
    /// A list.
    #[prost(message, tag = "7")]
    List(List),
    /// Names and values, in their original order.
    #[prost(message, tag = "8")]
    Map(Map),
}

/// A list of values.
#[derive(Clone, PartialEq, Message)]
pub struct List {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Value>,
}

/// A map from names to values.
#[derive(Clone, PartialEq, Message)]
pub struct Map {
    /// The members.
    #[prost(message, repeated, tag = "1")]
    pub members: Vec<Member>,
}

/// A name and its value.
#[derive(Clone, PartialEq, Message)]
pub struct Member {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The member's value. A member without a value is written to JSON with the value null.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

impl Value {
    /// Creates a value of this kind.
    pub fn new(kind: Kind) -> Self {
        Self { kind: Some(kind) }
    }

    /// Creates a map of these members.
    pub fn map<const N: usize>(members: [(&str, Kind); N]) -> Self {
        let member = |(name, kind): (&str, Kind)| Member::new(name.to_owned(), Self::new(kind));
        Self::new(Kind::Map(Map { members: members.into_iter().map(member).collect() }))
    }

    /// Returns the last member with this name, if the value is a map that has one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let Some(Kind::Map(map)) = &self.kind else { return None };
        map.members.iter().rfind(|member| member.name == name)?.value.as_ref()
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// Fails if the input is not JSON, or is nested deeper than [`DEPTH_MAX`].
    pub fn from_json(json: &[u8]) -> Result<Self, Malformed> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let value = Seed { depth_left: DEPTH_MAX }.deserialize(&mut reader);
        let value = value.and_then(|value| reader.end().map(|()| value));
        value.map_err(|error| Malformed::because("JSON", error))
    }

    /// Writes JSON.
    ///
    /// # Errors
    /// Fails if a number cannot be written in JSON.
    pub fn to_json(&self) -> Result<Vec<u8>, Malformed> {
        serde_json::to_vec(self).map_err(|error| Malformed::because("JSON", error))
    }

    /// Reads the protobuf message.
    ///
    /// # Errors
    /// Fails if the input is not this message, or is nested deeper than [`DEPTH_MAX`].
    pub fn from_protobuf(message: &Bytes) -> Result<Self, Malformed> {
        let refused = |why: &dyn fmt::Display| Malformed::because("protobuf", why);
        let value = Self::decode(message.clone()).map_err(|error| refused(&error))?;
        if value.is_within(DEPTH_MAX) {
            return Ok(value);
        }
        // A protobuf reader accepts a hundred levels. A list takes two of them and a map three.
        Err(refused(&format_args!("nested deeper than {DEPTH_MAX}")))
    }

    /// Returns whether lists and maps are nested at most this deep.
    fn is_within(&self, depth_left: usize) -> bool {
        let inner = |value: &Value| depth_left > 0 && value.is_within(depth_left - 1);
        match &self.kind {
            Some(Kind::List(list)) => depth_left > 0 && list.items.iter().all(inner),
            Some(Kind::Map(map)) => {
                let mut values = map.members.iter().filter_map(|member| member.value.as_ref());
                depth_left > 0 && values.all(inner)
            }
            _ => true,
        }
    }

    /// Writes the protobuf message.
    pub fn to_protobuf(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl Member {
    pub(crate) fn new(name: String, value: Value) -> Self {
        Self { name, value: Some(value) }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            None => out.serialize_unit(),
            Some(Kind::Flag(flag)) => out.serialize_bool(*flag),
            Some(Kind::Integer(number)) => out.serialize_i64(*number),
            Some(Kind::Natural(number)) => out.serialize_u64(*number),
            Some(Kind::Number(number)) if number.is_finite() => out.serialize_f64(*number),
            Some(Kind::Number(number)) => Err(S::Error::custom(format!("it has no {number}"))),
            Some(Kind::Text(text)) => out.serialize_str(text),
            Some(Kind::Data(data)) => {
                let mut map = out.serialize_map(Some(1))?;
                map.serialize_entry(BINARY, &Binary(data))?;
                map.end()
            }
            Some(Kind::List(list)) => {
                let mut seq = out.serialize_seq(Some(list.items.len()))?;
                list.items.iter().try_for_each(|item| seq.serialize_element(item))?;
                seq.end()
            }
            Some(Kind::Map(map)) => {
                let mut out = out.serialize_map(Some(map.members.len()))?;
                for member in &map.members {
                    out.serialize_entry(&member.name, &member.value)?;
                }
                out.end()
            }
        }
    }
}

/// The value of `$binary`.
struct Binary<'a>(&'a [u8]);

impl Serialize for Binary<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(2))?;
        map.serialize_entry("base64", &STANDARD.encode(self.0))?;
        map.serialize_entry("subType", "00")?;
        map.end()
    }
}

/// Returns the bytes that a map represents, if the map is exactly the map that [`Binary`] writes.
fn binary(members: &[Member]) -> Option<Bytes> {
    let [Member { name, value: Some(inner) }] = members else { return None };
    let Some(Kind::Map(Map { members })) = &inner.kind else { return None };
    let [base64, sub_type] = members.as_slice() else { return None };
    let names = [name, &base64.name, &sub_type.name].map(String::as_str);
    let kind = |member: &Member| member.value.as_ref()?.kind.clone();
    match (names, kind(base64)?, kind(sub_type)?) {
        ([BINARY, "base64", "subType"], Kind::Text(base64), Kind::Text(kind)) if kind == "00" => {
            STANDARD.decode(base64).ok().map(Bytes::from)
        }
        _ => None,
    }
}

/// Reads a value that may be nested this deep.
#[derive(Clone, Copy)]
struct Seed {
    depth_left: usize,
}

impl Seed {
    fn within<E: de::Error>(self) -> Result<Self, E> {
        let depth_left = self.depth_left.checked_sub(1);
        let too_deep = || E::custom(format!("nested deeper than {DEPTH_MAX}"));
        Ok(Self { depth_left: depth_left.ok_or_else(too_deep)? })
    }
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value { kind: None })
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::new(Kind::Flag(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::new(Kind::Integer(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::new(i64::try_from(number).map_or(Kind::Natural(number), Kind::Integer)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::new(Kind::Number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::new(Kind::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let inner = self.within()?;
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::new(Kind::List(List { items })))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let inner = self.within()?;
        let mut members = Vec::new();
        while let Some(name) = from.next_key()? {
            members.push(Member::new(name, from.next_value_seed(inner)?));
        }
        let data = binary(&members).map(Kind::Data);
        Ok(Value::new(data.unwrap_or(Kind::Map(Map { members }))))
    }
}

const BINARY: &str = "$binary";

/// The deepest nesting of lists and maps. It is the same in every layout, so that all can be converted.
pub const DEPTH_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(json: &str) -> String {
        let value = Value::from_json(json.as_bytes()).expect("JSON");
        let message = Bytes::from(value.to_protobuf());
        let again = Value::from_protobuf(&message).expect("our own message");
        assert_eq!(again, value);
        String::from_utf8(again.to_json().expect("finite")).expect("JSON is text")
    }

    #[test]
    fn json_survives_the_message_to_the_letter() {
        for json in [
            "null",
            "[]",
            "{}",
            r#"{"b":1,"a":[true,false,null,-9223372036854775808,18446744073709551615]}"#,
            r#"{"x":0.1,"y":-2.2250738585072014e-308,"same":1,"same":2,"":"\u0000\"ü"}"#,
            r#"{"data":{"$binary":{"base64":"AAEC/w==","subType":"00"}}}"#,
            r#"{"$binary":{"base64":"AAEC/w=","subType":"00"}}"#,
            r#"{"$binary":{"base64":"AAEC/w==","subType":"05"}}"#,
        ] {
            assert_eq!(round_trip(json), json);
        }
    }

    #[test]
    fn bytes_are_bytes_in_the_message() {
        let json = br#"{"$binary":{"base64":"AAEC/w==","subType":"00"}}"#;
        let value = Value::from_json(json).expect("JSON");
        assert_eq!(value.kind, Some(Kind::Data(Bytes::from_static(&[0, 1, 2, 255]))));
    }

    #[test]
    fn values_that_can_be_written_can_be_read() {
        let nested = |depth: usize| {
            format!("{}{}", r#"{"a":"#.repeat(depth), "1".to_owned()) + &"}".repeat(depth)
        };
        let deepest = nested(DEPTH_MAX);
        assert_eq!(round_trip(&deepest), deepest);
        let error = Value::from_json(nested(DEPTH_MAX + 1).as_bytes()).expect_err("too deep");
        assert!(error.to_string().contains("nested deeper than 30"), "{error}");
        let lists = "[".repeat(100_000);
        assert!(Value::from_json(lists.as_bytes()).is_err());
    }

    #[test]
    fn a_message_is_nested_no_deeper_than_a_document() {
        let nested = |depth: usize, wrap: fn(Value) -> Kind| {
            let start = Value { kind: None };
            (0..depth).fold(start, |inner, _| Value::new(wrap(inner)))
        };
        let list = |inner| Kind::List(List { items: vec![inner] });
        let map = |inner| Kind::Map(Map { members: vec![Member::new(String::new(), inner)] });
        for wrap in [list, map] as [fn(Value) -> Kind; 2] {
            let deepest = nested(DEPTH_MAX, wrap);
            let read = Value::from_protobuf(&deepest.to_protobuf().into()).expect("deep enough");
            let json = read.to_json().expect("finite");
            assert_eq!(Value::from_json(&json).expect("what is written can be read"), deepest);
            // The depth is far below the limit of a protobuf reader.
            for depth in [DEPTH_MAX + 1, DEPTH_MAX + 2] {
                let deeper = Bytes::from(nested(depth, wrap).to_protobuf());
                let error = Value::from_protobuf(&deeper).expect_err("too deep").to_string();
                assert!(error.contains("nested deeper than 30"), "{error}");
            }
            let far = Bytes::from(nested(300, wrap).to_protobuf());
            assert!(Value::from_protobuf(&far).is_err());
        }
    }

    #[test]
    fn damaged_input_is_refused() {
        for json in ["", "{", r#"{"a":1}}"#, "nul", "\"\\x\""] {
            assert!(Value::from_json(json.as_bytes()).is_err(), "{json}");
        }
        assert!(Value::from_protobuf(&Bytes::from_static(&[0x42, 0xFF])).is_err());
        assert!(Value::new(Kind::Number(f64::NAN)).to_json().is_err());
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        let value = Value::from_json(br#"{"a":1,"b":2,"a":3}"#).expect("JSON");
        assert_eq!(value.get("a"), Some(&Value::new(Kind::Integer(3))));
        assert_eq!(value.get("c"), None);
    }
}
