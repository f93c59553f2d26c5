//! Names the functions of addresses.
//!
//! Packages have the names of functions in `.gnu_debugdata`, compressed, as MiniDebugInfo defines it. Programs that
//! were just built have them in `.symtab`. Libraries of the system only have the names that they export, unless their
//! package of debug information is installed.

use std::fs::File;
use std::io::Cursor;

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::modules::{Elf, Image, Module};

/// The functions of a module, by their addresses in the file.
#[derive(Default)]
pub(super) struct Symbols(Vec<Symbol>);

struct Symbol {
    begin: u64,
    /// The end, or `begin` if it is unknown.
    end: u64,
    name: String,
}

impl Symbols {
    /// Reads the functions of a module.
    pub(super) fn new(module: &Module) -> Self {
        let mut symbols = Self::default();
        if let Some(image) = &module.image {
            let _: Option<()> = image.read(|file| {
                symbols.add_all(file);
                Some(())
            });
        }
        symbols.add_selected(module);
        symbols.0.sort_by_key(|symbol| symbol.begin);
        symbols
    }

    fn add_all(&mut self, file: &Elf<'_>) {
        self.add(file);
        if let Some(inner) = packed_symbols(file) {
            let _: Option<()> = Image::Memory(inner).read(|file| {
                self.add(file);
                Some(())
            });
        }
        if let Some(debug) = debug_file(file) {
            let _: Option<()> = Image::File(debug).read(|file| {
                self.add(file);
                Some(())
            });
        }
    }

    fn add(&mut self, file: &Elf<'_>) {
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let (begin, size) = (symbol.address(), symbol.size());
            let is_function = symbol.kind() == SymbolKind::Text && symbol.is_definition();
            let Some(name) = symbol.name().ok().filter(|name| is_function && !name.is_empty())
            else {
                continue;
            };
            let name = format!("{:#}", rustc_demangle::demangle(name));
            self.0.push(Symbol { begin, end: begin + size, name });
        }
    }

    /// Adds the functions of the C library that are selected for the processor when the program starts. They take much
    /// of the time of a cache, and the library does not export their own names.
    fn add_selected(&mut self, module: &Module) {
        use nix::libc;
        let selected = [
            ("memcpy", libc::memcpy as *const () as u64),
            ("memmove", libc::memmove as *const () as u64),
            ("memset", libc::memset as *const () as u64),
            ("memcmp", libc::memcmp as *const () as u64),
            ("memchr", libc::memchr as *const () as u64),
            ("strlen", libc::strlen as *const () as u64),
        ];
        for (name, address) in selected {
            if module.mapped.contains(&address) {
                let begin = module.file_address(address);
                self.0.push(Symbol { begin, end: begin, name: name.to_owned() });
            }
        }
    }

    /// Returns the name of the function that has the address.
    pub(super) fn find(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|symbol| symbol.begin <= address);
        let last = self.0[..after].last()?;
        let begin = last.begin;
        // Several names may have the same address. One with an end says more than one without.
        let same = self.0[..after].iter().rev().take_while(|symbol| symbol.begin == begin);
        let has = |symbol: &&Symbol| {
            address < if symbol.end > begin { symbol.end } else { begin + UNKNOWN_BYTES }
        };
        let found = same.filter(has).max_by_key(|symbol| symbol.end)?;
        Some(&found.name)
    }
}

/// Returns the file in `.gnu_debugdata`, which has nothing but symbols.
fn packed_symbols(file: &Elf<'_>) -> Option<Vec<u8>> {
    let packed = file.section_by_name(".gnu_debugdata")?.data().ok()?;
    let mut unpacked = Vec::new();
    lzma_rs::xz_decompress(&mut Cursor::new(packed), &mut unpacked).ok()?;
    Some(unpacked)
}

/// Opens the file with debug information that a package of the system has for this file.
fn debug_file(file: &Elf<'_>) -> Option<File> {
    let id = file.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    File::open(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")).ok()
}

/// The bytes that a function of unknown length has at most. The longest of the C library's copies have 2 KiB.
const UNKNOWN_BYTES: u64 = 4 << 10;
