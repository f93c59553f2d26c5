//! Computes the parameters that a scheduler sends, and the configuration of a process that follows them.
//! Parameters with unknown policies or values out of range are refused.

use std::sync::Arc;

use api::v1::PolicyParameters;
use policy::scheduling::{Decision, Scheduling};
use policy::{BOUNDED_OFFLOAD, FittedOffload, NamedPolicy, Offload, POLICIES, Policy};
use units::{ByteCount, Op, limits};

use crate::config::{
    ParametersWord, PolicyName, PolicyWord, RuntimeSection, SchedulerConfig, convert,
};

/// Returns the parameters that a scheduler sends, from its configuration and its fitted costs.
pub(super) fn to_send(
    config: &SchedulerConfig,
    fitted: &Scheduling,
    revision: u64,
) -> PolicyParameters {
    let policy = match config.policy {
        PolicyWord::Own => None,
        PolicyWord::Named(named) => Some(named.name.to_owned()),
    };
    let is_fitted = config.parameters == ParametersWord::Fitted;
    let offload = |decision: &Decision| api::v1::Offload {
        op: decision.op.name().to_owned(),
        device: decision.device.clone(),
        bytes_min: decision.bytes_min.min(limits::ITEM_BYTES_MAX_HIGHEST.0),
        weight: u32::from(decision.weight),
        wait_bytes_max: decision.wait_bytes_max.min(limits::ITEM_BYTES_MAX_HIGHEST.0),
    };
    PolicyParameters {
        offloads: fitted.decisions().filter(|_| is_fitted).map(offload).collect(),
        probe_every: if is_fitted { fitted.probe_every() } else { 0 },
        revision,
        policy,
        offload_bytes_min: config.offload_bytes_min.map(|bytes| bytes.0),
        inline_bytes_max: config.inline_bytes_max.map(|bytes| bytes.0),
    }
}

/// Returns the policy and the configuration of a process that follows `sent`. `configured` is the
/// configuration of the process, and `devices` are the names of its devices.
///
/// # Errors
/// Describes the invalid value and the valid ones.
pub(super) fn policy(
    sent: &PolicyParameters,
    configured: &RuntimeSection,
    devices: &[&str],
    accelerators: usize,
) -> Result<(Arc<dyn Policy>, RuntimeSection), String> {
    let runtime = followed(sent, configured)?;
    let offloads = offloads(sent, devices)?;
    let is_fitted = sent.probe_every > 0 || !sent.offloads.is_empty();
    let is_bounded = match runtime.policy {
        PolicyName::Auto => true,
        PolicyName::Named(named) => named.name == BOUNDED_OFFLOAD,
    };
    if !is_fitted || !is_bounded || accelerators == 0 {
        let policy = convert::policy(runtime.policy, &runtime, devices.len(), accelerators);
        return Ok((policy, runtime));
    }
    let sizes = (runtime.offload_bytes_min.as_usize(), runtime.inline_bytes_max.as_usize());
    let policy = FittedOffload::new(accelerators, sizes, sent.probe_every, &offloads);
    Ok((Arc::new(policy), runtime))
}

/// Returns the fitted offloads for the devices and ops of this process.
fn offloads(sent: &PolicyParameters, devices: &[&str]) -> Result<Vec<Offload>, String> {
    let count = sent.offloads.len();
    if count > OFFLOADS_MAX {
        return Err(format!("offloads has {count} entries; valid is 0 to {OFFLOADS_MAX}"));
    }
    let mut offloads = Vec::new();
    for offload in &sent.offloads {
        let (bytes, bytes_max) = (ByteCount(offload.bytes_min), limits::ITEM_BYTES_MAX_HIGHEST);
        if bytes > bytes_max {
            return Err(format!("bytes_min = {} is not valid; valid is 0 to {bytes_max}", bytes.0));
        }
        let wait = ByteCount(offload.wait_bytes_max);
        if wait > bytes_max {
            let wait = wait.0;
            return Err(format!("wait_bytes_max = {wait} is not valid; valid is 0 to {bytes_max}"));
        }
        let weight = u16::try_from(offload.weight).ok().filter(|weight| WEIGHTS.contains(weight));
        let Some(weight) = weight else {
            let (weight, max) = (offload.weight, WEIGHTS.end());
            return Err(format!("weight = {weight} is not valid; valid is 1 to {max}"));
        };
        let op = Op::ALL.into_iter().find(|op| op.name() == offload.op);
        let device = devices.iter().position(|name| *name == offload.device);
        if let (Some(op), Some(device)) = (op, device) {
            let (bytes_min, wait_bytes_max) = (bytes.as_usize(), wait.as_usize());
            offloads.push(Offload { op, device, bytes_min, weight, wait_bytes_max });
        }
    }
    Ok(offloads)
}

/// Returns `configured` with the values that `parameters` override.
///
/// # Errors
/// Describes the invalid value and the valid ones.
fn followed(
    parameters: &PolicyParameters,
    configured: &RuntimeSection,
) -> Result<RuntimeSection, String> {
    let mut runtime = configured.clone();
    if let Some(text) = &parameters.policy {
        let named = NamedPolicy::find(text).ok_or_else(|| {
            let valid: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
            let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            format!("policy {shown:?} is not known here; valid is {}", valid.join(", "))
        })?;
        runtime.policy = PolicyName::Named(named);
    }
    let bytes = |name: &str, sent: Option<u64>, configured: ByteCount| match sent.map(ByteCount) {
        None => Ok(configured),
        Some(sent) if sent <= limits::ITEM_BYTES_MAX_HIGHEST => Ok(sent),
        Some(sent) => {
            let max = limits::ITEM_BYTES_MAX_HIGHEST;
            Err(format!("{name} = {sent} is not valid; valid is 0 to {max}"))
        }
    };
    runtime.offload_bytes_min =
        bytes("offload_bytes_min", parameters.offload_bytes_min, configured.offload_bytes_min)?;
    runtime.inline_bytes_max =
        bytes("inline_bytes_max", parameters.inline_bytes_max, configured.inline_bytes_max)?;
    Ok(runtime)
}

