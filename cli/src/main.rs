//! The only binary, `rebate`. It reads a command line, calls the command and reports the result. The exit
//! code is 0 for success, 1 if the work failed, and 2 for bad usage or input. `rebate memcached` has
//! memcached's exit codes.

mod client;
mod connect;
mod demo;
mod devices;
mod dict;
mod doctor;
mod estimate;
mod health;
mod load;
mod log;
mod memcached;
mod model;
mod os;
mod process;
#[allow(rustdoc::broken_intra_doc_links, reason = "papers go by keys in brackets, also in --help")]
mod reproduce;
mod rpc;
mod serve;
mod shell;
mod sim;
mod supervisor;
mod terminal;
mod tls;
mod top;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

/// A compressed cache that any memcached client can use.
#[derive(Debug, Parser)]
#[command(name = "rebate", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve memcached clients from a compressed cache, embedded or in front of memcached servers.
    Serve(Box<serve::Serve>),
    /// Run the same server with memcached's flags, as a replacement for a memcached binary.
    Memcached(Memcached),
    /// Load a memcached endpoint at a fixed rate and report latency and hits.
    Load(Box<load::Load>),
    /// Estimate what Rebate would save on a live memcached's data, without writing to it.
    Estimate(estimate::Estimate),
    /// List, train, export, import and drop the dictionaries with which small values are stored.
    Dict(dict::Dict),
    /// Watch a server: rates, hits, what compression saves, devices, and classes of keys.
    Top(top::Top),
    /// Compare compression off and on in the same memory, on this machine and without any setup.
    Demo(demo::Demo),
    /// Run the papers' experiments on this machine and compare the results with the published numbers.
    Reproduce(reproduce::Reproduce),
    /// Estimate the gain of a service from acceleration, given parameters, sizes, device and CPU profiles.
    Model(Box<model::ModelCommand>),
    /// List the devices that can run jobs on this machine, and which jobs would run on which device.
    Devices(devices::Devices),
    /// Find out why devices do not work on this machine, and how to fix them.
    Doctor(doctor::Doctor),
    /// Ask a process over gRPC whether it serves.
    Health(health::Health),
    /// Check, format, explain, encode and draw traces (programs of ops), or call a service that runs traces.
    Trace(trace::TraceCommand),
    /// Serve and load Thrift services through the near-cache RPC engine.
    Rpc(rpc::Rpc),
    /// Simulate servers that cannot be bought yet: AccelFlow's accelerators under several orchestrators.
    Sim(sim::Sim),
    /// Print a completion script of these commands for a shell.
    Completions(shell::Completions),
    /// Write the man pages of these commands.
    Man(shell::ManPages),
}

/// The flags of `rebate memcached`. The memcached module reads them before clap does. They are listed here for `rebate
/// help`.
#[derive(Debug, Args)]
#[command(after_help = "`rebate memcached -h` lists memcached's flags.
Examples:
  rebate memcached -m 1024 -l 127.0.0.1 -u nobody")]
struct Memcached {
    /// The flags of memcached.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(args) = memcached::arguments(&args) {
        return memcached::run(args);
    }
    let done = match Cli::parse().command {
        Command::Memcached(memcached) => return memcached::run(&memcached.args),
        Command::Serve(serve) => serve.run(),
        Command::Load(load) => load.run(),
        Command::Estimate(estimate) => estimate.run(),
        Command::Dict(dict) => dict.run(),
        Command::Top(top) => top.run(),
        Command::Demo(demo) => demo.run(),
        Command::Reproduce(reproduce) => reproduce.run(),
        Command::Model(model) => model.run(),
        Command::Devices(devices) => devices.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Health(health) => health.run(),
        Command::Trace(trace) => trace.run(),
        Command::Rpc(rpc) => rpc.run(),
        Command::Sim(sim) => sim.run(),
        Command::Completions(completions) => {
            completions.run(Cli::command());
            Ok(())
        }
        Command::Man(pages) => pages.run(Cli::command()),
    };
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            text.lines().for_each(terminal::warn);
            error.exit_code().into()
        }
    };
    log::flush();
    code
}

const EXAMPLES: &str = "Examples:
  rebate demo
  rebate serve --memory 1GiB
  rebate memcached -m 1024 -l 127.0.0.1 -u nobody
  rebate load 127.0.0.1:11211 --rate 5000 --duration 10s
  rebate estimate 127.0.0.1:11211
  rebate dict list 127.0.0.1:11211
  rebate top 127.0.0.1:11211
  rebate reproduce cache --out results --quick
  rebate model --file accelerometer-recommendations
  rebate devices
  rebate doctor
  rebate health 127.0.0.1:50051
  rebate trace explain --trace T1
  rebate rpc serve --service memcached
  rebate sim --spec steady

`rebate COMMAND --help` shows the flags and more examples of a command.";
