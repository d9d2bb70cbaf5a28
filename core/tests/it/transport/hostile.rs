//! Input that nobody should send ends its own connection at most (P26).

use restante::transport::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::harness::*;

fn bytes(random: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let len = random.usize(..most);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// A packet that is nearly right: pieces of the protocol in any order.
fn packet(random: &mut fastrand::Rng) -> String {
    const PIECES: &[&str] = &[
        "4",
        "40",
        "41",
        "42",
        "43",
        "44",
        "45",
        "46",
        "1",
        "2",
        "3",
        "5",
        "6",
        "0",
        "/",
        "/custom,",
        "7",
        "-",
        "2-",
        "[\"x\"]",
        "[",
        "{}",
        "{\"_placeholder\":true,\"num\":0}",
        "é",
        "\u{0}",
        ",",
        "99999999999999999999",
    ];
    (0..random.usize(..5))
        .map(|_| PIECES[random.usize(..PIECES.len())])
        .collect()
}

#[tokio::test]
async fn no_frames_packets_or_requests_of_any_kind_hurt_anybody_else() {
    let mut server = Server::start(Config::default());
    let addr = server.addr();
    let mut random = fastrand::Rng::with_seed(17_352);
    let (mut witness, _) = server.joined().await;

    for _ in 0..150 {
        let mut ws = Ws::open(addr).await;
        let mut input = masked_text("40");
        for _ in 0..random.usize(1..8) {
            match random.u8(..4) {
                0 => input.extend(bytes(&mut random, 60)),
                1 => input.extend(masked(random.u8(..), &bytes(&mut random, 200))),
                _ => input.extend(masked_text(&packet(&mut random))),
            }
        }
        // The server may have closed in the middle of it.
        let _ = ws.stream.write_all(&input).await;
        let _ = ws.stream.shutdown().await;
        let drained = async { while ws.stream.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {} };
        timeout(PATIENCE, drained)
            .await
            .expect("the server kept a dead connection");
    }
    for _ in 0..60 {
        let target = polling(addr).await;
        let body = (0..random.usize(1..4))
            .map(|_| packet(&mut random))
            .collect::<Vec<_>>();
        let (status, _) = http(addr, "POST", &target, &body.join("\u{1e}")).await;
        assert!(status == 200 || status == 400, "{status}");
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let _ = stream.write_all(&bytes(&mut random, 300)).await;
        let _ = stream.write_all(b"\r\n\r\n").await;
        drop(stream);
    }

    witness.send("42[\"still here\"]").await;
    let heard = async {
        loop {
            match server.next().await {
                Seen::Event { args, .. } if args == "[\"still here\"]" => break,
                _ => {}
            }
        }
    };
    timeout(PATIENCE, heard)
        .await
        .expect("the witness was hurt");
}
