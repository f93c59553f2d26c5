//! The section `[scheduler]`: the scheduler to report to, and the parameters that a scheduler sends.

use std::path::PathBuf;

use policy::{NamedPolicy, POLICIES};
use serde::{Deserialize, Serialize};
use units::{ByteCount, limits};

use crate::config::keys::{
    Key, Kind, MEMORY_MAX, TIME_MS_MAX, hot, policy_names, restart, with_first,
};

/// The scheduler to report to, and the parameters that a scheduler sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// The scheduler to report to and to take parameters from: `HOST:PORT` or the path of a Unix socket. Empty means
    /// none.
    pub address: String,
    /// File with the line `USER:PASSWORD` with which this process logs in to its scheduler, see
    /// [access.md](access.md#passwords-towards-others).
    pub login_file: Option<PathBuf>,
    /// This process's name in its reports, unique among those that report. Empty means the host's name and the process
    /// id. A name that stays the same over restarts keeps its counts together. If two processes use one name, one of
    /// them is refused.
    pub instance: String,
    /// How often reports are wanted, 10 or more. It is also the step of the history. Low: finer steps, and more to keep
    /// and to send.
    pub report_every_ms: u64,
    /// How long differences between reports, and instances that no longer report, are kept. At most a day.
    pub history_s: u64,
    /// Processes that may report, and calls that may follow the parameters. It bounds the series on `/metrics`. Above
    /// it, an instance that has been silent for 10 s makes room; otherwise the new one is refused with
    /// `RESOURCE_EXHAUSTED`.
    pub instances_max: usize,
    /// Memory for the history. Above it the oldest differences are dropped before `history_s` is over. Counts that do
    /// not fit even then are refused.
    pub history_bytes_max: ByteCount,
    /// What is sent: `static` sends only the keys below; `fitted` also sends what was [fitted](#fitted-parameters) from
    /// reports.
    pub parameters: ParametersWord,
    /// The policy that is sent to all followers, by the names of `runtime.policy` except `auto`. `own` leaves each its
    /// own.
    pub policy: PolicyWord,
    /// `runtime.offload_bytes_min` for all followers; unset leaves each its own.
    pub offload_bytes_min: Option<ByteCount>,
    /// `runtime.inline_bytes_max` likewise.
    pub inline_bytes_max: Option<ByteCount>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            login_file: None,
            instance: String::new(),
            report_every_ms: 1_000,
            history_s: 600,
            instances_max: 1_024,
            history_bytes_max: ByteCount::mib(64),
            parameters: ParametersWord::Static,
            policy: PolicyWord::Own,
            offload_bytes_min: None,
            inline_bytes_max: None,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    restart("scheduler.address", Kind::GrpcAddress).flag("--scheduler"),
    restart("scheduler.login_file", Kind::Path),
    restart("scheduler.instance", Kind::Name),
    hot("scheduler.report_every_ms", Kind::Count(10, TIME_MS_MAX)),
    restart("scheduler.history_s", Kind::Count(1, HISTORY_S_MAX)),
    restart("scheduler.instances_max", Kind::Count(1, INSTANCES_MAX)),
    restart("scheduler.history_bytes_max", Kind::Bytes(ByteCount::mib(1), MEMORY_MAX)),
    hot("scheduler.parameters", Kind::Choice(&["static", "fitted"])),
    hot("scheduler.policy", Kind::Choice(&POLICIES_OWN)),
    hot("scheduler.offload_bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    hot("scheduler.inline_bytes_max", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
];

const POLICIES_OWN: [&str; POLICIES.len() + 1] = with_first("own", &policy_names());

/// The longest history: one day (s).
const HISTORY_S_MAX: i64 = 86_400;

/// The maximum number of instances that report to a scheduler.
const INSTANCES_MAX: i64 = 65_536;

/// The source of the parameters that a scheduler sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ParametersWord {
    Static,
    Fitted,
}

/// The policy that a scheduler sends, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum PolicyWord {
    Own,
    #[serde(untagged)]
    Named(#[serde(with = "super::named_policy")] &'static NamedPolicy),
}
