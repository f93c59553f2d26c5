//! The metrics of the ring's servers and of error answers. A server has its metrics for as long as it is in the
//! list, so the number of series is bounded by the list's length.

use std::time::UNIX_EPOCH;

use super::exposition::{Exposition, seconds};
use super::metrics::Workers;
use crate::errors::{ErrorCounts, ErrorKind, FailedCommand};
use crate::members::{Member, MemberCounts, Members, NameStatus, Reason, Seat};

/// Writes which servers are in the ring and which are out, since when and why.
pub(super) fn servers(page: &mut Exposition, members: &Members) {
    if !members.has_ring() {
        return;
    }
    let state = members.state();
    let seats = &state.seats;
    let mut family = page.gauge("rebate_ring_server_in", "Whether a server is in the ring.");
    for Seat { member, is_out, .. } in seats {
        family.sample(&[("server", &member.name)], u8::from(!is_out));
    }
    let mut family = page.gauge(
        "rebate_ring_server_out",
        "Whether a server is out of the ring, by the reason for it.",
    );
    for Seat { member, .. } in seats {
        let out = member.standing().out.map(|(reason, _)| reason);
        for reason in Reason::ALL {
            let labels = [("server", &*member.name), ("reason", reason.name())];
            family.sample(&labels, u8::from(out == Some(reason)));
        }
    }
    let mut family = page.gauge(
        "rebate_ring_server_since_timestamp_seconds",
        "When a server was added, left the ring, or came back, since the Unix epoch.",
    );
    for Seat { member, .. } in seats {
        let since = member.standing().since.duration_since(UNIX_EPOCH).unwrap_or_default();
        family.sample(&[("server", &member.name)], since.as_secs_f64());
    }
    let mut family = page.gauge(
        "rebate_ring_server_latency_seconds",
        "Average time of a server's answers to short requests, in about half a second.",
    );
    for Seat { member, .. } in seats {
        if let Some(latency) = member.standing().latency {
            family.sample(&[("server", &member.name)], seconds(latency));
        }
    }
    let help =
        "Whether a server is far slower than the others. It may be in the ring all the same.";
    let mut family = page.gauge("rebate_ring_server_slow", help);
    for Seat { member, .. } in seats {
        family.sample(&[("server", &member.name)], u8::from(member.standing().slow.is_some()));
    }
    counts(page, seats);
    names(page, &members.names());
    lookups(page, &members.counts);
}

/// Writes which names of the ring are found. Families without names are left out.
fn names(page: &mut Exposition, names: &[NameStatus]) {
    if names.is_empty() {
        return;
    }
    let help = "Whether the last lookup of a name of the ring found its servers.";
    let mut family = page.gauge("rebate_ring_name_found", help);
    for NameStatus { name, failure, .. } in names {
        family.sample(&[("name", name)], u8::from(failure.is_none()));
    }
    let help = "Servers that the ring has of a name, from the last lookup that found some.";
    let mut family = page.gauge("rebate_ring_name_servers", help);
    for NameStatus { name, servers, .. } in names {
        family.sample(&[("name", name)], *servers as u64);
    }
}

fn counts(page: &mut Exposition, seats: &[Seat]) {
    let help = "Times that a server was taken out of the ring, by reason.";
    let mut family = page.counter("rebate_ring_ejections_total", help);
    for Seat { member, .. } in seats {
        for reason in Reason::ALL {
            let labels = [("server", &*member.name), ("reason", reason.name())];
            family.sample(&labels, member.ejections[reason as usize].read());
        }
    }
    let mut each = |name, help, count: fn(&Member) -> u64| {
        let mut family = page.counter(name, help);
        for Seat { member, .. } in seats {
            family.sample(&[("server", &member.name)], count(member));
        }
    };
    let help = "Times that a server came back into the ring.";
    each("rebate_ring_returns_total", help, |member| member.returns.read());
    let help = "Logins of this process that the server refused.";
    each("rebate_ring_logins_refused_total", help, |member| member.logins_refused.read());
    let help = "Keys answered as misses because their server could not answer.";
    each("rebate_ring_misses_total", help, |member| member.misses.read());
    let help = "Requests that the next server got because this server is out.";
    each("rebate_ring_moved_total", help, |member| member.moved.read());
}

fn lookups(page: &mut Exposition, counts: &MemberCounts) {
    page.counter("rebate_ring_lookups_total", "Lookups of names of the ring, by result.")
        .sample(&[("result", "success")], counts.lookups_done.read())
        .sample(&[("result", "failure")], counts.lookups_failed.read());
    page.counter("rebate_ring_changes_total", "Changes of the list of the ring's servers.")
        .sample(&[], counts.list_changes.read());
}

/// Writes the error answers. Only combinations that have occurred are written, because there are many.
pub(super) fn errors(page: &mut Exposition, workers: &Workers<'_>, members: &Members) {
    let mut family = page.counter(
        "rebate_errors_total",
        "Error answers to clients, by command, by kind, and by the server that caused them.",
    );
    let mut write = |server: &str, count: &dyn Fn(FailedCommand, ErrorKind) -> u64| {
        for command in FailedCommand::ALL {
            for kind in ErrorKind::ALL {
                let errors = count(command, kind);
                // One combination is always there, so that the family is.
                let is_first = server.is_empty() && (command, kind) == FIRST;
                if errors > 0 || is_first {
                    let labels =
                        [("command", command.name()), ("kind", kind.name()), ("server", server)];
                    family.sample(&labels, errors);
                }
            }
        }
    };
    let ours = |command, kind| {
        let count = |errors: &ErrorCounts| errors.read(command, kind);
        workers.0.iter().map(|worker| count(&worker.errors)).sum()
    };
    write("", &ours);
    for Seat { member, .. } in &members.state().seats {
        write(&member.name, &|command, kind| member.errors.read(command, kind));
    }
}

const FIRST: (FailedCommand, ErrorKind) = (FailedCommand::Other, ErrorKind::Client);
