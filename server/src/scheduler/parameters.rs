//! The parameters that a scheduler sends, from its configuration; and what they make of the configuration of a process
//! that follows them. Unknown policies and values out of range change nothing.

use api::v1::PolicyParameters;
use units::{ByteCount, limits};

use crate::config::{PolicyName, PolicyWord, RuntimeSection, SchedulerConfig};

/// What a scheduler with this configuration sends.
pub(super) fn of(config: &SchedulerConfig, revision: u64) -> PolicyParameters {
    let named = POLICIES.iter().find(|(word, ..)| *word == config.policy);
    PolicyParameters {
        revision,
        policy: named.map(|(_, _, name)| (*name).to_owned()),
        offload_bytes_min: config.offload_bytes_min.map(|bytes| bytes.0),
        inline_bytes_max: config.inline_bytes_max.map(|bytes| bytes.0),
    }
}

/// The configuration that holds under these parameters; `own` is the process's.
///
/// # Errors
/// What is not valid, and what would be.
pub(super) fn followed(
    parameters: &PolicyParameters,
    own: &RuntimeSection,
) -> Result<RuntimeSection, String> {
    let mut runtime = own.clone();
    if let Some(text) = &parameters.policy {
        let known = POLICIES.iter().find(|(_, _, name)| name == text);
        let (_, policy, _) = known.ok_or_else(|| {
            let valid: Vec<_> = POLICIES.iter().map(|(_, _, name)| *name).collect();
            let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            format!("policy {shown:?} is not known here; valid is {}", valid.join(", "))
        })?;
        runtime.policy = *policy;
    }
    let bytes = |name: &str, sent: Option<u64>, own: ByteCount| match sent.map(ByteCount) {
        None => Ok(own),
        Some(sent) if sent <= limits::ITEM_BYTES_MAX_HIGHEST => Ok(sent),
        Some(sent) => {
            let max = limits::ITEM_BYTES_MAX_HIGHEST;
            Err(format!("{name} = {sent} is not valid; valid is 0 to {max}"))
        }
    };
    runtime.offload_bytes_min =
        bytes("offload_bytes_min", parameters.offload_bytes_min, own.offload_bytes_min)?;
    runtime.inline_bytes_max =
        bytes("inline_bytes_max", parameters.inline_bytes_max, own.inline_bytes_max)?;
    Ok(runtime)
}

/// Every policy that can be sent, with its name on the wire.
const POLICIES: [(PolicyWord, PolicyName, &str); 9] = [
    (PolicyWord::AlwaysSoftware, PolicyName::AlwaysSoftware, "always-software"),
    (PolicyWord::BoundedInline, PolicyName::BoundedInline, "bounded-inline"),
    (PolicyWord::BoundedOffload, PolicyName::BoundedOffload, "bounded-offload"),
    (PolicyWord::SyncOffload, PolicyName::SyncOffload, "sync-offload"),
    (PolicyWord::AsyncOffload, PolicyName::AsyncOffload, "async-offload"),
    (PolicyWord::LatencyCritical, PolicyName::LatencyCritical, "latency-critical"),
    (PolicyWord::Batch, PolicyName::Batch, "batch"),
    (PolicyWord::LeastLatency, PolicyName::LeastLatency, "least-latency"),
    (PolicyWord::LeastHostCycles, PolicyName::LeastHostCycles, "least-host-cycles"),
];

/// Of what a stranger sent, so much is shown.
const SHOWN_CHARS_MAX: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rules;

    #[test]
    fn what_is_sent_is_followed_by_its_name() {
        let own = RuntimeSection::default();
        for (word, policy, name) in POLICIES {
            let config = SchedulerConfig {
                policy: word,
                offload_bytes_min: Some(ByteCount(7)),
                ..SchedulerConfig::default()
            };
            let followed = followed(&of(&config, 3), &own).unwrap();
            assert_eq!(followed.policy, policy);
            assert_eq!(followed.offload_bytes_min, ByteCount(7));
            assert_eq!(followed.inline_bytes_max, own.inline_bytes_max);
            assert_eq!(rules::policy(policy, &followed, 2, 1).name(), name);
        }
        let nothing = of(&SchedulerConfig::default(), 1);
        assert_eq!(nothing, PolicyParameters { revision: 1, ..PolicyParameters::default() });
        assert_eq!(followed(&nothing, &own).unwrap(), own);
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let own = RuntimeSection::default();
        for policy in ["", "auto", "own", "magic", &"x".repeat(1 << 20)] {
            let sent = PolicyParameters { policy: Some(policy.to_owned()), ..<_>::default() };
            let why = followed(&sent, &own).unwrap_err();
            assert!(why.contains("async-offload") && why.len() < 300, "{why}");
        }
        let sent = PolicyParameters { inline_bytes_max: Some(u64::MAX), ..<_>::default() };
        assert!(followed(&sent, &own).unwrap_err().contains("inline_bytes_max"));
    }
}
