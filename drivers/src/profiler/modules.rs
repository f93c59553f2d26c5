//! The program and its libraries: where this process has mapped them, and what their files say about unwinding.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Unwinder, UnwinderNative};
use object::{Object, ObjectSection, ObjectSegment, ReadCache};

/// An unwinder that owns the unwind tables.
pub(super) type TableUnwinder = UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>;

/// The executable mappings of this process, by their addresses.
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
}

/// One executable mapping of a file.
pub(super) struct Module {
    /// The path of the file as the kernel names it.
    pub(super) name: String,
    /// The addresses in this process.
    pub(super) mapped: Range<u64>,
    /// The bytes of the file before the mapping.
    pub(super) file_offset: u64,
    /// What is added to an address in the file to get one in this process.
    bias: u64,
    pub(super) image: Option<Image>,
}

/// The bytes of a module.
pub(super) enum Image {
    File(File),
    /// The kernel's library in every process, which has no file.
    Memory(Vec<u8>),
}

impl Modules {
    /// Finds the modules of this process.
    pub(super) fn of_this_process() -> io::Result<Self> {
        let mappings = std::fs::read_to_string("/proc/self/maps")?;
        let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let mut all: Vec<Module> = mappings.lines().filter_map(Module::parse).collect();
        for module in &mut all {
            module.image = Image::open(module, module.name == executable.to_string_lossy());
            module.bias = module.find_bias().unwrap_or(module.mapped.start);
        }
        all.sort_by_key(|module| module.mapped.start);
        Ok(Self { all })
    }

    /// Returns the index of the module that has the address.
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        let after = self.all.partition_point(|module| module.mapped.start <= address);
        let index = after.checked_sub(1)?;
        self.all[index].mapped.contains(&address).then_some(index)
    }

    /// Makes an unwinder for the stacks of this process.
    pub(super) fn unwinder(&self) -> TableUnwinder {
        let mut unwinder = UnwinderNative::new();
        for module in &self.all {
            let tables = module.image.as_ref().and_then(Image::unwind_tables).unwrap_or_default();
            let (name, mapped) = (module.name.clone(), module.mapped.clone());
            unwinder.add_module(framehop::Module::new(name, mapped, module.bias, tables));
        }
        unwinder
    }
}

impl Module {
    /// Reads a line of `/proc/self/maps`. Returns none if nothing in it runs or it belongs to no file.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (addresses, permissions, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let (begin, end) = addresses.split_once('-')?;
        let at = line.find(['/', '['])?;
        let name = line[at..].to_owned();
        let is_code = permissions.as_bytes().get(2) == Some(&b'x');
        (is_code && name != "[vsyscall]").then_some(())?;
        Some(Self {
            name,
            mapped: number(begin)?..number(end)?,
            file_offset: number(offset)?,
            bias: 0,
            image: None,
        })
    }

    fn find_bias(&self) -> Option<u64> {
        self.image.as_ref()?.read(|file| {
            let segment = file.segments().find(|segment| {
                let (begin, length) = segment.file_range();
                // Pages are mapped whole, so the mapping may begin before the segment.
                begin < self.file_offset + (self.mapped.end - self.mapped.start)
                    && self.file_offset < begin + length
                    && segment.permissions().executable()
            })?;
            let (begin, _) = segment.file_range();
            let address = (segment.address() + self.file_offset).checked_sub(begin)?;
            self.mapped.start.checked_sub(address)
        })
    }

    /// Returns the address in the file of an address in this process.
    pub(super) fn file_address(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// Returns whether the thread at this address was in the kernel: the instruction before is a system call, or the
    /// instruction itself, where the kernel will repeat the call.
    pub(super) fn is_in_kernel(&self, address: u64) -> bool {
        let at = address - self.mapped.start + self.file_offset;
        let call = SYSTEM_CALL.len();
        let mut bytes = [0; 2 * SYSTEM_CALL.len()];
        let read = match &self.image {
            Some(Image::File(file)) => {
                at >= call as u64 && file.read_exact_at(&mut bytes, at - call as u64).is_ok()
            }
            _ => false,
        };
        read && (bytes[..call] == SYSTEM_CALL || bytes[call..] == SYSTEM_CALL)
    }
}

impl Image {
    fn open(module: &Module, is_executable: bool) -> Option<Self> {
        if module.name == "[vdso]" {
            let length = (module.mapped.end - module.mapped.start) as usize;
            let mut bytes = vec![0; length];
            let memory = File::open("/proc/self/mem").ok()?;
            memory.read_exact_at(&mut bytes, module.mapped.start).ok()?;
            return Some(Self::Memory(bytes));
        }
        // An upgrade may have put another file at the path of the program that runs.
        let path = if is_executable { "/proc/self/exe" } else { &module.name };
        File::open(path).ok().map(Self::File)
    }

    /// Passes the parsed file on. Only the parts that are asked for are read.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Elf<'_>) -> Option<T>) -> Option<T> {
        let bytes: Box<dyn ReadAndSeek> = match self {
            Self::File(file) => Box::new(file.try_clone().ok()?),
            Self::Memory(bytes) => Box::new(Cursor::new(bytes.clone())),
        };
        let bytes = ReadCache::new(bytes);
        read(&object::File::parse(&bytes).ok()?)
    }

    fn unwind_tables(&self) -> Option<ExplicitModuleSectionInfo<Vec<u8>>> {
        self.read(|file| {
            let section = |name| {
                let section = file.section_by_name(name)?;
                let range = section.address()..section.address() + section.size();
                Some((range, section.data().ok()?.to_vec()))
            };
            let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
            let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
            Some(ExplicitModuleSectionInfo {
                eh_frame_svma,
                eh_frame,
                eh_frame_hdr_svma,
                eh_frame_hdr,
                ..ExplicitModuleSectionInfo::default()
            })
        })
    }
}

/// A file of the system's format, read piece by piece.
pub(super) type Elf<'b> = object::File<'b, &'b ReadCache<Box<dyn ReadAndSeek>>>;

/// The source of such a file.
pub(super) trait ReadAndSeek: Read + Seek {}

impl<R: Read + Seek> ReadAndSeek for R {}

/// The instruction with which a thread enters the kernel.
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
