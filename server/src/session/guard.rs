//! What a session does before it serves a command of a client whose rights are limited: the login of memcached's text
//! protocol, the check of rights, and the wait for its quota. Sessions of clients without limits never come here.

use std::collections::VecDeque;
use std::rc::Rc;

use protocol::command::Command;
use protocol::{Parse, Refusal};

use super::Session;
use super::dispatch::Step;
use super::pipeline::Pending;
use crate::access::{
    Admission, Client, Denial, Rights, command_name, first_key, for_each_key, is_administrative,
    needed,
};

impl Session {
    /// Checks the next command of `input`, which was `parsed`. Returns none if the session may serve it, and otherwise
    /// what was done instead.
    pub(super) async fn guard<'a>(
        &mut self,
        input: &'a [u8],
        parsed: &Parse<'a>,
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Option<Step> {
        let client = Rc::clone(self.client.as_ref()?);
        if client.must_log_in() {
            self.settle_all(pending).await;
            return Some(self.log_in(&client, input).await);
        }
        self.login_answers = 0;
        let (refusal, consumed) = match parsed {
            Parse::Incomplete => return None,
            Parse::Refused { refusal, consumed } => {
                client.spend_bytes(consumed + refusal.swallow_bytes as usize);
                let refusal = match self.has_quota(&client, pending).await {
                    true => self.may_refuse(&client, refusal)?,
                    false => Refusal { reply: OVER_QUOTA, unlink: None, ..refusal.clone() },
                };
                (refusal, *consumed)
            }
            Parse::Command { command, consumed } => {
                let checked = check(&client, command);
                // A refused command counts too, because it costs as much as another.
                client.spend_bytes(consumed + command.body_bytes().unwrap_or(0));
                match (self.has_quota(&client, pending).await, checked) {
                    (true, Ok(())) => return None,
                    (false, _) => (over_quota(command), *consumed),
                    (true, Err(denial)) => (denied(command, denial), *consumed),
                }
            }
        };
        self.settle_all(pending).await;
        self.yield_periodically().await;
        Some(self.answer_refusal(refusal, consumed, input).await)
    }

    /// Returns another refusal of a line if this one would drop an item that the client may not change.
    fn may_refuse<'a>(&self, client: &Client, refusal: &Refusal<'a>) -> Option<Refusal<'a>> {
        let key = refusal.unlink.as_ref()?;
        let keys = |visit: &mut dyn FnMut(&[u8]) -> bool| visit(key);
        let denial = client.check("set", Rights::WRITE, keys).err()?;
        Some(Refusal { reply: line(denial), unlink: None, ..refusal.clone() })
    }

    /// Waits until the client's quota allows a request. Returns false if the client gets an error instead.
    pub(super) async fn has_quota(
        &mut self,
        client: &Client,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> bool {
        match client.admit() {
            Admission::Now => true,
            Admission::OverQuota => false,
            Admission::After(wait) => {
                self.settle_all(pending).await;
                if self.flush_or_close().await {
                    tokio::time::sleep(wait).await;
                }
                true
            }
        }
    }

    /// Serves a client that may do nothing yet, as memcached does with `-Y`: a set of `USER PASSWORD` logs in, and
    /// everything else is refused.
    async fn log_in(&mut self, client: &Client, input: &[u8]) -> Step {
        self.yield_periodically().await;
        if input.len() < 2 {
            return Step::Incomplete;
        }
        let Some(end) = memchr::memchr(b'\n', input) else {
            self.closing = input.len() > LOGIN_LINE_BYTES_MAX;
            return if self.closing { Step::Consumed(input.len()) } else { Step::Incomplete };
        };
        let body_at = end + 1;
        let Some(body_bytes) = login_bytes(&input[..end]) else {
            let word = input[..end].split(|byte| byte.is_ascii_whitespace()).next();
            client.deny_unauthenticated(known_word(word.unwrap_or_default()));
            self.answer_login(UNAUTHENTICATED).await;
            return Step::Consumed(body_at);
        };
        if body_bytes > LOGIN_BYTES_MAX {
            // memcached closes the connection too, when its read buffer is full.
            self.closing = true;
            return Step::Consumed(input.len());
        }
        let Some(body) = input.get(body_at..body_at + body_bytes + 2) else {
            return Step::Incomplete;
        };
        let reply = match body.strip_suffix(b"\r\n") {
            None => BAD_TERMINATION,
            Some(body) => {
                let mut words = words(body);
                match (words.next(), words.next()) {
                    (Some(user), Some(password)) => match client.authenticate(user, password).await
                    {
                        true => b"STORED\r\n",
                        false => WRONG_PASSWORD,
                    },
                    _ => BAD_TOKEN,
                }
            }
        };
        self.answer_login(reply).await;
        Step::Consumed(body_at + body_bytes + 2)
    }

    /// Answers a client that is not logged in. As in memcached, only the last of several answers at once is sent.
    async fn answer_login(&mut self, reply: &[u8]) {
        if self.out.is_empty() || self.login_answers == 0 {
            // What is there are answers of commands that were served before the rules changed.
            self.login_answers = 0;
        } else if self.login_answers > self.context.requests_per_turn {
            // In memcached a connection's turn ends here. It counts the first command of a turn only once.
            self.login_answers = 1;
            self.flush_or_close().await;
        } else {
            self.out.clear();
        }
        self.login_answers += 1;
        self.out.text().extend_from_slice(reply);
    }

    /// Checks a command in memory.
    pub(super) fn check_rights(&self, command: &Command<'_>) -> Result<(), Denial> {
        self.client.as_ref().map_or(Ok(()), |client| check(client, command))
    }

    /// Checks whether the refusal of a command in memory may drop the item that it names.
    pub(super) fn check_refusal(&self, refusal: &Refusal<'_>) -> Result<(), Denial> {
        match (&self.client, &refusal.unlink) {
            (Some(client), Some(key)) => {
                let keys = |visit: &mut dyn FnMut(&[u8]) -> bool| visit(key);
                client.check("set", Rights::WRITE, keys)
            }
            _ => Ok(()),
        }
    }

    /// Logs an administrative command.
    #[cold]
    pub(super) fn audit(&self, command: &Command<'_>) {
        if !is_administrative(command) {
            return;
        }
        let (name, key) = (command_name(command), first_key(command));
        if let Some(client) = &self.client {
            return client.log_allowed(name, &key);
        }
        let origin = self.origin();
        self.context.audit_anonymous(&origin, name);
    }
}

