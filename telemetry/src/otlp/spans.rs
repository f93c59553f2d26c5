//! Recorded requests as spans: one for the request, and one below it for each stage. Names of attributes are those of
//! OpenTelemetry's semantic conventions where these have one, and else begin with `rebate.`.

use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use units::Nanos;

use super::attributes::{number, scope, text};
use crate::timeline::{Kind, Record, RecordedStage};

/// Returns the number of a record's spans.
pub(super) fn count(record: &Record) -> usize {
    1 + record.stages.len()
}

/// Returns the message that exports these records, and the number of its spans.
pub(super) fn request<'r>(
    records: impl Iterator<Item = &'r Arc<Record>>,
    resource: Resource,
) -> (ExportTraceServiceRequest, usize) {
    let spans: Vec<Span> = records.flat_map(|record| spans(record)).collect();
    let count = spans.len();
    let scoped = ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() };
    let resource_spans = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![scoped],
        ..ResourceSpans::default()
    };
    (ExportTraceServiceRequest { resource_spans: vec![resource_spans] }, count)
}

fn spans(record: &Record) -> impl Iterator<Item = Span> {
    let stages = record.stages.iter().map(|stage| of_stage(record, stage));
    std::iter::once(of_request(record)).chain(stages)
}

fn of_request(record: &Record) -> Span {
    let mut attributes =
        vec![text("rebate.why", record.why.name()), text("db.operation.name", record.command)];
    if !record.key.is_empty() {
        attributes.push(text("rebate.key", record.key.escape_ascii().to_string()));
    }
    if !record.client.is_empty() {
        attributes.push(text("client.address", record.client.as_str()));
    }
    if record.stages_left_out > 0 {
        attributes.push(number("rebate.stages_left_out", record.stages_left_out as i64));
    }
    let parent = record.parent_id;
    let place = Place { trace_id: record.trace_id, span_id: record.span_id, parent };
    place.span(record.command, SpanKind::Server, record.begin, record.total, attributes)
}

fn of_stage(record: &Record, stage: &RecordedStage) -> Span {
    let kind = if stage.kind == Kind::Store { SpanKind::Client } else { SpanKind::Internal };
    let mut attributes = Vec::new();
    match (&stage.by, stage.job) {
        (device, Some((placement, reason, service))) => {
            let waiting = stage.waiting().unwrap_or_default();
            let device = device.as_deref().unwrap_or("unknown");
            attributes.push(text("rebate.device", device));
            attributes.push(text("rebate.placement", placement));
            attributes.push(text("rebate.reason", reason));
            attributes.push(number("rebate.service_ns", service.0 as i64));
            attributes.push(number("rebate.waiting_ns", waiting.0 as i64));
        }
        (Some(server), None) => attributes.push(text("server.address", &**server)),
        (None, None) => {}
    }
    let (trace_id, parent) = (record.trace_id, Some(record.span_id));
    let begin = Nanos(record.begin.0.saturating_add(stage.after.0));
    let place = Place { trace_id, span_id: stage.span_id, parent };
    place.span(stage.kind.name(), kind, begin, stage.took, attributes)
}

/// The place of a span in its trace.
struct Place {
    trace_id: NonZeroU128,
    span_id: NonZeroU64,
    parent: Option<NonZeroU64>,
}

impl Place {
    fn span(
        &self,
        name: &str,
        kind: SpanKind,
        begin: Nanos,
        took: Nanos,
        attributes: Vec<KeyValue>,
    ) -> Span {
        let parent = self.parent.map(|parent| parent.get().to_be_bytes().to_vec());
        Span {
            trace_id: self.trace_id.get().to_be_bytes().to_vec(),
            span_id: self.span_id.get().to_be_bytes().to_vec(),
            parent_span_id: parent.unwrap_or_default(),
            name: name.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: begin.0,
            end_time_unix_nano: begin.0.saturating_add(took.0),
            attributes,
            flags: SAMPLED,
            ..Span::default()
        }
    }
}

/// The flag of a sampled trace.
const SAMPLED: u32 = 1;
