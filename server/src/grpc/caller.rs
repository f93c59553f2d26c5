//! Who makes a gRPC call, and what it may do. A call has the rights of its connection, or those of the user whose name
//! and password its `authorization` header has.

use std::cell::RefCell;
use std::rc::Rc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use send_wrapper::SendWrapper;
use tonic::Status;

use crate::access::{Admission, Client, Denial, Origin, Rights};
use crate::context::WorkerContext;

/// The client of a connection, and the last user who called on it.
pub(super) struct Callers {
    context: Rc<WorkerContext>,
    /// The client of the connection, if there are rules.
    client: Option<Rc<Client>>,
    origin: Origin,
    last_user: RefCell<Option<(HeaderValue, Rc<Client>)>>,
}

/// The client that makes a call. It has no limits if there are no rules.
#[derive(Clone)]
pub(super) struct Caller(SendWrapper<Option<Rc<Client>>>);

impl Callers {
    pub(super) fn new(
        context: &Rc<WorkerContext>,
        client: Option<Rc<Client>>,
        origin: &Origin,
    ) -> Self {
        let (context, origin) = (Rc::clone(context), origin.clone());
        Self { context, client, origin, last_user: RefCell::default() }
    }

    /// Returns what is known of the client of the connection.
    pub(super) const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns who makes a call with these headers.
    ///
    /// # Errors
    /// Returns `UNAUTHENTICATED` if the headers have a wrong password.
    pub(super) async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        let caller = |client| Caller(SendWrapper::new(client));
        let (Some(client), Some(header)) = (&self.client, headers.get(AUTHORIZATION)) else {
            return Ok(caller(self.client.clone()));
        };
        let last = self.last_user.borrow().clone();
        if let Some((_, user)) = last.filter(|(known, _)| known == header)
            && user.is_logged_in()
        {
            return Ok(caller(Some(user)));
        }
        let (user, password) = credentials(header).ok_or_else(|| {
            Status::unauthenticated(
                "authorization: give Basic or Bearer, and USER:PASSWORD in base64",
            )
        })?;
        let called = Rc::new(client.another());
        if !called.authenticate(&user, &password).await {
            return Err(Status::unauthenticated("authentication failure"));
        }
        *self.last_user.borrow_mut() = Some((header.clone(), Rc::clone(&called)));
        Ok(caller(Some(called)))
    }

    /// Checks that `caller` may call a service that needs these rights, and waits for its quota.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED`, `UNAUTHENTICATED` or `RESOURCE_EXHAUSTED`.
    pub(super) async fn admit(
        &self,
        caller: &Caller,
        path: &str,
        needed: Rights,
    ) -> Result<(), Status> {
        let Some(client) = caller.0.as_ref() else {
            if self.origin.is_local() || needed == Rights::NONE {
                return Ok(());
            }
            self.context.counters.access.refused_service.up();
            return Err(Status::permission_denied(
                "this service is open to clients of its own host only; server.access_file can open \
                 it to others",
            ));
        };
        caller.check(path, needed, [])?;
        match client.admit() {
            Admission::Now => {}
            Admission::After(wait) => tokio::time::sleep(wait).await,
            Admission::OverQuota => return Err(Status::resource_exhausted("over quota")),
        }
        Ok(())
    }
}

impl Caller {
    /// Checks that the caller has rights, and may use all of these keys.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` or `UNAUTHENTICATED`.
    pub(super) fn check<'k>(
        &self,
        command: &str,
        needed: Rights,
        keys: impl IntoIterator<Item = &'k [u8]> + Clone,
    ) -> Result<(), Status> {
        let Some(client) = self.0.as_ref() else { return Ok(()) };
        let each = |visit: &mut dyn FnMut(&[u8]) -> bool| keys.clone().into_iter().all(visit);
        client.check(command, needed, each).map_err(denied)
    }

    /// Returns the client, if it has limits.
    pub(super) fn client(&self) -> Option<Rc<Client>> {
        Option::clone(&self.0)
    }

    /// Counts bytes of messages towards the client's quota.
    pub(super) fn spend_bytes(&self, bytes: usize) {
        if let Some(client) = self.0.as_ref() {
            client.spend_bytes(bytes);
        }
    }
}

pub(super) fn denied(denial: Denial) -> Status {
    match denial {
        Denial::Unauthenticated => Status::unauthenticated(denial.to_string()),
        Denial::Rights(_) | Denial::Key => Status::permission_denied(denial.to_string()),
    }
}

/// Reads user and password: `Basic` or `Bearer`, followed by `USER:PASSWORD` in base64.
fn credentials(header: &HeaderValue) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, text) = header.to_str().ok()?.split_once(' ')?;
    let is_known = ["basic", "bearer"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let both = BASE64_STANDARD.decode(text.trim()).ok().filter(|_| is_known)?;
    let at = memchr::memchr(b':', &both)?;
    Some((both[..at].to_vec(), both[at + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_and_others_refused() {
        let read = |text: &str| credentials(&text.parse().expect("a header"));
        let alice = Some((b"alice".to_vec(), b"se:cret".to_vec()));
        assert_eq!(read("Basic YWxpY2U6c2U6Y3JldA=="), alice);
        assert_eq!(read("bearer  YWxpY2U6c2U6Y3JldA=="), alice);
        for text in ["", "Basic", "Basic !", "Digest YWxpY2U6c2U6Y3JldA==", "Basic YWxpY2U="] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
