//! Long polling and the upgrade from it.

use std::time::Duration;

use restante::clock::TestClock;
use restante::transport::{Config, Cors, Doors, Ending, Link};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::harness::*;

/// A session on polling that has joined `/`.
async fn joined(server: &mut Server) -> (String, Link) {
    let target = polling(server.addr()).await;
    assert_eq!(post(server, &target, "40").await, (200, "ok".to_owned()));
    let link = server.connected().await;
    let (status, body) = get(server, &target).await;
    assert_eq!(status, 200);
    assert!(body.starts_with("40{\"sid\":\""), "{body}");
    (target, link)
}

async fn get(server: &Server, target: &str) -> (u16, String) {
    http(server.addr(), "GET", target, "").await
}

async fn post(server: &Server, target: &str, body: &str) -> (u16, String) {
    http(server.addr(), "POST", target, body).await
}

/// A poll that hangs at the server: its arrival has confirmed what the poll before it got.
async fn hanging(server: &mut Server, target: &str, link: &Link) -> JoinHandle<(u16, String)> {
    let position = link.offer(text_frame("42[\"marker\"]")).unwrap();
    assert_eq!(get(server, target).await.1, "42[\"marker\"]");
    link.confirm();
    let (addr, target) = (server.addr(), target.to_owned());
    let poll = tokio::spawn(async move { http(addr, "GET", &target, "").await });
    assert!(matches!(server.next().await, Seen::Confirmed(confirmed) if confirmed == position));
    poll
}

fn as_websocket(target: &str) -> String {
    target
        .split_once('?')
        .unwrap()
        .1
        .replace("polling", "websocket")
}

#[tokio::test]
async fn packets_go_both_ways_text_and_binary() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    assert!(link.is_polling());
    let body = "42[\"a\"]\x1e451-[\"b\",{\"_placeholder\":true,\"num\":0}]\x1ebAQID";
    assert_eq!(post(&server, &target, body).await.1, "ok");
    assert_eq!(server.event().await, "[\"a\"]");
    match server.next().await {
        Seen::Event { attachments, .. } => assert_eq!(attachments, [vec![1, 2, 3]]),
        other => panic!("{other:?}"),
    }
    // Two frames in one piece, as the room above builds them.
    let mut frames = text_frame("42[\"c\"]").to_vec();
    restante::wire::frame::binary(&[1, 2, 3], &mut frames);
    link.offer(frames.into()).unwrap();
    assert_eq!(
        get(&server, &target).await,
        (200, "42[\"c\"]\x1ebAQID".to_owned())
    );
}

#[tokio::test]
async fn a_hanging_poll_is_answered_as_soon_as_there_is_something() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    let poll = hanging(&mut server, &target, &link).await;
    link.offer(text_frame("42[\"now\"]")).unwrap();
    assert_eq!(poll.await.unwrap().1, "42[\"now\"]");
}

#[tokio::test]
async fn the_next_poll_confirms_what_the_last_one_got() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    let position = link.offer(text_frame("42[\"x\"]")).unwrap();
    link.confirm();
    assert_eq!(get(&server, &target).await.1, "42[\"x\"]");
    let addr = server.addr();
    tokio::spawn(async move { http(addr, "GET", &target, "").await });
    // First what was out before, then the frame.
    loop {
        match server.next().await {
            Seen::Confirmed(confirmed) if confirmed == position => break,
            Seen::Confirmed(confirmed) => assert!(confirmed < position),
            other => panic!("{other:?}"),
        }
    }
    // Everything is confirmed already: the answer comes at once.
    link.confirm();
    assert!(matches!(server.next().await, Seen::Confirmed(confirmed) if confirmed == position));
}

#[tokio::test]
async fn an_upgrade_loses_and_reorders_nothing() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    let addr = server.addr();
    let poll = hanging(&mut server, &target, &link).await;
    let mut ws = Ws::upgrade(addr, &as_websocket(&target)).await;
    ws.send("2probe").await;
    assert_eq!(ws.text().await, "3probe");
    assert_eq!(poll.await.unwrap(), (200, "6".to_owned()));
    for number in 0..50 {
        link.offer(text_frame(&format!("42[\"n\",{number}]")))
            .unwrap();
    }
    assert_eq!(get(&server, &target).await.1, "6");
    assert!(link.is_polling());
    // The `5` and what follows it come in one read.
    let mut rest = masked_text("5");
    rest.extend(masked_text("42[\"first over websocket\"]"));
    ws.send_raw(&rest).await;
    for number in 0..50 {
        assert_eq!(ws.text().await, format!("42[\"n\",{number}]"));
    }
    assert_eq!(server.event().await, "[\"first over websocket\"]");
    assert!(!link.is_polling());
    assert_eq!(get(&server, &target).await.0, 400);
    assert_eq!(post(&server, &target, "42[\"late\"]").await.0, 400);
    // A second websocket of the same session is closed, the first stays.
    let mut second = Ws::upgrade(addr, &as_websocket(&target)).await;
    assert_eq!(second.frame().await, None);
    ws.send("42[\"alive\"]").await;
    assert_eq!(server.event().await, "[\"alive\"]");
}

