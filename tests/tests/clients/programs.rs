//! The client programs in `tests/clients`: which package each language needs, and how its program is built and started.
//! What is installed lands in the target folder and stays there until a manifest or program changes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The language of a program. Each has one folder in `tests/clients`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Go,
    Java,
    Node,
    Perl,
    Php,
    Python,
    Ruby,
    Rust,
}

impl Language {
    pub(crate) const ALL: [Self; 9] = [
        Self::C,
        Self::Go,
        Self::Java,
        Self::Node,
        Self::Perl,
        Self::Php,
        Self::Python,
        Self::Ruby,
        Self::Rust,
    ];

    fn folder(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Go => "go",
            Self::Java => "java",
            Self::Node => "node",
            Self::Perl => "perl",
            Self::Php => "php",
            Self::Python => "python",
            Self::Ruby => "ruby",
            Self::Rust => "rust",
        }
    }

    /// Returns the language's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Node => "Node.js",
            Self::Php => "PHP",
            Self::C => "C",
            Self::Go => "Go",
            Self::Java => "Java",
            Self::Perl => "Perl",
            Self::Python => "Python",
            Self::Ruby => "Ruby",
            Self::Rust => "Rust",
        }
    }

    /// Returns the Debian packages with what the program needs from the system. `scripts/setup.sh test` installs them.
    fn packages(self) -> &'static str {
        match self {
            Self::C => "build-essential libmemcached-dev",
            Self::Go => "golang-go",
            Self::Java => "default-jdk-headless maven",
            Self::Node => "nodejs npm",
            Self::Perl => "libcache-memcached-fast-perl",
            Self::Php => "php-cli php-memcached php-memcache",
            Self::Python => "python3-venv",
            Self::Ruby => "ruby ruby-dalli",
            Self::Rust => "cargo libssl-dev pkg-config",
        }
    }

    fn source(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(self.folder())
    }

    fn target(self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(self.folder())
    }

    /// Installs and builds what is not there yet. This happens once per change of the folder's files.
    ///
    /// # Errors
    /// What went wrong, and what to install.
    pub(crate) fn prepare(self) -> Result<(), String> {
        let (target, stamp) = (self.target(), self.target().join("stamp"));
        let sources = sources(&self.source());
        if fs::read(&stamp).is_ok_and(|built| built == sources) {
            return Ok(());
        }
        fs::create_dir_all(&target).map_err(|error| format!("{}: {error}", target.display()))?;
        let advice = |error| {
            format!(
                "{self:?}: {error}\nIt needs the Debian packages {} (`scripts/setup.sh test` \
                 installs them) or the same from elsewhere, and access to the language's registry",
                self.packages()
            )
        };
        self.steps().into_iter().try_for_each(run).map_err(advice)?;
        fs::write(&stamp, sources).map_err(|error| format!("{}: {error}", stamp.display()))
    }

    /// Returns the commands that install, build or look for what the program needs.
    fn steps(self) -> Vec<Command> {
        let (source, target) = (self.source(), self.target());
        let file = |name: &str| source.join(name);
        let built = |name: &str| target.join(name);
        match self {
            Self::C => {
                let compile = command("cc", ["-O1", "-o"]).then(built("client"));
                vec![compile.then(file("libmemcached.c")).then("-lmemcached").0]
            }
            Self::Go => {
                let build = command("go", ["build", "-o"]).then(built("client")).then(".");
                vec![build.within(&source)]
            }
            Self::Java => {
                let plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";
                let mut copy = command("mvn", ["-q", "-B", "-f"]).then(file("pom.xml"));
                copy.0.arg(format!("{plugin}:copy-dependencies"));
                copy.0.arg(format!("-DoutputDirectory={}", built("lib").display()));
                let compile = command("javac", ["-d"]).then(built("classes")).then("-cp");
                vec![copy.0, compile.then(built("lib/*")).then(file("Clients.java")).0]
            }
            Self::Node => {
                let manifests = command("cp", []).then(file("package.json"));
                let manifests = manifests.then(file("package-lock.json")).then(&target).0;
                let install = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
                vec![manifests, command("npm", install).within(&target)]
            }
            Self::Perl => vec![command("perl", ["-MCache::Memcached::Fast", "-e", "1"]).0],
            Self::Php => {
                let loaded = "exit(array_diff(['memcached', 'memcache'], get_loaded_extensions()) \
                              ? 1 : 0);";
                vec![command("php", ["-r", loaded]).0]
            }
            Self::Python => {
                let create = command("python3", ["-m", "venv", "--clear"]).then(&target).0;
                let install = command(built("bin/python"), ["-m", "pip", "install", "-q", "-r"]);
                vec![create, install.then(file("requirements.txt")).0]
            }
            Self::Ruby => vec![command("ruby", ["-e", "require 'dalli'"]).0],
            Self::Rust => {
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let build = command(cargo, ["build", "-q", "--locked", "--manifest-path"]);
                vec![build.then(file("Cargo.toml")).then("--target-dir").then(&target).0]
            }
        }
    }

    /// Returns the command that starts the program of this name, which has been prepared. Only Python has several.
    pub(crate) fn program(self, name: &str) -> Command {
        let (source, target) = (self.source(), self.target());
        match self {
            Self::C | Self::Go => Command::new(target.join("client")),
            Self::Java => {
                // A short run: the optimizing compiler would only take time.
                let java = command("java", ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]);
                let (classes, libraries) = (target.join("classes"), target.join("lib/*"));
                let path = format!("{}:{}", classes.display(), libraries.display());
                java.then(path).then("Clients").0
            }
            Self::Node => {
                let mut node = command("node", []).then(source.join("clients.js")).0;
                node.env("NODE_PATH", target.join("node_modules"));
                node
            }
            Self::Perl => command("perl", []).then(source.join("fast.pl")).0,
            Self::Php => command("php", []).then(source.join("clients.php")).0,
            Self::Python => command(target.join("bin/python"), []).then(source.join(name)).0,
            Self::Ruby => command("ruby", []).then(source.join("dalli.rb")).0,
            Self::Rust => Command::new(target.join("debug/client-matrix")),
        }
    }
}

/// A command that is built in one expression.
struct Build(Command);

fn command<const N: usize>(program: impl AsRef<OsStr>, arguments: [&str; N]) -> Build {
    let mut command = Command::new(program);
    command.args(arguments);
    Build(command)
}

impl Build {
    fn then(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.0.arg(argument);
        self
    }

    fn within(mut self, folder: &Path) -> Command {
        self.0.current_dir(folder);
        self.0
    }
}

fn run(mut command: Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let failed = || format!("{command:?}: {}\n{out}{errors}", output.status);
    output.status.success().then_some(()).ok_or_else(failed)
}

/// Returns the content of all files of a folder, so that a change is noticed.
fn sources(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).flatten().collect()
}
