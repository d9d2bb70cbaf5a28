//! What is wrong with a certificate or a handshake, in words that say what to do.

use std::io;

use tokio_rustls::rustls::{CertificateError, Error};

/// A certificate without extensions cannot name a host.
pub(super) const TOO_OLD: &str = "is an X.509 certificate of version 1, which names no host; make one \
     of version 3 with a subjectAltName";

/// The error of webpki that rustls has no name for.
fn rule(error: &Error) -> Option<&webpki::Error> {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.downcast_ref(),
        _ => None,
    }
}

/// Whether the certificate that was shown is one of an authority, and nothing else was wrong so far.
pub(super) fn is_authority(error: &Error) -> bool {
    matches!(rule(error), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Whether it is an X.509 certificate of a version before 3.
pub(super) fn is_too_old(error: &Error) -> bool {
    matches!(rule(error), Some(webpki::Error::UnsupportedCertVersion))
}

/// Why a handshake of a client has failed.
pub(crate) fn in_words(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidMessage(_)) => "what answers does not speak TLS: use http".to_owned(),
        Some(tls @ Error::InvalidCertificate(_)) => {
            format!("the server is not trusted: {}", of(tls))
        }
        Some(tls) => format!("the TLS handshake failed: {}", of(tls)),
        None => error.to_string(),
    }
}

/// The name of a rule as words: it has no others.
fn spaced(rule: &webpki::Error) -> String {
    let mut words = String::new();
    for letter in format!("{rule:?}").chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// See the module.
pub(super) fn of(error: &Error) -> String {
    use CertificateError as Wrong;
    if is_authority(error) {
        return "its certificate is one of an authority (CA:TRUE), and not one that was given as `ca`; \
                give that very certificate, or make one with basicConstraints=CA:FALSE"
            .to_owned();
    }
    if is_too_old(error) {
        return format!("its certificate {TOO_OLD}");
    }
    let text = match error {
        Error::InvalidCertificate(wrong) => match wrong {
            Wrong::UnknownIssuer => {
                "nobody whom we trust has signed its certificate: give the authority as `ca`"
            }
            Wrong::BadSignature => "a signature in its certificates is wrong",
            Wrong::BadEncoding => "its certificate cannot be read",
            Wrong::Expired => "its certificate has expired",
            Wrong::NotValidYet => "its certificate is not valid yet",
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                "its certificate is not one for servers (extendedKeyUsage)"
            }
            Wrong::NotValidForName => "its certificate does not name this host (subjectAltName)",
            Wrong::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                "its certificate names no host (subjectAltName)"
            }
            Wrong::NotValidForNameContext { .. } => return wrong.to_string(),
            Wrong::ExpiredContext { not_after, time } => {
                let ago = time.as_secs().saturating_sub(not_after.as_secs());
                return format!("its certificate has expired {ago} seconds ago");
            }
            Wrong::NotValidYetContext { not_before, time } => {
                let ahead = not_before.as_secs().saturating_sub(time.as_secs());
                return format!("its certificate is not valid before {ahead} seconds from now");
            }
            _ => match rule(error) {
                Some(rule) => return format!("its certificate does not do: {}", spaced(rule)),
                None => return wrong.to_string(),
            },
        },
        Error::InconsistentKeys(_) => "they are not a pair",
        Error::AlertReceived(alert) => {
            return format!(
                "the server has ended it ({})",
                alert.as_str().unwrap_or("unknown")
            );
        }
        other => return other.to_string(),
    };
    text.to_owned()
}
