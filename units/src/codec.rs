//! The table of codecs: their names and their numbers in stored frames, in lanes and over gRPC. The engines that
//! implement a codec belong to `device`.

/// A compression format. Any engine of a codec reads the streams of another engine of that codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Raw deflate (RFC 1951) without a zlib or gzip wrapper.
    Deflate,
    /// A zstd frame (RFC 8878) without a checksum and without a content size.
    Zstd,
    /// An lz4 block, without an lz4 frame.
    Lz4,
    /// A zstd frame (RFC 8878) without its magic number, with a content size and without a checksum. It refers to a
    /// dictionary, so a job with this codec carries the dictionary ([`Codec::needs_dictionary`]).
    ZstdDictionary,
}

impl Codec {
    /// Every codec whose streams can be read without a dictionary, in the order of its index.
    pub const ALL: [Codec; 3] = [Codec::Deflate, Codec::Zstd, Codec::Lz4];

    /// The names of [`Codec::ALL`].
    pub const NAMES: [&str; Codec::ALL.len()] = names();

    /// Returns whether streams of this codec can only be written and read with a dictionary. Configurations, lanes and
    /// services offer only codecs that need none.
    pub const fn needs_dictionary(self) -> bool {
        matches!(self, Codec::ZstdDictionary)
    }

    /// Returns the name in configuration and metrics.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the number in stored frames (docs/format.md) and in the entries of lanes. Stored values have these
    /// numbers, so a number is never given to another codec.
    pub const fn frame_number(self) -> u8 {
        self.row().1
    }

    /// Returns the number over gRPC (`Codec` in proto/rebate/v1/cache.proto).
    pub const fn grpc_number(self) -> i32 {
        self.row().2
    }

    /// Returns the codec with this number in frames.
    pub fn from_frame_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.frame_number() == number)
    }

    /// Returns the codec with this number over gRPC.
    pub fn from_grpc_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.grpc_number() == number)
    }

    /// Returns the codec with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Returns the name, the number in frames, and the number over gRPC. Frames also use 0 and 4, and gRPC 0 to 2, for
    /// values without a codec. The numbers of a codec that needs a dictionary are reserved: frames state it by their
    /// first byte, and no service accepts it.
    const fn row(self) -> (&'static str, u8, i32) {
        match self {
            Codec::Deflate => ("deflate", 1, 3),
            Codec::Zstd => ("zstd", 2, 4),
            Codec::Lz4 => ("lz4", 3, 5),
            Codec::ZstdDictionary => ("zstd-dictionary", 5, 6),
        }
    }
}

const fn names() -> [&'static str; Codec::ALL.len()] {
    let mut names = [""; Codec::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Codec::ALL[at].name();
        at += 1;
    }
    names
}
