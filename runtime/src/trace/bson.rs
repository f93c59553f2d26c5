//! Reads and writes the part of BSON that JSON and our message also have: documents, arrays, doubles,
//! strings, booleans, null, whole numbers of 32 and 64 bits, and bytes. An element of any other type is
//! refused with the number of its type, and so is a document that states a wrong length. A stated length
//! alone never causes an allocation.

use super::error::Malformed;
use super::value::{DEPTH_MAX, Kind, List, Map, Member, Value};

/// Reads a document.
///
/// # Errors
/// Fails if a part of the document is wrong, or has a type that is not read.
pub fn read(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut rest = bytes;
    let members = document(&mut rest, DEPTH_MAX)?;
    if !rest.is_empty() {
        return Err(refused(format!("{} bytes behind its end", rest.len())));
    }
    Ok(Value::new(Kind::Map(Map { members })))
}

/// Writes a map as a document.
///
/// # Errors
/// Fails if the value is no map, or has a part that BSON cannot hold.
pub fn write(value: &Value) -> Result<Vec<u8>, Malformed> {
    let Some(Kind::Map(map)) = &value.kind else {
        return Err(refused("a document is a map, and this is none".to_owned()));
    };
    let mut out = Vec::new();
    let members = map.members.iter().map(|member| (member.name.clone(), member.value.as_ref()));
    write_document(&mut out, members)?;
    Ok(out)
}

fn refused(why: String) -> Malformed {
    Malformed::because("BSON", why)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or_else(|| {
        refused(format!("{bytes} bytes are said to follow, and {} do", rest.len()))
    })?;
    *rest = left;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    take(rest, N).map(|taken| taken.try_into().expect("as many as were asked for"))
}

/// Reads a length, which is written as a signed number of 32 bits.
fn length(rest: &mut &[u8]) -> Result<usize, Malformed> {
    let length = i32::from_le_bytes(array(rest)?);
    usize::try_from(length).map_err(|_| refused(format!("a length of {length}")))
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let text = str::from_utf8(bytes).map_err(|error| refused(error.to_string()))?;
    Ok(text.to_owned())
}

fn name(rest: &mut &[u8]) -> Result<String, Malformed> {
    let end = rest.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| refused("a name without an end".to_owned()))?;
    let name = take(rest, end + 1)?;
    text(&name[..end])
}

fn document(rest: &mut &[u8], depth_left: usize) -> Result<Vec<Member>, Malformed> {
    let depth_left = depth_left.checked_sub(1);
    let too_deep = || refused(format!("nested deeper than {DEPTH_MAX}"));
    let depth_left = depth_left.ok_or_else(too_deep)?;
    let bytes = length(rest)?;
    let short = || refused(format!("a document of {bytes} bytes; the shortest has 5"));
    let mut body = take(rest, bytes.checked_sub(4).ok_or_else(short)?)?;
    let mut members = Vec::new();
    loop {
        let [kind] = array(&mut body)?;
        if kind == END {
            break;
        }
        let name = name(&mut body)?;
        members.push(Member::new(name, element(kind, &mut body, depth_left)?));
    }
    match body {
        [] => Ok(members),
        _ => Err(refused(format!("{} bytes behind a document's end", body.len()))),
    }
}

fn element(kind: u8, body: &mut &[u8], depth_left: usize) -> Result<Value, Malformed> {
    let kind = match kind {
        DOUBLE => Kind::Number(f64::from_le_bytes(array(body)?)),
        STRING => {
            let bytes = length(body)?;
            match take(body, bytes)? {
                [text_bytes @ .., 0] => Kind::Text(text(text_bytes)?),
                _ => return Err(refused("a string without its last zero".to_owned())),
            }
        }
        DOCUMENT => Kind::Map(Map { members: document(body, depth_left)? }),
        ARRAY => {
            let members = document(body, depth_left)?;
            let items = members.into_iter().filter_map(|member| member.value).collect();
            Kind::List(List { items })
        }
        BINARY => {
            let bytes = length(body)?;
            match array(body)? {
                [GENERIC] => Kind::Data(take(body, bytes)?.to_vec().into()),
                [other] => return Err(refused(format!("bytes of subtype {other}; 0 is read"))),
            }
        }
        BOOLEAN => match array(body)? {
            [flag @ (0 | 1)] => Kind::Flag(flag == 1),
            [other] => return Err(refused(format!("a boolean of {other}"))),
        },
        NULL => return Ok(Value { kind: None }),
        INT32 => Kind::Integer(i32::from_le_bytes(array(body)?).into()),
        INT64 => Kind::Integer(i64::from_le_bytes(array(body)?)),
        other => {
            return Err(refused(format!("an element of type {other:#04x}, which is not read")));
        }
    };
    Ok(Value::new(kind))
}

fn write_document<'a>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (String, Option<&'a Value>)>,
) -> Result<(), Malformed> {
    let start = out.len();
    out.extend([0; 4]);
    for (name, value) in members {
        if name.contains('\0') {
            let start: String = name.chars().take(NAME_SHOWN).collect();
            return Err(refused(format!("the name {start:?} has a zero in it")));
        }
        let kind_at = out.len();
        out.push(NULL);
        out.extend(name.as_bytes());
        out.push(0);
        if let Some(kind) = value.and_then(|value| value.kind.as_ref()) {
            out[kind_at] = write_element(out, kind)?;
        }
    }
    out.push(END);
    seal(out, start)
}

