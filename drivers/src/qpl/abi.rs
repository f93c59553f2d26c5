//! The job structure and the constants of the public headers that this driver shares with `libqpl.so`. The names and
//! comments are this driver's, and it names only what it uses. The layout is that of QPL 1.6.0 on x86-64 (`qpl_job`
//! in qpl/c_api/job.h, offsets measured with `offsetof`). The structure is the same in 1.0 to 1.6. The module makes
//! no calls.

use std::mem::offset_of;

/// `qpl_job`. The library's own state follows it in the same allocation, and the library's calls may change any
/// field.
#[repr(C)]
pub(super) struct RawJob {
    pub(super) input: *mut u8,
    pub(super) input_bytes: u32,
    pub(super) read_bytes: u32,
    pub(super) output: *mut u8,
    pub(super) output_bytes: u32,
    pub(super) written_bytes: u32,
    pub(super) operation: u32,
    pub(super) flags: u32,
    pub(super) crc: u32,
    xor_checksum: u32,
    last_bit_offset: u32,
    pub(super) level: u32,
    statistics_mode: u32,
    huffman_table: *mut u8,
    dictionary: *mut u8,
    mini_block_size: u32,
    index: *mut u64,
    index_size_max: u32,
    index_size: u32,
    decompress_end: u8,
    ignored_bits: [u8; 2],
    pub(super) crc64_polynomial: u64,
    pub(super) crc64: u64,
    second_source: *mut u8,
    filter_parameters: [u32; 10],
    pub(super) first_index_min_value: u32,
    last_index_max_value: u32,
    pub(super) sum_value: u32,
    pub(super) numa_id: i32,
    /// Five pointers to the library's state behind the structure. All are non-null after `qpl_init_job`.
    pub(super) state: [*mut u8; 5],
    pub(super) path: u32,
}

const _: () = assert!(size_of::<RawJob>() == 240 && align_of::<RawJob>() == 8);
const _: () = assert!(offset_of!(RawJob, output) == 16 && offset_of!(RawJob, operation) == 32);
const _: () = assert!(offset_of!(RawJob, level) == 52 && offset_of!(RawJob, index) == 88);
const _: () = assert!(offset_of!(RawJob, decompress_end) == 104);
const _: () = assert!(offset_of!(RawJob, crc64_polynomial) == 112);
const _: () = assert!(offset_of!(RawJob, second_source) == 128);
const _: () = assert!(offset_of!(RawJob, first_index_min_value) == 176);
const _: () = assert!(offset_of!(RawJob, sum_value) == 184 && offset_of!(RawJob, numa_id) == 188);
const _: () = assert!(offset_of!(RawJob, state) == 192 && offset_of!(RawJob, path) == 232);

/// `qpl_path_t` (qpl/c_api/defs.h).
pub(super) mod path {
    pub(in super::super) const AUTO: u32 = 0;
    pub(in super::super) const HARDWARE: u32 = 1;
    pub(in super::super) const SOFTWARE: u32 = 2;
}

/// `qpl_operation` (qpl/c_api/defs.h).
pub(super) mod operation {
    pub(in super::super) const DECOMPRESS: u32 = 0;
    pub(in super::super) const COMPRESS: u32 = 1;
    pub(in super::super) const CRC64: u32 = 5;
}

/// `QPL_FLAG_*` (qpl/c_api/defs.h).
pub(super) mod flag {
    pub(in super::super) const FIRST: u32 = 0x0001;
    pub(in super::super) const LAST: u32 = 0x0002;
    pub(in super::super) const DYNAMIC_HUFFMAN: u32 = 0x2000;
    pub(in super::super) const OMIT_VERIFY: u32 = 0x4000;
    /// The flag for bit-reflected checksums, which process each byte from its low bit on. The header calls this
    /// big-endian.
    pub(in super::super) const CRC64_REFLECT: u32 = 0x0001_0000;
    pub(in super::super) const CRC64_INVERT: u32 = 0x0002_0000;
}

/// `qpl_compression_levels` (qpl/c_api/defs.h). Hardware has only the default level.
pub(super) mod level {
    pub(in super::super) const DEFAULT: u32 = 1;
    pub(in super::super) const HIGH: u32 = 3;
}

/// `qpl_status` (qpl/c_api/status.h). The codes 200 + n and 300 + n are the device's own error and status codes.
pub(super) mod status {
    pub(in super::super) const OK: u32 = 0;
    pub(in super::super) const BEING_PROCESSED: u32 = 1;
    pub(in super::super) const MORE_OUTPUT_NEEDED: u32 = 2;
    pub(in super::super) const MORE_INPUT_NEEDED: u32 = 3;
    pub(in super::super) const QUEUES_BUSY: u32 = 5;
    pub(in super::super) const NOT_SUPPORTED_BY_QUEUE: u32 = 8;
    pub(in super::super) const INVALID_DEFLATE: u32 = 100;
    pub(in super::super) const BIG_HEADER: u32 = 201;
    pub(in super::super) const BAD_DISTANCE: u32 = 217;
    pub(in super::super) const REFERENCE_BEFORE_START: u32 = 218;
    pub(in super::super) const OUTPUT_IS_SHORT: u32 = 225;
    pub(in super::super) const VERIFY_FAILED: u32 = 229;
    pub(in super::super) const TOO_MANY_LENGTH_CODES: u32 = 235;
    pub(in super::super) const TOO_MANY_DISTANCE_CODES: u32 = 236;
    pub(in super::super) const PAGE_FAULT_READ: u32 = 303;
    pub(in super::super) const PAGE_REQUEST_READ: u32 = 304;
    pub(in super::super) const TRANSFER_TOO_LARGE: u32 = 319;
    pub(in super::super) const HARDWARE_TIMEOUT: u32 = 334;
    pub(in super::super) const PAGE_REQUEST_TIMEOUT: u32 = 335;
    pub(in super::super) const WATCHDOG: u32 = 336;
    pub(in super::super) const PAGE_FAULT_WRITE: u32 = 431;
    pub(in super::super) const PAGE_REQUEST_WRITE: u32 = 432;
    pub(in super::super) const TRANSLATION_WRITE: u32 = 454;
    pub(in super::super) const NO_HARDWARE: u32 = 500;
    pub(in super::super) const NO_ACCEL_CONFIG: u32 = 501;
    pub(in super::super) const ACCEL_CONFIG_FAILED: u32 = 502;
    pub(in super::super) const NO_WORK_QUEUES: u32 = 503;
}
