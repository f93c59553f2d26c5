//! The words that cores and engine exchange: six commands of 64 bits, four interfaces, and
//! completions with a code. This module does not decide what a command does.

use thiserror::Error;

/// The start of a buffer in the engine's address space. The low four bits are zero and leave space
/// for the opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// Makes an address. Returns none if the number is not a multiple of [`Address::ALIGNMENT`].
    pub const fn new(at: u64) -> Option<Self> {
        if at.is_multiple_of(Self::ALIGNMENT) { Some(Self(at)) } else { None }
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The alignment of buffers (bytes). It leaves four bits for an opcode below the address.
    pub const ALIGNMENT: u64 = 16;
}

/// A core's request to the engine. Its word holds an address unchanged, or a length shifted left by
/// four. The low four bits are the opcode. The opcodes were chosen here: \[Arcalis\] names the
/// commands and not their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Opcode 1: names the buffer that holds a packet, and arms the RxEngine.
    SendNetBuf(Address),
    /// Opcode 2: gives the packet's length (bytes), and starts the RxEngine on the packet.
    SendNetLen(u64),
    /// Opcode 3, a load: the application offers this buffer for a request. The load completes when
    /// a request has arrived.
    AppReadyFlag(Address),
    /// Opcode 4: names the buffer that holds a response, and arms the TxEngine.
    SendAppBuf(Address),
    /// Opcode 5: gives the response's length (bytes), and starts the TxEngine on the response.
    SendAppResp(u64),
    /// Opcode 6, a load: the network offers this buffer for a frame. The load completes when a
    /// frame is ready.
    DpdkNetFlag(Address),
}

impl Command {
    /// Returns the 64-bit word of the command. A word holds 60 bits of a length, and no buffer is longer.
    pub const fn word(self) -> u64 {
        match self {
            Self::SendNetBuf(at) => at.0 | 1,
            Self::SendNetLen(length) => length << 4 | 2,
            Self::AppReadyFlag(at) => at.0 | 3,
            Self::SendAppBuf(at) => at.0 | 4,
            Self::SendAppResp(length) => length << 4 | 5,
            Self::DpdkNetFlag(at) => at.0 | 6,
        }
    }

    /// Returns the command of a word. Returns none for opcodes other than 1 to 6.
    pub const fn decode(word: u64) -> Option<Self> {
        let (at, length) = (Address(word & !15), word >> 4);
        match word & 15 {
            1 => Some(Self::SendNetBuf(at)),
            2 => Some(Self::SendNetLen(length)),
            3 => Some(Self::AppReadyFlag(at)),
            4 => Some(Self::SendAppBuf(at)),
            5 => Some(Self::SendAppResp(length)),
            6 => Some(Self::DpdkNetFlag(at)),
            _ => None,
        }
    }

    /// Returns the interface at which the command is valid. At another interface it is a bad
    /// opcode.
    pub const fn interface(self) -> Interface {
        match self {
            Self::SendNetBuf(_) | Self::SendNetLen(_) => Interface::NetRecv,
            Self::AppReadyFlag(_) => Interface::AppRecv,
            Self::SendAppBuf(_) | Self::SendAppResp(_) => Interface::AppResp,
            Self::DpdkNetFlag(_) => Interface::NetResp,
        }
    }
}

/// The four interfaces between cores and engine. Each interface has a buffer of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// 1: packets from the network core.
    NetRecv = 1,
    /// 2: requests to the application core.
    AppRecv = 2,
    /// 3: responses from the application core.
    AppResp = 3,
    /// 4: frames to the network core.
    NetResp = 4,
}

impl Interface {
    /// Returns the interface at which the core of this interface issues its reads. Errors of the
    /// core's writes are also reported at that interface.
    pub const fn read(self) -> Self {
        match self {
            Self::NetRecv | Self::NetResp => Self::NetResp,
            Self::AppRecv | Self::AppResp => Self::AppRecv,
        }
    }
}

/// The result of an operation, as a read reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Code {
    /// The operation is done.
    #[error("done")]
    Done = 0,
    /// No buffer is mapped at an address, or the mapped buffer is shorter than the length. Map the
    /// buffer and issue the command again.
    #[error("the address is not mapped")]
    Unmapped = 1,
    /// The word has no valid opcode, or the opcode of another interface.
    #[error("no such opcode on this interface")]
    BadOpcode = 2,
    /// A length arrived, but no buffer was named before it.
    #[error("a length without a buffer")]
    Unarmed = 3,
    /// The message ends before a part that it announces.
    #[error("the message is truncated")]
    Truncated = 4,
    /// The bytes are not a message of this protocol, or not a record of these functions.
    #[error("the message is malformed")]
    Malformed = 5,
    /// The service has no such function.
    #[error("unknown function")]
    UnknownFunction = 6,
    /// A field is longer than the limit, or the message does not fit into its buffer.
    #[error("a field or the message is too large")]
    Oversized = 7,
    /// The queue is full. Issue the command again later.
    #[error("the queue is full")]
    QueueFull = 8,
}

impl Code {
    /// Returns the code with this number, if there is one.
    pub const fn numbered(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Done,
            1 => Self::Unmapped,
            2 => Self::BadOpcode,
            3 => Self::Unarmed,
            4 => Self::Truncated,
            5 => Self::Malformed,
            6 => Self::UnknownFunction,
            7 => Self::Oversized,
            8 => Self::QueueFull,
            _ => return None,
        })
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The result. With any code except [`Code::Done`] the content of the buffer has no meaning.
    pub code: Code,
    /// The number of bytes in the buffer.
    pub length: usize,
    /// The buffer of the read. It belongs to the reader again.
    pub buffer: Address,
    /// The subject of the completion. At the network interface it is the packet's buffer. At the
    /// application interface it is the request's buffer, or after an error the buffer of the
    /// refused response. For a bad opcode it is the word without the opcode.
    pub about: Address,
}

/// The interface does not accept a word now, because too many completions are waiting. Take
/// completions, then issue the word again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the interface takes no command until completions are taken")]
pub struct Stalled;
