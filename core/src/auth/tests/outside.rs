//! Validators: the program's own, and those that are asked by HTTP, over real sockets (scenarios 10, 14).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::jwt::tests::hs256;
use super::super::testing::{Shelf, attempt, code, enter, open};
use super::super::*;
use crate::clock::{TestClock, Timestamp};

/// What was asked: path, secret, body.
type Asked = (String, Option<String>, Value);

struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    count: watch::Receiver<usize>,
}

impl Server {
    /// Answers every POST with what the path says: `/status/500`, `/hang`, `/large`, `/redirect`, or `reply`.
    async fn start(reply: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (counted, count) = watch::channel(0);
        let seen = asked.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, counted, reply) = (seen.clone(), counted.clone(), reply.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        answer(request, seen.clone(), counted.clone(), reply.clone())
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            address,
            asked,
            count,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock())
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Asked>>>,
    counted: watch::Sender<usize>,
    reply: Value,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.method(), "POST");
    assert_eq!(request.headers()["content-type"], "application/json");
    let path = request.uri().path().to_owned();
    let secret = request.headers().get("x-mq-auth-secret");
    let secret = secret.map(|value| value.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    seen.lock()
        .push((path.clone(), secret, serde_json::from_slice(&body).unwrap()));
    counted.send_modify(|count| *count += 1);
    let response = Response::builder();
    let text = |text: String| Full::new(Bytes::from(text));
    Ok(match &*path {
        "/hang" => std::future::pending().await,
        "/large" => response
            .body(text(format!("{{\"x\":\"{}\"}}", "y".repeat(10 << 20))))
            .unwrap(),
        "/rubbish" => response.body(text("{".into())).unwrap(),
        "/redirect" => {
            let response = response.status(307).header("location", "/ok");
            response.body(text(String::new())).unwrap()
        }
        "/500" => response.status(500).body(text(reply.to_string())).unwrap(),
        _ => response.body(text(reply.to_string())).unwrap(),
    })
}

async fn room(value: Value) -> (Arc<Auth>, Arc<TestClock>) {
    let clock = TestClock::new();
    let auth = open(&Shelf::new(), &clock, value).await;
    (auth, clock)
}

#[tokio::test]
async fn a_realms_validator_is_asked_with_its_secret_and_may_speak_of_that_realm_only() {
    let server = Server::start(
        json!({"realm": "acme", "role": "consumer", "sub": "u", "names": ["a*"],
        "exp": 1_767_225_700}),
    )
    .await;
    let (auth, _) = room(json!({"enabled": true, "auth_secret": "g", "realms": {
        "acme": {"auth_url": server.url("/ok"), "auth_secret": "s"},
        "other": {"auth_url": server.url("/ok")},
    }}))
    .await;
    let principal = enter(&auth, &attempt(&json!({"token": "t", "realm": "acme"})))
        .await
        .unwrap();
    assert_eq!(
        (principal.realm.as_str(), principal.role),
        ("acme", Role::Consumer)
    );
    assert_eq!(principal.owner.as_deref(), Some("sub:u"));
    assert_eq!(principal.expires, Some(Timestamp(1_767_225_700_000)));
    assert!(principal.allow.may_take("a1") && !principal.allow.may_take("b"));
    assert!(auth.check(&principal).is_ok());
    let wanted = (
        "/ok".to_owned(),
        Some("s".to_owned()),
        json!({"token": "t", "realm": "acme"}),
    );
    assert_eq!(server.asked(), [wanted]);
    // Another realm's validator may not say so, and without a realm nobody is asked.
    assert_eq!(
        code(&auth, &json!({"token": "t", "realm": "other"})).await,
        401
    );
    assert_eq!(server.asked()[0].1.as_deref(), Some("g"));
    assert_eq!(code(&auth, &json!({"token": "t"})).await, 401);
    assert_eq!(
        code(&auth, &json!({"token": "t", "realm": "unconfigured"})).await,
        401
    );
    assert!(server.asked().is_empty());
    // When nobody is asked for the realm any more, what was said does not hold.
    auth.set_external_auth(
        ValidatorScope::Realm(principal.realm.clone()),
        None,
        SecretChange::Keep,
    )
    .await
    .unwrap();
    assert!(auth.check(&principal).is_err());
}

