//! What people read of an answer.

use serde_json::{Value, json};

use super::super::{orders, show, table};

#[test]
fn a_change_of_stores_says_what_it_survives_and_what_went_along() {
    let step = orders::Step::new(
        orders::Act::Move,
        serde_json::Map::new(),
        orders::View::Moved("redis".to_owned()),
    );
    let said = |answer: Value| show::answer(&step, &answer, false).join("\n");
    let moved = json!({ "messages": 3, "dlq": 1, "subscriptions": 2 });
    assert_eq!(
        said(json!({ "ok": true, "migrated": moved,
            "levels": { "before": "disk", "after": "process" } })),
        "messages wait in redis now; level process, before disk \
         (moved: messages: 3, dead letters: 1, subscriptions: 2)"
    );
    assert_eq!(
        said(json!({ "ok": true, "levels": { "before": null, "after": "disk" } })),
        "messages wait in redis now"
    );
}

#[test]
fn tokens_are_listed_with_their_rights_when_one_has_some_and_spans_as_options_take_them() {
    let list = orders::View::Listed(orders::List::Tokens, None);
    let step = orders::Step::new(orders::Act::Command, serde_json::Map::new(), list);
    let head = |tokens: Value| {
        let answer = json!({ "settings": { "tokens": tokens } });
        show::answer(&step, &answer, false)[0].clone()
    };
    let plain = json!({ "realm": "r", "role": "both", "token_hash": "ab" });
    let named = json!({ "realm": "r", "role": "both", "token_hash": "cd", "names": ["x*"] });
    assert!(!head(json!([plain])).contains("names"));
    assert!(head(json!([plain, named])).ends_with("names"));
    let spans =
        json!({ "ephemeral_realm_ttl": 3600.0, "max_ttl": 90.0, "ttl": 172_800.0, "n": 1.5 });
    assert_eq!(
        table::outline(&spans),
        [
            "ephemeral_realm_ttl: 1h",
            "max_ttl: 90s",
            "n: 1.5",
            "ttl: 2d"
        ]
    );
}

#[test]
fn a_refusal_speaks_of_flags_and_says_when_to_come_again() {
    let answer = json!({ "ok": false, "code": 400, "error": "config",
        "message": "say `force: true` if that is meant" });
    assert!(show::refusal(&answer).contains("say --force if"));
    let answer = json!({ "ok": false, "code": 429, "error": "rate_limited", "message": "m",
        "retry_after": 60 });
    assert_eq!(
        show::refusal(&answer),
        "refused: m (rate_limited), again in 60 s"
    );
}
