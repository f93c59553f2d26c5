//! What keeps a compression service of the configuration from its round trip, and who mends it. Only asked when the
//! round trip failed: a service that works is a device like any other.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use server::config::Config;
use server::config_source::CompressionAddress;

use super::finding::{Finding, Mend, Severity};

/// The finding, with the way to mend it where it is about a compression service.
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
                let what = format!("{}: {}", finding.what, at_socket(&path));
                let start =
                    format!("rebate serve --role compression --lane-listen {}", path.display());
                return Finding { what, ..finding }.mend(started(start));
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
        who: "Whoever runs the service".to_owned(),
        how: "starts it, or puts its real address into runtime.compression".to_owned(),
        commands: vec![command],
    }
}

/// What is at the place where lanes are set up.
fn at_socket(path: &Path) -> String {
    match UnixStream::connect(path).map_err(|error| error.kind()) {
        Ok(_) => "someone listens there and does not take this lane: its log says why (it serves \
                  processes of its own user, and root's)"
            .to_owned(),
        Err(ErrorKind::NotFound) => "there is no such socket".to_owned(),
        Err(ErrorKind::ConnectionRefused) => "nobody listens at this socket any more".to_owned(),
        Err(ErrorKind::PermissionDenied) => {
            "this user may not open it; both sides must be one user's".to_owned()
        }
        Err(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(address: &str, device: &str) -> Finding {
        let mut config = Config::default();
        config.runtime.compression = vec!["127.0.0.1:9".to_owned(), address.to_owned()];
        explained(Finding::new(Severity::Problem, device, "refused".to_owned()), &config)
    }

    #[test]
    fn a_lane_that_is_not_there_says_whether_the_socket_is() {
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
}
