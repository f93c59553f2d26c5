//! The words that cores and engine exchange: six commands of 64 bits, four interfaces, completions with a code. It
//! decides nothing about what a command does.

use thiserror::Error;

/// Where a buffer begins, in the engine's address space; its low four bits are free for the opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// An address, if it is a multiple of [`Address::ALIGNMENT`].
    pub const fn new(at: u64) -> Option<Self> {
        if at.is_multiple_of(Self::ALIGNMENT) { Some(Self(at)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Buffers are aligned to this many bytes, so that an opcode fits below their address.
    pub const ALIGNMENT: u64 = 16;
}

/// What a core asks of the engine. In its word an address stands as it is and a length is shifted left by four; the
/// low four bits are the opcode. The opcodes are ours: the source names the commands and not their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// 1: the buffer in which a packet lies. Arms the RxEngine.
    SendNetBuf(Address),
    /// 2: the packet's bytes. Starts the RxEngine on it.
    SendNetLen(u64),
    /// 3, a load: the application takes a request into this buffer. Completes when one is there.
    AppReadyFlag(Address),
    /// 4: the buffer in which a response lies. Arms the TxEngine.
    SendAppBuf(Address),
    /// 5: the response's bytes. Starts the TxEngine on it.
    SendAppResp(u64),
    /// 6, a load: the network takes a frame into this buffer. Completes when one is there.
    DpdkNetFlag(Address),
}

impl Command {
    /// The word. Of a length only 60 bits are kept; no buffer is that long.
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

    /// What a word says; opcodes other than 1 to 6 say nothing.
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

    /// Where it is issued; anywhere else it is a bad opcode.
    pub const fn interface(self) -> Interface {
        match self {
            Self::SendNetBuf(_) | Self::SendNetLen(_) => Interface::NetRecv,
            Self::AppReadyFlag(_) => Interface::AppRecv,
            Self::SendAppBuf(_) | Self::SendAppResp(_) => Interface::AppResp,
            Self::DpdkNetFlag(_) => Interface::NetResp,
        }
    }
}

/// The four ways between cores and engine, each with a buffer of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// 1: packets, from the network core.
    NetRecv = 1,
    /// 2: requests, to the application core.
    AppRecv = 2,
    /// 3: responses, from the application core.
    AppResp = 3,
    /// 4: frames, to the network core.
    NetResp = 4,
}

impl Interface {
    /// Where the core that uses this interface reads, errors of what it wrote included.
    pub const fn read(self) -> Self {
        match self {
            Self::NetRecv | Self::NetResp => Self::NetResp,
            Self::AppRecv | Self::AppResp => Self::AppRecv,
        }
    }
}

/// What became of something, as a read tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Code {
    /// It is done.
    #[error("done")]
    Done = 0,
    /// Nothing is mapped at an address, or not as much as its length says: map it and issue the command again.
    #[error("the address is not mapped")]
    Unmapped = 1,
    /// The word's opcode is none, or not one of this interface.
    #[error("no such opcode on this interface")]
    BadOpcode = 2,
    /// A length came without the buffer before it.
    #[error("a length without a buffer")]
    Unarmed = 3,
    /// The message ends before what it announces.
    #[error("the message is truncated")]
    Truncated = 4,
    /// The bytes are no message of this protocol, or no record of these functions.
    #[error("the message is malformed")]
    Malformed = 5,
    /// The service has no such function.
    #[error("unknown function")]
    UnknownFunction = 6,
    /// A field is longer than the limit, or the whole does not fit its buffer.
    #[error("a field or the message is too large")]
    Oversized = 7,
    /// As much waits already as may: issue the command again later.
    #[error("the queue is full")]
    QueueFull = 8,
}

impl Code {
    /// The code with this number.
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

/// What a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What became of it. With any code but [`Code::Done`] nothing of worth is in the buffer.
    pub code: Code,
    /// Bytes in the buffer.
    pub length: usize,
    /// The buffer that the read brought: its reader's own again.
    pub buffer: Address,
    /// What this answers. At the network: the packet's buffer. At the application: the request's own, or with an error
    /// the buffer of the refused response; for a bad opcode the word without it.
    pub about: Address,
}

/// The interface takes no word now: too much waits to be taken from its side. Take completions, then issue it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the interface takes no command until completions are taken")]
pub struct Stalled;
