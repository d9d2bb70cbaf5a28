//! Copies: everything a store holds, ids and order kept, while it goes on (P28).

use crate::ErrorKind;
use crate::store::{
    Append, Bounds, Collection, Condition, DeadLetter, Delayed, Document, DocumentChange, Entry,
    ExportCursor, Overflow, PageLimit, QueueId, QueueRecord, Record, SharedStore,
};

use super::Make;
use super::bounds::{aside, bounded_by_bytes, fits};
use super::rig::{
    ALL, Rig, START, append, at, bury, done, except, exception, low, plain, realm, spec,
};

/// Pages of a few rows, so that copies cross from page to page everywhere.
const FEW: PageLimit = PageLimit {
    entries: 3,
    bytes: 1 << 10,
};

/// An empty store that takes a copy, and whether stores of this kind can be copied at all.
async fn target(make: Make<'_>) -> Option<SharedStore> {
    bounded_target(make, Bounds::default()).await
}

async fn bounded_target(make: Make<'_>, bounds: Bounds) -> Option<SharedStore> {
    let store = make(bounds).await;
    match store.begin_import(false).await {
        Ok(()) => Some(store),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::StoreUnsupported, "{error}");
            None
        }
    }
}

/// Copies one page; where the next goes on, and about how much is left.
async fn step(
    from: &SharedStore,
    to: &SharedStore,
    cursor: Option<ExportCursor>,
) -> (Option<ExportCursor>, u64) {
    let page = from.export(cursor, FEW).await.unwrap();
    // What goes through a file must come out the same.
    let text = serde_json::to_string(&page.records).unwrap();
    let records: Vec<Record> = serde_json::from_str(&text).unwrap();
    assert_eq!(records, page.records);
    to.import(records).await.unwrap();
    (Some(page.next), page.left)
}

async fn finish(from: &SharedStore, to: &SharedStore, mut cursor: Option<ExportCursor>) {
    loop {
        let (next, left) = step(from, to, cursor).await;
        cursor = next;
        if left == 0 {
            break;
        }
    }
    to.end_import().await.unwrap();
}

/// All that can be read of a store.
#[derive(Debug, PartialEq)]
struct Seen {
    queues: Vec<QueueRecord>,
    entries: Vec<Vec<Entry>>,
    due: Vec<Vec<Entry>>,
    depths: Vec<crate::store::Depth>,
    letters: Vec<DeadLetter>,
    delayed: Vec<Delayed>,
    documents: Vec<Vec<Document>>,
}

async fn seen(store: &SharedStore) -> Seen {
    let queues = store.queues().await.unwrap();
    let (mut entries, mut due, mut depths) = (Vec::new(), Vec::new(), Vec::new());
    for record in &queues {
        entries.push(store.browse(record.queue, 0, ALL).await.unwrap());
        due.push(store.due(record.queue, ALL, at(60)).await.unwrap().entries);
        depths.push(store.depth(record.queue).await.unwrap());
    }
    let mut documents = Vec::new();
    for collection in Collection::ALL {
        let all = store.documents(*collection, None, 1000, START);
        documents.push(all.await.unwrap());
    }
    Seen {
        documents,
        queues,
        entries,
        due,
        depths,
        letters: store.dead_letters(&realm("r"), None, 100).await.unwrap(),
        delayed: store.delayed(100, at(1000)).await.unwrap().0,
    }
}

fn held(rig: &Rig, second: u64) -> Append {
    Append {
        due: Some(at(second)),
        owner: Some("o".into()),
        ..append(rig.message(), &[])
    }
}

/// Puts or removes a document.
async fn document(rig: &Rig, collection: Collection, key: u64, text: Option<u64>) {
    let change = DocumentChange {
        collection,
        key: format!("k{key}").into(),
        text: text.map(|text| text.to_string().into()),
        expires: key.is_multiple_of(2).then(|| at(1000 + key)),
        only_if: Condition::Always,
    };
    let changed = rig.store.change_documents(vec![change], START);
    changed.await.unwrap();
}

