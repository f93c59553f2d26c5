//! Loads a configuration for commands that only examine it. The file, the environment variables, the keys and
//! the flags for devices are those of `rebate serve`.

use std::path::PathBuf;

use clap::Args;
use drivers::host::Machine;
use policy::POLICIES;
use server::config::{self, Config, Flag, Sources};

use super::check;
use crate::process;
use crate::terminal::warn;

/// The flags of `rebate serve` that concern devices, and the flags that choose the configuration.
#[derive(Debug, Args)]
pub(crate) struct DeviceFlags {
    /// Compression services to use as devices: HOST:PORT, or lane:/PATH for a service on this host.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    compression: Vec<String>,
    /// Device in addition to software, such as worker or virtual-iaa; can be repeated. See `rebate devices`.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<String>,
    /// Allow the use of devices that only emulate an accelerator.
    #[arg(long)]
    allow_virtual: bool,
    #[arg(long, value_name = "POLICY", help = policy_help())]
    policy: Option<String>,
    /// Configuration file (TOML) of the server. The default is the file that REBATE_CONFIG names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set any key of the configuration, such as compress.level=high; can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// The flags that choose a configuration. Without flags, the configuration is that of `rebate serve`.
#[derive(Debug, Args)]
pub(crate) struct Configuration {
    #[command(flatten)]
    flags: DeviceFlags,
    /// Directory that contains /sys, /proc and /dev.
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    root: PathBuf,
}

fn policy_help() -> String {
    let names = POLICIES.each_ref().map(|policy| policy.name);
    let [names @ .., last] = &names;
    format!("Policy that decides where jobs run: auto, {} or {last}", names.join(", "))
}

impl DeviceFlags {
    /// Returns the sources of the configuration, with `more` flags. `--set` comes after all other flags.
    ///
    /// # Errors
    /// A setting has no value.
    pub(crate) fn sources(&self, more: Vec<Flag>) -> Result<Sources, String> {
        let mut flags = more;
        for (name, key, list) in [
            ("--compression", "runtime.compression", &self.compression),
            ("--device", "runtime.devices", &self.device),
        ] {
            flags.extend((!list.is_empty()).then(|| flag(name, key, &list.join(","))));
        }
        if self.allow_virtual {
            flags.push(flag("--allow-virtual", "runtime.allow_virtual", "true"));
        }
        let policy = self.policy.as_ref();
        flags.extend(policy.map(|policy| flag("--policy", "runtime.policy", policy)));
        for setting in &self.set {
            let (key, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("--set {setting:?} is not valid; give section.key=VALUE"))?;
            flags.push(flag("--set", key.trim(), value.trim()));
        }
        Ok(Sources {
            defaults: Config::default(),
            file: self.config.clone(),
            environment: process::environment(),
            flags,
        })
    }
}

impl Configuration {
    /// Loads and checks the configuration, and checks that the names of its devices are known.
    ///
    /// # Errors
    /// The problems, one per line.
    pub(crate) fn load(&self) -> Result<Config, String> {
        let sources = self.flags.sources(Vec::new())?;
        let loaded = config::load(&sources).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        loaded.warnings.iter().for_each(|warning| warn(warning));
        check(&loaded.config.runtime)?;
        Ok(loaded.config)
    }

    /// Reads the state of this machine.
    pub(crate) fn machine(&self) -> Machine {
        Machine::read(&self.root)
    }
}

/// Creates a flag that sets a key.
pub(crate) fn flag(name: &str, key: &str, value: &str) -> Flag {
    Flag { name: name.to_owned(), key: key.to_owned(), value: value.to_owned() }
}
