//! What tyo-mq has left in a file, made as its description has it.

use super::*;
use crate::store::{QueueId, Settled};

/// A database as its description has it.
fn theirs(path: &Path, rows: &str) {
    let conn = Connection::open(path).unwrap();
    let columns = "id TEXT PRIMARY KEY, realm TEXT, event TEXT, consumer TEXT, payload TEXT, \
                   producer TEXT, created_at TEXT, expires_at INTEGER";
    conn.execute_batch(&format!(
        "CREATE TABLE messages ({columns}); \
         CREATE INDEX idx_messages_delivery ON messages (realm, event, consumer, expires_at); \
         CREATE TABLE dlq ({columns}, reason TEXT, dead_lettered_at TEXT); \
         CREATE INDEX idx_dlq_realm ON dlq (realm, dead_lettered_at); {rows}"
    ))
    .unwrap();
}

fn row(id: &str, consumer: &str, n: u32, expires: &str) -> String {
    format!(
        "INSERT INTO messages VALUES ('{id}', 'r', 'orders-paid', '{consumer}', \
         '{{\"event\":\"Paid\",\"message\":{{\"n\": {n}.0}},\"from\":\"orders\"}}', 'orders', \
         '2026-01-01T00:00:00.000Z', {expires});"
    )
}

async fn adopt(path: &Path, source: &Path, more: serde_json::Value) -> Result<serde_json::Value> {
    let mut order = json!({"from": "tyo-mq-sqlite", "source": source});
    for (name, value) in more.as_object().unwrap() {
        order[name] = value.clone();
    }
    let (_, output) = does(&job("import", path, order), "").await?;
    Ok(serde_json::from_str(&output).unwrap())
}

async fn bodies(store: &SqliteStore, queue: QueueId) -> Vec<String> {
    let page = store.page(queue, 0, ALL, NOW).await.unwrap();
    let body = |entry: &Entry| entry.message.body.clone().unwrap();
    let texts = page.entries.iter().map(body);
    texts
        .map(|body| String::from_utf8_lossy(&body).into_owned())
        .collect()
}

#[tokio::test]
async fn a_file_of_tyo_mq_becomes_durable_queues() {
    let house = House::new();
    let (source, to) = (house.path("theirs"), house.path("ours"));
    let mut rows = String::new();
    for n in 1..=4 {
        rows += &row(&format!("b{n}"), "billing", n, "NULL");
        rows += &row(&format!("a{n}"), "audit", n, "4000000000000");
    }
    rows += &row("late", "billing", 8, "1000");
    rows += &row("page", "__http_sse__", 9, "NULL");
    rows += "INSERT INTO dlq VALUES ('d', 'r', 'orders-paid', 'billing', \
             '{\"event\":\"Paid\",\"message\":\"lost\",\"from\":\"orders\"}', 'orders', \
             '2026-01-01T00:00:00.000Z', NULL, 'ack timeout after 3 attempt(s)', \
             '2026-01-02T00:00:00.000Z');";
    theirs(&source, &rows);
    let taken = adopt(&to, &source, json!({})).await.unwrap();
    let expected = json!({
        "queues": 2, "messages": 8, "delayed": 0, "dead_letters": 1, "documents": 0, "expired": 1, "history": 1,
        "unreadable": 0,
    });
    assert_eq!(taken, expected);

    let store = open(&to).await;
    let queues = store.queues().await.unwrap();
    let named = |name: &str| {
        queues
            .iter()
            .find(|queue| &*queue.spec.name == name)
            .unwrap()
    };
    let key = Key::decode("e6:orderspaid").unwrap();
    for name in ["billing", "audit"] {
        let queue = named(name);
        assert!(queue.spec.settings.durable);
        assert_eq!((&queue.spec.key, queue.depth), (&key, 4));
        let expected: Vec<String> = (1..=4).map(|n| format!("{{\"n\": {n}.0}}")).collect();
        assert_eq!(bodies(&store, queue.queue).await, expected, "{name}");
        let page = store.page(queue.queue, 0, ALL, NOW).await.unwrap();
        let expires = page.entries[0].message.expires;
        assert_eq!(expires, (name == "audit").then_some(LATER));
    }
    let letters = store.dead_letters(&realm(), None, 9).await.unwrap();
    let letter = &letters[0];
    assert_eq!(&*letter.reason, "ack timeout after 3 attempt(s)");
    assert_eq!(letter.dead_at, Timestamp(1_767_312_000_000));
    let billing = named("billing").queue;
    store.revive(&realm(), letter.id, NOW).await.unwrap();
    let due = store.due(billing, ALL, LATER).await.unwrap().entries;
    assert_eq!(due[0].message.body.as_deref(), Some(&b"\"lost\""[..]));
    let settled = store.settle(billing, vec![letter.id.seq]).await.unwrap();
    assert_eq!(settled, [Settled::Now]);
    // It goes on as any queue does.
    let spec = named("billing").spec.clone();
    let log = store.open(spec, NOW).await.unwrap().log;
    let item = Append::new(realm(), Arc::new(message(LATER.0)), vec![log]);
    let placed = store.append(vec![item]).await.unwrap().remove(0).unwrap();
    assert_eq!(placed.placed[0].queued, 2);
    assert_eq!(store.depth(billing).await.unwrap().count, 5);
    store.close().await.unwrap();
    let (is_whole, _) = does(&job("check", &to, json!({})), "").await.unwrap();
    assert!(is_whole);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_nothing_is_taken_in_unless_asked_for() {
    let house = House::new();
    let (source, to) = (house.path("theirs"), house.path("ours"));
    let odd = row("odd", "billing", 2, "NULL").replace("orders-paid", "orders-shipped");
    theirs(&source, &(row("a", "billing", 1, "NULL") + &odd));
    let error = adopt(&to, &source, json!({})).await.unwrap_err();
    assert!(error.message().contains("\"odd\""), "{error}");
    assert_eq!(seen(&to).await.queues, []);
    let taken = adopt(&to, &source, json!({"skip_unreadable": true}))
        .await
        .unwrap();
    assert_eq!(
        (&taken["messages"], &taken["unreadable"]),
        (&json!(1), &json!(1))
    );
    let ours = house.path("no-theirs");
    filled(&ours).await;
    let error = adopt(&house.path("new"), &ours, json!({}))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}
