//! `rebate trace`: reads trace files and reports their faults, their meaning and their size in bytes. It runs
//! no trace; `call` sends a request to a server that runs traces.

mod call;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use trace::limits::TEXT_BYTES_MAX;
use trace::{ACCELFLOW, Catalog, Head, TextError, Trace};

use crate::log;
use crate::terminal::{CliError, print, print_line, write_file};

/// The commands of `rebate trace`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Report the faults in files with line and column, or count the traces if there are no faults.
    Check {
        #[command(flatten)]
        texts: Texts,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Format files in the canonical layout and keep their comments; - reads stdin and writes stdout.
    Fmt {
        /// Files to format.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Change nothing. Print the names of the files that would change, and exit with 1 if there are any.
        #[arg(long)]
        check: bool,
    },
    /// Explain step by step what traces do.
    Explain {
        #[command(flatten)]
        texts: Texts,
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Print the encoded bytes of traces (docs/format.md describes the encoding).
    Encode {
        #[command(flatten)]
        texts: Texts,
        #[command(flatten)]
        chosen: Chosen,
        /// Tenant of the trace.
        #[arg(long, value_name = "N", default_value_t = 0)]
        tenant: u16,
        /// Position mark: the number of the step to run next.
        #[arg(long, value_name = "STEP", default_value_t = 0)]
        mark: u8,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Draw traces as SVG, or as a graph for Graphviz.
    Draw {
        #[command(flatten)]
        texts: Texts,
        #[command(flatten)]
        chosen: Chosen,
        /// Write DOT (Graphviz) instead of SVG.
        #[arg(long)]
        dot: bool,
        /// Write to this file instead of stdout.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Call the example service of a `rebate serve` with --program-listen, and print its answer.
    Call(call::Call),
}

#[derive(Debug, Args)]
struct Texts {
    /// Files that together make one catalog. The default is the traces and services of AccelFlow.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Chosen {
    /// Use only this trace; can be repeated.
    #[arg(long, value_name = "NAME")]
    trace: Vec<String>,
}

impl TraceCommand {
    /// Runs the command. The exit code is 0 for success, 1 if the work failed or files would change, and 2 for bad
    /// usage or faults in the traces.
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Check { texts, json } => check(&texts, json),
            Verb::Fmt { files, check } => fmt(&files, check),
            Verb::Explain { texts, chosen } => {
                texts.catalog().and_then(|catalog| explain(&catalog, &chosen))
            }
            Verb::Encode { texts, chosen, tenant, mark, json } => {
                let head = Head { tenant, mark };
                texts.catalog().and_then(|catalog| encode(&catalog, &chosen, head, json))
            }
            Verb::Draw { texts, chosen, dot, out } => {
                texts.catalog().and_then(|catalog| draw(&catalog, &chosen, dot, out.as_deref()))
            }
            Verb::Call(call) => call.run(),
        }
    }
}

impl Texts {
    fn read(&self) -> Result<Result<Catalog, Vec<TextError>>, CliError> {
        if self.files.is_empty() {
            return Ok(trace::read(&ACCELFLOW));
        }
        let texts = self.files.iter().map(|file| text(file)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let pairs: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
        Ok(trace::read(&pairs))
    }

    fn catalog(&self) -> Result<Catalog, CliError> {
        self.read()?.map_err(|errors| faults(&errors))
    }
}

impl Chosen {
    fn traces<'a>(&self, catalog: &'a Catalog) -> Result<Vec<&'a Trace>, CliError> {
        if self.trace.is_empty() {
            return Ok(catalog.traces().iter().collect());
        }
        let find = |name: &String| {
            catalog.trace(name).ok_or_else(|| {
                let names: Vec<&str> =
                    catalog.traces().iter().map(|trace| trace.name.as_str()).collect();
                CliError::Usage(format!(
                    "no trace is called {name}; there are {}",
                    names.join(", ")
                ))
            })
        };
        self.trace.iter().map(find).collect()
    }
}

fn check(texts: &Texts, json: bool) -> Result<(), CliError> {
    let read = texts.read()?;
    if json {
        print_line(&match &read {
            Ok(catalog) => summary(catalog).to_string(),
            Err(errors) => {
                json!({ "errors": errors.iter().map(place).collect::<Vec<_>>() }).to_string()
            }
        });
        return read.map(drop).map_err(|_| CliError::Usage(String::new()));
    }
    let catalog = read.map_err(|errors| faults(&errors))?;
    let counts = [
        (catalog.fields().len(), "fields"),
        (catalog.traces().len(), "traces"),
        (catalog.services().len(), "services"),
    ];
    let counts = counts.map(|(count, what)| format!("{count} {what}"));
    print_line(&format!("no faults: {}", counts.join(", ")));
    for service in catalog.services() {
        print_line(&format!("  {}: {} invocations", service.name, catalog.invocations(service)));
    }
    Ok(())
}

