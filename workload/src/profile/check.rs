//! Whether a profile can be used: each number in its range and with its standing, curves that rise.
//! A problem names the key, the value and what is valid.

use super::{DeviceProfile, Figure, Kind, OpProfile, Variant};

pub(super) fn profile(profile: &DeviceProfile) -> Result<(), String> {
    let p = profile;
    number("engines", &p.engines, 1, 1_024)?;
    number("work_queues", &p.work_queues, 1, 1_024)?;
    number("entries_total", &p.entries_total, 1, 65_536)?;
    number("window_log2", &p.window_log2, 9, 15)?;
    number("transfer_bytes_max", &p.transfer_bytes_max, 4_096, 1 << 30)?;
    number("submit_ns", &p.submit_ns, 0, 1_000_000)?;
    number("expected_poll_ns", &p.expected_poll_ns, 0, SECOND_NS)?;
    number("late_after_ns", &p.late_after_ns, 0, SECOND_NS)?;
    standing("huffman", &p.huffman)?;
    for (key, op) in ops(p) {
        points(key, op)?;
    }
    for variant in [Variant::Low, Variant::Stated, Variant::High] {
        for (key, op) in ops(&p.clone().variant(variant)) {
            rising(key, op, variant)?;
        }
    }
    for bucket in &p.fault_tail.faults {
        number("fault_tail.faults.count", &bucket.count, 0, u64::MAX)?;
        if bucket.from_us >= bucket.to_us {
            let (from, to) = (bucket.from_us, bucket.to_us);
            return Err(format!("fault_tail.faults: to_us is {to}; above from_us, {from}"));
        }
    }
    number("fault_tail.mean_us", &p.fault_tail.mean_us, 0, SECOND_NS / 1_000)?;
    number("fault_tail.max_us", &p.fault_tail.max_us, 0, SECOND_NS / 1_000)
}

fn ops(p: &DeviceProfile) -> [(&'static str, &OpProfile); 3] {
    [
        ("compress.fixed", &p.compress.fixed),
        ("compress.dynamic", &p.compress.dynamic),
        ("decompress", &p.decompress),
    ]
}

fn points(key: &str, op: &OpProfile) -> Result<(), String> {
    for point in &op.latency {
        number(&format!("{key}.latency at {} bytes", point.bytes), &point.ns, 1, SECOND_NS)?;
    }
    for point in &op.batch {
        let key = format!("{key}.batch at {} pages", point.pages_in_flight);
        number(&key, &point.ns_per_page, 0, SECOND_NS)?;
    }
    let sizes: Vec<_> = op.latency.iter().map(|point| point.bytes).collect();
    if sizes.len() < 2 || !sizes.is_sorted_by(|a, b| a < b) || sizes.last() > Some(&(1 << 30)) {
        return Err(format!(
            "{key}.latency: bytes are {sizes:?}; at least two that rise, up to {}",
            1 << 30
        ));
    }
    let counts: Vec<_> = op.batch.iter().map(|point| point.pages_in_flight).collect();
    if counts.is_empty() || !counts.is_sorted_by(|a, b| a < b) {
        return Err(format!("{key}.batch: pages_in_flight are {counts:?}; at least one, rising"));
    }
    Ok(())
}

fn rising(key: &str, op: &OpProfile, variant: Variant) -> Result<(), String> {
    let costs: Vec<_> = op.latency.iter().map(|point| point.ns.value).collect();
    if costs.is_sorted() {
        return Ok(());
    }
    Err(format!("{key}.latency: ns ({variant:?}) are {costs:?}; a larger job takes no less"))
}

fn number(key: &str, figure: &Figure<u64>, lowest: u64, highest: u64) -> Result<(), String> {
    standing(key, figure)?;
    let value = figure.value;
    if !(lowest..=highest).contains(&value) {
        return Err(format!("{key}: value is {value}; {lowest} to {highest}"));
    }
    match figure.range {
        Some([low, high]) if low < lowest || high > highest || !(low..=high).contains(&value) => {
            Err(format!(
                "{key}: range is [{low}, {high}]; a lowest and a highest around {value}, \
                 within {lowest} to {highest}"
            ))
        }
        None if figure.kind == Kind::Assumed => {
            Err(format!("{key}: range is missing; an assumed number says how far off it may be"))
        }
        _ => Ok(()),
    }
}

fn standing<T>(key: &str, figure: &Figure<T>) -> Result<(), String> {
    let source = figure.source.trim();
    let named = !source.is_empty() && (figure.kind == Kind::Assumed || source != "none");
    if !named {
        return Err(format!(
            "{key}: source is {source:?}; a document and the address in it, or \"none\" for an \
             assumed number"
        ));
    }
    let explained = figure.assumption.as_ref().is_some_and(|text| !text.trim().is_empty());
    if figure.kind != Kind::Published && !explained {
        return Err(format!("{key}: assumption is missing; say how {:?} came about", figure.kind));
    }
    Ok(())
}

const SECOND_NS: u64 = 1_000_000_000;
