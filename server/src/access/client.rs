//! The rights of one connection: who its client is, what it may do, and what it has used of its quota. Rights are
//! looked up once and again after a reload of the rules.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hint::black_box;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Access;
use super::audit::Event;
use super::origin::Origin;
use super::quota::{Allowance, Usage};
use super::rights::Rights;
use super::rules::{Grant, User};
use super::secret::Secret;
use crate::context::WorkerContext;

/// The client of a connection, if there are rules.
pub(crate) struct Client {
    context: Rc<WorkerContext>,
    origin: Origin,
    /// False for a call that logs in by itself on a connection of somebody else.
    is_connection: bool,
    generation: Cell<u64>,
    /// The user who has logged in, with the secret of that login.
    user: RefCell<Option<(Vec<u8>, Secret)>>,
    /// What the client may do: nothing if it is none.
    granted: RefCell<Option<Granted>>,
}

/// What an identity may do, on one connection.
struct Granted {
    grant: Arc<Grant>,
    allowance: Rc<Allowance>,
    /// True if the connection counts towards the identity's limit.
    is_counted: bool,
}

/// The reason why a client may not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The client is nobody that the rules name.
    Unauthenticated,
    /// Its role does not have these rights.
    Rights(Rights),
    /// Its role does not have this key.
    Key,
}

impl std::fmt::Display for Denial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denial::Unauthenticated => f.write_str("unauthenticated"),
            Denial::Rights(rights) => write!(f, "the role has no right to {rights}"),
            Denial::Key => f.write_str("the key is outside of the role's key_prefix"),
        }
    }
}

/// Whether a request may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Now,
    /// The client is over its quota and waits for this long.
    After(Duration),
    /// The client is over its quota and gets an error.
    OverQuota,
}

/// The identity has as many connections as it may have.
#[derive(Debug)]
pub(crate) struct NoPlace;

/// What the identities of one worker have taken of their quotas.
#[derive(Default)]
pub(crate) struct Allowances(RefCell<HashMap<usize, Weak<Allowance>>>);

impl Allowances {
    fn for_usage(&self, usage: &Arc<Usage>) -> Rc<Allowance> {
        // While the allowance lives, it keeps its usage, so that no other usage has this address.
        let address = Arc::as_ptr(usage) as usize;
        let mut known = self.0.borrow_mut();
        if let Some(allowance) = known.get(&address).and_then(Weak::upgrade) {
            return allowance;
        }
        known.retain(|_, allowance| allowance.strong_count() > 0);
        let allowance = Rc::new(Allowance::new(Arc::clone(usage)));
        known.insert(address, Rc::downgrade(&allowance));
        allowance
    }
}

impl Client {
    /// Returns the client of a new connection, or none if there are no rules. Only with rules it asks for the origin.
    ///
    /// # Errors
    /// Its identity has no place for another connection.
    pub(crate) fn enter(
        context: &Rc<WorkerContext>,
        origin: impl FnOnce() -> Origin,
    ) -> Result<Option<Rc<Self>>, NoPlace> {
        if !context.access.has_rules() {
            return Ok(None);
        }
        let client = Self::new(context, origin(), true);
        client.look_up();
        let is_full = client.count_connection().is_err();
        if is_full {
            context.counters.access.refused_connections.up();
            client.log_refusal("connect", b"", &"its identity has all of its connections");
            return Err(NoPlace);
        }
        Ok(Some(Rc::new(client)))
    }

    fn new(context: &Rc<WorkerContext>, origin: Origin, is_connection: bool) -> Self {
        Self {
            context: Rc::clone(context),
            origin,
            is_connection,
            generation: Cell::new(context.access.generation()),
            user: RefCell::default(),
            granted: RefCell::default(),
        }
    }

    fn access(&self) -> &Access {
        &self.context.access
    }

    /// Returns whether the client may do nothing before it logs in.
    pub(crate) fn must_log_in(&self) -> bool {
        self.follow_rules();
        self.granted.borrow().is_none()
    }

    /// Returns whether memcached's text protocol is the only one in which clients can log in.
    pub(crate) fn is_text_only(&self) -> bool {
        self.access().rules.read().is_text_only
    }

    /// Returns whether the client has logged in, and the rules still name it.
    pub(crate) fn is_logged_in(&self) -> bool {
        self.follow_rules();
        self.user.borrow().is_some()
    }

    /// Returns the name of the client's identity.
    pub(crate) fn identity(&self) -> String {
        let granted = self.granted.borrow();
        granted.as_ref().map_or_else(|| "nobody".to_owned(), |one| one.grant.identity.clone())
    }

    /// Returns the tenant of the client's jobs, if its role has one.
    pub(crate) fn tenant(&self) -> Option<u16> {
        self.granted.borrow().as_ref().and_then(|granted| granted.grant.role.tenant)
    }