/// Something of everything; two queues.
async fn fill(rig: &Rig) -> (QueueRecord, QueueRecord) {
    let all = rig.open(spec("all")).await;
    rig.fill(all.log, 9).await;
    let some = rig.open(plain("some")).await;
    for _ in 0..5 {
        rig.put(rig.guaranteed(), all.log).await;
        rig.put(rig.message(), all.log).await;
    }
    rig.change(
        all.queue,
        except(vec![exception(2, at(5)), exception(4, at(3))]),
    )
    .await;
    rig.change(all.queue, bury(&[3])).await;
    rig.change(all.queue, low(5)).await;
    rig.change(all.queue, done(&[8, 12])).await;
    rig.change(some.queue, done(&[12])).await;
    let left = rig.open(spec("left")).await;
    rig.put(rig.message(), all.log).await;
    rig.store.forget(left.queue, false).await.unwrap();
    for second in [30, 10, 30, 20] {
        rig.try_put(held(rig, second)).await.unwrap();
    }
    let numbered = Append {
        mark: Some(("i".into(), 7)),
        ..append(rig.message(), &[all.log])
    };
    rig.try_put(numbered).await.unwrap();
    let named = Append {
        uid: Some("u".into()),
        ..append(rig.message(), &[all.log])
    };
    rig.try_put(named).await.unwrap();
    for key in 0..5 {
        document(rig, Collection::Tokens, key, Some(key)).await;
        document(rig, Collection::Realms, key, Some(key)).await;
    }
    document(rig, Collection::Tokens, 1, None).await;
    (all, some)
}

pub async fn a_copy_answers_every_read_like_the_original(make: Make<'_>) {
    reads(make, make).await;
}

async fn reads(from: Make<'_>, to: Make<'_>) {
    let rig = Rig::new(from).await;
    let Some(copy) = target(to).await else {
        return;
    };
    fill(&rig).await;
    finish(&rig.store, &copy, None).await;
    assert_eq!(seen(&copy).await, seen(&rig.store).await);
}

pub async fn a_copy_goes_on_with_the_same_ids(make: Make<'_>) {
    goes_on(make, make).await;
}

async fn goes_on(from: Make<'_>, to: Make<'_>) {
    let rig = Rig::new(from).await;
    let Some(copy) = target(to).await else {
        return;
    };
    let (all, _) = fill(&rig).await;
    // The last id belongs to nobody any more; it must not be given again.
    let gone = rig.open(spec("gone")).await.queue;
    rig.store.forget(gone, true).await.unwrap();
    finish(&rig.store, &copy, None).await;
    let rig = rig.goes_on_with(copy);
    let numbered = Append {
        mark: Some(("i".into(), 7)),
        ..append(rig.message(), &[all.log])
    };
    assert!(rig.try_put(numbered).await.unwrap().duplicate);
    let named = Append {
        uid: Some("u".into()),
        ..append(rig.message(), &[all.log])
    };
    assert!(rig.try_put(named).await.unwrap().duplicate);
    let head = rig.open(spec("all")).await.head;
    let next = rig.put(rig.message(), all.log).await;
    assert_eq!(next.placed[0].seq, head + 1);
    let new = rig.open(spec("new")).await;
    assert!(new.queue > gone, "{new:?}");
    assert_eq!(new.log, all.log);
    let left = rig.open(spec("left")).await;
    assert_eq!(left.depth, 1, "what it left came along");
}

pub async fn what_changes_during_a_copy_is_copied(make: Make<'_>) {
    changes(make, make).await;
}

async fn changes(from: Make<'_>, to: Make<'_>) {
    let rig = Rig::new(from).await;
    let Some(copy) = target(to).await else {
        return;
    };
    let (all, some) = fill(&rig).await;
    let letter = rig.store.dead_letters(&realm("r"), None, 1).await.unwrap()[0].id;
    let mut cursor = None;
    // Every kind of change at every place of the copy.
    for round in 0..40 {
        cursor = step(&rig.store, &copy, cursor).await.0;
        rig.put(rig.guaranteed(), all.log).await;
        document(&rig, Collection::Tokens, round % 7, Some(round)).await;
        document(
            &rig,
            Collection::Requests,
            round % 5,
            (round % 3 > 0).then_some(1),
        )
        .await;
        let seq = 15 + round;
        match round % 8 {
            0 => {
                rig.change(all.queue, except(vec![exception(seq, at(9))]))
                    .await
            }
            1 => rig.change(all.queue, bury(&[seq])).await,
            2 => rig.change(some.queue, low(seq - 3)).await,
            3 => rig.change(all.queue, done(&[seq])).await,
            4 => {
                rig.try_put(held(&rig, round)).await.unwrap();
            }
            5 => {
                let name = format!("q{round}");
                let new = rig.open(spec(&name)).await;
                if round > 20 {
                    rig.store.forget(new.queue, true).await.unwrap();
                }
            }
            6 if round < 8 => {
                rig.store.revive(&realm("r"), letter, at(1)).await.unwrap();
            }
            6 => {
                let (rows, _) = rig.store.delayed(1, at(1000)).await.unwrap();
                let id = rows[0].message.id;
                rig.store.drop_delayed(vec![id]).await.unwrap();
            }
            _ => {
                let from = format!("r{round}");
                let mut other = spec("other");
                other.realm = realm("x");
                let other: QueueId = rig.open(other).await.queue;
                let to = realm(&from);
                rig.store.rename_realm(&realm("x"), &to).await.unwrap();
                if round > 16 {
                    rig.store.purge_realm(&to).await.unwrap();
                } else {
                    rig.store.touch(other, at(round)).await.unwrap();
                }
            }
        }
    }
    finish(&rig.store, &copy, cursor).await;
    assert_eq!(seen(&copy).await, seen(&rig.store).await);
}

