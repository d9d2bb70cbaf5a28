//! Sizes, permits and slow readers (P21, P23, P25).

use std::time::Duration;

use restante::clock::TestClock;
use restante::transport::{Config, Ending};
use tokio::time::timeout;

use super::harness::*;

const MIB: usize = 1 << 20;

fn small() -> Config {
    Config {
        max_message_bytes: MIB,
        ..Config::default()
    }
}

/// An event of `size` bytes of text.
fn event(size: usize) -> String {
    format!("42[\"{}\"]", "x".repeat(size - 6))
}

#[tokio::test]
async fn a_single_frame_of_five_mebibytes_is_taken() {
    let mut server = Server::start(Config::default());
    let (mut ws, _) = server.joined().await;
    ws.send(&event(5 * MIB)).await;
    assert_eq!(server.event().await.len(), 5 * MIB - 2);
    server.until(|stats| stats.inflight_bytes == 0).await;
}

#[tokio::test]
async fn an_oversize_frame_is_thrown_away_and_the_connection_stays() {
    let mut server = Server::start(small());
    let (mut ws, _) = server.joined().await;
    ws.send(&event(3 * MIB)).await;
    assert!(matches!(server.next().await, Seen::Oversize(size) if size == 3 * MIB as u64));
    ws.send("42[\"next\"]").await;
    assert_eq!(server.event().await, "[\"next\"]");
    // Beyond twice the limit (of 1 MiB for the message and 1 MiB around it) the header is enough.
    ws.send_raw(&masked_text(&event(4 * MIB + 1))[..100]).await;
    assert_eq!(server.closed().await, Ending::Ours);
    assert_eq!(ws.close_code().await, 1009);
}

#[tokio::test]
async fn an_oversize_attachment_takes_its_event_along() {
    let mut server = Server::start(small());
    let (mut ws, _) = server.joined().await;
    ws.send("452-[\"lost\"]").await;
    ws.send_raw(&masked(0x82, &vec![0; 3 * MIB])).await;
    ws.send_raw(&masked(0x82, &[1])).await;
    ws.send("42[\"next\"]").await;
    assert!(matches!(server.next().await, Seen::Oversize(_)));
    assert_eq!(server.event().await, "[\"next\"]");
}

#[tokio::test]
async fn an_oversize_post_is_thrown_away_and_the_session_stays() {
    let mut server = Server::start(small());
    let addr = server.addr();
    let target = polling(addr).await;
    http(addr, "POST", &target, "40").await;
    server.connected().await;
    assert_eq!(http(addr, "POST", &target, &event(3 * MIB)).await.0, 200);
    assert!(matches!(server.next().await, Seen::Oversize(_)));
    assert_eq!(http(addr, "POST", &target, "42[\"next\"]").await.0, 200);
    assert_eq!(server.event().await, "[\"next\"]");
    let header = format!(
        "POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        5 * MIB
    );
    assert!(raw(addr, &header).await.starts_with("HTTP/1.1 413 "));
    assert_eq!(server.closed().await, Ending::Ours);
}

async fn raw(addr: std::net::SocketAddr, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = vec![0; 4096];
    let count = timeout(PATIENCE, stream.read(&mut response))
        .await
        .unwrap()
        .unwrap();
    String::from_utf8_lossy(&response[..count]).into_owned()
}

#[tokio::test]
async fn fragments_are_limited_in_sum() {
    let mut server = Server::start(small());
    let (mut ws, _) = server.joined().await;
    ws.send_raw(&masked(0x01, b"42[\"")).await;
    ws.send_raw(&masked(0x80, b"joined\"]")).await;
    assert_eq!(server.event().await, "[\"joined\"]");
    ws.send_raw(&masked(0x01, &vec![b'x'; MIB])).await;
    ws.send_raw(&masked(0x00, &vec![b'x'; MIB])).await;
    ws.send_raw(&masked(0x80, b"x")[..6]).await;
    assert_eq!(server.closed().await, Ending::Ours);
    assert_eq!(ws.close_code().await, 1009);
}

