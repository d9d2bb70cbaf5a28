//! Two pipes that talk over buffers, and PEM that is none.

use std::collections::VecDeque;
use std::io::{self, ErrorKind as IoKind, IoSlice, Read, Write};

use tokio_rustls::rustls::{ClientConnection, Connection, ServerConnection};

use super::*;

fn fixture(name: &str) -> Pem {
    let path = format!("{}/tests/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    Pem::from(path.as_str())
}

/// One direction; takes no more than `room` at a time.
struct Wire {
    bytes: VecDeque<u8>,
    room: usize,
}

impl Read for &mut Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.bytes.read(into) {
            Ok(0) => Err(IoKind::WouldBlock.into()),
            other => other,
        }
    }
}

impl Write for &mut Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let free = self.room.saturating_sub(self.bytes.len()).min(bytes.len());
        if free == 0 {
            return Err(IoKind::WouldBlock.into());
        }
        self.bytes.extend(&bytes[..free]);
        Ok(free)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pass(from: &mut Connection, to: &mut Connection, mut wire: &mut Wire) {
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    while !wire.bytes.is_empty() {
        to.read_tls(&mut wire).unwrap();
        to.process_new_packets().unwrap();
    }
}

fn pipes() -> (Pipe, Pipe, Wire, Wire) {
    let server = ServerTls::new(&fixture("one.pem"), &fixture("one.key")).unwrap();
    let client = ClientTls::new(Some(&fixture("ca.pem"))).unwrap();
    let name = ClientTls::server_name("localhost").unwrap();
    let mut client: Connection = ClientConnection::new(client.rustls().clone(), name)
        .unwrap()
        .into();
    let mut server: Connection = ServerConnection::new(server.rustls().clone())
        .unwrap()
        .into();
    let wire = || Wire {
        bytes: VecDeque::new(),
        room: usize::MAX,
    };
    let (mut up, mut down) = (wire(), wire());
    while client.is_handshaking() || server.is_handshaking() {
        pass(&mut client, &mut server, &mut up);
        pass(&mut server, &mut client, &mut down);
    }
    (Pipe::new(client), Pipe::new(server), up, down)
}

/// How the handshake of a client that was given `ca` ends.
fn shake(shown: &str, ca: &str, host: &str) -> Result<(), String> {
    let pem = |end: &str| fixture(&format!("{shown}.{end}"));
    let server = ServerTls::new(&pem("pem"), &pem("key")).unwrap();
    let client = ClientTls::new(Some(&fixture(ca))).unwrap();
    let name = ClientTls::server_name(host).unwrap();
    let mut client = ClientConnection::new(client.rustls().clone(), name).unwrap();
    let mut server = ServerConnection::new(server.rustls().clone()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        server.read_tls(&mut &wire[..]).unwrap();
        server.process_new_packets().unwrap();
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            let done = client.process_new_packets();
            done.map_err(|error| in_words(&io::Error::new(IoKind::InvalidData, error)))?;
        }
    }
    Ok(())
}

#[test]
fn a_self_made_certificate_that_was_given_itself_is_believed_for_its_own_name() {
    // As `openssl req -x509` makes it: an authority by its own words.
    assert_eq!(shake("self", "self.pem", "localhost"), Ok(()));
    let error = shake("self", "self.pem", "elsewhere").unwrap_err();
    assert!(
        error.contains("only valid for") && error.contains("localhost"),
        "{error}"
    );
    let error = shake("self", "ca.pem", "localhost").unwrap_err();
    assert!(
        error.contains("CA:TRUE") && error.contains("`ca`"),
        "{error}"
    );
    // Another one of the same name and an authority's own word for one that it has not signed.
    let error = shake("self", "twin.pem", "localhost").unwrap_err();
    assert!(error.starts_with("the server is not trusted"), "{error}");
    assert_eq!(shake("one", "ca.pem", "localhost"), Ok(()));
    let error = shake("one", "other.pem", "localhost").unwrap_err();
    assert!(error.contains("nobody whom we trust"), "{error}");
}

