//! Functions of bytes: serialize, deserialize, rpc, and the transforms between layouts. `functions.rs` makes jobs of
//! the ops among them. Where no device does these, they run here on the calling core, without a job.

use prost::Message;
use prost::bytes::Bytes;
use trace::Base;

use super::bson;
use super::error::Malformed;
pub use super::fields::read_fields;
use super::value::{Kind, Value};

/// The format that `serialize` writes and `deserialize` reads. A service with its own message format
/// implements this trait instead of using [`Documents`].
pub trait Schema: Send + Sync {
    /// Serializes a document into a message.
    ///
    /// # Errors
    /// Fails if the document does not fit the schema.
    fn serialize(&self, document: &Value) -> Result<Bytes, Malformed>;

    /// Reads the document of a message.
    ///
    /// # Errors
    /// Fails if the bytes are not a message of the schema.
    fn deserialize(&self, message: &Bytes) -> Result<Value, Malformed>;
}

/// The schema for documents of any shape. Its message is [`Value`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Documents;

impl Schema for Documents {
    fn serialize(&self, document: &Value) -> Result<Bytes, Malformed> {
        Ok(document.to_protobuf().into())
    }

    fn deserialize(&self, message: &Bytes) -> Result<Value, Malformed> {
        Value::from_protobuf(message)
    }
}

/// An RPC message: the function's name and its serialized arguments.
#[derive(Clone, PartialEq, Message)]
pub struct Call {
    /// The name of the function.
    #[prost(string, tag = "1")]
    pub function: String,
    /// The serialized arguments.
    #[prost(bytes = "bytes", tag = "2")]
    pub arguments: Bytes,
}

/// Wraps arguments into a call.
pub fn call(function: &str, arguments: Bytes) -> Bytes {
    Call { function: function.to_owned(), arguments }.encode_to_vec().into()
}

/// Unwraps a call. The arguments are a part of the message, not a copy.
///
/// # Errors
/// Fails if the message is not a call.
pub fn called(message: &Bytes) -> Result<Call, Malformed> {
    Call::decode(message.clone()).map_err(|error| Malformed::because("an RPC message", error))
}

/// The form of the payload that `serialize` receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A frame of compressed data.
    Compressed,
    /// Data of this base.
    Bare(Base),
}

/// Runs `serialize`. JSON and BSON become their document. Opaque data becomes the member `data` of a document. If the
/// data is compressed, the document also has the member `compressed`, on which a receiving trace branches.
///
/// # Errors
/// Fails if the payload does not have its layout, or does not fit the schema.
pub fn serialize(schema: &dyn Schema, payload: &Bytes, layout: Layout) -> Result<Bytes, Malformed> {
    let document = match layout {
        Layout::Compressed => {
            Value::map([(COMPRESSED, Kind::Flag(true)), (DATA, Kind::Data(payload.clone()))])
        }
        Layout::Bare(Base::Json) => Value::from_json(payload)?,
        Layout::Bare(Base::Bson) => bson::read(payload)?,
        Layout::Bare(Base::String | Base::Bytes) => Value::map([(DATA, opaque(payload))]),
        Layout::Bare(Base::Protobuf) => return Ok(payload.clone()),
    };
    schema.serialize(&document)
}

/// Runs `deserialize`: returns the message's document as JSON.
///
/// # Errors
/// Fails if the bytes are not a message of the schema, or if a number cannot be written in JSON.
pub fn deserialize(schema: &dyn Schema, message: &Bytes) -> Result<Bytes, Malformed> {
    Ok(schema.deserialize(message)?.to_json()?.into())
}