fn check(client: &Client, command: &Command<'_>) -> Result<(), Denial> {
    let keys = |visit: &mut dyn FnMut(&[u8]) -> bool| for_each_key(command, visit);
    client.check(command_name(command), needed(command), keys)
}

fn denied(command: &Command<'_>, denial: Denial) -> Refusal<'static> {
    refusal(command, line(denial))
}

fn over_quota(command: &Command<'_>) -> Refusal<'static> {
    refusal(command, OVER_QUOTA)
}

/// Refuses a command with its value. Without an answer to expect, the client would take it for another's.
fn refusal(command: &Command<'_>, reply: &'static [u8]) -> Refusal<'static> {
    let silent = match command {
        Command::Store(store) => store.noreply,
        Command::Delete { noreply, .. }
        | Command::Touch { noreply, .. }
        | Command::FlushAll { noreply, .. }
        | Command::Verbosity { noreply, .. } => *noreply,
        Command::Arithmetic(arithmetic) => arithmetic.noreply,
        Command::Admin(admin) => admin.noreply,
        _ => false,
    };
    let swallow_bytes = command.body_bytes().unwrap_or(0) as u64;
    Refusal { silent, swallow_bytes, ..Refusal::line(reply) }
}

const fn line(denial: Denial) -> &'static [u8] {
    match denial {
        Denial::Unauthenticated => UNAUTHENTICATED,
        Denial::Rights(_) => b"CLIENT_ERROR permission denied\r\n",
        Denial::Key => b"CLIENT_ERROR permission denied for this key\r\n",
    }
}

/// Returns the length of the value of a login line (bytes). Returns none if the line is not a login. The line is read
/// as in memcached: a zero byte ends it, the key, flags and expiry may be anything, and further words are ignored.
fn login_bytes(line: &[u8]) -> Option<usize> {
    let mut words = words(line);
    if words.next()? != b"set" {
        return None;
    }
    let number = words.nth(3)?;
    // As `strtoul` does, this skips white space in front and takes a sign.
    let number = number.trim_ascii_start();
    let digits = number.strip_prefix(b"+").unwrap_or(number);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let rest = digits[end..].first();
    if end == 0 || rest.is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    let value = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse().ok();
    // A number beyond every range is also too long.
    Some(value(&digits[..end]).unwrap_or(usize::MAX))
}

/// Splits a line of memcached's login at blanks. A zero byte ends the line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = memchr::memchr(0, line).unwrap_or(line.len());
    line[..end].split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

/// Returns the word if it is the name of a command, for the log, which must not have a value that was sent as a line.
fn known_word(word: &[u8]) -> &'static str {
    protocol::command_word(word).unwrap_or("unknown")
}

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const WRONG_PASSWORD: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
const BAD_TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const OVER_QUOTA: &[u8] = b"SERVER_ERROR over quota\r\n";

/// The longest line without an end before a login (bytes), as in memcached.
const LOGIN_LINE_BYTES_MAX: usize = 2_048;

/// The longest value of a login (bytes). With its CR LF, it fills memcached's read buffer.
const LOGIN_BYTES_MAX: usize = (16 << 10) - 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_lines_are_read_as_in_memcached() {
        for (line, bytes) in [
            (&b"set a 0 0 12\r"[..], Some(12)),
            (b" set  a x y 012\t more\r", Some(12)),
            (b"set a 0 0 +12\r", Some(12)),
            (b"set a 0 0 12\0junk", Some(12)),
            (b"set a 0 0 99999999999999999999", Some(usize::MAX)),
            (b"set a 0 0 12x\r", None),
            (b"set a 0 0 -1\r", None),
            (b"set a 0 0 \r", None),
            (b"set a 0 12\r", None),
            (b"SET a 0 0 12\r", None),
            (b"add a 0 0 12\r", None),
            (b"", None),
        ] {
            assert_eq!(login_bytes(line), bytes, "{}", line.escape_ascii());
        }
    }
}
