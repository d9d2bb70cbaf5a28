//! A session on a websocket: the start, events, namespaces, the end.

use std::time::Duration;

use restante::transport::{Config, Ending};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::harness::*;

#[tokio::test]
async fn the_start_is_open_packet_then_connect_reply_and_nothing_between() {
    let mut server = Server::start(Config::default());
    let mut ws = Ws::open(server.addr()).await;
    // An event before CONNECT is dropped; a stray pong is tolerated.
    ws.send("42[\"too early\"]").await;
    ws.send("3").await;
    ws.send("40").await;
    let reply = ws.text().await;
    assert!(reply.starts_with("40{\"sid\":\"") && reply.len() == "40{\"sid\":\"\"}".len() + 20);
    let link = server.connected().await;
    assert!(reply.contains(link.socket_id()));
    ws.send("42[\"hello\",1]").await;
    assert_eq!(server.event().await, "[\"hello\",1]");
    link.offer(text_frame("42[\"back\"]")).unwrap();
    assert_eq!(ws.text().await, "42[\"back\"]");
}

#[tokio::test]
async fn a_refused_connect_is_answered_before_anything_the_service_pushed() {
    let server = Server::start(Config::default());
    let mut ws = Ws::open(server.addr()).await;
    ws.send("40{\"refuse\":true}").await;
    let refusal = ws.text().await;
    assert_eq!(refusal, r#"44{"message":"not \"you\""}"#);
}

#[tokio::test]
async fn namespaces_live_side_by_side() {
    let mut server = Server::start(Config::default());
    let (mut ws, _) = server.joined().await;
    ws.send("40/custom,{\"token\":\"1\"}").await;
    assert!(ws.text().await.starts_with("40/custom,{\"sid\":"));
    match server.next().await {
        Seen::Connected(_, auth) => assert_eq!(auth.as_deref(), Some("{\"token\":\"1\"}")),
        other => panic!("{other:?}"),
    }
    ws.send("40/unknown").await;
    assert_eq!(
        ws.text().await,
        r#"44/unknown,{"message":"Invalid namespace"}"#
    );
    ws.send("42/custom,7[\"x\"]").await;
    match server.next().await {
        Seen::Event { reply, args, .. } => assert_eq!((reply, &*args), (Some(7), "[\"x\"]")),
        other => panic!("{other:?}"),
    }
    ws.send("41/custom,").await;
    assert_eq!(server.closed().await, Ending::Closed);
    ws.send("42[\"still here\"]").await;
    assert_eq!(server.event().await, "[\"still here\"]");
}

#[tokio::test]
async fn attachments_arrive_with_their_event() {
    let mut server = Server::start(Config::default());
    let (mut ws, _) = server.joined().await;
    let args = r#"["f",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;
    ws.send(&format!("452-{args}")).await;
    ws.send_raw(&masked(0x82, &[1, 2])).await;
    ws.send("3").await;
    ws.send_raw(&masked(0x82, &[3])).await;
    match server.next().await {
        Seen::Event {
            args: got,
            attachments,
            ..
        } => {
            assert_eq!(got, args);
            assert_eq!(attachments, [vec![1, 2], vec![3]]);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_way_to_end_has_its_name() {
    let mut server = Server::start(Config::default());

    let (mut ws, _) = server.joined().await;
    ws.send("41").await;
    assert_eq!(server.closed().await, Ending::Closed);

    let (mut ws, _) = server.joined().await;
    ws.send("1").await;
    assert_eq!(server.closed().await, Ending::Closed);
    assert_eq!(ws.close_code().await, 1000);

    let (mut ws, _) = server.joined().await;
    ws.send_raw(&masked(0x88, &1001u16.to_be_bytes())).await;
    assert_eq!(server.closed().await, Ending::Closed);
    assert_eq!(ws.close_code().await, 1001);

    let (mut ws, _) = server.joined().await;
    ws.stream.shutdown().await.unwrap();
    assert_eq!(server.closed().await, Ending::Broken);

    let (ws, _) = server.joined().await;
    socket2::SockRef::from(&ws.stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(ws);
    assert_eq!(server.closed().await, Ending::Broken);

    let (mut ws, link) = server.joined().await;
    link.reply(text_frame("42[\"last\"]"));
    link.close();
    assert_eq!(link.offer(text_frame("42[\"too late\"]")), None);
    assert_eq!(ws.text().await, "42[\"last\"]");
    assert_eq!(ws.text().await, "41");
    assert_eq!(server.closed().await, Ending::Ours);
    let (first, payload) = ws.frame().await.unwrap();
    assert_eq!((first, payload), (0x88, 1000u16.to_be_bytes().to_vec()));
}

#[tokio::test]
async fn a_goodbye_counts_even_if_our_writing_fails_first() {
    let mut server = Server::start(Config::default());
    let (mut ws, link) = server.joined().await;
    link.pause_reading();
    ws.send("41").await;
    socket2::SockRef::from(&ws.stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    let (reader, writer) = ws.stream.into_split();
    drop(reader);
    drop(writer);
    link.resume_reading();
    // With the goodbye read or lost in the reset, the session ends once and for good.
    assert!(matches!(
        server.closed().await,
        Ending::Closed | Ending::Broken
    ));
}

#[tokio::test]
async fn what_is_not_socket_io_closes_the_connection() {
    let mut server = Server::start(Config::default());
    for bad in [
        "4abc",
        "42{}",
        "42abc[\"x\"]",
        "abc",
        "2",
        "43[]",
        "44{}",
        "45-[]",
    ] {
        let (mut ws, _) = server.joined().await;
        ws.send(bad).await;
        assert_eq!(ws.close_code().await, 1002, "{bad}");
        assert_eq!(server.closed().await, Ending::Ours, "{bad}");
    }
}

#[tokio::test]
async fn a_panic_in_a_handler_ends_its_connection_only() {
    let mut server = Server::start(Config::default());
    let (mut other, _) = server.joined().await;
    let (mut ws, _) = server.joined().await;
    ws.send("42[\"panic\"]").await;
    assert_eq!(server.closed().await, Ending::Ours);
    assert_eq!(ws.close_code().await, 1011);
    other.send("42[\"fine\"]").await;
    assert_eq!(server.event().await, "[\"fine\"]");
}

#[tokio::test]
async fn connections_on_several_threads_all_work_and_close_frees_port_and_threads() {
    let config = Config {
        threads: 3,
        ..Config::default()
    };
    let mut server = Server::start(config);
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(server.joined().await);
    }
    let threads: std::collections::HashSet<_> =
        clients.iter().map(|(_, link)| link.thread()).collect();
    assert_eq!(threads.len(), 3);
    for (_, link) in &clients {
        link.offer(text_frame("42[\"all\"]")).unwrap();
    }
    for (ws, _) in &mut clients {
        assert_eq!(ws.text().await, "42[\"all\"]");
    }
    assert_eq!(server.transport.stats().sessions, 6);
    let addr = server.addr();
    let ends = clients.into_iter().map(|(mut ws, _)| async move {
        assert_eq!(ws.text().await, "41");
        assert_eq!(ws.close_code().await, 1000);
        drop(ws);
    });
    tokio::join!(
        server.transport.close(PATIENCE),
        futures_util::future::join_all(ends)
    );
    assert_eq!(server.transport.stats().sessions, 0);
    bind_again(addr);
    server.transport.close(PATIENCE).await;
}

fn bind_again(addr: std::net::SocketAddr) {
    restante::transport::bind(Some("127.0.0.1"), addr.port()).unwrap();
}

#[tokio::test]
async fn close_waits_for_a_deaf_client_no_longer_than_its_deadline() {
    let mut server = Server::start(Config::default());
    let (_deaf, link) = server.joined().await;
    link.offer(text_frame(&"x".repeat(15 << 20))).unwrap();
    let addr = server.addr();
    let closing = server.transport.close(Duration::from_millis(100));
    timeout(Duration::from_secs(4), closing)
        .await
        .expect("waited for the client");
    assert_eq!(server.closed().await, Ending::Ours);
    assert_eq!(server.transport.stats().sessions, 0);
    bind_again(addr);
    // A link outlives its connection and only refuses.
    assert_eq!(link.offer(text_frame("late")), None);
}

#[tokio::test]
async fn a_port_in_use_is_told_in_plain_words() {
    let server = Server::start(Config::default());
    let error = restante::transport::bind(Some("127.0.0.1"), server.addr().port()).unwrap_err();
    assert_eq!(error.code(), "config");
    assert!(error.message().contains("in use"), "{error}");
}
