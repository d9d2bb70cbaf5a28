//! From asking to being let in, and what happens to who guesses, over the registry as it is.

use serde_json::json;

use crate::ErrorKind;
use crate::clock::{Clock as _, TestClock};
use crate::store::{Documents, MemoryStore};

use super::super::testing::{attempt, enter, environment, settings};
use super::super::{
    Action, Authority, Candidate, Decision, MOST_PENDING, Nonces, Proofs, Requests, Role, Secret,
    Signed, SigningSecret, Submission,
};
use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Rig {
    auth: Arc<Auth>,
    requests: Requests,
    clock: Arc<TestClock>,
}

async fn over(store: &Arc<MemoryStore>, clock: &Arc<TestClock>) -> Rig {
    let value = json!({
        "enabled": true, "auto_admin_token": false, "env_file": "/nonexistent/restante.env",
        "realms": {"org:acme": {"required": true, "manager_key": "rk"}},
    });
    let documents: Arc<dyn Documents> = store.clone();
    let auth = Auth::open_with(
        documents.clone(),
        settings(&value),
        clock.clone(),
        environment(None),
    );
    let auth = auth.await.unwrap();
    let requests = Requests::open(documents, auth.clone(), MOST_PENDING, clock.now()).await;
    Rig {
        auth,
        requests: requests.unwrap(),
        clock: clock.clone(),
    }
}

impl Rig {
    async fn ask(&self, token: Option<&str>) -> Result<Arc<str>> {
        let candidate = Candidate::new("org:acme", Some("producer"), ("c1", "C"), token, None);
        let submission = Submission {
            candidate: candidate.unwrap(),
            address: [10, 0, 0, 1].into(),
            session: "s1".into(),
        };
        let submitted = self.requests.submit(submission, self.clock.now()).await;
        submitted.map_err(|denied| denied.error)
    }

    async fn approve(&self, id: &str) -> Result<Option<Secret>> {
        let decision = Decision {
            request: id.into(),
            approved: true,
            role: None,
            reason: None,
        };
        let authority = Authority::Global;
        let decided = self
            .requests
            .decide(&decision, &authority, self.clock.now())
            .await;
        decided.map(|decided| decided.token)
    }
}

#[tokio::test]
async fn who_was_approved_is_let_in_at_once_and_after_a_restart() {
    let (store, clock) = (Arc::new(MemoryStore::default()), TestClock::new());
    let rig = over(&store, &clock).await;
    let wish = attempt(&json!({ "token": TOKEN }));
    assert!(enter(&rig.auth, &wish).await.is_err());
    let id = rig.ask(Some(TOKEN)).await.unwrap();
    assert!(
        enter(&rig.auth, &wish).await.is_err(),
        "nobody has said yes"
    );
    rig.approve(&id).await.unwrap();
    let principal = enter(&rig.auth, &wish).await.unwrap();
    assert_eq!(
        (principal.realm.as_str(), principal.role),
        ("org:acme", Role::Producer)
    );
    assert_eq!(principal.owner.as_deref(), Some("client:c1"));
    let again = over(&store, &clock).await;
    assert_eq!(enter(&again.auth, &wish).await.unwrap(), principal);
    assert_eq!(
        again.ask(Some(TOKEN)).await.unwrap_err().kind(),
        ErrorKind::TokenExists
    );
}

#[tokio::test]
async fn a_token_that_the_broker_made_lets_in_too() {
    let (store, clock) = (Arc::new(MemoryStore::default()), TestClock::new());
    let rig = over(&store, &clock).await;
    let id = rig.ask(None).await.unwrap();
    let token = rig.approve(&id).await.unwrap().unwrap();
    let wish = attempt(&json!({ "token": token.expose() }));
    assert!(enter(&rig.auth, &wish).await.is_ok());
}

#[tokio::test]
async fn bad_proofs_and_bad_tokens_of_an_address_are_counted_together() {
    let (store, clock) = (Arc::new(MemoryStore::default()), TestClock::new());
    let rig = over(&store, &clock).await;
    let proofs = Proofs::new(Nonces::lasting(store), rig.auth.clone(), None);
    let (authority, secret) = (Authority::Global, Secret::parse("s").unwrap());
    let secrets = [SigningSecret {
        authority: &authority,
        secret: &secret,
    }];
    let signed = Signed {
        action: Action::Command,
        body: None,
        proof: Some("{}"),
        address: [127, 0, 0, 1].into(),
    };
    for _ in 0..15 {
        let denied = proofs
            .admit(signed, &secrets, clock.now())
            .await
            .unwrap_err();
        assert_eq!(denied.error.kind(), ErrorKind::ProofRejected);
        assert!(
            enter(&rig.auth, &attempt(&json!({"token": "guess"})))
                .await
                .is_err()
        );
    }
    let denied = proofs
        .admit(signed, &secrets, clock.now())
        .await
        .unwrap_err();
    assert_eq!(denied.error.kind(), ErrorKind::RateLimited);
    assert!(denied.retry_after.is_some());
    let elsewhere = Signed {
        address: [127, 0, 0, 2].into(),
        ..signed
    };
    let denied = proofs
        .admit(elsewhere, &secrets, clock.now())
        .await
        .unwrap_err();
    assert_eq!(denied.error.kind(), ErrorKind::ProofRejected);
}
