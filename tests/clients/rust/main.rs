//! Performs the operations of the client matrix with the crate `memcache` (rust-memcache).
//!
//! Usage: client-matrix CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
//! tests/clients/README.md describes the arguments, the operations and the lines that are printed.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use memcache::{Client, CommandError, MemcacheError};

/// A server that is well may be silent for seconds where the host takes its core away.
const LIMIT: Duration = Duration::from_secs(60);

fn connect(protocol: &str, security: &str, ca: &str, address: &str) -> Client {
    let ascii = if protocol == "text" { "protocol=ascii&" } else { "" };
    let url = match security {
        "tls" => format!("memcache+tls://{address}?{ascii}ca_path={ca}&verify_mode=peer"),
        "sasl" => format!("memcache://matrix:password-of-the-matrix@{address}?{ascii}"),
        _ => format!("memcache://{address}?{ascii}"),
    };
    let client = Client::connect(url).unwrap_or_else(|error| panic!("{address}: {error}"));
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    client.set_write_timeout(Some(LIMIT)).expect("a limit");
    client
}

fn failed(error: &MemcacheError) -> String {
    format!("error {error}").replace('\n', " ")
}

/// Returns the result of an operation that has no value. A negative answer is an error of this client.
fn yes(result: Result<(), MemcacheError>) -> String {
    yes_or_no(result.map(|()| true))
}

fn yes_or_no(result: Result<bool, MemcacheError>) -> String {
    match result {
        Ok(done) => if done { "yes" } else { "no" }.to_owned(),
        Err(MemcacheError::CommandError(
            CommandError::KeyExists | CommandError::KeyNotFound | CommandError::ValueTooLarge,
        )) => "no".to_owned(),
        Err(error) => failed(&error),
    }
}

fn number(result: Result<u64, MemcacheError>) -> String {
    match result {
        Ok(number) => format!("number {number}"),
        Err(MemcacheError::CommandError(CommandError::KeyNotFound)) => "miss".to_owned(),
        Err(error) => failed(&error),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(|pair| byte(pair).expect("hex")).collect()
}

fn text(hex: &str) -> String {
    String::from_utf8(bytes(hex)).expect("keys are UTF-8")
}

fn get(client: &Client, key: &str) -> String {
    match client.get::<Vec<u8>>(key) {
        Ok(Some(value)) => format!("value {}", hex(&value)),
        Ok(None) => "miss".to_owned(),
        Err(error) => failed(&error),
    }
}

fn get_all(client: &Client, given: &[&str]) -> String {
    let mut keys: Vec<String> = Vec::new();
    for key in given.iter().map(|key| text(key)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found: HashMap<String, Vec<u8>> = match client.gets(&names) {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    let pair = |key: &String| {
        let value = found.get(key)?;
        Some(format!(" {}={}", hex(key.as_bytes()), hex(value)))
    };
    format!("values{}", keys.iter().filter_map(pair).collect::<String>())
}

fn compare_and_swap(client: &Client, key: &str, given: &[&str]) -> String {
    let found: HashMap<String, (Vec<u8>, u32, Option<u64>)> = match client.gets(&[key]) {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    let Some((_, _, Some(token))) = found.get(key) else { return "miss".to_owned() };
    let changed = match given[2] {
        "set" => client.set(key, "other", 0),
        "delete" => client.delete(key).map(drop),
        _ => Ok(()),
    };
    match changed {
        Ok(()) => yes_or_no(client.cas(key, &bytes(given[1])[..], 0, *token)),
        Err(error) => failed(&error),
    }
}

fn set_all(client: &Client, given: &[&str]) -> String {
    for pair in given.chunks(2) {
        if let Err(error) = client.set(&text(pair[0]), &bytes(pair[1])[..], 0) {
            return failed(&error);
        }
    }
    "yes".to_owned()
}

/// Returns which of the wanted statistics the server lacks.
fn stats(client: &Client, given: &[&str]) -> String {
    if given[0] != "-" {
        return "unsupported".to_owned();
    }
    let found = match client.stats() {
        Ok(found) => found.into_iter().map(|(_, page)| page).next().unwrap_or_default(),
        Err(error) => return failed(&error),
    };
    let is_missing = |name: &&&str| !found.contains_key(**name);
    let missing: Vec<&str> = given[1..].iter().filter(is_missing).copied().collect();
    if missing.is_empty() { "yes".to_owned() } else { format!("lacks {}", missing.join(" ")) }
}

fn perform(client: &Client, operation: &str, given: &[&str]) -> Result<String, Box<dyn Error>> {
    let key = match operation {
        "stats" => String::new(),
        _ => given.first().map(|key| text(key)).unwrap_or_default(),
    };
    let value = || bytes(given[1]);
    // Its expiry has no sign, so it has no time in the past.
    let ttl = |at: usize| given[at].parse::<u32>();
    Ok(match operation {
        "get" => get(client, &key),
        "set" => yes(client.set(&key, &value()[..], ttl(2)?)),
        "add" => yes(client.add(&key, &value()[..], ttl(2)?)),
        "replace" => yes(client.replace(&key, &value()[..], ttl(2)?)),
        "append" => yes(client.append(&key, &value()[..])),
        "prepend" => yes(client.prepend(&key, &value()[..])),
        "cas" => compare_and_swap(client, &key, given),
        "incr" => number(client.increment(&key, given[1].parse()?)),
        "decr" => number(client.decrement(&key, given[1].parse()?)),
        "delete" => yes_or_no(client.delete(&key)),
        "touch" => yes_or_no(client.touch(&key, ttl(1)?)),
        "mget" => get_all(client, given),
        "mset" => set_all(client, given),
        "flush_all" => yes(client.flush()),
        "version" => match client.version() {
            Ok(found) => format!("value {}", hex(found[0].1.as_bytes())),
            Err(error) => failed(&error),
        },
        "stats" => stats(client, given),
        _ => "unsupported".to_owned(),
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, _, protocol, security, ca, operations, addresses @ ..] = &arguments[..] else {
        panic!("not enough arguments: {arguments:?}");
    };
    let connect = |address: &String| connect(protocol, security, ca, address);
    let clients: Vec<Client> = addresses.iter().map(connect).collect();
    let lines = std::fs::read_to_string(operations).expect("the operations");
    for (number, line) in lines.lines().enumerate() {
        let words: Vec<&str> = line.split('\t').collect();
        if words[0] == "sleep" {
            std::thread::sleep(Duration::from_millis(words[1].parse().expect("a time")));
            continue;
        }
        for (server, client) in clients.iter().enumerate() {
            let result = perform(client, words[0], &words[1..]);
            let result = result.unwrap_or_else(|_| "unsupported".to_owned());
            println!("{number} {server} {result}");
        }
    }
}
