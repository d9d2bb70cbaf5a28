//! Limits over real sockets: what passes, what the client hears, and what others notice (P25).

use std::sync::Arc;
use std::time::Duration;

use restante::ErrorKind;
use restante::client::{
    Client, ClientEvent, ConnectOptions, Connection, Delivery, Identity, Sink, Subscribe,
};
use restante::model::RealmId;
use restante::server::{Server, ServerConfig};
use serde_json::{Value, json};

use crate::harness::{Client as Raw, House, On};
use crate::sqlite::process::{SECOND, soon};
use crate::sqlite::swap::client;
use crate::transport::harness::Ws;

async fn start(options: Value) -> Server {
    let mut all = json!({"host": "127.0.0.1", "port": 0});
    let more = options.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(more);
    let (config, _) = ServerConfig::from_options(&all.to_string()).unwrap();
    Server::start(config).await.unwrap()
}

fn limited(server: &Server, reason: &str) -> u64 {
    server.metrics().rate_limited.counter(&[reason]).get()
}

/// A server whose clock stands still.
async fn house(limits: Value) -> House {
    let options = json!({ "limits": limits }).to_string();
    let (read, _) = ServerConfig::from_options(&options).unwrap();
    let limits = read.limits.clone();
    House::start(On::Memory, Default::default(), |config| {
        config.limits = limits
    })
    .await
}

#[tokio::test]
async fn a_burst_passes_and_the_rest_is_refused_by_name_while_others_go_on() {
    let house = house(json!({"messages_per_second": 20})).await;
    let client: Client = client(&house.server);
    let greedy = soon(client.producer("greedy")).await.unwrap();
    let modest = soon(client.producer("modest")).await.unwrap();
    let all = (0..500).map(|_| greedy.confirm("paid", &1));
    let outcomes: Vec<_> = soon(futures_util::future::join_all(all)).await;
    let (passed, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((passed.len(), refused.len()), (60, 440));
    for error in refused.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(1));
    }
    soon(modest.confirm("paid", &1)).await.unwrap();
    assert_eq!(limited(&house.server, "messages_per_second"), 440);
    house.clock.advance(Duration::from_secs(1));
    soon(greedy.confirm("paid", &1)).await.unwrap();
    for producer in [greedy, modest] {
        soon(producer.connection().close(SECOND)).await.unwrap();
    }
    house.close().await;
}

#[tokio::test]
async fn the_notice_comes_once_a_second_and_a_guaranteed_message_is_never_dropped_in_silence() {
    let house = house(json!({"messages_per_second": 1, "message_burst": 1})).await;
    let mut producer = house.producer("p").await;
    let plain = json!({"event": "e", "message": 1, "from": "p"});
    let guaranteed = json!({"event": "e", "message": 1, "from": "p", "guaranteed": true});
    for _ in 0..5 {
        producer.say("PRODUCE", &plain).await;
    }
    producer.say("PRODUCE", &guaranteed).await;
    producer.sync().await;
    let told = producer.take("RATE_LIMITED");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["code"], 429);
    assert_eq!(told[0]["reason"], "messages_per_second");
    assert_eq!(told[0]["retry_after"], 1);
    let errors = producer.take("ERROR");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["error"], "rate_limited");
    let answer = producer.call("PRODUCE", &plain).await;
    assert_eq!(
        (
            &answer["ok"],
            &answer["code"],
            &answer["error"],
            &answer["retry_after"]
        ),
        (
            &json!(false),
            &json!(429),
            &json!("rate_limited"),
            &json!(1)
        )
    );
    house.clock.advance(Duration::from_millis(1500));
    for _ in 0..3 {
        producer.say("PRODUCE", &plain).await;
    }
    producer.sync().await;
    assert_eq!(producer.take("RATE_LIMITED").len(), 1);
    drop(producer);
    house.close().await;
}

#[tokio::test]
async fn a_message_over_the_burst_is_told_that_it_never_passes() {
    let house = house(json!({"bytes_per_second": 500})).await;
    let mut producer = house.producer("p").await;
    let large = json!({"event": "e", "message": "x".repeat(2000), "from": "p"});
    let answer = producer.call("PRODUCE", &large).await;
    assert_eq!(answer["reason"], "message_too_large");
    assert_eq!(answer["retry_after"], Value::Null);
    let small = json!({"event": "e", "message": 1, "from": "p"});
    assert_eq!(producer.call("PRODUCE", &small).await["ok"], true);
    assert_eq!(limited(&house.server, "message_too_large"), 1);
    drop(producer);
    house.close().await;
}

