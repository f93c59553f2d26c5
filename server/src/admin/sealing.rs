//! Metrics of sealed values and of their keys. Keys are named by their ids.

use super::exposition::Exposition;
use super::metrics::Workers;
use crate::counters::Control;
use crate::sealing::ValueKeys;

pub(super) fn values(page: &mut Exposition, workers: &Workers<'_>) {
    page.counter("rebate_sealed_values_total", "Values sealed and opened.")
        .sample(&[("direction", "written")], workers.sum(|c| &c.values.written_sealed))
        .sample(&[("direction", "read")], workers.sum(|c| &c.values.read_sealed));
    page.counter(
        "rebate_seals_failed_total",
        "Values that nothing could seal, which were stored so that no reader can open them.",
    )
    .sample(&[], workers.sum(|c| &c.values.seals_failed));
}

pub(super) fn keys(page: &mut Exposition, keys: &ValueKeys, control: &Control) {
    let ring = keys.current();
    let ids: Vec<String> = ring.all().iter().map(|key| key.id.to_string()).collect();
    let help = "Whether new values are sealed with the key.";
    let mut family = page.gauge("rebate_value_key_active", help);
    for (key, id) in ring.all().iter().zip(&ids) {
        family.sample(&[("key", id)], u8::from(key.id == ring.active().id));
    }
    let help = "Values that this process sealed with the key.";
    let mut family = page.counter("rebate_value_key_sealed_total", help);
    for (key, id) in ring.all().iter().zip(&ids) {
        family.sample(&[("key", id)], key.usage.values.read());
    }
    let help = "Bytes of those values. Rotate to a new key before the fleet has sealed 4 PiB.";
    let mut family = page.counter("rebate_value_key_sealed_bytes_total", help);
    for (key, id) in ring.all().iter().zip(&ids) {
        family.sample(&[("key", id)], key.usage.bytes.read());
    }
    reloads(page, control);
}

pub(super) fn reloads(page: &mut Exposition, control: &Control) {
    page.counter("rebate_value_key_reloads_total", "Reads of the changed keys, by result.")
        .sample(&[("result", "success")], control.value_key_reloads.read())
        .sample(&[("result", "failure")], control.value_key_reloads_failed.read());
}
