//! Heartbeats, confirmations and silence (P6, P24), on a clock that moves when told to.

use std::sync::Arc;
use std::time::Duration;

use restante::clock::TestClock;
use restante::transport::{Config, Ending};
use tokio::time::timeout;

use super::harness::*;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn start() -> (Server, Arc<TestClock>) {
    let clock = TestClock::new();
    (Server::with_clock(Config::default(), clock.clone()), clock)
}

/// A round trip: everything the server had to do for this connection before is done.
async fn settle(server: &mut Server, ws: &mut Ws) {
    ws.send("42[\"settle\"]").await;
    assert_eq!(server.event().await, "[\"settle\"]");
}

#[tokio::test]
async fn heartbeats_start_with_the_first_namespace_and_wait_for_their_pong() {
    let (mut server, clock) = start();
    let mut idle = Ws::open(server.addr()).await;
    clock.advance(secs(30));
    // No ping came before CONNECT: the reply is the first frame.
    idle.send("40").await;
    assert!(idle.text().await.starts_with("40"));
    server.connected().await;
    clock.advance(secs(25));
    assert_eq!(idle.text().await, "2");
    // The next is due, but one is out: nothing is written until the pong.
    settle(&mut server, &mut idle).await;
    clock.advance(secs(25));
    settle(&mut server, &mut idle).await;
    clock.advance(secs(25));
    idle.send("3").await;
    settle(&mut server, &mut idle).await;
    clock.advance(secs(25));
    assert_eq!(idle.text().await, "2");
}

#[tokio::test]
async fn a_confirmation_is_the_pong_to_a_ping_behind_the_frames() {
    let (mut server, _clock) = start();
    let (mut ws, link) = server.joined().await;
    let first = link.offer(text_frame("42[1]")).unwrap();
    link.confirm();
    let second = link.offer(text_frame("42[2]")).unwrap();
    // Asked again while one is out: no second ping yet.
    link.confirm();
    link.probe();
    assert_eq!(ws.text().await, "42[1]");
    assert_eq!(ws.text().await, "2");
    assert_eq!(ws.text().await, "42[2]");
    ws.send("3").await;
    assert!(matches!(server.next().await, Seen::Confirmed(position) if position == first));
    assert_eq!(ws.text().await, "2");
    ws.send("3").await;
    match server.next().await {
        Seen::Confirmed(position) => assert!(position >= second),
        other => panic!("{other:?}"),
    }
    // A stray pong confirms nothing: the next thing seen is the event behind it.
    ws.send("3").await;
    settle(&mut server, &mut ws).await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_for_interval_and_timeout_is_silent() {
    let (mut server, clock) = start();
    let (mut ws, link) = server.joined().await;
    clock.advance(secs(44));
    settle(&mut server, &mut ws).await;
    assert_eq!(link.silence(), secs(0));
    clock.advance(secs(44));
    assert_eq!(link.silence(), secs(44));
    clock.advance(secs(1));
    assert_eq!(server.closed().await, Ending::Silent);
}

#[tokio::test]
async fn the_clock_of_silence_stands_still_while_reading_is_paused() {
    let (mut server, clock) = start();
    let (mut ws, link) = server.joined().await;
    let (mut other, _) = server.joined().await;
    link.pause_reading();
    link.pause_reading();
    ws.send("42[\"unread\"]").await;
    clock.advance(secs(40));
    settle(&mut server, &mut other).await;
    clock.advance(secs(40));
    // The other one, which is read and says nothing, proves that the ticks have passed.
    settle(&mut server, &mut other).await;
    assert_eq!(link.silence(), secs(0));
    link.resume_reading();
    settle(&mut server, &mut other).await;
    link.resume_reading();
    assert_eq!(server.event().await, "[\"unread\"]");
}

#[tokio::test]
async fn a_client_that_joins_nothing_is_closed() {
    let clock = TestClock::new();
    let config = Config {
        connect_timeout: secs(10),
        ..Config::default()
    };
    let server = Server::with_clock(config, clock.clone());
    let mut ws = Ws::open(server.addr()).await;
    clock.advance(secs(11));
    assert_eq!(ws.close_code().await, 1002);
}

#[tokio::test]
async fn a_silent_poller_is_refused_at_the_exact_moment() {
    let (mut server, clock) = start();
    let target = polling(server.addr()).await;
    http(server.addr(), "POST", &target, "40").await;
    server.connected().await;
    clock.advance(secs(45));
    assert_eq!(http(server.addr(), "GET", &target, "").await.0, 400);
    assert_eq!(server.closed().await, Ending::Silent);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_tells_whether_the_peer_has_acknowledged() {
    let (mut server, _clock) = start();
    let (mut ws, link) = server.joined().await;
    settle(&mut server, &mut ws).await;
    link.reply(text_frame("42[1]"));
    assert_eq!(ws.text().await, "42[1]");
    let acknowledged = async {
        while link.acknowledged() != Some(true) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, acknowledged)
        .await
        .expect("never acknowledged");
}