/// The maximum number of offloads in received parameters.
const OFFLOADS_MAX: usize = 1_024;

const WEIGHTS: std::ops::RangeInclusive<u16> = 1..=1_000;

/// The number of characters of a received text that are shown in an error.
const SHOWN_CHARS_MAX: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use policy::scheduling::{JobReport, SizeSums};
    use units::Nanos;

    use super::*;

    fn nothing() -> Scheduling {
        Scheduling::new(Nanos::secs(1))
    }

    #[test]
    fn what_is_sent_is_followed_by_its_name() {
        let configured = RuntimeSection::default();
        for named in &POLICIES {
            let config = SchedulerConfig {
                policy: PolicyWord::Named(named),
                offload_bytes_min: Some(ByteCount(7)),
                ..SchedulerConfig::default()
            };
            let followed = followed(&to_send(&config, &nothing(), 3), &configured).unwrap();
            assert_eq!(followed.policy, PolicyName::Named(named));
            assert_eq!(followed.offload_bytes_min, ByteCount(7));
            assert_eq!(followed.inline_bytes_max, configured.inline_bytes_max);
            assert_eq!(convert::policy(followed.policy, &followed, 2, 1).name(), named.name);
        }
        let nothing = to_send(&SchedulerConfig::default(), &nothing(), 1);
        assert_eq!(nothing, PolicyParameters { revision: 1, ..PolicyParameters::default() });
        assert_eq!(followed(&nothing, &configured).unwrap(), configured);
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let configured = RuntimeSection::default();
        for policy in ["", "auto", "own", "magic", &"x".repeat(1 << 20)] {
            let sent = PolicyParameters { policy: Some(policy.to_owned()), ..<_>::default() };
            let why = followed(&sent, &configured).unwrap_err();
            assert!(why.contains("async-offload") && why.len() < 300, "{why}");
        }
        let sent = PolicyParameters { inline_bytes_max: Some(u64::MAX), ..<_>::default() };
        assert!(followed(&sent, &configured).unwrap_err().contains("inline_bytes_max"));
    }
    /// Returns the costs learnt if software takes ten times as long as the device at every size.
    fn learnt() -> Scheduling {
        let mut fitted = nothing();
        for second in 1..10 {
            for (device, times) in [("software", 10), ("virtual-iaa", 1)] {
                let sums = |log2| SizeSums {
                    log2,
                    jobs: 50,
                    work_bytes: 50 << log2,
                    service_ns: times * 50 * 10_000,
                    ..SizeSums::default()
                };
                let sizes = [sums(10), sums(14)];
                let (reporter, op, covered) = ("one", Op::Compress, Nanos::secs(1));
                let report = JobReport { reporter, op, device, covered, busy: 0.0, sizes: &sizes };
                fitted.observe(&report, Nanos::secs(second));
            }
            fitted.decide(Nanos::secs(second));
        }
        fitted
    }

    #[test]
    fn fitted_parameters_are_followed_where_the_device_exists() {
        let configured = RuntimeSection::default();
        let config =
            SchedulerConfig { parameters: ParametersWord::Fitted, ..SchedulerConfig::default() };
        let sent = to_send(&config, &learnt(), 4);
        assert_eq!(sent.offloads.len(), 1);
        assert_eq!(sent.offloads[0].bytes_min, 1_024);
        assert!(sent.probe_every > 0);
        let named = |sent: &PolicyParameters, devices: &[&str], accelerators| {
            policy(sent, &configured, devices, accelerators).map(|(policy, _)| policy.name())
        };
        let devices = ["software", "virtual-iaa", "worker"];
        assert_eq!(named(&sent, &devices, 1), Ok("fitted-offload"));
        assert_eq!(named(&sent, &devices[..1], 0), Ok("always-software"));
        let software = PolicyParameters { policy: Some("batch".into()), ..sent.clone() };
        assert_eq!(named(&software, &devices, 1), Ok("batch"), "another policy looks at none");
        let fixed = to_send(&SchedulerConfig::default(), &learnt(), 4);
        assert_eq!(named(&fixed, &devices, 1), Ok("bounded-offload"));
        let strange =
            api::v1::Offload { device: "x".into(), op: "y".into(), ..sent.offloads[0].clone() };
        let with = |offload| PolicyParameters { offloads: vec![offload], ..sent.clone() };
        assert_eq!(named(&with(strange), &devices, 1), Ok("fitted-offload"));
        for (offload, said) in [
            (api::v1::Offload { weight: 0, ..sent.offloads[0].clone() }, "weight = 0 is not valid"),
            (api::v1::Offload { bytes_min: u64::MAX, ..sent.offloads[0].clone() }, "bytes_min = "),
            (
                api::v1::Offload { wait_bytes_max: u64::MAX, ..sent.offloads[0].clone() },
                "wait_bytes_max = ",
            ),
        ] {
            assert!(named(&with(offload), &devices, 1).unwrap_err().contains(said));
        }
        let many = vec![sent.offloads[0].clone(); OFFLOADS_MAX + 1];
        let many = PolicyParameters { offloads: many, ..sent };
        assert!(named(&many, &devices, 1).unwrap_err().contains("1025 entries"));
    }
}