    /// Checks that the client has rights, and may use each key that `for_each_key` passes to its argument.
    ///
    /// # Errors
    /// It may not. The denial is counted and logged, with the command and `key`.
    pub(crate) fn check(
        &self,
        command: &str,
        needed: Rights,
        keys: impl Fn(&mut dyn FnMut(&[u8]) -> bool) -> bool,
    ) -> Result<(), Denial> {
        self.follow_rules();
        let mut denied_key = Vec::new();
        let denial = match &*self.granted.borrow() {
            None => Denial::Unauthenticated,
            Some(Granted { grant, .. }) => {
                let role = &grant.role;
                let missing = needed.missing_in(role.rights);
                if missing != Rights::NONE {
                    keys(&mut |key| {
                        denied_key.extend_from_slice(key);
                        false
                    });
                    Denial::Rights(missing)
                } else {
                    let is_allowed = |key: &[u8]| {
                        let is_allowed = key.starts_with(&role.key_prefix);
                        if !is_allowed {
                            denied_key.extend_from_slice(key);
                        }
                        is_allowed
                    };
                    if role.key_prefix.is_empty() || keys(&mut { is_allowed }) {
                        return Ok(());
                    }
                    Denial::Key
                }
            }
        };
        self.deny(command, &denied_key, denial);
        Err(denial)
    }

    /// Returns whether the client has these rights, without counting or logging that it has not.
    pub(crate) fn may(&self, needed: Rights) -> bool {
        self.follow_rules();
        let granted = self.granted.borrow();
        granted
            .as_ref()
            .is_some_and(|granted| needed.missing_in(granted.grant.role.rights) == Rights::NONE)
    }

    /// Counts and logs a denial.
    #[cold]
    fn deny(&self, command: &str, key: &[u8], denial: Denial) {
        let counters = &self.context.counters.access;
        match denial {
            Denial::Unauthenticated => counters.refused_unauthenticated.up(),
            Denial::Rights(_) => counters.refused_rights.up(),
            Denial::Key => counters.refused_key.up(),
        }
        self.log_refusal(command, key, &denial);
    }

    /// Counts and logs that a client did something other than to log in, and has no rights.
    pub(crate) fn deny_unauthenticated(&self, command: &str) {
        self.deny(command, b"", Denial::Unauthenticated);
    }

    /// Decides whether the client's next request may begin, and counts it towards the quota if so.
    pub(crate) fn admit(&self) -> Admission {
        let granted = self.granted.borrow();
        let Some(Granted { grant, allowance, .. }) = &*granted else { return Admission::Now };
        let role = &grant.role;
        let now = || self.context.clock.now();
        let mut wait = Some(Duration::ZERO);
        if role.bytes_per_s.is_some() {
            wait = allowance.bytes_owed(now());
        }
        if let (Some(owed), Some(rate)) = (wait, role.requests_per_s) {
            wait = allowance.request(rate, now).map(|due| due.max(owed));
        }
        let counters = &self.context.counters.access;
        match wait {
            Some(Duration::ZERO) => Admission::Now,
            Some(wait) if !role.refuses_over_quota => {
                counters.quota_waits.up();
                Admission::After(wait)
            }
            _ => {
                counters.quota_refused.up();
                Admission::OverQuota
            }
        }
    }

    /// Counts bytes that were read from the client or are written to it towards the quota.
    pub(crate) fn spend_bytes(&self, bytes: usize) {
        let granted = self.granted.borrow();
        let Some(Granted { grant, allowance, .. }) = &*granted else { return };
        if let Some(rate) = grant.role.bytes_per_s {
            allowance.spend_bytes(bytes as u64, rate, || self.context.clock.now());
        }
    }

    /// Logs in as `user`. Returns whether the password is right and the identity has a place for the connection. After
    /// failures of this client the answer to the next one is delayed, for this client only.
    pub(crate) async fn authenticate(&self, user: &[u8], password: &[u8]) -> bool {
        let counters = &self.context.counters;
        counters.commands.auth_cmds.up();
        let now = self.context.clock.now();
        let attempt = self.access().logins.attempt(&self.origin, user, now);
        if attempt.delay > Duration::ZERO {
            counters.access.logins_delayed.up();
            tokio::time::sleep(attempt.delay).await;
        }
        let found = if attempt.may_check { self.find_user(user, password) } else { None };
        if let Some((secret, grant)) = found {
            attempt.succeeded();
            self.take(Some(&grant));
            *self.user.borrow_mut() = Some((user.to_vec(), secret));
            if !self.is_connection || self.count_connection().is_ok() {
                return true;
            }
            counters.access.refused_connections.up();
            self.log_refusal("login", b"", &"its identity has all of its connections");
            *self.user.borrow_mut() = None;
            self.take(None);
        } else {
            let user = self.shown(user);
            let why = match attempt.may_check {
                true => format_args!("wrong password for {user}"),
                false => format_args!(
                    "the password of {user} was not checked, after too many failures of its host"
                ),
            };
            self.log_refusal("login", b"", &why);
        }
        counters.commands.auth_errors.up();
        false
    }

