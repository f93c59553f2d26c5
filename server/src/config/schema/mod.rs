//! The structs of the configuration and their defaults. Unknown keys are refused. `source` reads the values.
//!
//! Each section has one file with its fields, their defaults and the table of its keys. The comment of a field is its
//! row in docs/operating/configuration.md, which a test writes (`tests/reference.rs`). So links in these comments are
//! relative to that document.

mod compress;
mod otlp;
mod programs;
mod requests;
mod runtime;
mod scheduler;
mod server;
mod store;
mod tls;
mod values;

use serde::{Deserialize, Serialize};

use super::keys::Key;

pub use compress::{CodecName, CompressConfig, CompressMode, Foreign, LevelName, ReaderName};
pub use otlp::{OtlpConfig, SignalName};
pub use programs::ProgramsConfig;
pub use requests::RequestsConfig;
pub use runtime::{FallbackName, HuffmanName, PolicyName, RuntimeSection};
pub use scheduler::{ParametersWord, PolicyWord, SchedulerConfig};
pub use server::{LogFormat, LogLevel, ProtocolName, ReadyWhen, RoleName, ServerConfig, Services};
pub use store::{DistributionName, LoginScheme, LostKeys, StoreConfig};
pub use tls::{ClientAuthWord, TlsConfig, TlsVersionWord};
pub use values::ValuesConfig;

/// The configuration of `rebate serve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub server: ServerConfig,
    /// Where stored values are.
    pub store: StoreConfig,
    /// The form in which values are stored.
    pub compress: CompressConfig,
    /// The frames around stored values, the dictionaries for them, and the values that are kept without frames.
    pub values: ValuesConfig,
    /// Where (de)compression runs.
    pub runtime: RuntimeSection,
    /// The scheduler to report to, and the parameters that a scheduler sends.
    pub scheduler: SchedulerConfig,
    /// The example service, which runs each request as a program of several ops.
    pub programs: ProgramsConfig,
    /// The requests of which the process records where their time went.
    pub requests: RequestsConfig,
    /// The collector to which metrics, spans and the log are sent.
    pub otlp: OtlpConfig,
    /// The certificates of this process, and those that it accepts.
    pub tls: TlsConfig,
}

/// The keys of each section, in the order of the fields of [`Config`].
pub(super) const SECTIONS: [&[Key]; 10] = [
    server::KEYS,
    store::KEYS,
    compress::KEYS,
    values::KEYS,
    runtime::KEYS,
    scheduler::KEYS,
    programs::KEYS,
    requests::KEYS,
    otlp::KEYS,
    tls::KEYS,
];

mod named_policy {
    use policy::NamedPolicy;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        policy: &&'static NamedPolicy,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(policy.name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static NamedPolicy, D::Error> {
        let name = String::deserialize(deserializer)?;
        NamedPolicy::find(&name).ok_or_else(|| D::Error::custom("no policy has this name"))
    }
}
