//! The flags that several experiments share. An experiment whose flag means something more special says so with
//! `mut_arg`.

use clap::Args;
use units::Nanos;

/// The flags of an experiment that measures.
#[derive(Clone, Debug, Default, Args)]
pub struct Measurement {
    /// Measure only few points with short runs, to check that the experiment works.
    #[arg(long)]
    pub quick: bool,
    /// Number of measurements of each point.
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// Duration of each measurement.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
}

/// The flags of an experiment that simulates.
#[derive(Clone, Debug, Default, Args)]
pub struct Simulation {
    /// Make only few and short runs, to check that the experiment works.
    #[arg(long)]
    pub quick: bool,
    /// Number of replications of each study, 5 to 100.
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
}
