//! `rebate dict`: lists, trains, exports, imports and drops dictionaries. It reads and writes the reserved keys of a
//! cache with memcached's commands, so it works with every server that clients reach. It does not talk to servers in
//! any other way.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use device::Dictionary;
use load::{Address, Class};
use policy::key_class::NAME_BYTES_MAX;
use store::dictionary_keys;
use units::{ByteCount, DictionaryId};

use crate::client::Client;
use crate::connect::ConnectFlags;
use crate::terminal::{
    CliError, byte_count, check_writable, numbers, print_json, print_line, write_file,
};

/// The flags of `rebate dict`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dict {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the classes of keys of a server, the dictionary of each, and what it saves.
    List(List),
    /// Show the id and the size of a dictionary in a file.
    Show(Show),
    /// Train a dictionary on the files of a directory.
    Train(Train),
    /// Write a dictionary of a server to a file.
    Export(Export),
    /// Store the dictionary of a file in a server, for a class of keys.
    Import(Import),
    /// Make every server stop using a dictionary. Values that need it become misses.
    Drop(Drop),
}

#[derive(Debug, Args)]
struct List {
    /// Server of Rebate: HOST:PORT, tls://HOST:PORT or unix:/path.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectFlags,
}

#[derive(Debug, Args)]
struct Show {
    /// File with a dictionary.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct Train {
    /// Directory with one file for each value. Files of more than 16 KiB are left out.
    #[arg(long, value_name = "DIR")]
    corpus: PathBuf,
    /// File that gets the dictionary.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Maximum size of the dictionary, 256 bytes to 64KiB.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = byte_count)]
    bytes: ByteCount,
}

#[derive(Debug, Args)]
struct Export {
    /// Server of Rebate, or the memcached behind it.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// Id of the dictionary, as `rebate dict list` shows it.
    #[arg(value_name = "ID", value_parser = id)]
    id: DictionaryId,
    /// File that gets the dictionary.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    connect: ConnectFlags,
}

#[derive(Debug, Args)]
struct Import {
    /// Server of Rebate.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// File with a dictionary.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Class of keys, as `rebate dict list` shows it. The servers try the dictionary on samples of its values before
    /// they train one.
    #[arg(long, value_name = "NAME", value_parser = class_name)]
    class: String,
    /// Tenant of the class.
    #[arg(long, value_name = "N", default_value_t = 0)]
    tenant: u16,
    #[command(flatten)]
    connect: ConnectFlags,
}

#[derive(Debug, Args)]
struct Drop {
    /// Server of Rebate.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// Id of the dictionary.
    #[arg(value_name = "ID", value_parser = id)]
    id: DictionaryId,
    #[command(flatten)]
    connect: ConnectFlags,
}

impl Dict {
    /// Runs the command. The exit code is 0 for success, 1 if a server or a file failed, and 2 for bad usage or input.
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Show(show) => describe(&read_dictionary(&show.file)?),
            Command::Train(train) => train.run(),
            Command::Export(export) => export.run(),
            Command::Import(import) => import.run(),
            Command::Drop(drop) => drop.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<(), CliError> {
        let page = Client::open(&self.address, &self.connect.connector()?)?.dictionaries()?;
        if self.json {
            return print_json(&page);
        }
        let head = ["class", "tenant", "form", "values written", "bytes each", "stored"];
        let rows = page.classes.iter().map(row);
        let rows: Vec<_> = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
        numbers(&rows).iter().for_each(|line| print_line(line));
        for dictionary in &page.dictionaries {
            let (id, bytes, memory) = (&dictionary.id, dictionary.bytes, dictionary.memory_bytes);
            print_line(&format!("dictionary {id}: {bytes} bytes, {memory} bytes of memory"));
        }
        Ok(())
    }
}

fn row(class: &Class) -> Vec<String> {
    let mean = class.logical_bytes as f64 / class.values_written.max(1) as f64;
    let stored = 100.0 * class.stored_bytes as f64 / class.logical_bytes.max(1) as f64;
    vec![
        class.name.clone(),
        class.tenant.to_string(),
        class.form.clone(),
        class.values_written.to_string(),
        format!("{mean:.0}"),
        format!("{stored:.0} %"),
    ]
}

impl Train {
    fn run(self) -> Result<(), CliError> {
        check_writable("--out", &self.out)?;
        let values = read_values(&self.corpus)?;
        let samples: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let trained = Dictionary::train(&samples, self.bytes.as_usize());
        let trained = trained
            .map_err(|error| CliError::Usage(format!("{}: {error}", self.corpus.display())))?;
        write_file("--out", &self.out, trained.content())?;
        describe(&trained)
    }
}

