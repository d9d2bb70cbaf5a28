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
