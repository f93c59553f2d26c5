//! The configuration that a command looks at without serving it: the same file, environment and keys as
//! `rebate serve`, with the flags that bear on devices.

use std::path::PathBuf;

use clap::Args;
use drivers::host::Machine;
use server::config::Config;
use server::config_source::{self, Flag, Sources};

use super::check;
use crate::process;

/// Flags that say which configuration is meant; without any of them it is what `rebate serve` would have.
#[derive(Debug, Args)]
pub(crate) struct Configuration {
    /// The server's TOML file; without it, the file that REBATE_CONFIG names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A device beside software, as for `rebate serve`; may be given again.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<String>,
    /// Let devices that only emulate an accelerator serve.
    #[arg(long)]
    allow_virtual: bool,
    /// The placement policy, as for `rebate serve`.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Any key of the configuration; may be given again.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where /sys, /proc and /dev are looked for.
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    root: PathBuf,
}

impl Configuration {
    /// The configuration, valid, its devices known by name.
    ///
    /// # Errors
    /// What is wrong with it, every problem a line.
    pub(crate) fn load(&self) -> Result<Config, String> {
        let sources = Sources {
            defaults: Config::default(),
            file: self.config.clone(),
            environment: process::environment(),
            flags: self.flags()?,
        };
        let loaded = config_source::load(&sources).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            lines.join("\nrebate: ")
        })?;
        check(&loaded.config.runtime)?;
        Ok(loaded.config)
    }

    /// What this machine has.
    pub(crate) fn machine(&self) -> Machine {
        Machine::read(&self.root)
    }

    fn flags(&self) -> Result<Vec<Flag>, String> {
        let flag = |name: &str, key: &str, value: &str| Flag {
            name: name.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let mut flags = Vec::new();
        if !self.device.is_empty() {
            flags.push(flag("--device", "runtime.devices", &self.device.join(",")));
        }
        if self.allow_virtual {
            flags.push(flag("--allow-virtual", "runtime.allow_virtual", "true"));
        }
        if let Some(policy) = &self.policy {
            flags.push(flag("--policy", "runtime.policy", policy));
        }
        for setting in &self.set {
            let (key, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("--set {setting:?} is not valid; give section.key=VALUE"))?;
            flags.push(flag("--set", key.trim(), value.trim()));
        }
        Ok(flags)
    }
}