#[tokio::test]
async fn an_upgrade_without_any_post_and_with_a_stray_pong_works() {
    let mut server = Server::start(Config::default());
    let target = polling(server.addr()).await;
    let mut ws = Ws::upgrade(server.addr(), &as_websocket(&target)).await;
    // All in one write: nobody waits for `3probe`.
    let frames: Vec<u8> = ["2probe", "5", "3", "40"]
        .iter()
        .flat_map(|text| masked_text(text))
        .collect();
    ws.send_raw(&frames).await;
    assert_eq!(ws.text().await, "3probe");
    assert!(ws.text().await.starts_with("40{\"sid\":"));
    server.connected().await;
}

#[tokio::test]
async fn a_failed_upgrade_leaves_the_session_on_polling() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    let mut ws = Ws::upgrade(server.addr(), &as_websocket(&target)).await;
    ws.send("2probe").await;
    assert_eq!(ws.text().await, "3probe");
    link.offer(text_frame("42[\"waits\"]")).unwrap();
    drop(ws);
    let mut bodies = Vec::new();
    while bodies.last().is_none_or(|body| body == "6") {
        bodies.push(get(&server, &target).await.1);
    }
    assert_eq!(bodies.last().unwrap(), "42[\"waits\"]");
}

#[tokio::test]
async fn a_websocket_that_takes_too_long_to_take_over_is_dropped() {
    let clock = TestClock::new();
    let mut server = Server::with_clock(Config::default(), clock.clone());
    let (target, link) = joined(&mut server).await;
    let mut ws = Ws::upgrade(server.addr(), &as_websocket(&target)).await;
    ws.send("2probe").await;
    assert_eq!(ws.text().await, "3probe");
    clock.advance(Duration::from_secs(11));
    assert_eq!(ws.frame().await, None);
    link.offer(text_frame("42[\"by polling\"]")).unwrap();
    assert_eq!(get(&server, &target).await.1, "42[\"by polling\"]");
}

#[tokio::test]
async fn overlapping_polls_end_the_session() {
    let mut server = Server::start(Config::default());
    let (target, _) = joined(&mut server).await;
    let (one, other) = tokio::join!(get(&server, &target), get(&server, &target));
    let mut answers = [one, other];
    answers.sort();
    assert_eq!(answers[0], (200, "1".to_owned()));
    assert_eq!(answers[1].0, 400);
    assert_eq!(server.closed().await, Ending::Ours);
    assert_eq!(get(&server, &target).await.0, 400);
}

#[tokio::test]
async fn a_poll_that_is_given_up_ends_the_session() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    hanging(&mut server, &target, &link).await.abort();
    assert_eq!(server.closed().await, Ending::Broken);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_post_has_broken_off() {
    let mut server = Server::start(Config::default());
    let (target, _) = joined(&mut server).await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n42[");
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream);
    assert_eq!(server.closed().await, Ending::Broken);
}

#[tokio::test]
async fn overlapping_posts_end_the_session() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    link.pause_reading();
    let (one, other) = tokio::join!(
        post(&server, &target, "42[\"a\"]"),
        post(&server, &target, "42[\"b\"]")
    );
    assert_eq!((one.0, other.0), (400, 400));
    assert_eq!(server.closed().await, Ending::Ours);
}

#[tokio::test]
async fn goodbyes_of_both_sides_end_a_hanging_poll() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    let poll = hanging(&mut server, &target, &link).await;
    assert_eq!(post(&server, &target, "1").await.1, "ok");
    assert_eq!(poll.await.unwrap().1, "6");
    assert_eq!(server.closed().await, Ending::Closed);

    let (target, link) = joined(&mut server).await;
    link.reply(text_frame("42[\"last\"]"));
    link.close();
    assert_eq!(server.closed().await, Ending::Ours);
    // A client drops what its last payload says before the close: the words come in one of their own.
    assert_eq!(get(&server, &target).await.1, "42[\"last\"]\x1e41");
    assert_eq!(get(&server, &target).await.1, "1");
    assert_eq!(get(&server, &target).await.0, 400);
}

#[tokio::test]
async fn bad_requests_get_the_codes_of_engine_io() {
    let server = Server::start(Config::default());
    for (method, query, code) in [
        ("GET", "EIO=4", 0),
        ("GET", "EIO=4&transport=pigeon", 0),
        ("GET", "EIO=4&transport=polling&sid=nobody", 1),
        ("POST", "EIO=4&transport=polling", 2),
        ("PUT", "EIO=4&transport=polling", 2),
        ("GET", "EIO=4&transport=websocket", 3),
        ("GET", "EIO=3&transport=polling", 5),
        ("GET", "transport=polling", 5),
    ] {
        for path in ["/socket.io/", "/socket.io"] {
            let (status, body) = http(server.addr(), method, &format!("{path}?{query}"), "").await;
            assert_eq!(status, 400, "{query}");
            assert!(
                body.starts_with(&format!("{{\"code\":{code},\"message\":\"")),
                "{body}"
            );
        }
    }
    assert_eq!(
        http(server.addr(), "GET", "/other", "").await,
        (403, String::new())
    );
    assert_eq!(
        http(server.addr(), "GET", "/socket.io/socket.io.js", "")
            .await
            .0,
        403
    );
}

