//! Signed orders at the door: each once, failures counted, nothing without its store.

use parking_lot::Mutex;

use crate::store::{
    Collection, Document, DocumentChange, Documents, MemoryStore, Pending, Store as _,
};

use super::*;

#[derive(Default)]
struct Counted(Mutex<(u32, Option<u32>)>);

impl Failures for Counted {
    fn may_try(&self, _: IpAddr) -> Result<(), Denied> {
        let counted = self.0.lock();
        match counted.1 {
            Some(most) if counted.0 >= most => Err(Denied::new(ErrorKind::RateLimited, "too many")),
            _ => Ok(()),
        }
    }

    fn failed(&self, _: IpAddr) {
        self.0.lock().0 += 1;
    }
}

#[tokio::test]
async fn a_proof_is_good_once() {
    let documents = Arc::new(MemoryStore::default());
    let failures = Arc::new(Counted::default());
    let proofs = Proofs::new(Nonces::lasting(documents.clone()), failures.clone(), None);
    let secrets = [global("s"), global("t")];
    let proof = command("s", NOW.0, NONCE);
    proofs
        .admit(signed(Some(&proof)), &secrets, NOW)
        .await
        .unwrap();
    let again = proofs
        .admit(signed(Some(&proof)), &secrets, NOW)
        .await
        .unwrap_err();
    assert_eq!(again.error.kind(), ErrorKind::ProofRejected);
    // The nonce belongs to its secret.
    let other = command("t", NOW.0, NONCE);
    proofs
        .admit(signed(Some(&other)), &secrets, NOW)
        .await
        .unwrap();
    // After a restart too, as long as the proof would hold.
    let proofs = Proofs::new(Nonces::lasting(documents.clone()), failures.clone(), None);
    let late = Timestamp(NOW.0 + WINDOW);
    while documents.maintain(1000, late).await.unwrap().more {}
    let again = proofs
        .admit(signed(Some(&proof)), &secrets, late)
        .await
        .unwrap_err();
    assert_eq!(again.error.kind(), ErrorKind::ProofRejected);
    assert_eq!(failures.0.lock().0, 2);
    let over = Timestamp(NOW.0 + 2 * WINDOW);
    while documents.maintain(1000, over).await.unwrap().more {}
    let left = documents
        .documents(Collection::Nonces, None, 10, Timestamp(0))
        .await;
    assert_eq!(left.unwrap(), []);
}

#[tokio::test]
async fn a_wrong_signature_uses_no_nonce_up() {
    let documents = Arc::new(MemoryStore::default());
    let proofs = Proofs::new(
        Nonces::lasting(documents.clone()),
        Arc::new(Counted::default()),
        None,
    );
    let forged = command("guess", NOW.0, NONCE);
    let refused = proofs
        .admit(signed(Some(&forged)), &[global("s")], NOW)
        .await;
    assert_eq!(refused.unwrap_err().error.kind(), ErrorKind::ProofRejected);
    let left = documents.documents(Collection::Nonces, None, 10, NOW).await;
    assert_eq!(left.unwrap(), []);
    let right = command("s", NOW.0, NONCE);
    proofs
        .admit(signed(Some(&right)), &[global("s")], NOW)
        .await
        .unwrap();
}

#[tokio::test]
async fn failures_are_counted_and_then_nothing_is_looked_at() {
    let failures = Arc::new(Counted(Mutex::new((0, Some(3)))));
    let documents = Arc::new(MemoryStore::default());
    let proofs = Proofs::new(Nonces::lasting(documents), failures.clone(), None);
    for wrong in [None, Some("{}"), Some("null")] {
        let refused = proofs
            .admit(signed(wrong), &[global("s")], NOW)
            .await
            .unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::ProofRejected);
    }
    let right = command("s", NOW.0, NONCE);
    let refused = proofs
        .admit(signed(Some(&right)), &[global("s")], NOW)
        .await
        .unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::RateLimited);
    failures.0.lock().1 = None;
    proofs
        .admit(signed(Some(&right)), &[global("s")], NOW)
        .await
        .unwrap();
}

#[tokio::test]
async fn nonces_that_do_not_last_refuse_proofs_of_before() {
    let documents = Arc::new(MemoryStore::default());
    let nonces = Nonces::in_memory(documents, NOW);
    let proofs = Proofs::new(nonces, Arc::new(Counted::default()), None);
    let before = command("s", NOW.0 - 1, NONCE);
    let refused = proofs
        .admit(signed(Some(&before)), &[global("s")], NOW)
        .await;
    assert_eq!(refused.unwrap_err().error.kind(), ErrorKind::ProofRejected);
    let after = command("s", NOW.0, NONCE);
    proofs
        .admit(signed(Some(&after)), &[global("s")], NOW)
        .await
        .unwrap();
}

struct Away;

impl Documents for Away {
    fn change_documents(&self, _: Vec<DocumentChange>, _: Timestamp) -> Pending<()> {
        Pending::ready(Err(Error::new(ErrorKind::StoreUnavailable, "away")))
    }

    fn documents(
        &self,
        _: Collection,
        _: Option<Arc<str>>,
        _: usize,
        _: Timestamp,
    ) -> Pending<Vec<Document>> {
        Pending::ready(Err(Error::new(ErrorKind::StoreUnavailable, "away")))
    }
}

#[tokio::test]
async fn without_its_store_no_proof_is_let_through() {
    let failures = Arc::new(Counted::default());
    let proofs = Proofs::new(Nonces::lasting(Arc::new(Away)), failures.clone(), None);
    let right = command("s", NOW.0, NONCE);
    let refused = proofs
        .admit(signed(Some(&right)), &[global("s")], NOW)
        .await
        .unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::StoreUnavailable);
    assert_eq!(failures.0.lock().0, 0, "nobody has played a trick");
}

#[tokio::test]
async fn a_proof_for_another_server_is_rejected() {
    let documents = Arc::new(MemoryStore::default());
    let (failures, secrets) = (Arc::new(Counted::default()), [global("s")]);
    let proofs = |audience| {
        Proofs::new(
            Nonces::lasting(documents.clone()),
            failures.clone(),
            audience,
        )
    };
    let body = r#"{"aud":"berlin","command":"get"}"#;
    for (audience, nonce, is_good) in [
        (Some("berlin"), "aaaaaaaaaaaaaaaa", true),
        (Some("Berlin"), "bbbbbbbbbbbbbbbb", false),
        (None, "cccccccccccccccc", false),
    ] {
        let proof = sign("s", Action::Command, NOW.0, nonce, body);
        let order = Signed {
            body: Some(body),
            ..signed(Some(&proof))
        };
        let admitted = proofs(audience).admit(order, &secrets, NOW).await;
        assert_eq!(admitted.is_ok(), is_good, "{audience:?}");
    }
    // One that names no server is for all.
    let proof = command("s", NOW.0, NONCE);
    proofs(Some("berlin"))
        .admit(signed(Some(&proof)), &secrets, NOW)
        .await
        .unwrap();
}
