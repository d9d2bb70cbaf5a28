//! TLS over real sockets: our client and the server, certificates that change, and who is told that a
//! link is secure.

use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use restante::ErrorKind;
use restante::client::{Client, Subscribe};
use restante::server::{Server, ServerConfig};
use restante::tls::Pem;
use restante::transport::{Config, Doors};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::sqlite::process::{SECOND, soon};
use crate::transport::harness::{Server as Bare, Ws};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tls")
        .join(name)
}

async fn start(options: Value) -> Server {
    let mut all = json!({"host": "127.0.0.1", "port": 0});
    let more = options.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    let (config, _) = ServerConfig::from_options(&all.to_string()).unwrap();
    Server::start(config).await.unwrap()
}

fn client(server: &Server, ca: &str) -> Client {
    Client::builder()
        .host("localhost")
        .protocol("https")
        .ca(Pem::File(fixture(ca)))
        .port(server.local_addr().port())
        .connect_timeout(20 * SECOND)
        .build()
}

fn files(name: &str) -> Value {
    json!({"cert": fixture(&format!("{name}.pem")), "key": fixture(&format!("{name}.key"))})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_small_and_large_go_both_ways_under_tls() {
    let server = start(json!({"tls": files("one"), "threads": 2})).await;
    let client = client(&server, "ca.pem");
    let consumer = soon(client.consumer("c")).await.unwrap();
    let mut messages = soon(consumer.subscribe(Subscribe::to("paid").durable().acked()))
        .await
        .unwrap();
    let producer = soon(client.producer("p")).await.unwrap();
    let sizes = [1, 1_000, 100_000, 5_000_000, 3, 300_000, 7];
    for size in sizes {
        let body = "x".repeat(size);
        soon(producer.confirm("paid", &body)).await.unwrap();
    }
    for size in sizes {
        let message = soon(messages.next()).await.unwrap();
        let body: String = message.body().unwrap();
        assert_eq!(body.len(), size);
        message.ack();
    }
    for connection in [consumer.connection(), producer.connection()] {
        soon(connection.close(SECOND)).await.unwrap();
    }
    server.close(5 * SECOND).await.unwrap();
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_refused_at_the_first_connection() {
    let server = start(json!({"tls": files("one")})).await;
    // One certificate is no authority of the other.
    let error = soon(client(&server, "other.pem").producer("p"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    server.close(SECOND).await.unwrap();
}

#[tokio::test]
async fn what_speaks_in_the_clear_to_a_secured_port_is_hung_up_on() {
    let server = start(json!({"tls": files("one")})).await;
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    stream
        .write_all(b"GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // An alert at most, or a reset.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    server.close(SECOND).await.unwrap();
}

/// The certificate that a server shows.
async fn shown(server: &Server) -> Vec<u8> {
    use tokio_rustls::TlsConnector;
    let tls = restante::tls::ClientTls::new(Some(&Pem::File(fixture("ca.pem")))).unwrap();
    let stream = TcpStream::connect(server.local_addr()).await.unwrap();
    let name = restante::tls::ClientTls::server_name("localhost").unwrap();
    let stream = TlsConnector::from(tls.rustls().clone())
        .connect(name, stream)
        .await
        .unwrap();
    let (_, session) = stream.get_ref();
    session.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_clients_and_a_broken_one_is_not() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| folder.path().join(name);
    let put = |name: &str| {
        for kind in ["key", "pem"] {
            let text = std::fs::read(fixture(&format!("{name}.{kind}"))).unwrap();
            std::fs::write(place(&format!("part.{kind}")), text).unwrap();
        }
        for kind in ["key", "pem"] {
            std::fs::rename(
                place(&format!("part.{kind}")),
                place(&format!("cert.{kind}")),
            )
            .unwrap();
        }
    };
    put("one");
    let tls = json!({"tls": {"cert": place("cert.pem"), "key": place("cert.key")}});
    std::fs::write(place("settings.json"), tls.to_string()).unwrap();
    let server =
        start(json!({"settings_file": place("settings.json"), "data_dir": folder.path()})).await;
    let client = client(&server, "ca.pem");
    let producer = soon(client.producer("p")).await.unwrap();
    let before = shown(&server).await;
    std::fs::write(place("cert.pem"), "rubbish").unwrap();
    assert!(server.reload_settings().await.is_err());
    assert_eq!(shown(&server).await, before);
    put("other");
    let renewed = async {
        // It is noticed without being told.
        while shown(&server).await == before {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon(renewed).await;
    // Who was there goes on.
    soon(producer.confirm("paid", &1)).await.unwrap();
    soon(producer.connection().close(SECOND)).await.unwrap();
    server.close(SECOND).await.unwrap();
}

#[tokio::test]
async fn a_link_is_secure_by_the_word_of_a_trusted_proxy_alone() {
    let proxies = restante::limits::Proxies::parse(["127.0.0.1"]).unwrap();
    for (trust_proxy, expected) in [(proxies, true), (Default::default(), false)] {
        let config = Config {
            doors: Doors {
                trust_proxy,
                ..Doors::default()
            }
            .shared(),
            ..Config::default()
        };
        let mut server = Bare::start(config);
        let headers = "x-forwarded-proto: https\r\nx-forwarded-for: 192.0.2.1\r\n";
        let query = "EIO=4&transport=websocket";
        let (_, mut ws) = Ws::try_upgrade(server.addr(), query, headers).await;
        ws.send("40").await;
        let link = server.connected().await;
        assert_eq!(link.is_secure(), expected);
        assert_eq!(link.remote().ip().to_string() == "192.0.2.1", expected);
    }
}