#[tokio::test]
async fn a_body_that_is_no_payload_ends_the_session_with_400() {
    let mut server = Server::start(Config::default());
    for bad in ["abc", "b!", "42[\"ok\"]\x1e9", ""] {
        let (target, _) = joined(&mut server).await;
        assert_eq!(post(&server, &target, bad).await.0, 400, "{bad}");
        loop {
            match server.next().await {
                Seen::Closed(ending) => break assert_eq!(ending, Ending::Ours),
                Seen::Event { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(get(&server, &target).await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_transport_that_is_switched_off_is_unknown() {
    let config = Config {
        polling: false,
        ..Config::default()
    };
    let server = Server::start(config);
    let (status, body) = http(
        server.addr(),
        "GET",
        "/socket.io/?EIO=4&transport=polling",
        "",
    )
    .await;
    assert_eq!((status, &body[..9]), (400, "{\"code\":0"));
    Ws::open(server.addr()).await;
}

#[tokio::test]
async fn a_page_of_a_foreign_origin_is_refused_unless_listed() {
    let cors = Cors {
        origins: vec!["https://good.example".to_owned()],
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        credentials: true,
    };
    let config = Config {
        doors: Doors {
            cors: Some(cors),
            ..Doors::default()
        }
        .shared(),
        ..Config::default()
    };
    let server = Server::start(config);
    let addr = server.addr();
    let target = "/socket.io/?EIO=4&transport=polling";
    for origin in [
        "https://evil.example",
        "null",
        "https://good.example.evil.example",
    ] {
        let header = format!("Origin: {origin}\r\n");
        let (head, body) = http_with(addr, "GET", target, &header, b"").await;
        assert_eq!(
            (status(&head), &body[..9]),
            (403, "{\"code\":4"),
            "{origin}"
        );
        let (head, _) = Ws::try_upgrade(addr, "EIO=4&transport=websocket", &header).await;
        assert_eq!(status(&head), 403, "{origin}");
    }
    let same_host = format!("Origin: http://{addr}\r\n");
    assert_eq!(
        status(&http_with(addr, "GET", target, &same_host, b"").await.0),
        200
    );
    let (head, _) = http_with(addr, "GET", target, "Origin: https://good.example\r\n", b"").await;
    assert_eq!(status(&head), 200);
    assert!(
        head.contains("access-control-allow-origin: https://good.example\r\n"),
        "{head}"
    );
    assert!(
        head.contains("access-control-allow-credentials: true"),
        "{head}"
    );
    let preflight = "Origin: https://good.example\r\nAccess-Control-Request-Headers: x-a\r\n";
    let (head, _) = http_with(addr, "OPTIONS", target, preflight, b"").await;
    assert_eq!(status(&head), 204);
    assert!(
        head.contains("access-control-allow-methods: GET,POST"),
        "{head}"
    );
    assert!(head.contains("access-control-allow-headers: x-a"), "{head}");
}

#[tokio::test]
async fn a_session_served_by_several_threads_stays_in_order() {
    let config = Config {
        threads: 3,
        ..Config::default()
    };
    let mut server = Server::start(config);
    // Each request is a connection of its own, so they are dealt to different threads.
    let (target, _) = joined(&mut server).await;
    for number in 0..9 {
        assert_eq!(
            post(&server, &target, &format!("42[{number}]")).await.1,
            "ok"
        );
        assert_eq!(server.event().await, format!("[{number}]"));
    }
    let mut ws = Ws::upgrade(server.addr(), &as_websocket(&target)).await;
    ws.send("2probe").await;
    assert_eq!(ws.text().await, "3probe");
    ws.send("5").await;
    ws.send("42[\"over\"]").await;
    assert_eq!(server.event().await, "[\"over\"]");
}

#[tokio::test]
async fn a_post_waits_while_reading_is_paused_and_polls_go_on() {
    let mut server = Server::start(Config::default());
    let (target, link) = joined(&mut server).await;
    link.pause_reading();
    let posted = http(server.addr(), "POST", &target, "42[\"later\"]");
    tokio::pin!(posted);
    assert!(
        timeout(Duration::from_millis(50), &mut posted)
            .await
            .is_err()
    );
    link.offer(text_frame("42[\"out\"]")).unwrap();
    assert_eq!(get(&server, &target).await.1, "42[\"out\"]");
    link.resume_reading();
    assert_eq!(posted.await.1, "ok");
    assert_eq!(server.event().await, "[\"later\"]");
}
