//! The systems that a specification can describe, and their simulation. A system is AccelFlow's server under an
//! architecture, Arcalis with its engine at an attachment, or RELIEF's applications under an orchestrator.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::accelflow::{self, AccelFlow, Architecture};
use crate::arcalis::{self, Arcalis, Attachment};
use crate::entries::ReadText;
use crate::relief::{self, Applications, Orchestrator};
use crate::{Entries, Extent, Names, Plan, Report, RunError, Sample, Simulate, SpecError, Streams};

/// The reason why there is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SystemError {
    /// The request cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The simulation failed.
    #[error("{0}")]
    Failed(String),
}

/// A system that a specification describes.
#[derive(Clone, Debug)]
pub enum System {
    /// AccelFlow's server.
    AccelFlow(accelflow::Spec),
    /// Arcalis's cores and engine.
    Arcalis(arcalis::Spec),
    /// RELIEF's applications.
    Relief(relief::Spec),
}

/// Returns the names of the compiled-in specifications.
pub fn scenarios() -> Vec<&'static str> {
    accelflow::SCENARIOS.into_iter().chain(arcalis::SCENARIOS).chain(relief::SCENARIOS).collect()
}

/// Returns the text of a compiled-in specification, by its name or the name of its file.
pub fn builtin(name: &str) -> Option<&'static str> {
    accelflow::builtin(name).or_else(|| arcalis::builtin(name)).or_else(|| relief::builtin(name))
}

/// Returns the keys of the compiled-in specification of this name, or of the file at this path. `read` returns the text
/// of a file.
///
/// # Errors
/// Returns the first error, with file, line and key.
pub fn entries(spec: &str, read: ReadText<'_>) -> Result<Entries, SpecError> {
    Entries::open(spec, &scenarios(), &builtin, read)
}

impl System {
    /// Returns the system that `entries` describe.
    ///
    /// # Errors
    /// Returns the first value that cannot be used, with its place and the valid values.
    pub fn read(entries: &Entries) -> Result<Self, String> {
        match entries.model.as_str() {
            "arcalis" => arcalis::Spec::read(entries).map(Self::Arcalis),
            "relief" => relief::Spec::read(entries).map(Self::Relief),
            _ => accelflow::Spec::read(entries, &trace::accelflow()).map(Self::AccelFlow),
        }
        .map_err(|error| error.to_string())
    }

    /// Returns the length of a replication.
    pub fn extent(&self) -> Extent {
        match self {
            Self::AccelFlow(spec) => spec.extent,
            Self::Arcalis(spec) => spec.extent,
            Self::Relief(spec) => spec.extent,
        }
    }

    /// Returns whether the system can simulate a window from an empty start (`run.window_us`).
    pub fn has_window(&self) -> bool {
        match self {
            Self::AccelFlow(_) => true,
            Self::Arcalis(_) | Self::Relief(_) => false,
        }
    }

    /// Returns the name of the system, and a description of its requests.
    pub fn head(&self) -> (String, String) {
        match self {
            Self::AccelFlow(spec) => (
                format!("{}: {}", spec.name, spec.about),
                format!("{:.0} requests/s", spec.total_per_s()),
            ),
            Self::Arcalis(spec) => (
                format!("{}: {}", spec.name, spec.about),
                format!("{}, {} requests under way", spec.workload, spec.window),
            ),
            Self::Relief(spec) => {
                let load = match spec.per_s {
                    Some(per_s) => format!("{per_s:.0} requests/s"),
                    None => format!("{} requests under way", spec.in_flight()),
                };
                (format!("{}: {}", spec.name, spec.about), format!("{}, {load}", spec.application))
            }
        }
    }

    /// Returns the architectures with these names. Without names it returns the architectures that are compared by
    /// default.
    ///
    /// # Errors
    /// Returns the first unknown name, with the known names.
    pub fn architectures(&self, names: &[String]) -> Result<Vec<&'static str>, SystemError> {
        let all: Vec<&'static str> = match self {
            Self::AccelFlow(_) => Architecture::ALL.iter().map(|one| one.name()).collect(),
            Self::Arcalis(_) => Attachment::ALL.iter().map(|one| one.name()).collect(),
            Self::Relief(_) => Orchestrator::ALL.iter().map(|one| one.name()).collect(),
        };
        if names == ["all"] {
            return Ok(all);
        }
        if names.is_empty() {
            return Ok(match self {
                Self::AccelFlow(_) => Architecture::COMPARED.iter().map(|one| one.name()).collect(),
                Self::Arcalis(_) | Self::Relief(_) => all,
            });
        }
        let one = |name: &String| {
            all.iter().find(|known| *known == name).copied().ok_or_else(|| {
                let valid = all.join(", ");
                SystemError::Invalid(format!("{name}; there are {valid} and all"))
            })
        };
        names.iter().map(one).collect()
    }

    /// Simulates one of [`System::architectures`].
    ///
    /// # Errors
    /// Returns the reason why there is no report.
    pub fn simulate(
        &self,
        architecture: &str,
        plan: &Plan,
        progress: &(impl Fn(u32) + Sync),
    ) -> Result<Report, SystemError> {
        self.simulate_unless(&AtomicBool::new(false), architecture, plan, progress)
    }

    /// Simulates one of [`System::architectures`]. No further replication begins once `stopped` is set.
    ///
    /// # Errors
    /// Returns the reason why there is no report. It is [`SystemError::Failed`] if the study was stopped.
    pub fn simulate_unless(
        &self,
        stopped: &AtomicBool,
        architecture: &str,
        plan: &Plan,
        progress: &(impl Fn(u32) + Sync),
    ) -> Result<Report, SystemError> {
        plan.check().map_err(|error| SystemError::Invalid(error.to_string()))?;
        let unknown = || SystemError::Invalid(format!("there is no architecture {architecture}"));
        let report = match self {
            Self::AccelFlow(spec) => {
                let architecture = Architecture::from_name(architecture).ok_or_else(unknown)?;
                let model = AccelFlow::new(spec, architecture, &trace::accelflow());
                let model = model.map_err(SystemError::Invalid)?;
                plan.run(&Stoppable { model, stopped }, progress)
            }
            Self::Arcalis(spec) => {
                let attachment = Attachment::from_name(architecture).ok_or_else(unknown)?;
                let model = Arcalis::new(spec, attachment).map_err(SystemError::Invalid)?;
                plan.run(&Stoppable { model, stopped }, progress)
            }
            Self::Relief(spec) => {
                let orchestrator = Orchestrator::from_name(architecture).ok_or_else(unknown)?;
                let model = Applications::new(spec, orchestrator).map_err(SystemError::Invalid)?;
                plan.run(&Stoppable { model, stopped }, progress)
            }
        };
        report.map_err(|error| SystemError::Failed(format!("{architecture}: {error}")))
    }
}

/// A model whose study ends early once `stopped` is set.
struct Stoppable<'a, M> {
    model: M,
    stopped: &'a AtomicBool,
}

impl<M: Simulate> Simulate for Stoppable<'_, M> {
    fn names(&self) -> Names {
        self.model.names()
    }

    fn overload(&self) -> Option<String> {
        self.model.overload()
    }

    fn replicate(
        &self,
        streams: &Streams,
        extent: Extent,
        events_max: u64,
    ) -> Result<Sample, RunError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        self.model.replicate(streams, extent, events_max)
    }
}
