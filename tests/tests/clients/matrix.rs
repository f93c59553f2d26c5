//! Runs every client against memcached and against ours at the same time, and compares their results. Differences must
//! be in `tests/clients/differences.txt`, and what that file lists must still occur.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use harness::Process;

use crate::missing;
use crate::programs::Language;
use crate::script::{self, Operation};
use crate::servers::Security::{self, Plain, Sasl, Tls};
use crate::servers::{Files, NAMES, Servers};

/// Clients that run at the same time. Most of their time is waiting for values to expire.
const WORKERS: usize = 6;

/// The longest run of a program. It takes seconds; the limit ends a client that waits for an answer for ever.
const LIMIT: Duration = Duration::from_secs(300);

/// How many of a client's operations must have the result that `operations.txt` expects when it speaks with memcached.
/// The rest is the client's way: a false instead of an error, an expiry of its choice.
const EXPECTED_MIN: f64 = 0.85;

/// A client of the matrix with the protocols that it speaks.
struct Client {
    name: &'static str,
    language: Language,
    ways: &'static [(&'static str, Security)],
}

const TEXT: &[(&str, Security)] = &[("text", Plain)];
const TEXT_AND_TLS: &[(&str, Security)] = &[("text", Plain), ("text", Tls)];
const BINARY_AND_SASL: &[(&str, Security)] = &[("binary", Plain), ("binary", Sasl)];
const BOTH: &[(&str, Security)] = &[("text", Plain), ("binary", Plain)];
const BOTH_AND_SASL: &[(&str, Security)] = &[("text", Plain), ("binary", Plain), ("binary", Sasl)];

/// The clients. Those that take longest come first.
const CLIENTS: [Client; 18] = [
    Client { name: "spymemcached", language: Language::Java, ways: BOTH_AND_SASL },
    Client { name: "xmemcached", language: Language::Java, ways: BOTH },
    Client { name: "pymemcache", language: Language::Python, ways: TEXT_AND_TLS },
    Client { name: "pylibmc", language: Language::Python, ways: BOTH },
    Client { name: "python-memcached", language: Language::Python, ways: TEXT },
    Client {
        name: "bmemcached",
        language: Language::Python,
        ways: &[("binary", Plain), ("binary", Tls), ("binary", Sasl)],
    },
    Client { name: "aiomcache", language: Language::Python, ways: TEXT_AND_TLS },
    Client { name: "emcache", language: Language::Python, ways: TEXT_AND_TLS },
    Client { name: "memcached", language: Language::Node, ways: TEXT },
    Client { name: "memcache-client", language: Language::Node, ways: TEXT_AND_TLS },
    Client { name: "memjs", language: Language::Node, ways: BINARY_AND_SASL },
    Client { name: "gomemcache", language: Language::Go, ways: TEXT_AND_TLS },
    Client { name: "memcached", language: Language::Php, ways: BOTH_AND_SASL },
    Client { name: "memcache", language: Language::Php, ways: BOTH },
    Client {
        name: "Dalli",
        language: Language::Ruby,
        ways: &[("binary", Plain), ("binary", Tls), ("binary", Sasl)],
    },
    Client { name: "Cache::Memcached::Fast", language: Language::Perl, ways: TEXT },
    Client {
        name: "rust-memcache",
        language: Language::Rust,
        ways: &[
            ("text", Plain),
            ("binary", Plain),
            ("text", Tls),
            ("binary", Tls),
            ("binary", Sasl),
        ],
    },
    Client { name: "libmemcached", language: Language::C, ways: BOTH },
];

/// One client over one protocol.
#[derive(Clone, Copy)]
struct Job {
    client: &'static Client,
    protocol: &'static str,
    security: Security,
}

impl Job {
    /// Returns the way in which the client connects, as `differences.txt` and the table name it.
    fn way(&self) -> String {
        let suffix = if self.security == Plain { "" } else { self.security.name() };
        format!("{} {suffix}", self.protocol).trim_end().to_owned()
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.client.language.name(), self.client.name, self.way())
    }

    /// Runs the program and returns the results of each operation by server.
    fn run(&self, servers: &Servers, files: &Files, operations: usize) -> Result<Results, String> {
        let mut command = self.client.language.program("clients.py");
        command.args([self.client.name, self.protocol, self.security.name()]);
        command.args([files.path("server.pem"), files.path("operations")]);
        command.args(servers.addresses.map(|address| address.to_string()));
        let mut process = Process::start(&mut command)?;
        let status = process.wait_exit(LIMIT);
        process.kill();
        let (mut results, mut rest, mut last) = (Results::new(), Vec::new(), String::new());
        for line in process.output().lines() {
            match result_of(line, servers) {
                Some((key, result)) => {
                    results.insert(key, result);
                    line[..line.len().min(200)].clone_into(&mut last);
                }
                None => rest.push(line.to_owned()),
            }
        }
        if status.is_some_and(|status| status.success()) && results.len() == operations * 3 {
            return Ok(results);
        }
        let status = status.map_or(format!("no end within {LIMIT:?}"), |status| status.to_string());
        let rest = rest[rest.len().saturating_sub(30)..].join("\n");
        Err(format!("{}: {status}, after the result {last:?}\n{rest}", self.name()))
    }
}

