//! What keeps a connection down, and how it is closed.

use serde_json::json;

use super::script::{Script, Seen, confirm, produce, soon};
use super::*;

#[tokio::test]
async fn a_duplicate_consumer_stays_down_and_says_why() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let mut peer = script.accept().await;
    for name in ["CONSUMER", "PRODUCER", "PING"] {
        assert_eq!(peer.event().await.name, name);
    }
    let refusal = json!({"code": -3, "message": "duplicate consumer"});
    peer.emit("ERROR", refusal).await;
    peer.say("41").await;
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateConsumer);
    assert_eq!(client.event("down").await, "down duplicate_consumer");
    assert_eq!(
        client.next().await,
        Seen::Event("closed".into()),
        "nothing follows"
    );
    assert!(!script.is_tried(SECOND / 5).await);
    let error = client.connection.produce(&produce("1"), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateConsumer);
    soon(client.connection.close(SECOND)).await.unwrap();
}

#[tokio::test]
async fn a_login_comes_before_everything_else_and_may_be_refused() {
    let script = Script::start().await;
    let auth = Auth {
        token: Some("secret".into()),
        realm: Some("shop".into()),
        ..Auth::default()
    };
    let options = ConnectOptions {
        auth: Some(auth),
        ..script.options()
    };
    let mut client = script.open(options.clone());
    let mut peer = script.accept().await;
    let login = peer.event().await;
    assert_eq!(login.name, "AUTHENTICATION");
    assert_eq!(login.payload, json!({"token": "secret", "realm": "shop"}));
    peer.emit("AUTH_OK", json!({"realm": "shop", "role": "both"}))
        .await;
    assert_eq!(peer.event().await.name, "CONSUMER");
    let connected = client.event("connected").await;
    assert!(connected.contains("shop"), "{connected}");

    let mut client = script.open(options.clone());
    let mut peer = script.accept().await;
    assert_eq!(peer.event().await.name, "AUTHENTICATION");
    peer.emit(
        "AUTH_FAIL",
        json!({"code": 401, "message": "no such token"}),
    )
    .await;
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert_eq!(error.message(), "no such token");
    client.event("down unauthenticated").await;

    let mut silent = options;
    silent.auth = silent.auth.map(|auth| Auth {
        timeout: Duration::from_millis(20),
        ..auth
    });
    let client = script.open(silent);
    let _peer = script.accept().await;
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn close_says_goodbye_and_settles_everything() {
    let script = Script::start().await;
    let client = script.open(script.options());
    let mut peer = script.first().await;
    soon(client.connection.ready()).await.unwrap();
    let reply = client.connection.request("ASK", "1", &[], 10 * SECOND);
    client.connection.produce(&produce("1"), None).unwrap();
    let unanswered = confirm(&client.connection, &produce("2"), 10 * SECOND);
    let connection = client.connection.clone();
    let closing = tokio::spawn(async move { connection.close(SECOND / 4).await });
    for name in ["ASK", "PRODUCE", "PRODUCE"] {
        assert_eq!(peer.event().await.name, name);
    }
    assert_eq!(peer.text().await, "41");
    while peer.message().await.is_some() {}
    drop(peer);
    soon(closing).await.unwrap().unwrap();
    assert_eq!(
        soon(unanswered).await.unwrap_err().kind(),
        ErrorKind::Disconnected
    );
    assert_eq!(
        soon(reply).await.unwrap_err().kind(),
        ErrorKind::Disconnected
    );
    soon(client.connection.close(SECOND)).await.unwrap();
    let (_, answer) = client.connection.subscribe(Subscribe::to("paid"));
    assert_eq!(
        soon(answer).await.unwrap_err().kind(),
        ErrorKind::Disconnected
    );
    assert!(!script.is_tried(SECOND / 10).await);
}

#[tokio::test]
async fn without_a_server_connect_timeout_and_close_end_the_wait() {
    let script = Script::start().await;
    let gone = ConnectOptions {
        connect_timeout: Some(SECOND / 20),
        ..script.options()
    };
    drop(script);
    let elsewhere = Script::start().await;
    let mut client = elsewhere.open(gone.clone());
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    client.event("down timeout").await;

    let client = elsewhere.open(ConnectOptions {
        connect_timeout: None,
        ..gone.clone()
    });
    let waiting = confirm(&client.connection, &produce("1"), 10 * SECOND);
    soon(client.connection.close(SECOND)).await.unwrap();
    assert_eq!(
        soon(waiting).await.unwrap_err().kind(),
        ErrorKind::Disconnected
    );
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);

    let client = elsewhere.open(ConnectOptions {
        protocol: "gopher".into(),
        ..gone
    });
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_server_that_answers_no_registration_is_ready_after_its_ping() {
    let script = Script::start().await;
    let client = script.open(script.options());
    // The first link ends before it was ready, so the second asks again.
    let mut peer = script.accept().await;
    assert_eq!(peer.event().await.name, "CONSUMER");
    peer.kill();
    let mut peer = script.accept().await;
    for name in ["CONSUMER", "PRODUCER"] {
        assert_eq!(peer.event().await.name, name);
    }
    let ping = peer.event().await;
    assert_eq!(ping.name, "PING");
    peer.reply(&ping, json!("{}")).await;
    soon(client.connection.ready()).await.unwrap();
}

#[tokio::test]
async fn a_refused_registration_is_what_ready_says() {
    let script = Script::start().await;
    let client = script.open(script.options());
    let mut peer = script.accept().await;
    let consumer = peer.event().await;
    let refusal = json!({"ok": false, "code": 403, "error": "forbidden", "message": "no"});
    peer.reply(&consumer, refusal).await;
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_connection_that_is_to_be_made_once_stays_down_when_it_is_lost() {
    let script = Script::start().await;
    let options = ConnectOptions {
        once: true,
        ..script.options()
    };
    let mut client = script.open(options.clone());
    let peer = script.first().await;
    soon(client.connection.ready()).await.unwrap();
    peer.kill();
    client.event("down disconnected").await;
    client.event("closed").await;

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let client = script.open(ConnectOptions { port, ..options });
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected);
}

#[tokio::test]
async fn who_was_let_in_before_tries_again_when_only_the_moment_was_wrong() {
    let script = Script::start().await;
    let options = ConnectOptions {
        auth: Some(Auth {
            token: Some("t".into()),
            ..Auth::default()
        }),
        ..script.options()
    };
    let mut client = script.open(options);
    let mut peer = script.accept().await;
    for (answer, payload) in [
        ("AUTH_OK", json!({ "realm": "r", "role": "both" })),
        ("AUTH_FAIL", json!({ "code": 429, "message": "too many" })),
        ("AUTH_OK", json!({ "realm": "r", "role": "both" })),
        ("AUTH_FAIL", json!({ "code": 401, "message": "gone" })),
    ] {
        assert_eq!(peer.event().await.name, "AUTHENTICATION");
        peer.emit(answer, payload.clone()).await;
        if payload["code"] == 401 {
            client.event("down unauthenticated").await;
            return;
        }
        if answer == "AUTH_OK" {
            client.event("connected").await;
        }
        peer.kill();
        peer = script.accept().await;
    }
}

fn one_too_many() -> serde_json::Value {
    json!({"code": 429, "error": "rate_limited", "message": "too much in too short a time",
        "reason": "max_connections_per_ip", "retry_after": 30})
}

#[tokio::test]
async fn a_first_connection_that_is_one_too_many_stays_down_and_says_why() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    let mut peer = script.accept().await;
    peer.emit("RATE_LIMITED", one_too_many()).await;
    peer.say("41").await;
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(30));
    assert!(
        error.message().contains("max_connections_per_ip"),
        "{error}"
    );
    client.event("down rate_limited").await;
    assert!(!script.is_tried(SECOND / 10).await);
}

