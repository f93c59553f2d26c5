//! Takes samples of threads by signals. This is the part that runs in signal handlers.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{self, c_int, c_void, siginfo_t, ucontext_t};
use nix::sys::signal::{SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair, sockopt};
use zeroize::Zeroize;

/// The registers of a thread, and the top of its stack.
pub(super) struct Sample<'s> {
    pub(super) registers: Registers,
    /// The bytes from the stack pointer on.
    pub(super) stack: &'s [u8],
}

/// The registers that are needed to find callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) instruction: u64,
    pub(super) stack: u64,
    pub(super) frame: u64,
    /// The return address of a function that calls no other, where the processor has such a register.
    pub(super) link: u64,
}

/// Timers for the threads of this process. Dropping it ends the samples.
pub(super) struct Sampler {
    receiver: &'static OwnedFd,
    period: Duration,
    /// The timer of each thread, by the thread's id. None is kept for a thread that ended before it had one.
    timers: HashMap<i32, Option<Timer>>,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Installs the handler and starts a timer for every thread but this one.
    pub(super) fn start(period: Duration) -> io::Result<Self> {
        let (sender, receiver) = sockets()?;
        let mut sampler =
            Self { receiver, period, timers: HashMap::new(), buffer: vec![0; MESSAGE_MAX] };
        // What an earlier profile left behind.
        while sampler.next(Duration::ZERO)?.is_some() {}
        LOST.store(0, Ordering::Relaxed);
        install()?;
        sampler.timers.insert(rustix::thread::gettid().as_raw_nonzero().get(), None);
        SENDER.store(sender.as_raw_fd(), Ordering::Release);
        sampler.add_new_threads();
        if sampler.timers.values().all(Option::is_none) {
            return Err(io::Error::other("the system refuses timers for threads"));
        }
        Ok(sampler)
    }

    /// Starts timers for threads that have none.
    pub(super) fn add_new_threads(&mut self) {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return };
        let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
        for id in ids {
            self.timers.entry(id).or_insert_with(|| timer(id, self.period).ok());
        }
    }

    /// Ends the samples. Those already taken can still be read.
    pub(super) fn stop(&mut self) {
        SENDER.store(NOBODY, Ordering::Release);
        self.timers.clear();
    }

    /// Returns the next sample, or none if there is none within `wait`.
    pub(super) fn next(&mut self, wait: Duration) -> io::Result<Option<Sample<'_>>> {
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let mut ready = [PollFd::new(self.receiver, PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&wait)), Ok(1)) {
            return Ok(None);
        }
        let (length, _) = recv(self.receiver, &mut self.buffer[..], RecvFlags::DONTWAIT)?;
        let Some((head, stack)) = self.buffer[..length].split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let register = |at: usize| {
            let bytes = head[at * 8..].first_chunk().copied().unwrap_or_default();
            u64::from_ne_bytes(bytes)
        };
        let registers = Registers {
            instruction: register(0),
            stack: register(1),
            frame: register(2),
            link: register(3),
        };
        Ok(Some(Sample { registers, stack }))
    }

    /// Returns the number of samples that had no room in the socket.
    pub(super) fn lost(&self) -> u64 {
        LOST.load(Ordering::Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop();
        // Stacks may have had keys and values.
        self.buffer.zeroize();
    }
}

/// Returns the sockets through which samples come. They stay open, because a handler may still write to one when a
/// profile has ended, and its number must not belong to another file then.
fn sockets() -> io::Result<(&'static OwnedFd, &'static OwnedFd)> {
    static SOCKETS: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();
    if SOCKETS.get().is_none() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // The system may grant less.
        let _ = sockopt::set_socket_send_buffer_size(pair.0.as_fd(), SOCKET_BYTES);
        // Profiles are taken one at a time, so nobody else has set it.
        let _ = SOCKETS.set(pair);
    }
    let (sender, receiver) = SOCKETS.get().ok_or(io::ErrorKind::NotConnected)?;
    Ok((sender, receiver))
}