#[tokio::test]
async fn names_and_subscriptions_are_counted_down_again_and_the_same_again_is_free() {
    let limits = json!({"max_registrations_per_socket": 2, "max_subscriptions_per_socket": 2});
    let house = house(limits).await;
    let mut session = house.consumer("a").await;
    let producer = json!({"name": "b"});
    assert_eq!(session.call("PRODUCER", &producer).await["ok"], true);
    assert_eq!(session.call("PRODUCER", &producer).await["ok"], true);
    let refused = session.call("PRODUCER", &json!({"name": "c"})).await;
    assert_eq!(refused["reason"], "max_registrations_per_socket");
    assert_eq!(refused["retry_after"], 60);
    let named = json!({"name": "d"});
    assert_eq!(
        session.call("CONSUMER", &named).await["error"],
        "rate_limited"
    );
    let to = |event: &str| json!({"event": event, "consumer": "a", "producer": "p"});
    for event in ["x", "y", "x", "y"] {
        assert_eq!(session.call("SUBSCRIBE", &to(event)).await["ok"], true);
    }
    let refused = session.call("SUBSCRIBE", &to("z")).await;
    assert_eq!(refused["reason"], "max_subscriptions_per_socket");
    assert_eq!(session.call("UNSUBSCRIBE", &to("x")).await["ok"], true);
    assert_eq!(session.call("SUBSCRIBE", &to("z")).await["ok"], true);
    drop(session);
    house.close().await;
}

#[tokio::test]
async fn without_a_block_and_without_authentication_a_session_subscribes_as_often_as_it_likes() {
    let server = start(json!({})).await;
    let consumer = soon(client(&server).consumer("many")).await.unwrap();
    let all = (0..1_500).map(|n| consumer.subscribe(Subscribe::to(format!("event-{n}"))));
    for outcome in soon(futures_util::future::join_all(all)).await {
        outcome.unwrap();
    }
    soon(consumer.connection().close(SECOND)).await.unwrap();
    server.close(SECOND).await.unwrap();
}

