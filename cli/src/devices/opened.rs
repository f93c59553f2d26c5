//! Opens the devices of a configuration and separates the devices that cannot be opened from the others. A server needs
//! all devices to start. A command that lists or examines the devices needs each of them separately.

use server::config::Config;

use super::open;

/// The devices of a configuration, separated by whether they could be opened.
pub(crate) struct Opened {
    /// The open devices, software first.
    pub(crate) devices: server::Devices,
    /// The devices that cannot be opened.
    pub(crate) refused: Vec<Refused>,
}

/// A device that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The device's name in the configuration.
    pub(crate) name: String,
    /// The reason, and the person who must act.
    pub(crate) why: String,
}

impl Opened {
    /// Opens all devices together, as a server does. If that fails, it opens each device alone to find the faulty ones,
    /// and then opens the others together.
    ///
    /// # Errors
    /// The devices that are not faulty do not open together either.
    pub(crate) fn from_config(config: &Config) -> Result<Self, String> {
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

/// Returns a copy of the configuration that has only this device or only this compression service.
fn alone(config: &Config, device: Option<&String>, compression: Option<&String>) -> Config {
    let mut config = config.clone();
    config.runtime.devices = device.into_iter().cloned().collect();
    config.runtime.compression = compression.into_iter().cloned().collect();
    config
}