#[tokio::test]
async fn a_prefix_bounds_what_its_validator_may_say_and_the_global_one_may_say_all_but_every_realm()
{
    let server = Server::start(json!({"realm": "org:b", "role": "both"})).await;
    let (auth, _) = room(json!({"enabled": true, "auth_url": server.url("/global"),
        "external_validators": [
            {"realm_prefix": "org:", "auth_url": server.url("/org")},
            {"realm_prefix": "apps:", "auth_url": server.url("/apps")}]}))
    .await;
    assert_eq!(
        code(&auth, &json!({"token": "1", "realm": "org:b"})).await,
        0
    );
    assert_eq!(
        code(&auth, &json!({"token": "2", "realm": "org:a"})).await,
        403
    );
    assert_eq!(
        code(&auth, &json!({"token": "3", "realm": "apps:x"})).await,
        401
    );
    assert_eq!(code(&auth, &json!({"token": "4"})).await, 0);
    let paths: Vec<_> = server.asked().into_iter().map(|(path, ..)| path).collect();
    assert_eq!(paths, ["/org", "/org", "/apps", "/global"]);
    let server = Server::start(json!({"realm": "*", "role": "admin"})).await;
    for (allowed, wanted) in [(false, 401), (true, 0)] {
        let (auth, _) = room(json!({"enabled": true, "auth_url": server.url("/"),
            "allow_superadmin_jwt": allowed}))
        .await;
        assert_eq!(code(&auth, &json!({"token": "t"})).await, wanted);
    }
}

#[tokio::test]
async fn what_is_no_clear_yes_is_a_no() {
    let good = json!({"realm": "acme", "role": "both"});
    for (path, reply) in [
        ("/500", good.clone()),
        ("/large", good.clone()),
        ("/rubbish", good.clone()),
        ("/redirect", good.clone()),
        ("/ok", json!({"ok": false, "realm": "acme", "role": "both"})),
        (
            "/ok",
            json!({"valid": false, "realm": "acme", "role": "both"}),
        ),
        ("/ok", json!({"realm": "acme"})),
        ("/ok", json!({"role": "both"})),
        ("/ok", json!({"realm": "acme", "role": "root"})),
        ("/ok", json!({"realm": "acme", "role": "admin"})),
        (
            "/ok",
            json!({"realm": "acme", "role": "both", "exp": "never"}),
        ),
        ("/ok", json!(["acme"])),
        ("/ok", json!(true)),
    ] {
        let server = Server::start(reply.clone()).await;
        let (auth, _) = room(json!({"enabled": true, "auth_url": server.url(path)})).await;
        assert_eq!(
            code(&auth, &json!({"token": "t"})).await,
            401,
            "{path} {reply}"
        );
        assert_eq!(server.asked().len(), 1, "{path} {reply}");
    }
    // Nobody there at all.
    let (auth, _) = room(json!({"enabled": true, "auth_url": "http://127.0.0.1:1/"})).await;
    assert_eq!(code(&auth, &json!({"token": "t"})).await, 401);
}

#[tokio::test]
async fn a_validator_that_does_not_answer_is_given_up_after_five_seconds() {
    let mut server = Server::start(json!({})).await;
    let (auth, clock) = room(json!({"enabled": true, "auth_url": server.url("/hang")})).await;
    let asking = tokio::spawn(async move { code(&auth, &json!({"token": "t"})).await });
    server.count.wait_for(|count| *count == 1).await.unwrap();
    clock.advance(Duration::from_millis(4999));
    tokio::task::yield_now().await;
    assert!(!asking.is_finished());
    clock.advance(Duration::from_millis(1));
    assert_eq!(asking.await.unwrap(), 401);
}

