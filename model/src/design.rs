//! Describes how a service offloads: threading, place of the accelerator, and variant of the equations.

use std::fmt;
use std::str::FromStr;

use crate::parameters::BadParameter;

/// The error for a word that is not one of the expected words.
pub type UnknownWord = BadParameter;

/// The threading design of an offload (\[Accelerometer\] section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Threading {
    /// The core waits for the accelerator.
    Sync,
    /// The thread blocks and the core switches to another thread.
    SyncOs,
    /// The thread continues with other work and receives the response itself.
    Async,
    /// The thread continues with other work, and a separate thread receives the responses.
    AsyncDistinct,
    /// The thread continues with other work, and this host needs no response.
    AsyncNoResponse,
}

impl Threading {
    /// Every design.
    pub const ALL: [Threading; 5] = [
        Threading::Sync,
        Threading::SyncOs,
        Threading::Async,
        Threading::AsyncDistinct,
        Threading::AsyncNoResponse,
    ];

    /// Returns the word for this design in files and reports. The words of the first three designs are those of the
    /// public program.
    pub const fn name(self) -> &'static str {
        match self {
            Threading::Sync => "Sync",
            Threading::SyncOs => "Sync-OS",
            Threading::Async => "Async",
            Threading::AsyncDistinct => "Async-distinct",
            Threading::AsyncNoResponse => "Async-no-response",
        }
    }
}

impl fmt::Display for Threading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Threading {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let valid = "Sync, Sync-OS, Async, Async-distinct or Async-no-response";
        let found = Threading::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| BadParameter::new("threading", format!("{text:?}"), valid))
    }
}

/// The place of the accelerator (\[Accelerometer\] section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The accelerator is on the processor's die.
    OnChip,
    /// The accelerator is behind PCIe or a coherent interconnect.
    OffChip,
    /// The accelerator is behind the network.
    Remote,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 3] = [Strategy::OnChip, Strategy::OffChip, Strategy::Remote];

    /// Returns the word for this value in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::OnChip => "on-chip",
            Strategy::OffChip => "off-chip",
            Strategy::Remote => "remote",
        }
    }
}

impl FromStr for Strategy {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found = Strategy::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
        let refuse =
            || BadParameter::new("strategy", format!("{text:?}"), "on-chip, off-chip or remote");
        found.ok_or_else(refuse)
    }
}

/// The interpretation of the equations of \[Accelerometer\].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The equations as printed. The speedup of Sync-OS includes the cost of two thread switches, and its latency
    /// reduction that of one.
    #[default]
    Equations,
    /// The equations as \[Accelerometer\] section 5 computes them. Both the speedup and the
    /// latency reduction of Sync-OS include the cost of two thread switches.
    SectionFive,
    /// The equations as the public program computes them: in single precision, with whole cycles and one thread switch
    /// in Sync-OS. This reading has no latency reduction and no designs except Sync, Sync-OS and Async. See
    /// [`crate::program`].
    PublicProgram,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 3] =
        [Variant::Equations, Variant::SectionFive, Variant::PublicProgram];

    /// Returns the word for this value in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Equations => "equations",
            Variant::SectionFive => "section-5",
            Variant::PublicProgram => "public-program",
        }
    }
}

impl FromStr for Variant {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let valid = "equations, section-5 or public-program";
        let found = Variant::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| BadParameter::new("variant", format!("{text:?}"), valid))
    }
}

/// The facts about the offloads of a service that the equations need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Design {
    /// The threading design: which thread waits, and which receives the response.
    pub threading: Threading,
    /// The place of the accelerator.
    pub strategy: Strategy,
    /// True if the host waits until the accelerator has received the offload. Then the cycles of transfer and queueing
    /// (L + Q) are host cycles in equations (3) and (6). Sync always waits. \[Accelerometer\] section 3 says on (3),
    /// and we assume for (6), that L + Q = 0 if the driver does not await the acknowledgement or the accelerator is
    /// remote.
    pub awaits_transfer: bool,
    /// The interpretation of the equations.
    pub variant: Variant,
}

impl Design {
    /// Returns a design with the paper's defaults: the host awaits the transfer unless the accelerator is remote.
    pub const fn new(threading: Threading, strategy: Strategy) -> Self {
        let awaits_transfer = !matches!(strategy, Strategy::Remote);
        Self { threading, strategy, awaits_transfer, variant: Variant::Equations }
    }

    /// Returns the design with another interpretation of the equations.
    pub const fn with_variant(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    /// Returns an error if `variant` has no equation for the threading design.
    pub fn check(&self) -> Result<(), BadParameter> {
        let known =
            matches!(self.threading, Threading::Sync | Threading::SyncOs | Threading::Async);
        if self.variant == Variant::PublicProgram && !known {
            let valid = "Sync, Sync-OS or Async under the public program's reading";
            return Err(BadParameter::new("threading", self.threading, valid));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_others_refused() {
        for threading in Threading::ALL {
            assert_eq!(threading.name().parse(), Ok(threading));
        }
        for strategy in Strategy::ALL {
            assert_eq!(strategy.name().parse(), Ok(strategy));
        }
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
        }
        let error = "Fibers".parse::<Threading>().expect_err("unknown").to_string();
        assert!(error.starts_with("threading is \"Fibers\"; it must be Sync, Sync-OS"), "{error}");
        assert!("moon".parse::<Strategy>().is_err());
        assert!("v2".parse::<Variant>().is_err());
    }
}
