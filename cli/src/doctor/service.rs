//! Finds the reason why a compression service of the configuration fails its round trip, and who can fix it. It runs
//! only after a failed round trip. A service that works is a device like any other.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use server::config::{CompressionAddress, Config};

use super::finding::{Finding, Mend, Severity};

/// Adds the way to fix the fault to a finding about a compression service.
pub(super) fn explained(finding: Finding, config: &Config) -> Finding {
    if finding.severity != Severity::Problem {
        return finding;
    }
    let addresses = config.runtime.compression.iter().filter_map(|text| text.parse().ok());
    for address in addresses {
        match address {
            CompressionAddress::Lane(path)
                if finding.about == format!("lane-{}", path.display()) =>
            {
                let at = at_socket(&path);
                let what = format!("{}: {}", finding.what, at.what());
                return Finding { what, ..finding }.mend(at.mend(&path));
            }
            CompressionAddress::Grpc(address) if finding.about == format!("remote-{address}") => {
                let start = format!("rebate serve --role compression --grpc-listen {address}");
                return finding.mend(started(start));
            }
            CompressionAddress::Lane(_) | CompressionAddress::Grpc(_) => {}
        }
    }
    finding
}

fn started(command: String) -> Mend {
    Mend {
        who: RUNNER.to_owned(),
        how: "starts it, or puts its real address into runtime.compression".to_owned(),
        commands: vec![command],
    }
}

/// The state of the socket at which lanes are set up.
enum AtSocket {
    /// A process accepts connections, or will accept them.
    Listener,
    /// A process listens, but its queue of connections is full, so it does not accept any.
    Stuck,
    Nobody(io::Error),
}

/// Tests the socket without waiting, because the process that listens there may be stopped.
fn at_socket(path: &Path) -> AtSocket {
    let call = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    match call() {
        Ok(()) => AtSocket::Listener,
        Err(Errno::AGAIN) => AtSocket::Stuck,
        Err(other) => AtSocket::Nobody(other.into()),
    }
}

impl AtSocket {
    fn what(&self) -> String {
        let what = match self {
            AtSocket::Listener => "someone listens there and does not take this lane",
            AtSocket::Stuck => "someone listens there and does not accept: is it stopped?",
            AtSocket::Nobody(error) => match error.kind() {
                io::ErrorKind::NotFound => "there is no such socket",
                io::ErrorKind::ConnectionRefused => "nobody listens at this socket any more",
                io::ErrorKind::PermissionDenied => {
                    "this user may not open it; both sides must be one user's"
                }
                _ => return error.to_string(),
            },
        };
        what.to_owned()
    }

    fn mend(&self, path: &Path) -> Mend {
        let how = match self {
            // Another service would not help, and it could not take the socket from the process that listens there.
            AtSocket::Listener => {
                "reads its log, which says why: it serves processes of its own user and root's \
                 only, of the same version of the protocol, and with a store.item_bytes_max that \
                 is not above its own; or what listens there is no compression service"
            }
            AtSocket::Stuck => "continues it, or ends it and starts it again",
            AtSocket::Nobody(_) => {
                let path = path.display();
                return started(format!("rebate serve --role compression --lane-listen {path}"));
            }
        };
        Mend::text(RUNNER, how.to_owned())
    }
}

const RUNNER: &str = "Whoever runs the service";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(address: &str, device: &str) -> Finding {
        let mut config = Config::default();
        config.runtime.compression = vec!["127.0.0.1:9".to_owned(), address.to_owned()];
        explained(Finding::new(Severity::Problem, device, "refused".to_owned()), &config)
    }

    #[test]
    fn a_missing_lane_says_whether_its_socket_exists() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lane").display().to_string();
        let (address, device) = (format!("lane:{path}"), format!("lane-{path}"));
        assert_eq!(found(&address, &device).what, "refused: there is no such socket");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
        let finding = found(&address, &device);
        assert_eq!(finding.what, "refused: nobody listens at this socket any more");
        let mend = finding.mend.expect("a way to mend it");
        assert_eq!(
            mend.commands,
            [format!("rebate serve --role compression --lane-listen {path}")]
        );
        assert_eq!(found(&address, "worker").mend, None);
        assert!(found(&address, "remote-127.0.0.1:9").mend.is_some());
    }
    #[test]
    fn a_refusing_or_stopped_service_must_not_be_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lane");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("binds");
        // The listener never accepts, and only one connection can wait.
        rustix::net::listen(&listener, 0).expect("listens");
        let path = path.display();
        let found = || found(&format!("lane:{path}"), &format!("lane-{path}"));
        let refused = found();
        assert_eq!(refused.what, "refused: someone listens there and does not take this lane");
        let mend = refused.mend.expect("a way to mend it");
        for cause in ["own user", "version of the protocol", "store.item_bytes_max"] {
            assert!(mend.how.contains(cause), "{mend:?}");
        }
        assert!(mend.commands.is_empty(), "{mend:?}");
        let stuck =
            (0..16).map(|_| found()).find(|finding| finding.what.contains("is it stopped?"));
        let stuck = stuck.expect("full, and said without waiting");
        assert!(stuck.mend.is_some_and(|mend| mend.commands.is_empty()));
    }
}