#[tokio::test]
async fn a_no_is_remembered_for_five_seconds_and_a_yes_for_a_minute_by_what_was_asked() {
    for (reply, code_wanted, seconds) in [
        (json!({"ok": false}), 401, 5),
        (json!({"realm": "a", "role": "both"}), 0, 60),
    ] {
        let server = Server::start(reply).await;
        let (auth, clock) = room(json!({"enabled": true, "auth_url": server.url("/")})).await;
        let ask = async |token: &str| {
            assert_eq!(code(&auth, &json!({"token": token})).await, code_wanted)
        };
        ask("t").await;
        clock.advance(Duration::from_millis(seconds * 1000 - 1));
        ask("t").await;
        assert_eq!(server.asked().len(), 1);
        ask("other").await;
        assert_eq!(server.asked().len(), 1);
        clock.advance(Duration::from_millis(1));
        ask("t").await;
        assert_eq!(server.asked().len(), 1);
        // Other settings, other answers.
        let same = auth.reload_documents().await.unwrap();
        assert!(same.is_empty());
        ask("t").await;
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn at_most_64_calls_to_one_address_are_under_way() {
    let mut server = Server::start(json!({})).await;
    let (auth, clock) = room(json!({"enabled": true, "auth_url": server.url("/hang")})).await;
    let asking: Vec<_> = (0..80)
        .map(|n| {
            let auth = auth.clone();
            let mut sent = attempt(&json!({"token": format!("t{n}")}));
            sent.address = [10, 0, 0, n].into();
            tokio::spawn(async move { enter(&auth, &sent).await.is_err() })
        })
        .collect();
    server.count.wait_for(|count| *count == 64).await.unwrap();
    clock.advance(Duration::from_secs(5));
    for one in asking {
        assert!(one.await.unwrap());
    }
    assert_eq!(*server.count.borrow(), 64);
}

#[tokio::test]
async fn a_jwt_is_shown_only_to_the_validator_of_the_realm_it_names() {
    let server = Server::start(json!({"realm": "acme", "role": "both"})).await;
    let (auth, _) = room(json!({"enabled": true, "realms": {
        "acme": {"auth_url": server.url("/acme")}, "evil": {"auth_url": server.url("/evil")}}}))
    .await;
    let token = hs256(&json!({"realm": "acme", "role": "both"}), "theirs");
    assert_eq!(
        code(&auth, &json!({"token": token, "realm": "evil"})).await,
        401
    );
    assert!(server.asked().is_empty());
    assert_eq!(code(&auth, &json!({"token": token})).await, 0);
    assert_eq!(server.asked()[0].0, "/acme");
}

struct Program {
    says: Option<Value>,
    gate: watch::Receiver<bool>,
}

impl Validator for Program {
    fn validate(&self, token: &str, now: Timestamp) -> Answer {
        let says = self.says.clone().filter(|_| token == "good");
        let mut gate = self.gate.clone();
        Box::pin(async move {
            gate.wait_for(|open| *open).await.ok()?;
            Claims::from_json(says?.to_string().as_bytes(), now)
        })
    }
}

#[tokio::test]
async fn the_programs_validator_is_the_only_source_where_there_is_one() {
    let (auth, clock) =
        room(json!({"enabled": true, "jwt_secret": "g", "tokens": [{"token": "t"}]})).await;
    let (open, gate) = watch::channel(false);
    let says = Some(json!({"realm": "acme", "role": "producer"}));
    auth.set_validator(Some(Arc::new(Program { says, gate })));
    let sent = attempt(&json!({"token": "good", "realm": "acme"}));
    let Outcome::Later(later) = auth.authenticate(&sent) else {
        panic!("it has to be awaited");
    };
    open.send_replace(true);
    let principal = later.await.unwrap();
    assert_eq!(
        (principal.realm.as_str(), principal.role),
        ("acme", Role::Producer)
    );
    assert_eq!(principal.credential, Credential::Validator);
    assert_eq!(
        code(&auth, &json!({"token": "good", "realm": "other"})).await,
        403
    );
    assert_eq!(code(&auth, &json!({"token": "t"})).await, 401);
    let jwt = hs256(&json!({"realm": "a", "role": "both"}), "g");
    assert_eq!(code(&auth, &json!({"token": jwt})).await, 401);
    // One that does not answer is given up.
    open.send_replace(false);
    let Outcome::Later(later) = auth.authenticate(&sent) else {
        panic!("it has to be awaited");
    };
    let waiting = tokio::spawn(later);
    while !waiting.is_finished() {
        clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    assert!(waiting.await.unwrap().is_err());
    auth.set_validator(None);
    assert!(auth.check(&principal).is_err());
    assert_eq!(code(&auth, &json!({"token": "t"})).await, 0);
}
