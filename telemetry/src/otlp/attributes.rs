//! Attributes of what is exported: a name and a value.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};

pub(super) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    pair(key, Value::StringValue(value.into()))
}

pub(super) fn number(key: &str, value: i64) -> KeyValue {
    pair(key, Value::IntValue(value))
}

pub(super) fn string(value: impl Into<String>) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(value.into())) }
}

/// Returns the scope of everything that is exported.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "rebate".to_owned(), ..InstrumentationScope::default() }
}

fn pair(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