fn summary(catalog: &Catalog) -> Value {
    let trace = |trace: &Trace| {
        let bytes = catalog.encode(&trace.name, Head::default()).map_or(0, |bytes| bytes.len());
        json!({ "name": trace.name, "invocations": trace.invocations(), "bytes": bytes })
    };
    let services = catalog.services().iter().map(
        |service| json!({ "name": service.name, "invocations": catalog.invocations(service) }),
    );
    json!({
        "errors": [],
        "traces": catalog.traces().iter().map(trace).collect::<Vec<_>>(),
        "services": services.collect::<Vec<_>>(),
    })
}

fn place(error: &TextError) -> Value {
    json!({
        "file": error.file,
        "line": error.line,
        "column": error.column,
        "message": error.message,
    })
}

/// Formats every file, even after a file that cannot be read. If some files have faults and others would change, the
/// exit code reports the faults.
fn fmt(files: &[PathBuf], check: bool) -> Result<(), CliError> {
    let (mut has_faults, mut would_change) = (false, false);
    for file in files {
        let name = file.display().to_string();
        let text = match text(file) {
            Ok(text) => text,
            Err(error) => {
                log::line(&format!("rebate: {error}"));
                has_faults = true;
                continue;
            }
        };
        match trace::format(&name, &text) {
            Err(error) => {
                log::line(&error.to_string());
                has_faults = true;
            }
            Ok(formatted) if check => {
                if formatted != text {
                    print_line(&name);
                    would_change = true;
                }
            }
            Ok(formatted) if is_stdin(file) => print(&formatted),
            Ok(formatted) if formatted != text => {
                let unwritten = |error| CliError::Failed(format!("{name}: {error}"));
                std::fs::write(file, formatted).map_err(unwritten)?;
            }
            Ok(_) => {}
        }
    }
    match (has_faults, would_change) {
        (true, _) => Err(CliError::Usage(String::new())),
        (false, true) => Err(CliError::Failed(String::new())),
        (false, false) => Ok(()),
    }
}

fn explain(catalog: &Catalog, chosen: &Chosen) -> Result<(), CliError> {
    let texts: Vec<String> =
        chosen.traces(catalog)?.into_iter().map(|trace| trace::explain(catalog, trace)).collect();
    print(texts.join("\n"));
    Ok(())
}

fn encode(catalog: &Catalog, chosen: &Chosen, head: Head, json: bool) -> Result<(), CliError> {
    let mut rows = Vec::new();
    for trace in chosen.traces(catalog)? {
        let bytes = catalog.encode(&trace.name, head).map_err(CliError::usage)?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        rows.push(
            json!({ "name": trace.name, "address": catalog.address(&trace.name), "hex": hex }),
        );
        if !json {
            let address = catalog.address(&trace.name).unwrap_or_default();
            print_line(&format!("{} at address {address}: {} bytes", trace.name, bytes.len()));
            print(trace::dump(&bytes));
        }
    }
    if json {
        print_line(&Value::from(rows).to_string());
    }
    Ok(())
}

fn draw(catalog: &Catalog, chosen: &Chosen, dot: bool, out: Option<&Path>) -> Result<(), CliError> {
    let traces = chosen.traces(catalog)?;
    let picture = if dot { trace::draw::dot(&traces) } else { trace::draw::svg(&traces) };
    match out {
        None => print(&picture),
        Some(out) => write_file("--out", out, picture)?,
    }
    Ok(())
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// Reads the text of a file. Refuses a file that is too long.
fn text(file: &Path) -> Result<String, CliError> {
    let wrong = |error: std::io::Error| CliError::Usage(format!("{}: {error}", file.display()));
    let mut bytes = Vec::new();
    // The limit is one byte more than allowed, so that a file that is too long is noticed.
    let limit = TEXT_BYTES_MAX as u64 + 1;
    if is_stdin(file) {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes).map_err(wrong)?;
    } else {
        File::open(file).map_err(wrong)?.take(limit).read_to_end(&mut bytes).map_err(wrong)?;
    }
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(CliError::Usage(format!(
            "{}: longer than {TEXT_BYTES_MAX} bytes",
            file.display()
        )));
    }
    let not_text = |_| CliError::Usage(format!("{}: not UTF-8", file.display()));
    String::from_utf8(bytes).map_err(not_text)
}

/// Prints faults so that each line starts with `file:line:column`. Editors then find the places.
fn faults(errors: &[TextError]) -> CliError {
    errors.iter().for_each(|error| log::line(&error.to_string()));
    CliError::Usage(String::new())
}

const EXAMPLES: &str = "A trace in a file:
  field compressed flag

  trace receive takes encrypted(message(protobuf)) {
      tcp
      decrypt
      rpc
      deserialize
      if compressed {
          trans json -> string
          decompress
      }
      load-balance
      notify
  }

Examples:
  rebate trace check my.trace
  rebate trace fmt --check specs/traces/*.trace
  rebate trace explain --trace T6
  rebate trace encode my.trace --trace receive --tenant 7
  rebate trace draw --trace T1 --out t1.svg
  rebate trace draw --dot | dot -Tpng -o all.png
  rebate trace call tls://127.0.0.1:9300 echo '{\"text\": \"hello\"}' --tls-ca ca.pem

Exit codes: 0 done, 1 the work failed or a file is not in the canonical layout, 2 bad usage or faults in the traces.";
