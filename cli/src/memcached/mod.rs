//! `rebate memcached`: the server behind memcached's flags, messages and exit codes, so that it can replace a
//! memcached binary. `flags` and `settings` define the meaning of the flags.

mod flags;
mod getopt;
mod help;
mod listen;
mod number;
mod settings;
mod suboptions;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use server::config::{self, FILE_VARIABLE, Loaded, Sources};

use crate::log;
use crate::os::{self, IdentityError};
use crate::process::{self, Handover, ServeError};
use crate::terminal::print_line;
use flags::{EX_USAGE, Flags, Request};

/// The reason why the process ends before it serves: a text for stderr, and memcached's exit code.
#[derive(Debug, PartialEq)]
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn new(code: u8, text: String) -> Self {
        Self { code, text }
    }
}

/// The exit code for an unknown user (sysexits.h).
const EX_NOUSER: u8 = 67;
/// The exit code for an error of the operating system (sysexits.h).
const EX_OSERR: u8 = 71;

/// Returns the arguments for [`run`] if the command line is memcached's: `rebate memcached ...`, or a link to this
/// program whose name begins with `memcached`.
pub(crate) fn arguments(args: &[OsString]) -> Option<&[OsString]> {
    let name = args.first().map(Path::new).and_then(Path::file_name)?;
    if name.to_string_lossy().starts_with("memcached") {
        return args.get(1..);
    }
    (args.get(1)? == "memcached").then(|| &args[2..])
}

/// Serves until a signal ends it.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let code = start(args).unwrap_or_else(|failure| {
        log::line(&failure.text);
        ExitCode::from(failure.code)
    });
    log::flush();
    code
}

fn start(args: &[OsString]) -> Result<ExitCode, Failure> {
    let text = |arg: &OsString| {
        let not_text = || Failure::new(EX_USAGE, format!("{arg:?} is not UTF-8"));
        arg.to_str().map(str::to_owned).ok_or_else(not_text)
    };
    let args = args.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    match flags::parse(args)? {
        Request::Help => print_line(&format!("{}\n{}", help::VERSION, help::HELP)),
        Request::License => print_line(help::LICENSE),
        Request::Version => print_line(help::VERSION),
        Request::Serve(flags) => return serve(*flags),
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(flags: Flags) -> Result<ExitCode, Failure> {
    let mut sources = settings::sources(&flags, process::environment())?;
    flags.warnings.iter().for_each(|warning| log::line(warning));
    if let Some(path) = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()) {
        sources.file = Some(absolute(Path::new(&path))?);
    }
    let loaded = load(&sources)?;
    server::access::check(&loaded.config).map_err(|problem| Failure::new(1, problem))?;
    let pidfile = flags.pidfile.as_deref().map(|path| absolute(Path::new(path))).transpose()?;
    let port_file = std::env::var_os("MEMCACHED_PORT_FILENAME");
    let port_file = port_file.map(|path| absolute(Path::new(&path))).transpose()?;

    prepare(&flags, &loaded)?;
    let level = ["warn", "info", "debug", "trace"][usize::from(flags.verbose.min(3))];
    log::start(level, flags.verbose > 1, loaded.config.server.log_format);
    for idle in &flags.idle {
        tracing::info!("{idle}");
    }
    if let Some((_, address)) = config::exposed(&loaded.config) {
        tracing::warn!(
            "other hosts can reach {address}, and everybody there may read, change and remove every item: -Y FILE \
             asks for passwords, -l 127.0.0.1 closes the port to other hosts"
        );
    }
    let handover = Handover { pidfile, remove_pidfile: flags.daemon, port_file };
    match process::serve(loaded, || config::load(&sources), &handover) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ServeError::Ended) => Ok(ExitCode::FAILURE),
        Err(ServeError::NotStarted(problem)) => Err(Failure::new(EX_OSERR, problem)),
    }
}

/// Does everything that must happen before the first thread starts, in memcached's order.
fn prepare(flags: &Flags, loaded: &Loaded) -> Result<(), Failure> {
    let os_error = |text| Failure::new(EX_OSERR, text);
    if flags.core_files {
        os::allow_core_files().map_err(os_error)?;
    }
    os::allow_connections(loaded.config.server.connections_max).map_err(os_error)?;
    os::become_user(flags.user.as_deref()).map_err(|error| match error {
        IdentityError::NoUser => {
            Failure::new(EX_USAGE, "can't run as root without the -u switch".to_owned())
        }
        IdentityError::Unknown(name) => {
            Failure::new(EX_NOUSER, format!("can't find the user {name} to switch to"))
        }
        IdentityError::Refused(text) => Failure::new(EX_OSERR, text),
    })?;
    if flags.daemon {
        // As in memcached, a daemon keeps its directory if it may write core files, and its output if it is verbose.
        os::daemonize(flags.core_files, flags.verbose > 0).map_err(|text| Failure::new(1, text))?;
    }
    if flags.lock_memory
        && let Err(warning) = os::lock_memory()
    {
        log::line(&warning);
    }
    Ok(())
}

fn load(sources: &Sources) -> Result<Loaded, Failure> {
    let loaded = config::load(sources).map_err(|errors| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Failure::new(EX_USAGE, lines.join("\n"))
    })?;
    loaded.warnings.iter().for_each(|warning| log::line(warning));
    Ok(loaded)
}

/// Makes a path absolute, so that it stays valid after a daemon has changed its directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(EX_OSERR, format!("{}: {error}", path.display())))
}
