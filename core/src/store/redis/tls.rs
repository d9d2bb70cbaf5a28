//! The certificates by which a Redis is recognised over TLS, and ours: read from files when a store is
//! made. Connects nowhere.

use std::path::Path;

use redis::{ClientTlsConfig, TlsCertificates};

use crate::{Error, ErrorKind, Result};

use super::options::RedisOptions;

/// What the options name; `None`: nothing, the usual authorities of the web are trusted.
///
/// # Errors
/// `config` for a file that cannot be read, naming the option.
pub(super) fn certificates(options: &RedisOptions) -> Result<Option<TlsCertificates>> {
    // The client of Redis asks for the process's own; whoever has chosen one before keeps it.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let root_cert = read("tls_ca", options.tls_ca.as_deref())?;
    let cert = read("tls_cert", options.tls_cert.as_deref())?;
    let key = read("tls_key", options.tls_key.as_deref())?;
    let pair = cert.zip(key);
    let client_tls = pair.map(|(client_cert, client_key)| ClientTlsConfig {
        client_cert,
        client_key,
    });
    let is_named = root_cert.is_some() || client_tls.is_some();
    Ok(is_named.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

fn read(name: &str, path: Option<&Path>) -> Result<Option<Vec<u8>>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let read = std::fs::read(path).map_err(|error| {
        let why = format!("option storage_options.{name}: {}: {error}", path.display());
        Error::new(ErrorKind::Config, why)
    })?;
    Ok(Some(read))
}