/// Connects through a proxy that says who is behind it; the first event, if it is turned away.
async fn behind(server: &Server, hops: &str) -> (Option<String>, Ws) {
    let headers = format!("x-forwarded-for: {hops}\r\n");
    let query = "EIO=4&transport=websocket";
    let (head, mut ws) = Ws::try_upgrade(server.local_addr(), query, &headers).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(ws.text().await.starts_with('0'));
    ws.send("40").await;
    assert!(ws.text().await.starts_with("40"));
    ws.send(r#"420["PING",{}]"#).await;
    let answer = ws.text().await;
    let is_turned_away = answer.starts_with("42[\"RATE_LIMITED\"");
    (is_turned_away.then_some(answer), ws)
}

#[tokio::test]
async fn connections_of_an_address_are_bounded_and_a_forged_hop_does_not_help() {
    let limits = json!({"max_connections_per_ip": 2, "trust_proxy": ["127.0.0.1"]});
    let server = start(json!({ "limits": limits })).await;
    let (one, first) = behind(&server, "192.0.2.1, 198.51.100.7").await;
    let (two, _second) = behind(&server, "192.0.2.2, 198.51.100.7").await;
    assert_eq!((one, two), (None, None));
    let (refused, mut third) = behind(&server, "192.0.2.3, 198.51.100.7").await;
    let refused = refused.unwrap();
    assert!(refused.contains("max_connections_per_ip"), "{refused}");
    assert!(refused.contains("\"retry_after\":30"), "{refused}");
    // It is closed, as a stock client understands it.
    assert_eq!(third.text().await, "41");
    assert_eq!(behind(&server, "198.51.100.8").await.0, None);
    assert_eq!(limited(&server, "max_connections_per_ip"), 1);
    drop(first);
    let again = async { while behind(&server, "198.51.100.7").await.0.is_some() {} };
    soon(again).await;
    server.close(SECOND).await.unwrap();
}

#[tokio::test]
async fn our_client_is_told_when_it_is_one_connection_too_many_with_a_name_and_without() {
    let server = start(json!({"limits": {"max_connections_per_ip": 1}})).await;
    let first = soon(client(&server).producer("first")).await.unwrap();
    let error = soon(client(&server).consumer("second")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited, "{error}");
    assert_eq!(error.retry_after(), Some(30));
    assert!(
        error.message().contains("max_connections_per_ip"),
        "{error}"
    );
    let nameless = Connection::open(
        ConnectOptions {
            host: "127.0.0.1".into(),
            port: server.local_addr().port(),
            once: true,
            ..ConnectOptions::default()
        },
        Identity::default(),
        Arc::new(Deaf),
    );
    let error = soon(nameless.ready()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited, "{error}");
    soon(first.connection().close(SECOND)).await.unwrap();
    server.close(SECOND).await.unwrap();
}

/// Hears nothing.
struct Deaf;

impl Sink for Deaf {
    fn delivery(&self, _: u32, _: Delivery<'_>) {}
    fn batch_end(&self) {}
    fn event(&self, _: ClientEvent<'_>) {}
}

#[tokio::test]
async fn what_may_wait_is_bounded_and_the_bound_changes_while_it_runs() {
    let of_default = |limits: Value| json!({"limits": {"realms": {"default": limits}}});
    // Each message has a thousand bytes and some.
    let large = "x".repeat(1_000);
    let cases: [(&str, &dyn Fn(u64) -> Value); 6] = [
        ("max_queued", &|most| json!({"max_queued": most})),
        (
            "max_queued",
            &|most| json!({"limits": {"max_queued": most}}),
        ),
        ("max_queued", &|most| {
            of_default(json!({"max_queued": most}))
        }),
        ("max_queued_per_realm", &|most| {
            of_default(json!({"max_queued_per_realm": most}))
        }),
        (
            "max_queued_bytes_per_realm",
            &|most| json!({"limits": {"max_queued_bytes_per_realm": most * 1_000 + 500}}),
        ),
        ("max_queued_bytes_per_realm", &|most| {
            of_default(json!({"max_queued_bytes_per_realm": most * 1_000 + 500}))
        }),
    ];
    for (name, settings) in cases {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("settings.json");
        let write = |settings: Value| std::fs::write(&file, settings.to_string()).unwrap();
        write(settings(2));
        let server = start(json!({"settings_file": file, "data_dir": folder.path()})).await;
        let client = client(&server);
        let away = soon(client.consumer("away")).await.unwrap();
        let durable = Subscribe::to("paid").durable().acked();
        drop(soon(away.subscribe(durable)).await.unwrap());
        soon(away.connection().close(SECOND)).await.unwrap();
        let producer = soon(client.producer("p")).await.unwrap();
        let fill = async || loop {
            if let Err(full) = soon(producer.confirm("paid", &large)).await {
                assert_eq!(full.kind(), ErrorKind::QueueFull);
                assert!(full.message().contains(&format!("({name})")), "{full}");
                let realm = RealmId::default();
                break server.broker().queue_stats(&realm).await.unwrap()[0].waiting;
            }
        };
        assert_eq!(fill().await, 2, "{name}");
        for more in [3, 5] {
            write(settings(more));
            assert!(
                server
                    .reload_settings()
                    .await
                    .unwrap()
                    .needs_restart
                    .is_empty()
            );
            assert_eq!(fill().await, more, "{name}");
        }
        write(json!({}));
        server.reload_settings().await.unwrap();
        soon(producer.confirm("paid", &large)).await.unwrap();
        soon(producer.connection().close(SECOND)).await.unwrap();
        server.close(SECOND).await.unwrap();
    }
}

#[tokio::test]
async fn a_rate_counts_at_once_for_sessions_that_are_there() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("settings.json");
    std::fs::write(&file, "{}").unwrap();
    let server = start(json!({"settings_file": file, "data_dir": folder.path()})).await;
    let mut producer = Raw::open(server.local_addr(), "PRODUCER", "p").await;
    let message = json!({"event": "e", "message": 1, "from": "p"});
    for _ in 0..10 {
        assert_eq!(producer.call("PRODUCE", &message).await["ok"], true);
    }
    let limits = json!({"limits": {"messages_per_second": 0.001, "message_burst": 1}});
    std::fs::write(&file, limits.to_string()).unwrap();
    server.reload_settings().await.unwrap();
    assert_eq!(producer.call("PRODUCE", &message).await["ok"], true);
    assert_eq!(producer.call("PRODUCE", &message).await["code"], 429);
    std::fs::write(&file, "{}").unwrap();
    server.reload_settings().await.unwrap();
    assert_eq!(producer.call("PRODUCE", &message).await["ok"], true);
    drop(producer);
    server.close(SECOND).await.unwrap();
}
