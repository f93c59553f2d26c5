//! The system's compression tools, as independent readers and writers of the devices' streams. For a tool that knows
//! only files, a stream is wrapped in a file's format, and the streams that it writes are taken out of that format.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;

use bytes::Bytes;
use device::Codec;

use crate::support::skipped;

/// An installed tool.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// The command that writes one value. Python gets all values at once, because starting it takes longer than all
    /// of its work.
    writes: &'static [&'static str],
    /// The command that reads any number of streams in a row.
    reads: &'static [&'static str],
    /// Puts a stream into the tool's own format. The second argument is its original.
    wrap: fn(&[u8], &[u8]) -> Vec<u8>,
    /// Returns the streams in the tool's output. A stream is none if the tool stored the value because it did not
    /// shrink.
    unwrap: fn(&[u8]) -> Vec<Option<&[u8]>>,
    all_at_once: bool,
}

/// Returns the installed tools for a codec. None of them reads frames without a magic number. Reports the missing tools
/// as skipped.
pub(crate) fn tools(codec: Codec) -> Vec<Tool> {
    let all = match codec {
        Codec::Deflate => vec![ZLIB, GZIP],
        Codec::Zstd => vec![ZSTD],
        Codec::Lz4 => vec![LZ4],
        Codec::ZstdDictionary => Vec::new(),
    };
    let is_here = |tool: &Tool| {
        let here = pipe(tool.writes, b"").is_ok();
        if !here {
            skipped("golden", &format!("{}: {} does not run here", tool.name, tool.writes[0]));
        }
        here
    };
    all.into_iter().filter(is_here).collect()
}

impl Tool {
    /// Returns the tool's output for each value.
    pub(crate) fn write(&self, values: &[Bytes]) -> Vec<Option<Bytes>> {
        let inputs: Vec<Vec<u8>> = match self.all_at_once {
            true => vec![values.iter().flat_map(|value| behind_length(value)).collect()],
            false => values.iter().map(|value| value.to_vec()).collect(),
        };
        let written = inputs.iter().flat_map(|input| {
            let written = pipe(self.writes, input);
            let written = written.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let streams = (self.unwrap)(&written);
            streams.into_iter().map(|stream| stream.map(Bytes::copy_from_slice)).collect::<Vec<_>>()
        });
        written.collect()
    }

    /// Returns whether the tool reads exactly the originals out of the streams. Each stream comes with its original.
    pub(crate) fn reads(&self, streams: &[(&[u8], &[u8])]) -> bool {
        let wrapped: Vec<u8> =
            streams.iter().flat_map(|(stream, original)| (self.wrap)(stream, original)).collect();
        let originals = streams.iter().map(|(_, original)| *original).collect::<Vec<_>>().concat();
        pipe(self.reads, &wrapped).is_ok_and(|read| read == originals)
    }
}

/// Returns a command's output for its input.
fn pipe(command: &[&str], input: &[u8]) -> io::Result<Vec<u8>> {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("is piped");
    let output = thread::scope(|scope| {
        // The command may answer before it has read everything. If it ends early, its exit code says so.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output()
    })?;
    if output.status.success() { Ok(output.stdout) } else { Err(io::Error::other("it failed")) }
}

/// Returns the bytes preceded by their length, as the Python programs read and write values.
fn behind_length(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// Splits bytes into the values that follow their lengths.
fn behind_lengths(mut bytes: &[u8]) -> Vec<Option<&[u8]>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (value, others) = rest.split_at(u32::from_le_bytes(*length) as usize);
        all.push(Some(value));
        bytes = others;
    }
    all
}

/// Raw deflate by the system's zlib.
const ZLIB: Tool = Tool {
    name: "zlib",
    writes: &["python3", "-c", ZLIB_WRITES],
    reads: &["python3", "-c", ZLIB_READS],
    wrap: |stream, _| behind_length(stream),
    unwrap: behind_lengths,
    all_at_once: true,
};

const ZLIB_WRITES: &str = "
import sys, zlib
values, streams = sys.stdin.buffer, sys.stdout.buffer
while length := values.read(4):
    writer = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = writer.compress(values.read(int.from_bytes(length, 'little'))) + writer.flush()
    streams.write(len(stream).to_bytes(4, 'little') + stream)";

/// The Python program that reads streams. Each stream must be complete and end at its stated end.
const ZLIB_READS: &str = "
import sys, zlib
streams = sys.stdin.buffer
while length := streams.read(4):
    reader = zlib.decompressobj(-15)
    sys.stdout.buffer.write(reader.decompress(streams.read(int.from_bytes(length, 'little'))))
    assert reader.eof and not reader.unused_data";

const GZIP: Tool = Tool {
    name: "gzip",
    writes: &["gzip", "-cn"],
    reads: &["gzip", "-dc"],
    wrap: |stream, original| {
        let sums = [crc32(original).to_le_bytes(), (original.len() as u32).to_le_bytes()];
        [GZIP_HEADER, stream, &sums.concat()].concat()
    },
    unwrap: |file| vec![file.get(GZIP_HEADER.len()..file.len() - 8)],
    all_at_once: false,
};

/// The header of a gzip file (RFC 1952): deflate, no flags, no time, unknown system.
const GZIP_HEADER: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff";

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

const ZSTD: Tool = Tool {
    name: "zstd",
    writes: &["zstd", "-qc"],
    reads: &["zstd", "-qdc"],
    wrap: |stream, _| stream.to_vec(),
    unwrap: |stream| vec![Some(stream)],
    all_at_once: false,
};

const LZ4: Tool = Tool {
    name: "lz4",
    writes: &["lz4", "-qc", "-B7"],
    reads: &["lz4", "-qdc"],
    wrap: |stream, _| [LZ4_HEADER, &behind_length(stream), &[0; 4]].concat(),
    // The file has one block of up to 4 MiB. The highest bit of its length is set if the block is not compressed.
    unwrap: |file| vec![lz4_block(file).filter(|block| !block.is_empty())],
    all_at_once: false,
};

fn lz4_block(file: &[u8]) -> Option<&[u8]> {
    let (length, rest) = file.get(LZ4_HEADER.len()..)?.split_first_chunk()?;
    rest.get(..u32::from_le_bytes(*length) as usize)
}

/// The header of LZ4's frame format: independent blocks of up to 4 MiB, and no checksums except the header's own.
const LZ4_HEADER: &[u8] = b"\x04\x22\x4d\x18\x60\x70\x73";