#[test]
fn no_error_of_a_certificate_is_a_form_for_programmers() {
    for (shown, ca, host) in [
        ("self", "ca.pem", "localhost"),
        ("self", "twin.pem", "localhost"),
        ("self", "self.pem", "elsewhere"),
        ("nameless", "nameless.pem", "localhost"),
        ("one", "self.pem", "localhost"),
        ("expired", "expired.pem", "localhost"),
    ] {
        let error = shake(shown, ca, host).unwrap_err();
        assert!(
            !error.contains("Error") && !error.contains("Other("),
            "{error}"
        );
    }
    let error = shake("nameless", "nameless.pem", "localhost").unwrap_err();
    assert!(error.contains("names no host (subjectAltName)"), "{error}");
    let error = shake("expired", "expired.pem", "localhost").unwrap_err();
    assert!(error.contains("has expired"), "{error}");
}

#[test]
fn a_certificate_of_version_1_is_refused_as_that() {
    let error = ServerTls::new(&fixture("v1.pem"), &fixture("v1.key")).unwrap_err();
    assert!(error.message().contains("tls.cert"), "{error}");
    assert!(error.message().contains("version 1"), "{error}");
}

#[test]
fn everything_arrives_through_a_socket_that_takes_little_at_a_time() {
    let (mut client, mut server, mut up, _) = pipes();
    up.room = 700;
    let sent: Vec<u8> = (0..500_000u32).map(|n| n as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    let mut into = vec![0; 5_000];
    while got.len() < sent.len() {
        let rest = &sent[written..];
        match client.write(&mut &mut up, &[IoSlice::new(rest)]) {
            Ok(count) => written += count,
            Err(error) => assert_eq!(error.kind(), IoKind::WouldBlock),
        }
        match server.read(&mut &mut up, &mut into) {
            Ok(count) => got.extend_from_slice(&into[..count]),
            Err(error) => assert_eq!(error.kind(), IoKind::WouldBlock),
        }
    }
    assert!(got == sent);
}

#[test]
fn what_a_full_read_leaves_is_known_though_the_socket_is_empty() {
    let (mut client, mut server, mut up, _) = pipes();
    client
        .write(&mut &mut up, &[IoSlice::new(&[7; 1000])])
        .unwrap();
    let mut small = [0; 600];
    assert_eq!(server.read(&mut &mut up, &mut small).unwrap(), 600);
    assert!(up.bytes.is_empty() && server.has_more());
    assert_eq!(server.read(&mut &mut up, &mut small).unwrap(), 400);
    assert!(!server.has_more());
    let empty = server.read(&mut &mut up, &mut small).unwrap_err();
    assert_eq!(empty.kind(), IoKind::WouldBlock);
    client.finish(&mut &mut up);
    assert_eq!(server.read(&mut &mut up, &mut small).unwrap(), 0);
}

#[test]
fn rubbish_is_an_error_and_no_panic() {
    let (_, mut server, mut up, _) = pipes();
    up.bytes.extend([0x16; 200]);
    let mut into = [0; 100];
    let error = server.read(&mut &mut up, &mut into).unwrap_err();
    assert_eq!(error.kind(), IoKind::InvalidData);
}

#[test]
fn pem_that_is_none_is_refused_by_the_name_of_its_option() {
    let missing = Pem::from("/nowhere/cert.pem");
    let not_pem = Pem::Text("-----BEGIN NOTHING-----".to_owned());
    for (cert, key, option) in [
        (missing.clone(), fixture("one.key"), "tls.cert"),
        (not_pem.clone(), fixture("one.key"), "tls.cert"),
        (fixture("one.pem"), missing, "tls.key"),
        (fixture("one.pem"), not_pem, "tls.key"),
        (fixture("one.pem"), fixture("one.pem"), "tls.key"),
        (fixture("one.pem"), fixture("other.key"), "tls.key"),
    ] {
        let error = ServerTls::new(&cert, &key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(option), "{error}");
    }
}
