//! Whom a client believes that was given certificates: what they have signed, and themselves.
//!
//! The usual self-made certificate says that it is an authority, and an authority is no server to
//! the rules of the web. Who was given that very certificate means it.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::{words, wrong};

/// The rules of the web, and one certificate more: a given one that is shown itself.
#[derive(Debug)]
pub(super) struct Trusted {
    rules: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// # Errors
    /// `config`, naming `ca`.
    pub(super) fn new(
        given: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> crate::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in &given {
            roots.add(certificate.clone()).map_err(|error| {
                let why = words::of(&error);
                wrong("ca", &format!("holds what is no authority: {why}"))
            })?;
        }
        let rules = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let rules = rules
            .build()
            .map_err(|error| wrong("ca", &error.to_string()))?;
        Ok(Self { rules, given })
    }
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self
            .rules
            .verify_server_cert(shown, between, name, ocsp, now);
        match verified {
            // Its time has been looked at before; its name has not, and who shows it has to prove
            // that the key is there, as always.
            Err(error) if words::is_authority(&error) && self.given.contains(shown) => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.rules
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.rules.supported_verify_schemes()
    }
}