#[tokio::test]
async fn who_was_connected_before_hears_once_that_it_is_one_too_many_and_comes_back() {
    let script = Script::start().await;
    let mut client = script.open(script.options());
    script.first().await.kill();
    client.event("disconnected").await;
    for _ in 0..3 {
        let mut peer = script.registered().await;
        peer.emit("RATE_LIMITED", one_too_many()).await;
        peer.kill();
    }
    let told = client.event("waiting").await;
    assert!(told.starts_with("waiting rate_limited"), "{told}");
    let mut peer = script.registered().await;
    // A notice to a session that goes on is no end.
    let notice = json!({"code": 429, "reason": "messages_per_second", "retry_after": 1});
    peer.emit("RATE_LIMITED", notice).await;
    peer.emit("mark", json!(1)).await;
    let mut seen = Vec::new();
    loop {
        match client.next().await {
            Seen::Event(text) if text == "mark 1" => break,
            Seen::Event(text) => seen.push(text),
            Seen::Delivery { .. } => {}
        }
    }
    let count = |start: &str| seen.iter().filter(|text| text.starts_with(start)).count();
    assert_eq!(
        (count("waiting"), count("RATE_LIMITED")),
        (0, 1),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_server_that_is_missing_is_told_once_and_still_waited_for() {
    let script = Script::start().await;
    let options = script.options();
    let port = options.port;
    drop(script);
    let elsewhere = Script::start().await;
    let mut client = elsewhere.open(options);
    let told = client.event("waiting disconnected").await;
    assert!(told.contains(&format!("127.0.0.1:{port}")), "{told}");
    // It is there in the end.
    let late = Script::at(port).await;
    let _peer = late.first().await;
    soon(client.connection.ready()).await.unwrap();
    assert_eq!(client.count("waiting"), 0);
}

#[tokio::test]
async fn a_port_that_speaks_tls_is_named_as_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let alert = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 16];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut request)
            .await
            .unwrap();
        let alert = [0x15, 3, 3, 0, 2, 2, 70];
        tokio::io::AsyncWriteExt::write_all(&mut stream, &alert)
            .await
            .unwrap();
        stream
    });
    let script = Script::start().await;
    let client = script.open(ConnectOptions {
        port,
        once: true,
        ..script.options()
    });
    let error = soon(client.connection.ready()).await.unwrap_err();
    assert!(
        error
            .message()
            .contains(&format!("use https://127.0.0.1:{port}")),
        "{error}"
    );
    drop(alert);
}