/// Writes the length of the part that began at `start` in front of it.
fn seal(out: &mut [u8], start: usize) -> Result<(), Malformed> {
    let bytes = out.len() - start;
    let length = i32::try_from(bytes).map_err(|_| refused(format!("{bytes} bytes in one")))?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Writes the element's value and returns its type.
fn write_element(out: &mut Vec<u8>, kind: &Kind) -> Result<u8, Malformed> {
    let write_length = |out: &mut Vec<u8>, bytes: usize| {
        let length = i32::try_from(bytes).map_err(|_| refused(format!("{bytes} bytes in one")))?;
        out.extend(length.to_le_bytes());
        Ok(())
    };
    Ok(match kind {
        Kind::Flag(flag) => {
            out.push(u8::from(*flag));
            BOOLEAN
        }
        Kind::Integer(number) => {
            out.extend(number.to_le_bytes());
            INT64
        }
        Kind::Natural(number) => {
            return Err(refused(format!("{number} is above {}", i64::MAX)));
        }
        Kind::Number(number) => {
            out.extend(number.to_le_bytes());
            DOUBLE
        }
        Kind::Text(text) => {
            write_length(out, text.len() + 1)?;
            out.extend(text.as_bytes());
            out.push(0);
            STRING
        }
        Kind::Data(data) => {
            write_length(out, data.len())?;
            out.push(GENERIC);
            out.extend(data.as_ref());
            BINARY
        }
        Kind::List(list) => {
            let items = list.items.iter().enumerate();
            write_document(out, items.map(|(index, item)| (index.to_string(), Some(item))))?;
            ARRAY
        }
        Kind::Map(map) => {
            let members = map.members.iter();
            let members = members.map(|member| (member.name.clone(), member.value.as_ref()));
            write_document(out, members)?;
            DOCUMENT
        }
    })
}

const END: u8 = 0x00;
const DOUBLE: u8 = 0x01;
const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const BOOLEAN: u8 = 0x08;
const NULL: u8 = 0x0A;
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;

/// The number of a name's characters that an error shows.
const NAME_SHOWN: usize = 40;

/// The subtype of bytes without a special meaning.
const GENERIC: u8 = 0x00;

#[cfg(test)]
mod tests {
    use super::*;

    /// The two examples of bsonspec.org, as printed there.
    const HELLO: &[u8] = b"\x16\x00\x00\x00\x02hello\x00\x06\x00\x00\x00world\x00\x00";
    const AWESOME: &[u8] = b"\x31\x00\x00\x00\x04BSON\x00\x26\x00\x00\x00\x020\x00\x08\x00\x00\x00\
awesome\x00\x011\x00\x33\x33\x33\x33\x33\x33\x14\x40\x102\x00\xc2\x07\x00\x00\x00\x00";

    fn json(bson: &[u8]) -> String {
        let json = read(bson).expect("BSON").to_json().expect("finite");
        String::from_utf8(json).expect("JSON is text")
    }

    #[test]
    fn the_specifications_examples_are_read() {
        assert_eq!(json(HELLO), r#"{"hello":"world"}"#);
        assert_eq!(json(AWESOME), r#"{"BSON":["awesome",5.05,1986]}"#);
        let hello = Value::from_json(br#"{"hello":"world"}"#).expect("JSON");
        assert_eq!(write(&hello).expect("a map"), HELLO);
    }

    #[test]
    fn a_document_survives() {
        let text = concat!(
            r#"{"a":[1,-2,{"b":null}],"c":{"$binary":{"base64":"AAEC","subType":"00"}},"#,
            r#""d":true,"e":0.5}"#
        );
        let value = Value::from_json(text.as_bytes()).expect("JSON");
        let bson = write(&value).expect("a map");
        assert_eq!(read(&bson).expect("our own"), value);
        assert_eq!(json(&bson), text);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_read_or_refused() {
        for end in 0..AWESOME.len() {
            assert!(read(&AWESOME[..end]).is_err(), "{end}");
        }
        for at in 0..AWESOME.len() {
            for byte in 0..=u8::MAX {
                let mut changed = AWESOME.to_vec();
                changed[at] = byte;
                let _ = read(&changed);
            }
        }
    }

    #[test]
    fn what_bson_cannot_hold_is_refused_with_the_value() {
        let refusal = |json: &str| {
            let value = Value::from_json(json.as_bytes()).expect("JSON");
            write(&value).expect_err("no BSON").to_string()
        };
        assert!(refusal("[1]").contains("a map"));
        assert!(refusal(r#"{"a":18446744073709551615}"#).contains("18446744073709551615"));
        assert!(refusal("{\"a\\u0000b\":1}").contains("zero"));
        let object_id = b"\x16\x00\x00\x00\x07_id\x00aaaaaaaaaaaa\x00";
        assert!(read(object_id).expect_err("not read").to_string().contains("0x07"));
    }
}