impl Export {
    fn run(self) -> Result<(), CliError> {
        check_writable("--out", &self.out)?;
        let content = Client::open(&self.address, &self.connect.connector()?)?
            .get(&dictionary_keys::copy(self.id, 0))?;
        let missing = || CliError::Failed(format!("{}: no dictionary {}", self.address, self.id));
        let dictionary = Dictionary::from_content(content.ok_or_else(missing)?)
            .map_err(|error| CliError::Failed(format!("{}: {error}", self.address)))?;
        if dictionary.id() != self.id {
            let (address, wanted, found) = (&self.address, self.id, dictionary.id());
            let text = format!("{address}: the dictionary under the key of {wanted} is {found}");
            return Err(CliError::Failed(text));
        }
        write_file("--out", &self.out, dictionary.content())?;
        describe(&dictionary)
    }
}

impl Import {
    fn run(self) -> Result<(), CliError> {
        let dictionary = read_dictionary(&self.file)?;
        let key = dictionary_keys::of_class(self.tenant, &self.class);
        let mut client = Client::open(&self.address, &self.connect.connector()?)?;
        for copy in 0..dictionary_keys::COPIES_MAX {
            client.set(&dictionary_keys::copy(dictionary.id(), copy), dictionary.content())?;
        }
        client.set(&key, dictionary.id().to_string().as_bytes())?;
        describe(&dictionary)
    }
}

impl Drop {
    fn run(self) -> Result<(), CliError> {
        let mut client = Client::open(&self.address, &self.connect.connector()?)?;
        let mut is_there = false;
        for copy in 0..dictionary_keys::COPIES_MAX {
            is_there |= client.get(&dictionary_keys::copy(self.id, copy))?.is_some();
        }
        if !is_there {
            return Err(CliError::Failed(format!("{}: no dictionary {}", self.address, self.id)));
        }
        for copy in 0..dictionary_keys::COPIES_MAX {
            client.set(&dictionary_keys::copy(self.id, copy), dictionary_keys::DROPPED)?;
        }
        print_line(&format!("{} is dropped; servers notice it within some seconds", self.id));
        Ok(())
    }
}

fn describe(dictionary: &Dictionary) -> Result<(), CliError> {
    let (id, bytes) = (dictionary.id(), dictionary.content().len());
    print_line(&format!("dictionary {id}: {bytes} bytes"));
    Ok(())
}

fn read_dictionary(file: &Path) -> Result<Dictionary, CliError> {
    let named =
        |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", file.display()));
    let content = std::fs::read(file).map_err(|error| named(&error))?;
    Dictionary::from_content(content).map_err(|error| named(&error))
}

/// Reads the files of a folder that may be samples, up to the bytes that one training takes.
fn read_values(folder: &Path) -> Result<Vec<Vec<u8>>, CliError> {
    let named = |error: std::io::Error| CliError::Usage(format!("{}: {error}", folder.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(named)? {
        let entry = entry.map_err(named)?;
        let facts = entry.metadata().map_err(named)?;
        if facts.is_file() && (1..=VALUE_BYTES_MAX).contains(&facts.len()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let (mut values, mut bytes) = (Vec::new(), 0);
    for path in paths {
        let value = std::fs::read(&path)
            .map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))?;
        bytes += value.len();
        if bytes > CORPUS_BYTES_MAX {
            break;
        }
        values.push(value);
    }
    Ok(values)
}

/// Checks a name that becomes part of a key of the store.
fn class_name(name: &str) -> Result<String, String> {
    let is_valid = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_valid.then(|| name.to_owned()).ok_or_else(|| {
        format!("a class has 1 to {NAME_BYTES_MAX} printable ASCII characters and no blanks")
    })
}

fn id(digits: &str) -> Result<DictionaryId, String> {
    let valid = digits.len() == 6;
    DictionaryId::from_hex(digits)
        .filter(|_| valid)
        .ok_or_else(|| "an id has six hexadecimal digits and is not 000000".to_owned())
}

/// The longest file that is a sample (bytes). Servers use dictionaries for values up to this length.
const VALUE_BYTES_MAX: u64 = policy::form::DICTIONARY_VALUE_BYTES_MAX as u64;

/// The bytes of samples in one training. It takes some seconds.
const CORPUS_BYTES_MAX: usize = 64 << 20;

const EXAMPLES: &str = "Examples:
  rebate dict list 127.0.0.1:11211
  rebate dict export 127.0.0.1:11211 a1b2c3 --out users.dict
  rebate dict train --corpus samples/ --out users.dict
  rebate dict import 127.0.0.1:11211 users.dict --class 'user:*:profile'
  rebate dict drop 127.0.0.1:11211 a1b2c3

Exit codes: 0 done, 1 a server failed or has no such dictionary, 2 bad usage or input.";
