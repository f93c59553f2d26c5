//! Checks whether a profile can be used. Each number must be in its range and have a source, and curves must rise. A
//! problem names the key, the value and the valid values.

use units::Op;

use super::{
    Accelerator, ChainsProfile, DeviceProfile, FaultTail, Figure, Kind, LatencyPoint, OpProfile,
    Succession, Variant,
};

pub(super) fn profile(profile: &DeviceProfile) -> Result<(), String> {
    let p = profile;
    number("transfer_bytes_max", &p.transfer_bytes_max, 4_096, 1 << 30)?;
    number("late_after_ns", &p.late_after_ns, 0, SECOND_NS)?;
    if let Some(hardware) = &p.accelerator {
        accelerator(hardware)?;
    }
    codec(p)?;
    let all = ops(p);
    if all.is_empty() {
        return Err("it has no op; at least one of compress, decompress, encrypt and decrypt, \
                    crc32c, crc64, copy, serialize, deserialize, rpc, load_balance"
            .to_owned());
    }
    if p.encrypt.is_some() != p.decrypt.is_some() {
        return Err("encrypt, decrypt: one is missing; both or neither".to_owned());
    }
    for (key, op) in all {
        points(key, op, p.is_core())?;
    }
    for variant in [Variant::Low, Variant::Stated, Variant::High] {
        let varied = p.clone().variant(variant);
        for (key, op) in ops(&varied) {
            rising(&format!("{key}.latency"), &op.latency, variant)?;
            holds_its_submission(key, op, &varied, variant)?;
        }
        if let Some(accelerator) = &varied.accelerator {
            rising("accelerator.submit", &accelerator.submit, variant)?;
            whole_batches_cost_more(accelerator, variant)?;
        }
    }
    if let Some(of) = &p.chains {
        chains(of, p)?;
    }
    p.fault_tail.as_ref().map_or(Ok(()), fault_tail)
}

fn accelerator(accelerator: &Accelerator) -> Result<(), String> {
    standing("accelerator.attachment", &accelerator.attachment)?;
    number("accelerator.engines", &accelerator.engines, 1, 1_024)?;
    if let Some(queues) = &accelerator.work_queues {
        number("accelerator.work_queues", queues, 1, 1_024)?;
    }
    number("accelerator.entries_total", &accelerator.entries_total, 1, 65_536)?;
    number("accelerator.expected_poll_ns", &accelerator.expected_poll_ns, 0, SECOND_NS)?;
    for point in &accelerator.submit {
        let key = format!("accelerator.submit at {} bytes", point.bytes);
        number(&key, &point.ns, 0, 1_000_000)?;
    }
    sizes("accelerator.submit", &accelerator.submit, 1)?;
    let jobs: Vec<_> = accelerator.submit_batch.iter().map(|point| point.jobs).collect();
    if !jobs.is_sorted_by(|a, b| a < b) || jobs.first().is_some_and(|first| *first != 1) {
        return Err(format!("accelerator.submit_batch: jobs are {jobs:?}; from 1 on, rising"));
    }
    for point in &accelerator.submit_batch {
        let key = format!("accelerator.submit_batch at {} jobs", point.jobs);
        number(&key, &point.ns_per_job, 1, 1_000_000)?;
    }
    Ok(())
}

/// Checks that a latency is at least the cost of the submission, because a latency includes the submission.
fn holds_its_submission(
    key: &str,
    op: &OpProfile,
    profile: &DeviceProfile,
    variant: Variant,
) -> Result<(), String> {
    let below = op.latency.iter().find(|point| profile.submit(point.bytes).0 > point.ns.value);
    below.map_or(Ok(()), |point| {
        let (submit, bytes, ns) = (profile.submit(point.bytes).0, point.bytes, point.ns.value);
        Err(format!(
            "{key}.latency at {bytes} bytes ({variant:?}): ns is {ns}; at least the submission in \
             it, {submit}"
        ))
    })
}

fn whole_batches_cost_more(accelerator: &Accelerator, variant: Variant) -> Result<(), String> {
    let total = accelerator.submit_batch.iter().map(|point| point.jobs * point.ns_per_job.value);
    let totals: Vec<_> = total.collect();
    if totals.is_sorted() {
        return Ok(());
    }
    Err(format!(
        "accelerator.submit_batch: jobs x ns_per_job ({variant:?}) are {totals:?}; more jobs cost \
         no less together"
    ))
}

/// Checks that a profile with compression or decompression states its window, and that a profile with compression
/// states its Huffman code.
fn codec(p: &DeviceProfile) -> Result<(), String> {
    if let Some(window) = &p.window_log2 {
        number("window_log2", window, 9, 15)?;
    }
    if let Some(huffman) = &p.huffman {
        standing("huffman", huffman)?;
    }
    let has_codec = p.compress.is_some() || p.decompress.is_some();
    if has_codec && p.window_log2.is_none() {
        return Err("window_log2 is missing; 9 to 15 where it compresses or decompresses".into());
    }
    if p.compress.is_some() && p.compress().is_none() {
        return Err("huffman: the compress table that it names is missing, or it itself".into());
    }
    Ok(())
}

fn fault_tail(tail: &FaultTail) -> Result<(), String> {
    number("fault_tail.jobs_per_million", &tail.jobs_per_million, 0, 1_000_000)?;
    for bucket in &tail.faults {
        number("fault_tail.faults.count", &bucket.count, 0, u64::from(u32::MAX))?;
        let (from, to) = (bucket.from_us, bucket.to_us);
        if from >= to || to > SECOND_NS / 1_000 {
            return Err(format!("fault_tail.faults: to_us is {to}; above {from}, up to 1000000"));
        }
    }
    for (key, figure) in [("mean_us", &tail.mean_us), ("max_us", &tail.max_us)] {
        if let Some(figure) = figure {
            number(&format!("fault_tail.{key}"), figure, 0, SECOND_NS / 1_000)?;
        }
    }
    Ok(())
}

