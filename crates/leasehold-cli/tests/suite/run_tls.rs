//! `run` on a server with TLS.

use std::path::Path;

use leasehold_testkit::certificates::{Certificates, Identity, url};
use leasehold_testkit::server::{Flavour, Server};

use crate::command::{Finished, finish, leasehold_at};
use crate::runner::{is_locked, run};

fn start(identity: impl FnOnce(&Certificates) -> Identity) -> (Server, Certificates) {
    let certificates = Certificates::new();
    let files = certificates.of_server(&identity(&certificates));
    (Server::builder(Flavour::Redis).tls(files).start(), certificates)
}

/// Runs with these certificates in place of those of the system.
fn trusting(server: &Server, file: &Path) -> Finished {
    let mut command = run(&server.url(), "x", "echo ran");
    finish(command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", file))
}

#[test]
fn a_command_runs_under_a_lock_on_a_server_with_tls() {
    let (server, certificates) = start(Certificates::server);
    let run = finish(&mut run(&url(server.port(), &[("ca", certificates.ca())]), "x", "echo ran; exit 3"));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(3), "ran\n", ""));
    assert!(!is_locked(&server, "x"));
}

#[test]
fn the_certificates_of_the_system_are_trusted_unless_the_url_names_others() {
    let (server, certificates) = start(Certificates::server);
    let run = trusting(&server, certificates.ca());
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "ran\n", ""));
    for (file, what) in [
        (certificates.other_ca(), "signed by no CA that is trusted here: write ca=PATH"),
        (&certificates.path("none"), "the certificates that this system trusts cannot be read: "),
    ] {
        let run = trusting(&server, file);
        assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
        assert!(run.stderr.contains(what) && run.stderr.contains("ca=PATH"), "{run:?}");
    }
}

#[test]
fn a_server_that_is_not_verified_needs_an_option_beside_the_url() {
    let (server, certificates) = start(Certificates::expired);
    let url = format!("{}?verify=none", server.url());
    let refused = finish(&mut run(&url, "x", "echo ran"));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains("leasehold run --allow-unverified-tls"), "{refused:?}");
    let run = finish(&mut run(&url, "x --allow-unverified-tls", "echo ran"));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "ran\n", ""));
    drop(certificates);
}

#[test]
fn the_demo_says_that_it_does_not_count_seats_over_tls() {
    let (server, certificates) = start(Certificates::server);
    let run = leasehold_at(&url(server.port(), &[("ca", certificates.ca())]), "demo");
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    let what = format!("without TLS, so it cannot use rediss://127.0.0.1:{}: ", server.port());
    assert!(run.stderr.contains(&what), "{run:?}");
}
