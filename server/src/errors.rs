//! Counts the errors that clients get, by command, by kind, and by the server of the ring that caused them.
//! `count` counts an error answer when a session writes it, so the counts are those that clients see.

use crate::backend::Failure;
use crate::counters::Counter;
use crate::members::Member;
use crate::upstream::LinkFault;

/// The command whose answer is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FailedCommand {
    Get,
    Gat,
    Set,
    Delete,
    Touch,
    Incr,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaArithmetic,
    MetaDebug,
    FlushAll,
    #[default]
    Other,
}

impl FailedCommand {
    /// Every command, in the order of its index.
    pub const ALL: [FailedCommand; 13] = [
        FailedCommand::Get,
        FailedCommand::Gat,
        FailedCommand::Set,
        FailedCommand::Delete,
        FailedCommand::Touch,
        FailedCommand::Incr,
        FailedCommand::MetaGet,
        FailedCommand::MetaSet,
        FailedCommand::MetaDelete,
        FailedCommand::MetaArithmetic,
        FailedCommand::MetaDebug,
        FailedCommand::FlushAll,
        FailedCommand::Other,
    ];

    /// Returns the name that metrics use. `set` stands for all storage commands, and `incr` also for `decr`.
    pub const fn name(self) -> &'static str {
        match self {
            FailedCommand::Get => "get",
            FailedCommand::Gat => "gat",
            FailedCommand::Set => "set",
            FailedCommand::Delete => "delete",
            FailedCommand::Touch => "touch",
            FailedCommand::Incr => "incr",
            FailedCommand::MetaGet => "mg",
            FailedCommand::MetaSet => "ms",
            FailedCommand::MetaDelete => "md",
            FailedCommand::MetaArithmetic => "ma",
            FailedCommand::MetaDebug => "me",
            FailedCommand::FlushAll => "flush_all",
            FailedCommand::Other => "other",
        }
    }
}

/// The reason for an error answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorKind {
    Down,
    Lost,
    Timeout,
    Nonsense,
    TooManyClients,
    Refused,
    Out,
    Answered,
    NoMemory,
    Contended,
    Client,
}

impl ErrorKind {
    /// Every kind, in the order of its index.
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::Down,
        ErrorKind::Lost,
        ErrorKind::Timeout,
        ErrorKind::Nonsense,
        ErrorKind::TooManyClients,
        ErrorKind::Refused,
        ErrorKind::Out,
        ErrorKind::Answered,
        ErrorKind::NoMemory,
        ErrorKind::Contended,
        ErrorKind::Client,
    ];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Down => "down",
            ErrorKind::Lost => "lost",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Nonsense => "nonsense",
            ErrorKind::TooManyClients => "too_many_clients",
            ErrorKind::Refused => "refused",
            ErrorKind::Out => "out",
            ErrorKind::Answered => "answered",
            ErrorKind::NoMemory => "no_memory",
            ErrorKind::Contended => "contended",
            ErrorKind::Client => "client",
        }
    }

    fn of_fault(fault: &LinkFault) -> Self {
        match fault {
            LinkFault::Down(_) => ErrorKind::Down,
            LinkFault::Lost(_) => ErrorKind::Lost,
            LinkFault::TimedOut(_) => ErrorKind::Timeout,
            LinkFault::Malformed(_) => ErrorKind::Nonsense,
            LinkFault::TooManyClients => ErrorKind::TooManyClients,
            LinkFault::Refused(_) => ErrorKind::Refused,
            LinkFault::Out => ErrorKind::Out,
        }
    }
}

/// Counts by command and kind.
#[derive(Debug, Default)]
pub struct ErrorCounts([[Counter; ErrorKind::ALL.len()]; FailedCommand::ALL.len()]);

impl ErrorCounts {
    /// Counts one error answer.
    pub fn up(&self, command: FailedCommand, kind: ErrorKind) {
        self.0[command as usize][kind as usize].up();
    }

    /// Returns the count of a command and kind.
    pub fn read(&self, command: FailedCommand, kind: ErrorKind) -> u64 {
        self.0[command as usize][kind as usize].read()
    }
}

/// Counts the error answer of `command`: at the server that caused it, or else in `ours`.
#[cold]
pub(crate) fn count(ours: &ErrorCounts, command: FailedCommand, failure: &Failure) {
    let (kind, server) = cause(failure);
    server.map_or(ours, |server| &server.errors).up(command, kind);
}

fn cause(failure: &Failure) -> (ErrorKind, Option<&Member>) {
    match failure {
        Failure::Link(error) => (ErrorKind::of_fault(&error.fault), error.server.as_deref()),
        Failure::Line(line) => match &line.server {
            Some(server) => (ErrorKind::Answered, Some(server)),
            None => (ErrorKind::Contended, None),
        },
        Failure::OutOfMemory | Failure::OverBudget(_) => (ErrorKind::NoMemory, None),
    }
}