    /// Returns a user for the log. Of an unknown one, only the length is shown: it may be a password in the wrong
    /// place, or the beginning of a value, if the client does not know that its first `set` is a login.
    fn shown(&self, user: &[u8]) -> String {
        let rules = self.access().rules();
        match rules.users.iter().any(|known| known.name == user) {
            true => {
                format!("{:?}", String::from_utf8_lossy(&user[..user.len().min(USER_BYTES_LOGGED)]))
            }
            false => format!("an unknown user of {} bytes", user.len()),
        }
    }

    /// Returns the secret and the grant of the user with this name and password.
    fn find_user(&self, name: &[u8], password: &[u8]) -> Option<(Secret, Arc<Grant>)> {
        let access = self.access();
        let rules = access.rules();
        let mut found = None;
        let mut is_known = false;
        // Two entries of memcached's file may have the same name. All of them are checked, so that the time does not
        // tell which one it was.
        for user in rules.users.iter().filter(|user| user.name == name) {
            is_known = true;
            if access.hasher.verify(&user.secret, password) && found.is_none() {
                found = Some((user.secret.clone(), Arc::clone(&user.grant)));
            }
        }
        if let (false, Some(other)) = (is_known, rules.users.first()) {
            // The same work as for a user who is known, so that the time does not tell who is.
            let _ = black_box(access.hasher.verify(&other.secret, password));
        }
        found
    }

    /// Logs an administrative command that the client was allowed.
    pub(crate) fn log_allowed(&self, command: &str, key: &[u8]) {
        let identity = self.identity();
        let event = Event { identity: &identity, origin: &self.origin, command, key };
        let left_out = &self.context.counters.access.audit_lines_left_out;
        self.access().audit.allowed(&event, self.context.clock.now(), left_out);
    }

    fn log_refusal(&self, command: &str, key: &[u8], why: &dyn std::fmt::Display) {
        let identity = self.identity();
        let event = Event { identity: &identity, origin: &self.origin, command, key };
        let left_out = &self.context.counters.access.audit_lines_left_out;
        self.access().audit.refused(&event, why, self.context.clock.now(), left_out);
    }

    /// Returns whether the rules were replaced since the client's rights were last looked up.
    pub(crate) fn is_outdated(&self) -> bool {
        self.access().generation() != self.generation.get()
    }

    /// Looks up the client's rights again if the rules were replaced.
    fn follow_rules(&self) {
        let generation = self.access().generation();
        if generation != self.generation.get() {
            self.generation.set(generation);
            self.look_up();
            // An open connection stays open, even if there are more than a new limit allows.
            if let (true, Some(granted)) = (self.is_connection, &mut *self.granted.borrow_mut()) {
                granted.grant.usage.connections.fetch_add(1, Ordering::Relaxed);
                granted.is_counted = true;
            }
        }
    }

    #[cold]
    fn look_up(&self) {
        let rules = self.access().rules();
        let user = self.user.borrow().clone();
        let of_user = user.and_then(|(name, secret)| {
            let is_same = |user: &&User| user.name == name && user.secret.is_same(&secret);
            rules.users.iter().find(is_same).map(|user| &user.grant)
        });
        if of_user.is_none() {
            *self.user.borrow_mut() = None;
        }
        self.take(of_user.or_else(|| rules.of_origin(&self.origin)));
    }

    /// Replaces what the client may do.
    fn take(&self, grant: Option<&Arc<Grant>>) {
        let granted = grant.map(|grant| Granted {
            grant: Arc::clone(grant),
            allowance: self.context.allowances.for_usage(&grant.usage),
            is_counted: false,
        });
        *self.granted.borrow_mut() = granted;
    }

    /// Counts the connection towards the limit of its identity.
    fn count_connection(&self) -> Result<(), NoPlace> {
        let mut granted = self.granted.borrow_mut();
        let Some(granted) = &mut *granted else { return Ok(()) };
        let max = granted.grant.role.connections.unwrap_or(usize::MAX);
        let relaxed = Ordering::Relaxed;
        let more = |open: usize| (open < max).then_some(open + 1);
        let counted = granted.grant.usage.connections.fetch_update(relaxed, relaxed, more);
        granted.is_counted = counted.is_ok();
        counted.map(drop).map_err(|_| NoPlace)
    }

    /// Returns a client of the same connection that has not logged in and does not count as a connection.
    pub(crate) fn another(&self) -> Self {
        let client = Self::new(&self.context, self.origin.clone(), false);
        client.look_up();
        client
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if self.is_counted {
            self.grant.usage.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The bytes of a user's name that the log has.
const USER_BYTES_LOGGED: usize = 32;