/// Runs `trans`: returns the payload in another layout. As a string, a document with the member `data`
/// becomes that member, and any other document becomes its JSON text.
///
/// # Errors
/// Fails if the payload does not have its layout, or has a part that the other layout cannot hold.
pub fn transform(
    schema: &dyn Schema,
    payload: &Bytes,
    from: Base,
    to: Base,
) -> Result<Bytes, Malformed> {
    let is_opaque = |base| matches!(base, Base::String | Base::Bytes);
    if from == to || (is_opaque(from) && is_opaque(to)) {
        return Ok(payload.clone());
    }
    let document = match from {
        Base::Json | Base::String | Base::Bytes => Value::from_json(payload)?,
        Base::Bson => bson::read(payload)?,
        Base::Protobuf => schema.deserialize(payload)?,
    };
    match to {
        Base::Json => Ok(document.to_json()?.into()),
        Base::Bson => Ok(bson::write(&document)?.into()),
        Base::Protobuf => schema.serialize(&document),
        Base::String | Base::Bytes => {
            match document.get(DATA).and_then(|data| data.kind.as_ref()) {
                Some(Kind::Data(data)) => Ok(data.clone()),
                Some(Kind::Text(text)) => Ok(text.clone().into()),
                _ if from == Base::Json => Ok(payload.clone()),
                _ => Ok(document.to_json()?.into()),
            }
        }
    }
}

fn opaque(payload: &Bytes) -> Kind {
    match str::from_utf8(payload) {
        Ok(text) => Kind::Text(text.to_owned()),
        Err(_) => Kind::Data(payload.clone()),
    }
}

/// The name of the member that says that `data` is compressed.
pub const COMPRESSED: &str = "compressed";

/// The name of the member that contains opaque data.
pub const DATA: &str = "data";

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: Bytes = Bytes::from_static(br#"{"id":7,"tags":["a",null],"x":0.5}"#);

    #[test]
    fn every_layout_leads_to_every_other_and_back() {
        for base in Base::ALL {
            let there = transform(&Documents, &JSON, Base::Json, base).expect("it fits");
            let back = transform(&Documents, &there, base, Base::Json).expect("it is one");
            assert_eq!(back, JSON, "{base}");
        }
    }

    #[test]
    fn a_string_becomes_the_data_of_a_document() {
        let string = |json: &'static str| {
            let json = Bytes::from_static(json.as_bytes());
            transform(&Documents, &json, Base::Json, Base::String).expect("JSON")
        };
        assert_eq!(string(r#"{"compressed":true,"data":"text"}"#), "text");
        assert_eq!(
            string(r#"{"data":{"$binary":{"base64":"AP8=","subType":"00"}}}"#)[..],
            [0, 255]
        );
        assert_eq!(string(r#"{"data":1}"#), r#"{"data":1}"#);
    }

    #[test]
    fn opaque_data_comes_back_through_the_message() {
        for (data, layout) in [
            (&b"text"[..], Layout::Bare(Base::String)),
            (&[0, 159, 146, 150][..], Layout::Bare(Base::Bytes)),
            (&[0xFB, 1, 2][..], Layout::Compressed),
        ] {
            let data = Bytes::copy_from_slice(data);
            let message = serialize(&Documents, &data, layout).expect("anything fits");
            let json = deserialize(&Documents, &message).expect("our own");
            let back = transform(&Documents, &json, Base::Json, Base::String).expect("JSON");
            assert_eq!(back, data);
            let flag = Value::from_json(&json).expect("JSON").get(COMPRESSED).cloned();
            assert_eq!(flag.is_some(), layout == Layout::Compressed);
        }
    }

    #[test]
    fn a_call_keeps_its_function_and_shares_its_arguments() {
        let message = call("user.get", JSON);
        let call = called(&message).expect("our own");
        assert_eq!((call.function.as_str(), &call.arguments), ("user.get", &JSON));
        assert!(message.as_ptr_range().contains(&call.arguments.as_ptr()));
        assert!(called(&Bytes::from_static(&[0x0A, 0xFF])).is_err());
    }

    #[test]
    fn what_a_layout_cannot_hold_is_refused_by_name() {
        let list = Bytes::from_static(b"[1]");
        let error = transform(&Documents, &list, Base::Json, Base::Bson).expect_err("no document");
        assert_eq!(error.what, "BSON");
        let error = serialize(&Documents, &list.slice(..2), Layout::Bare(Base::Json));
        assert_eq!(error.expect_err("cut").what, "JSON");
    }
}
