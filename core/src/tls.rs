//! TLS by rustls: certificates and roots from PEM, and a [`Pipe`] for sockets that are read and
//! written without waiting.
//!
//! Knows no protocol above it and no socket beneath it. The transport and the client use it.

mod pipe;
mod trust;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::{Error, ErrorKind, Result};

use trust::Trusted;

pub use pipe::Pipe;
pub(crate) use words::in_words;

/// A PEM text, or the file that it stands in.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text itself.
    Text(String),
    /// Its file.
    File(PathBuf),
}

/// It may be a key.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl From<&str> for Pem {
    /// What has a PEM line in it is the text itself, anything else a path.
    fn from(text: &str) -> Self {
        match text.contains("-----BEGIN ") {
            true => Self::Text(text.to_owned()),
            false => Self::File(text.into()),
        }
    }
}

impl Pem {
    /// The file, if it is in one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Text(_) => None,
            Self::File(path) => Some(path),
        }
    }

    fn bytes(&self, option: &str) -> Result<Vec<u8>> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::File(path) => std::fs::read(path).map_err(|error| {
                wrong(option, &format!("cannot read {}: {error}", path.display()))
            }),
        }
    }

    fn certificates(&self, option: &str) -> Result<Vec<CertificateDer<'static>>> {
        let bytes = self.bytes(option)?;
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let certificates = read.map_err(|error| wrong(option, &format!("is no PEM: {error}")))?;
        if certificates.is_empty() {
            return Err(wrong(option, "holds no certificate"));
        }
        Ok(certificates)
    }
}

fn wrong(option: &str, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("option {option}: {why}"))
}

/// Why a server cannot show a certificate with a key.
fn unfit(error: &tokio_rustls::rustls::Error) -> Error {
    match words::is_too_old(error) {
        true => wrong("tls.cert", words::TOO_OLD),
        false => wrong(
            "tls.key",
            &format!("does not fit the certificate: {}", words::of(error)),
        ),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(tokio_rustls::rustls::crypto::ring::default_provider())
}

/// What a server shows: a certificate with its chain, and that it has the key.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Reads and checks both: TLS 1.2 and 1.3, HTTP/1.1.
    ///
    /// # Errors
    /// `config`, naming `tls.cert` or `tls.key`: cannot be read, is no PEM, or they do not belong
    /// together.
    pub fn new(cert: &Pem, key: &Pem) -> Result<Self> {
        let chain = cert.certificates("tls.cert")?;
        let key = PrivateKeyDer::from_pem_slice(&key.bytes("tls.key")?)
            // What it says of a key is not told.
            .map_err(|_| wrong("tls.key", "holds no private key in PEM"))?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("tls", &error.to_string()))?;
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| unfit(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// For whoever does the handshake.
    pub fn rustls(&self) -> &Arc<ServerConfig> {
        &self.0
    }
}

/// Whom a client believes.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// The authorities of the web, or `ca` alone: what one of its certificates has signed, and the
    /// certificates themselves.
    ///
    /// # Errors
    /// `config`, naming `ca`.
    pub fn new(ca: Option<&Pem>) -> Result<Self> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("ca", &error.to_string()))?;
        let builder = match ca {
            None => {
                let roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
                builder.with_root_certificates(roots)
            }
            Some(ca) => {
                let trusted = Trusted::new(ca.certificates("ca")?, provider())?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(trusted))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// For whoever does the handshake.
    pub fn rustls(&self) -> &Arc<ClientConfig> {
        &self.0
    }

    /// A host as certificates name it.
    ///
    /// # Errors
    /// `config` for what is no name and no address.
    pub fn server_name(host: &str) -> Result<ServerName<'static>> {
        let name = ServerName::try_from(host.to_owned());
        name.map_err(|_| {
            wrong(
                "host",
                &format!("{host:?} is no name that a certificate has"),
            )
        })
    }
}

#[cfg(test)]
mod tests;