#[tokio::test]
async fn a_large_frame_waits_for_its_permit_and_is_not_read_meanwhile() {
    let clock = TestClock::new();
    let config = Config {
        max_inflight_bytes: MIB,
        ..Config::default()
    };
    let mut server = Server::with_clock(config, clock.clone());
    let (mut ws, link) = server.joined().await;
    let (mut unlucky, _) = server.joined().await;
    let permit = link.permit(MIB).unwrap();
    assert!(link.permit(1).is_none());
    // Small frames pass without; a large one holds up what is behind it on its own connection.
    ws.send("42[\"small\"]").await;
    assert_eq!(server.event().await, "[\"small\"]");
    ws.send(&event(300_000)).await;
    ws.send("42[\"behind\"]").await;
    unlucky.send("42[\"other\"]").await;
    assert_eq!(server.event().await, "[\"other\"]");
    clock.advance(Duration::from_secs(29));
    drop(permit);
    assert_eq!(server.event().await.len(), 299_998);
    assert_eq!(server.event().await, "[\"behind\"]");
    server.until(|stats| stats.inflight_bytes == 0).await;

    let _permit = link.permit(MIB).unwrap();
    unlucky.send(&event(300_000)).await;
    let ending = async {
        loop {
            // The wait may begin after this step of the clock: so another follows.
            clock.advance(Duration::from_secs(10));
            ws.send("42[\"beat\"]").await;
            match server.next().await {
                Seen::Closed(ending) => break ending,
                Seen::Event { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, ending).await.unwrap(), Ending::Ours);
}

#[tokio::test]
async fn an_address_without_credential_gets_its_share_only() {
    let config = Config {
        max_inflight_per_address: MIB,
        ..Config::default()
    };
    let mut server = Server::start(config);
    let (_ws, link) = server.joined().await;
    let _first = link.permit(MIB).unwrap();
    assert!(link.permit(1).is_none());
    link.set_trusted(true);
    assert!(link.permit(MIB).is_some());
}

#[tokio::test]
async fn a_full_line_refuses_tells_when_it_has_room_and_delays_nobody() {
    let config = Config {
        max_outbound_bytes: 8 * MIB,
        ..Config::default()
    };
    let mut server = Server::start(config);
    let (mut slow, link) = server.joined().await;
    let (mut quick, other) = server.joined().await;
    // One message may be larger than the bound, if nothing waits.
    let large = text_frame(&event(9 * MIB));
    link.offer(large.clone()).unwrap();
    let part = text_frame(&event(MIB));
    while link.offer(part.clone()).is_some() {}
    assert!(link.room() < part.len());
    other.offer(text_frame("42[\"quick\"]")).unwrap();
    assert_eq!(quick.text().await, "42[\"quick\"]");
    // Replies are taken, but nothing more is read.
    link.reply(large);
    slow.send("42[\"unread\"]").await;
    quick.send("42[\"read\"]").await;
    assert_eq!(server.event().await, "[\"read\"]");
    assert_eq!(slow.text().await.len(), 9 * MIB);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        tokio::select! {
            frame = slow.frame() => assert!(frame.unwrap().1.len() >= MIB),
            next = server.next() => seen.push(next),
        }
    }
    let (mut writable, mut read) = (0, 0);
    for saw in seen {
        match saw {
            Seen::Writable => writable += 1,
            Seen::Event { args, .. } if args == "[\"unread\"]" => read += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((writable, read), (1, 1));
}

#[tokio::test]
async fn lines_are_bounded_in_sum_but_an_empty_one_takes_a_message() {
    let config = Config {
        max_outbound_total: 32 * MIB,
        ..Config::default()
    };
    let mut server = Server::start(config);
    let (_one, first) = server.joined().await;
    let (_two, second) = server.joined().await;
    let (mut quick, third) = server.joined().await;
    // More than sockets take by themselves: the rest waits in the lines.
    let part = text_frame(&event(4 * MIB));
    for link in [&first, &second] {
        while link.room() >= part.len() && link.offer(part.clone()).is_some() {}
    }
    // Each line would take more, all of them together would not.
    assert!(second.offer(text_frame(&event(12 * MIB))).is_none());
    third.offer(text_frame("42[\"quick\"]")).unwrap();
    assert_eq!(quick.text().await, "42[\"quick\"]");
}

#[tokio::test]
async fn a_reader_that_stands_still_is_cut() {
    let clock = TestClock::new();
    let mut server = Server::with_clock(Config::default(), clock.clone());
    let (mut stuck, link) = server.joined().await;
    link.offer(text_frame(&event(15 * MIB))).unwrap();
    // It still sends, so it is not silent; it only does not read.
    let ending = async {
        loop {
            clock.advance(Duration::from_secs(10));
            stuck.send("42[\"beat\"]").await;
            match server.next().await {
                Seen::Closed(ending) => break ending,
                Seen::Event { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, ending).await.unwrap(), Ending::Ours);
}

#[tokio::test]
async fn connections_above_the_limit_are_refused() {
    let config = Config {
        max_connections: 2,
        ..Config::default()
    };
    let mut server = Server::start(config);
    let (one, _) = server.joined().await;
    let (_two, _) = server.joined().await;
    let mut third = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let mut byte = [0];
    let read = tokio::io::AsyncReadExt::read(&mut third, &mut byte);
    assert!(matches!(
        timeout(PATIENCE, read).await.unwrap(),
        Ok(0) | Err(_)
    ));
    drop(one);
    assert_eq!(server.closed().await, Ending::Broken);
    server.until(|stats| stats.sockets == 1).await;
    let _again = server.joined().await;
}
