//! What arithmetic settles: counts of accelerators from the traces, memory and area from the printed sizes.

use crate::reproduce::rows::{Kind, Row};

/// The rows, each computed from printed inputs.
pub(super) fn rows() -> Vec<Row> {
    let catalog = trace::accelflow();
    let counts = [87.0, 28.0, 18.0, 30.0, 29.0, 19.0, 9.0, 25.0];
    let mut rows: Vec<Row> = catalog
        .services()
        .iter()
        .zip(counts)
        .map(|(service, count)| {
            let id = format!("accelerators_per_request.{}", service.name.to_lowercase());
            let what = format!("table IV: accelerators that a request of {} invokes", service.name);
            row(&id, &what, count, catalog.invocations(service) as f64, "1")
        })
        .collect();
    let (accelerators, queues_and_dispatchers, dma, network) = (44.9, 3.4, 1.3, 0.4);
    let all = 122.3 + accelerators + queues_and_dispatchers + dma + network;
    let orchestration = queues_and_dispatchers + dma + network;
    rows.extend([
        row(
            "memory_added",
            "section VII-B5: entries of all queues",
            2.4,
            9.0 * 128.0 * 2.1e-3,
            "MB",
        ),
        row(
            "area.all",
            "section VI: accelerators and AccelFlow of the processor's area",
            29.0,
            100.0 * (accelerators + orchestration) / all,
            "%",
        ),
        row(
            "area.accelerators",
            "section VI: accelerators of the processor's area",
            26.1,
            100.0 * accelerators / all,
            "%",
        ),
    ]);
    rows
}

fn row(id: &str, what: &str, published: f64, ours: f64, unit: &'static str) -> Row {
    Row {
        id: id.to_owned(),
        what: what.to_owned(),
        published: Some(published),
        ours: Some(ours),
        unit,
        ci95: None,
        kind: Kind::Computed,
        devices: Vec::new(),
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_gives_the_printed_digits() {
        for row in rows() {
            let (published, ours) = (row.published.expect("given"), row.ours.expect("computed"));
            assert!((published - ours).abs() < 0.05, "{}: {published} {ours}", row.id);
        }
    }
}