/// The results by the numbers of the operation and of the server.
type Results = BTreeMap<(usize, usize), String>;

/// Reads a line `OPERATION SERVER RESULT`. Addresses in errors are replaced, because they differ by nature.
fn result_of(line: &str, servers: &Servers) -> Option<((usize, usize), String)> {
    let mut words = line.splitn(3, ' ');
    let key = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let result = words.next()?;
    if !result.starts_with("error") {
        return Some((key, result.to_owned()));
    }
    let port = servers.addresses.get(key.1)?.port().to_string();
    let result = result.replace(&port, "PORT");
    // Ruby's objects are named by their place in memory.
    let end = result.find("0x").unwrap_or(result.len());
    Some((key, result[..end].to_owned()))
}

/// What a client got, compared.
struct Outcome {
    job: Job,
    /// Operations that the client has.
    supported: usize,
    /// Operations whose result with memcached is not the expected one, with that result.
    unlike: Vec<(String, String)>,
    /// Operations whose result with ours is not memcached's: the server, the operation, both results.
    differences: Vec<(usize, String, String)>,
}

impl Outcome {
    fn new(job: Job, operations: &[Operation], results: &Results) -> Self {
        let mut outcome = Self { job, supported: 0, unlike: Vec::new(), differences: Vec::new() };
        for (number, operation) in operations.iter().enumerate() {
            let Some(reference) = results.get(&(number, 0)) else { continue };
            for server in 1..NAMES.len() {
                let result = results.get(&(number, server)).map_or("", String::as_str);
                if result != reference {
                    let both = format!("{} instead of {}", short(result), short(reference));
                    outcome.differences.push((server, operation.name.clone(), both));
                }
            }
            if reference == "unsupported" {
                continue;
            }
            outcome.supported += 1;
            let kind = reference.split(' ').next().unwrap_or_default();
            let is_expected = |expected: &String| expected == reference || expected == kind;
            if !operation.expected.iter().any(is_expected) {
                outcome.unlike.push((operation.name.clone(), short(reference)));
            }
        }
        outcome
    }

    /// Returns a cell of the table: how a server compares with memcached.
    fn cell(&self, server: usize) -> String {
        match self.differences.iter().filter(|(found, ..)| *found == server).count() {
            0 => "same".to_owned(),
            count => format!("{count} differ"),
        }
    }
}

/// Returns the beginning of a result for a message.
fn short(result: &str) -> String {
    let text: String = result.chars().take(120).collect();
    if text.len() < result.len() { format!("{text}...") } else { text }
}

/// A line of `differences.txt`: `LANGUAGE CLIENT WAY | SERVER | OPERATION | REASON`. `*` stands for any text.
struct Listed {
    line: String,
    patterns: [String; 3],
}

