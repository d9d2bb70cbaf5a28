//! Redis over TLS, with a certificate that nobody but its maker has signed.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use restante::ErrorKind;
use restante::clock::SystemClock;
use restante::store::{Bounds, RedisOptions, RedisStore};
use tempfile::TempDir;

use super::rig::Rig;
use super::server::{RedisServer, free_port};

/// An authority and what it has signed, as files.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.pem"), own.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for 127.0.0.1 and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let file = |what: &str| self.folder.path().join(format!("{name}.{what}.pem"));
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = (file("cert"), file("key"));
        fs::write(&cert_file, cert.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert_file, key_file)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A Redis that speaks TLS at another port, and how that is reached.
fn start(authority: &Authority) -> (RedisServer, RedisOptions) {
    let (cert, key) = authority.sign("redis");
    let port = free_port().to_string();
    let server = RedisServer::start(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--tls-port",
        &port,
        "--tls-cert-file",
        text(&cert),
        "--tls-key-file",
        text(&key),
        "--tls-ca-cert-file",
        text(&authority.ca()),
    ]);
    let mut options = server.options();
    options.url = format!("rediss://127.0.0.1:{port}");
    options.tls_ca = Some(authority.ca());
    let (cert, key) = authority.sign("ours");
    (options.tls_cert, options.tls_key) = (Some(cert), Some(key));
    (server, options)
}

async fn refused(options: RedisOptions) -> ErrorKind {
    let opening = RedisStore::open(
        options,
        Bounds::default(),
        std::sync::Arc::new(SystemClock::new()),
    );
    opening.await.err().map(|error| error.kind()).unwrap()
}

#[tokio::test]
async fn messages_wait_in_a_redis_behind_tls_that_is_killed_and_comes_back() {
    let authority = Authority::new();
    let (mut server, options) = start(&authority);
    let rig = Rig::new(options).await;
    for _ in 0..20 {
        rig.put().await.unwrap().remove(0).unwrap();
    }
    assert_eq!(rig.waiting().await, (1..=20).collect::<Vec<_>>());
    let calls: Vec<_> = (0..20).map(|_| rig.put()).collect();
    server.kill();
    server.run();
    for call in calls {
        call.await.unwrap().remove(0).unwrap();
    }
    let waiting = rig.waiting().await;
    assert!(waiting.is_sorted_by(|a, b| a < b), "{waiting:?}");
}

#[tokio::test]
async fn a_redis_that_shows_a_strangers_certificate_is_not_used() {
    let authority = Authority::new();
    let (_server, options) = start(&authority);
    let mut strange = options.clone();
    strange.tls_ca = Some(Authority::new().folder.keep().join("ca.pem"));
    assert_eq!(refused(strange).await, ErrorKind::StoreUnavailable);
    let mut web = options.clone();
    web.tls_ca = None;
    assert_eq!(refused(web).await, ErrorKind::StoreUnavailable);
    let mut nameless = options.clone();
    (nameless.tls_cert, nameless.tls_key) = (None, None);
    assert_eq!(refused(nameless).await, ErrorKind::StoreUnavailable);
    let mut missing = options;
    missing.tls_ca = Some("/nowhere/ca.pem".into());
    assert_eq!(refused(missing).await, ErrorKind::Config);
}
