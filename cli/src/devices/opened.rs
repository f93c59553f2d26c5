//! The devices of a configuration, those that cannot be opened told from those that can. A server starts with all of
//! them or not at all; who lists or examines them wants each by itself.

use server::config::Config;

use super::open;

/// What became of the devices of a configuration.
pub(crate) struct Opened {
    /// Those that are open, software first.
    pub(crate) devices: server::Devices,
    /// Those that are not.
    pub(crate) refused: Vec<Refused>,
}

/// A device that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// As the configuration names it.
    pub(crate) name: String,
    /// Why, and who must act.
    pub(crate) why: String,
}

impl Opened {
    /// Opens all together, as a server does; where that fails, each alone to find out which, then the others.
    ///
    /// # Errors
    /// Those do not open together either.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        if let Ok(devices) = open(config) {
            return Ok(Self { devices, refused: Vec::new() });
        }
        let mut refused = Vec::new();
        let mut sound = config.clone();
        sound
            .runtime
            .compression
            .retain(|name| opens(&alone(config, None, Some(name)), name, &mut refused));
        sound
            .runtime
            .devices
            .retain(|name| opens(&alone(config, Some(name), None), name, &mut refused));
        Ok(Self { devices: open(&sound)?, refused })
    }
}

fn opens(config: &Config, name: &str, refused: &mut Vec<Refused>) -> bool {
    let failed = open(config).err();
    refused.extend(failed.clone().map(|why| Refused { name: name.to_owned(), why }));
    failed.is_none()
}

/// The configuration with one device, or one compression service, and no other.
fn alone(config: &Config, device: Option<&String>, compression: Option<&String>) -> Config {
    let mut config = config.clone();
    config.runtime.devices = device.into_iter().cloned().collect();
    config.runtime.compression = compression.into_iter().cloned().collect();
    config
}