impl Listed {
    fn read(text: &str) -> Vec<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let listed = lines.map(|line| {
            let fields: Vec<&str> = line.split(" | ").collect();
            let [client, server, operation, _reason] = fields[..] else {
                panic!("differences.txt: not four fields: {line}");
            };
            let patterns = [client, server, operation].map(str::to_owned);
            Self { line: line.to_owned(), patterns }
        });
        listed.collect()
    }

    fn matches(&self, fields: [&str; 3]) -> bool {
        self.patterns.iter().zip(fields).all(|(pattern, field)| match pattern.split_once('*') {
            Some((before, after)) => {
                let rest = field.strip_prefix(before);
                rest.is_some_and(|rest| rest.ends_with(after))
            }
            None => pattern == field,
        })
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

fn text_of(name: &str) -> String {
    let path = folder().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Prepares a language's program once per process.
pub(crate) fn prepared(language: Language) -> Result<(), String> {
    static PREPARED: [OnceLock<Result<(), String>>; Language::ALL.len()] =
        [const { OnceLock::new() }; Language::ALL.len()];
    PREPARED[language as usize].get_or_init(|| language.prepare()).clone()
}

/// Prepares all programs, two at a time, and returns the jobs of those that can run.
fn jobs() -> VecDeque<Job> {
    let languages = Mutex::new(Language::ALL.to_vec());
    thread::scope(|scope| {
        let work = || {
            while let Some(language) = { locked(&languages).pop() } {
                let _reported_below = prepared(language);
            }
        };
        scope.spawn(work);
        scope.spawn(work);
    });
    for problem in Language::ALL.iter().filter_map(|&language| prepared(language).err()) {
        missing(&problem);
    }
    let able = CLIENTS.iter().filter(|client| prepared(client.language).is_ok());
    let jobs = able.flat_map(|client| {
        client.ways.iter().map(move |&(protocol, security)| Job { client, protocol, security })
    });
    jobs.collect()
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the jobs on [`WORKERS`] threads. Each has its own servers, so that no client sees what another one does.
fn run_all(jobs: VecDeque<Job>, operations: &[Operation]) -> (Vec<Outcome>, Vec<String>) {
    let files = Files::new();
    let lines: Vec<&str> = operations.iter().map(|operation| operation.line.as_str()).collect();
    files.write("operations", &lines.join("\n"));
    if jobs.iter().any(|job| job.security == Sasl) {
        files.add_user();
    }
    let results = lines.iter().filter(|line| !line.starts_with("sleep")).count();
    let (queue, done) = (Mutex::new(jobs), Mutex::new(Vec::<Outcome>::new()));
    let failed = Mutex::new(Vec::<String>::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut servers: Vec<(Security, Servers)> = Vec::new();
                while let Some(job) = { locked(&queue).pop_front() } {
                    let security = job.security;
                    if !servers.iter().any(|(found, _)| *found == security) {
                        servers.push((security, Servers::start(security, &files)));
                    }
                    let mut found = servers.iter().filter(|(found, _)| *found == security);
                    let servers = found.next().map(|(_, servers)| servers).expect("just started");
                    match job.run(servers, &files, results) {
                        Ok(results) => {
                            locked(&done).push(Outcome::new(job, operations, &results));
                        }
                        Err(problem) => locked(&failed).push(problem),
                    }
                }
            });
        }
    });
    let mut done: Vec<Outcome> = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|outcome| outcome.job.name());
    (done, failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the table of the matrix, as `docs/operating/clients.md` shows it.
fn table(outcomes: &[Outcome]) -> String {
    let mut table = format!(
        "| client | protocol | operations | not as expected | `{}` | `{}` |\n|---|---|---|---|---|---|\n",
        NAMES[1], NAMES[2]
    );
    for outcome in outcomes {
        let client = outcome.job.client;
        let _ = writeln!(
            table,
            "| {} ({}) | {} | {} | {} | {} | {} |",
            client.name,
            client.language.name(),
            outcome.job.way(),
            outcome.supported,
            outcome.unlike.len(),
            outcome.cell(1),
            outcome.cell(2)
        );
    }
    table
}

/// Compares the differences with the list. Returns one line per problem.
fn problems(outcomes: &[Outcome], listed: &[Listed]) -> Vec<String> {
    let mut used = BTreeSet::new();
    let mut problems = Vec::new();
    for outcome in outcomes {
        let name = outcome.job.name();
        for (server, operation, both) in &outcome.differences {
            let fields = [name.as_str(), NAMES[*server], operation];
            match listed.iter().position(|entry| entry.matches(fields)) {
                Some(index) => _ = used.insert(index),
                None => problems.push(format!("{}: {both}", fields.join(" | "))),
            }
        }
        let expected = outcome.supported - outcome.unlike.len();
        if (expected as f64) < EXPECTED_MIN * outcome.supported as f64 {
            problems.push(format!(
                "{name}: only {expected} of {} operations as expected with memcached itself",
                outcome.supported
            ));
        }
    }
    let is_whole = outcomes.len() == CLIENTS.iter().map(|client| client.ways.len()).sum::<usize>();
    let unused = listed.iter().enumerate().filter(|(index, _)| is_whole && !used.contains(index));
    problems.extend(unused.map(|(_, entry)| {
        format!("differences.txt: no longer true, so remove it: {}", entry.line)
    }));
    problems
}

/// Compares the table with the one in the documentation, or writes it there.
fn document(table: &str) -> Option<String> {
    const BEGIN: &str = "<!-- the table, as the test writes it -->\n";
    const END: &str = "<!-- end of the table -->\n";
    let path = folder().join("../../docs/operating/clients.md");
    let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    let (before, rest) = page.split_once(BEGIN).expect("the table begins");
    let (found, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("REBATE_RECORD").is_some_and(|mode| mode == "write") {
        let page = format!("{before}{BEGIN}{table}{END}{after}");
        fs::write(&path, page).unwrap_or_else(|error| panic!("{error}"));
        return None;
    }
    // Other versions of the clients may have other operations.
    let is_due = std::env::var_os("CI").is_some() && found != table;
    is_due.then(|| {
        "docs/operating/clients.md has another table: REBATE_RECORD=write writes it".to_owned()
    })
}

#[test]
fn clients_get_from_ours_what_they_get_from_memcached() {
    if harness::needs_memcached("1.6.18").is_none() {
        return;
    }
    let operations = script::read(&text_of("operations.txt"));
    let (outcomes, mut failures) = run_all(jobs(), &operations);
    let table = table(&outcomes);
    println!("{table}");
    for outcome in &outcomes {
        for (operation, result) in &outcome.unlike {
            println!("with memcached: {}: {operation}: {result}", outcome.job.name());
        }
    }
    failures.extend(problems(&outcomes, &Listed::read(&text_of("differences.txt"))));
    failures.extend(document(&table));
    assert!(failures.is_empty(), "{table}\n{}", failures.join("\n"));
}