pub async fn a_copy_keeps_as_many_bytes_as_the_original(make: Make<'_>) {
    let (rig, bounds) = bounded_by_bytes(make, Overflow::Reject).await;
    let Some(copy) = bounded_target(make, bounds.clone()).await else {
        return;
    };
    let a = rig.open(aside("a")).await;
    rig.fill(a.log, 4).await;
    let b = rig.open(aside("b")).await;
    rig.fill(a.log, 1).await;
    let (cursor, _) = step(&rig.store, &copy, None).await;
    rig.change(a.queue, except(vec![exception(1, at(60))]))
        .await;
    rig.change(a.queue, low(2)).await;
    finish(&rig.store, &copy, cursor).await;
    for store in [rig.store.clone(), copy] {
        let rig = Rig::on(store);
        // Three in their turn, one of them for two queues, and an exception.
        assert_eq!(fits(&rig, &bounds).await, 6);
        rig.store.forget(b.queue, true).await.unwrap();
        rig.change(a.queue, done(&[1, 3, 4, 5])).await;
        assert_eq!(fits(&rig, &bounds).await, 10);
    }
}

pub async fn a_store_that_holds_something_takes_no_copy(make: Make<'_>) {
    let rig = Rig::new(make).await;
    if target(make).await.is_none() {
        return;
    }
    document(&rig, Collection::Settings, 1, Some(1)).await;
    let refused = rig.store.begin_import(false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    let queue = rig.filled("a", 2).await.queue;
    let error = rig.store.begin_import(false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(rig.waiting(queue).await, [1, 2], "nothing has changed");
}

pub async fn an_export_ends_with_its_cursor_or_the_next_one(make: Make<'_>) {
    let rig = Rig::new(make).await;
    if target(make).await.is_none() {
        return;
    }
    rig.filled("a", 9).await;
    let first = rig.store.export(None, FEW).await.unwrap();
    let second = rig.store.export(None, FEW).await.unwrap();
    let error = rig.store.export(Some(first.next), FEW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    let third = rig.store.export(Some(second.next), FEW).await.unwrap();
    assert!(third.left > 0);
}

pub async fn a_copy_that_does_not_lead_is_dropped_by_the_next(make: Make<'_>) {
    let rig = Rig::new(make).await;
    let Some(copy) = target(make).await else {
        return;
    };
    fill(&rig).await;
    finish(&rig.store, &copy, None).await;
    copy.begin_import(false).await.unwrap();
    finish(&rig.store, &copy, None).await;
    assert_eq!(
        seen(&copy).await,
        seen(&rig.store).await,
        "nothing is there twice"
    );
    copy.lead().await.unwrap();
    let error = copy.begin_import(false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        seen(&copy).await,
        seen(&rig.store).await,
        "what leads stays"
    );
}

pub async fn a_queue_that_has_changed_its_class_is_copied(make: Make<'_>) {
    changed_class(make, make).await;
}

async fn changed_class(from: Make<'_>, to: Make<'_>) {
    let rig = Rig::new(from).await;
    let Some(copy) = target(to).await else {
        return;
    };
    let log = rig.open(spec("a")).await.log;
    for round in 0..8 {
        for name in ["a", "b"] {
            let is_durable = (round % 2 == 0) == (name == "a");
            let spec = if is_durable { spec(name) } else { plain(name) };
            rig.open(spec).await;
        }
        for _ in 0..3 {
            rig.put(rig.message(), log).await;
            rig.put(rig.guaranteed(), log).await;
        }
        if round % 3 == 1 {
            let first = 6 * round + 2;
            for queue in rig.store.queues().await.unwrap() {
                rig.change(queue.queue, done(&[first, first + 3, first + 4]))
                    .await;
            }
        }
    }
    finish(&rig.store, &copy, None).await;
    assert_eq!(seen(&copy).await, seen(&rig.store).await);
    let rig = rig.goes_on_with(copy);
    for queue in rig.store.queues().await.unwrap() {
        let before = rig.waiting(queue.queue).await.len();
        rig.put(rig.guaranteed(), log).await;
        let after = rig.waiting(queue.queue).await;
        assert_eq!(after.len(), before + 1, "it takes what comes: {after:?}");
    }
}

/// See [`copies_between`](super::copies_between).
pub(super) async fn between(from: Make<'_>, to: Make<'_>) {
    reads(from, to).await;
    goes_on(from, to).await;
    changes(from, to).await;
    changed_class(from, to).await;
}