fn ops(p: &DeviceProfile) -> Vec<(&'static str, &OpProfile)> {
    let fixed = p.compress.as_ref().and_then(|compress| compress.fixed.as_ref());
    let dynamic = p.compress.as_ref().and_then(|compress| compress.dynamic.as_ref());
    let all = [
        ("compress.fixed", fixed),
        ("compress.dynamic", dynamic),
        ("decompress", p.decompress.as_ref()),
        ("encrypt", p.encrypt.as_ref()),
        ("decrypt", p.decrypt.as_ref()),
        ("crc32c", p.crc32c.as_ref()),
        ("crc64", p.crc64.as_ref()),
        ("copy", p.copy.as_ref()),
        ("serialize", p.serialize.as_ref()),
        ("deserialize", p.deserialize.as_ref()),
        ("rpc", p.rpc.as_ref()),
        ("load_balance", p.load_balance.as_ref()),
    ];
    all.into_iter().filter_map(|(key, op)| Some((key, op?))).collect()
}

/// Checks that every succession is of two ops that the device has, and that handing over takes a plausible time.
fn chains(chains: &ChainsProfile, profile: &DeviceProfile) -> Result<(), String> {
    standing("chains.successions", &chains.successions)?;
    if profile.is_core() {
        return Err("chains: a core does every op itself; only an accelerator has them".to_owned());
    }
    let has = |op: Op| profile.op(op).is_some();
    let missing =
        chains.successions.value.iter().find(|pair| !has(pair.first) || !has(pair.second));
    if let Some(Succession { first, second }) = missing {
        return Err(format!("chains.successions: {first} > {second}; both ops need their costs"));
    }
    for point in &chains.hand_over {
        let key = format!("chains.hand_over at {} bytes", point.bytes);
        number(&key, &point.ns, 0, SECOND_NS)?;
    }
    sizes("chains.hand_over", &chains.hand_over, 1)?;
    number("chains.trip_ns", &chains.trip_ns, 0, SECOND_NS)?;
    for variant in [Variant::Low, Variant::Stated, Variant::High] {
        let varied = profile.clone().variant(variant);
        let Some(chains) = &varied.chains else { continue };
        rising("chains.hand_over", &chains.hand_over, variant)?;
        for pair in &chains.successions.value {
            let trip_ns = chains.trip_ns.value;
            let lowest_ns = varied.op(pair.second).map_or(0, |op| op.latency(0).0);
            if trip_ns > lowest_ns {
                return Err(format!(
                    "chains.trip_ns ({variant:?}): value is {trip_ns}; at most the least latency \
                     of {}, {lowest_ns}",
                    pair.second
                ));
            }
        }
    }
    Ok(())
}

fn points(key: &str, op: &OpProfile, is_core: bool) -> Result<(), String> {
    for (name, figure, highest) in
        [("engines", &op.engines, 1_024), ("entries_total", &op.entries_total, 65_536)]
    {
        match figure {
            Some(_) if is_core => {
                let why = "a core does one job after another; leave it out";
                return Err(format!("{key}.{name}: {why}"));
            }
            Some(figure) => number(&format!("{key}.{name}"), figure, 1, highest)?,
            None => {}
        }
    }
    for point in &op.latency {
        number(&format!("{key}.latency at {} bytes", point.bytes), &point.ns, 1, SECOND_NS)?;
    }
    sizes(&format!("{key}.latency"), &op.latency, 2)?;
    for point in &op.batch {
        let key = format!("{key}.batch at {} pages", point.pages_in_flight);
        number(&key, &point.ns_per_page, 0, SECOND_NS)?;
    }
    let counts: Vec<_> = op.batch.iter().map(|point| point.pages_in_flight).collect();
    if is_core && !counts.is_empty() {
        return Err(format!("{key}.batch: a core does one job after another; no points"));
    }
    if !is_core && (counts.is_empty() || !counts.is_sorted_by(|a, b| a < b)) {
        return Err(format!("{key}.batch: pages_in_flight are {counts:?}; at least one, rising"));
    }
    for point in &op.ratio {
        let key = format!("{key}.ratio at {} percent", point.output_percent);
        number(&key, &point.time_percent, 1, 10_000)?;
    }
    let shares: Vec<_> = op.ratio.iter().map(|point| point.output_percent).collect();
    if shares.len() == 1 || !shares.is_sorted_by(|a, b| a < b) || shares.last() > Some(&200) {
        return Err(format!(
            "{key}.ratio: output_percent are {shares:?}; none, or at least two that rise, up to 200"
        ));
    }
    Ok(())
}

fn sizes(key: &str, points: &[LatencyPoint], least: usize) -> Result<(), String> {
    let sizes: Vec<_> = points.iter().map(|point| point.bytes).collect();
    let rise = sizes.is_sorted_by(|a, b| a < b);
    if sizes.len() >= least && rise && sizes.last() <= Some(&(1 << 30)) {
        return Ok(());
    }
    Err(format!("{key}: bytes are {sizes:?}; at least {least}, rising, up to {}", 1 << 30))
}

fn rising(key: &str, points: &[LatencyPoint], variant: Variant) -> Result<(), String> {
    let costs: Vec<_> = points.iter().map(|point| point.ns.value).collect();
    if costs.is_sorted() {
        return Ok(());
    }
    Err(format!("{key}: ns ({variant:?}) are {costs:?}; a larger job takes no less"))
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
        None if matches!(figure.kind, Kind::Assumed | Kind::Calibrated) => Err(format!(
            "{key}: range is missing; an assumed or calibrated number says how far off it may be"
        )),
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