/// Installs the handler. It stays, because a signal may come after the timers are gone.
fn install() -> io::Result<()> {
    let flags = SaFlags::SA_RESTART | SaFlags::SA_SIGINFO;
    let action = SigAction::new(SigHandler::SigAction(handle), flags, SigSet::all());
    // SAFETY: `handle` does only what is allowed in a handler, as it says, and nothing else in this program uses the
    // signal.
    unsafe { nix::sys::signal::sigaction(Signal::SIGPROF, &action) }?;
    Ok(())
}

fn timer(thread: i32, period: Duration) -> nix::Result<Timer> {
    // The kernel's number for the clock of a thread's CPU time: the id, inverted, and the kind of the clock.
    let clock = ClockId::from_raw((!thread << 3) | THREAD_CPU_TIME);
    let notify =
        SigevNotify::SigevThreadId { signal: Signal::SIGPROF, thread_id: thread, si_value: 0 };
    let mut timer = Timer::new(clock, SigEvent::new(notify))?;
    timer.set(Expiration::Interval(period.into()), TimerSetTimeFlags::empty())?;
    Ok(timer)
}

/// Sends a sample of the interrupted thread. It takes no lock and no memory, calls only `sendmsg`, which handlers may
/// call, and leaves `errno` as it was.
extern "C" fn handle(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    let sender = SENDER.load(Ordering::Acquire);
    if sender == NOBODY {
        return;
    }
    let errno = Errno::last_raw();
    // SAFETY: the kernel passes the interrupted context to handlers with SA_SIGINFO.
    let registers = registers(unsafe { &*context.cast::<ucontext_t>() });
    send(sender, registers);
    Errno::set_raw(errno);
}

fn send(sender: c_int, registers: Registers) {
    let Registers { instruction, stack, frame, link } = registers;
    let mut head = [instruction, stack, frame, link];
    // The end of the stack is unknown here. The kernel refuses a message that goes beyond it, and a shorter one is
    // tried.
    let mut bytes = STACK_BYTES_MAX;
    while bytes >= STACK_BYTES_MIN {
        let mut parts = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD_BYTES },
            libc::iovec { iov_base: stack as *mut c_void, iov_len: bytes },
        ];
        // SAFETY: all fields of the message may be zero.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message and its parts live as long as the call. The kernel checks whether the memory at `stack`
        // can be read, and fails if it cannot.
        if unsafe { libc::sendmsg(sender, &raw const message, flags) } >= 0 {
            return;
        }
        if Errno::last() != Errno::EFAULT {
            break;
        }
        bytes /= 2;
    }
    LOST.fetch_add(1, Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &ucontext_t) -> Registers {
    let register = |which: c_int| context.uc_mcontext.gregs[which as usize] as u64;
    Registers {
        instruction: register(libc::REG_RIP),
        stack: register(libc::REG_RSP),
        frame: register(libc::REG_RBP),
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        instruction: machine.pc,
        stack: machine.sp,
        frame: machine.regs[29],
        link: machine.regs[30],
    }
}

/// The socket to which handlers write, or [`NOBODY`].
static SENDER: AtomicI32 = AtomicI32::new(NOBODY);
const NOBODY: c_int = -1;

/// The number of samples that could not be sent.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The bytes of the registers in a message.
const HEAD_BYTES: usize = 32;

/// The most bytes of a stack in a sample. What calls from further away is left out.
const STACK_BYTES_MAX: usize = 32 << 10;

/// The fewest bytes of a stack that are tried. A stack has less only in its first functions.
const STACK_BYTES_MIN: usize = 128;

const MESSAGE_MAX: usize = HEAD_BYTES + STACK_BYTES_MAX;

/// The memory for samples that are not yet read. Systems usually grant 208 KiB, which is six samples of full length.
const SOCKET_BYTES: usize = 2 << 20;

/// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED` of the kernel.
const THREAD_CPU_TIME: c_int = 4 | 2;
