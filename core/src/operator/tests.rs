mod shown;

use std::collections::VecDeque;
use std::io;

use super::*;

/// Answers questions from a list, and keeps all that is said.
#[derive(Default)]
struct Script {
    answers: VecDeque<&'static str>,
    is_attended: bool,
    asked: Vec<String>,
    out: Vec<String>,
    notes: Vec<String>,
}

impl Script {
    fn attended(answers: &[&'static str]) -> Self {
        Self {
            answers: answers.iter().copied().collect(),
            is_attended: true,
            ..Self::default()
        }
    }

    fn notes(&self) -> String {
        self.notes.join("\n")
    }
}

impl Console for Script {
    fn is_attended(&self) -> bool {
        self.is_attended
    }

    fn ask(&mut self, question: &str) -> io::Result<String> {
        self.asked.push(question.to_owned());
        let answer = self.answers.pop_front();
        answer
            .map(str::to_owned)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn ask_secret(&mut self, question: &str) -> io::Result<String> {
        self.ask(&format!("(no echo) {question}"))
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.out.push(line.to_owned());
        Ok(())
    }

    fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }
}

/// A port that nobody listens on: it was free a moment ago and nothing else is given it so soon.
fn refused_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

fn variables(pairs: &[(&str, &str)]) -> Variables {
    // No file of the folder that the test happens to run in.
    let folder = std::env::temp_dir().join("restante-operator-empty.env");
    std::fs::write(&folder, "").unwrap();
    let file = folder.to_string_lossy().into_owned();
    let mut all: Vec<_> = pairs
        .iter()
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect();
    all.push(("RESTANTE_ENV_FILE".to_owned(), file));
    all.into_iter().collect()
}

async fn ended(words: &str, variables: Variables, script: &mut Script) -> Ended {
    let port = refused_port();
    let place = ["-h", "127.0.0.1", "-p", &port];
    let words = words.split(' ').chain(place).map(str::to_owned);
    run(words, variables, script).await
}

/// The first body that words become.
fn body(words: &str, variables: &Variables, script: &mut Script) -> Result<Value> {
    Ok(bodies(words, variables, script)?.remove(0))
}

fn bodies(words: &str, variables: &Variables, script: &mut Script) -> Result<Vec<Value>> {
    let words = std::iter::once("x").chain(words.split(' '));
    let cli = Cli::try_parse_from(words).map_err(|error| secrets::usage(error.to_string()))?;
    let mut desk = Desk {
        variables,
        console: script,
    };
    let plan = Plan::read(cli, &mut desk)?;
    Ok(plan
        .steps
        .into_iter()
        .map(|step| step.body.into())
        .collect())
}

#[tokio::test]
async fn what_is_wrong_is_told_by_the_exit_code_before_anything_is_sent() {
    let token = || variables(&[("RESTANTE_ADMIN_TOKEN", "t")]);
    for words in [
        "",
        "realms",
        "realms paint",
        "stats --paint",
        "-p no stats",
        "-s gopher stats",
        "-s ws stats",
        "-s bad://host stats",
        "-s https --ca /nowhere/ca.pem stats",
        "--ca /nowhere/ca.pem stats",
        "settings show --timeout soon",
        "realms set r",
        "realms add r --ttl soon",
        "realms add r --e2ee perhaps",
        "tokens revoke",
        "auth perhaps",
        "persistence set sqlite --options 7",
        "sessions disconnect --yes",
        "dlq list --limit 0",
    ] {
        let mut script = Script::default();
        assert_eq!(
            ended(words, token(), &mut script).await,
            Ended::Usage,
            "{words}: {}",
            script.notes()
        );
        assert!(!script.notes.is_empty() && script.out.is_empty(), "{words}");
    }
    let mut script = Script::default();
    assert_eq!(
        ended("realms --help", token(), &mut script).await,
        Ended::Done
    );
    assert!(script.out.join("\n").contains("rename"));
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_another_exit_code() {
    for words in [
        "stats",
        "--json stats",
        "requests submit",
        "requests submit --wait 5s",
        "verify",
    ] {
        let mut script = Script::default();
        let variables = variables(&[("RESTANTE_ADMIN_TOKEN", "hush-hush")]);
        assert_eq!(
            ended(words, variables, &mut script).await,
            Ended::Unreachable,
            "{words}"
        );
        assert!(!script.notes().contains("hush-hush"));
        if words.contains("--json") {
            let told: Value = serde_json::from_str(&script.out[0]).unwrap();
            assert_eq!(told["error"], "disconnected");
        }
    }
}

#[tokio::test]
async fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
    for words in [
        "realms set r --key hush-hush",
        "realms add r --manager-key hush-hush",
        "tokens add --realm r --token hush-hush",
        "tokens revoke --token hush-hush",
        "management-tokens add p: --token hush-hush",
        "requests submit --client-token hush-hush",
        "external set --url https://a.example --secret hush-hush",
        "persistence set redis --url redis://u:hush-hush@h",
    ] {
        let mut script = Script::default();
        assert_eq!(
            ended(words, variables(&[]), &mut script).await,
            Ended::Usage,
            "{words}"
        );
        assert!(!script.notes().contains("hush-hush"), "{}", script.notes());
    }
}

#[test]
fn of_the_query_of_a_validators_address_nothing_is_said() {
    let words = "x external set --url https://a.example/v?key=hush-hush --realm r";
    let cli = Cli::try_parse_from(words.split(' ')).unwrap();
    let mut desk = Desk {
        variables: &variables(&[]),
        console: &mut Script::default(),
    };
    let plan = Plan::read(cli, &mut desk).unwrap();
    let lines = show::answer(&plan.steps[0], &serde_json::json!({ "ok": true }), false);
    let said = lines.join("\n");
    assert!(said.contains("https://a.example/v?"), "{said}");
    assert!(!said.contains("hush-hush"), "{said}");
}

#[tokio::test]
async fn what_cannot_be_undone_is_confirmed_or_not_done() {
    let words = [
        "realms remove acme",
        "dlq purge acme",
        "dlq discard 1",
        "auth off",
        "queues release acme 7",
        "sessions disconnect --realm acme",
        "tokens revoke --realm acme --client-id c",
        "persistence set memory --force",
    ];
    for words in words {
        let token = || variables(&[("RESTANTE_ADMIN_TOKEN", "t")]);
        let mut nobody = Script::default();
        assert_eq!(
            ended(words, token(), &mut nobody).await,
            Ended::Usage,
            "{words}"
        );
        let mut doubtful = Script::attended(&["no"]);
        assert_eq!(
            ended(words, token(), &mut doubtful).await,
            Ended::Usage,
            "{words}"
        );
        let sure = if words.starts_with("realms") {
            "acme"
        } else {
            "yes"
        };
        let mut sure = Script::attended(&[sure]);
        assert_eq!(
            ended(words, token(), &mut sure).await,
            Ended::Unreachable,
            "{words}"
        );
        let mut script = Script::default();
        let yes = format!("{words} --yes");
        assert_eq!(
            ended(&yes, token(), &mut script).await,
            Ended::Unreachable,
            "{words}"
        );
        assert!(script.asked.is_empty());
    }
}

#[tokio::test]
async fn what_is_missing_is_asked_for_where_somebody_is() {
    let mut script = Script::attended(&["acme", "", "t"]);
    assert_eq!(
        ended("realms add", variables(&[]), &mut script).await,
        Ended::Usage
    );
    assert_eq!(
        script.asked,
        ["realm: ", "(no echo) administrator's token: "]
    );
    let mut script = Script::attended(&["hush", "t"]);
    let words = "realms set acme --key prompt";
    assert_eq!(
        ended(words, variables(&[]), &mut script).await,
        Ended::Unreachable
    );
    assert_eq!(script.asked[0], "(no echo) key of acme: ");
    let mut script = Script::default();
    assert_eq!(
        ended("realms add", variables(&[]), &mut script).await,
        Ended::Usage
    );
    assert!(script.asked.is_empty());
}

#[test]
fn secrets_come_from_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "from a file \nsecond line\n").unwrap();
    let variables = variables(&[("KEY", "from the environment")]);
    let mut script = Script::default();
    let words = format!(
        "realms set r --key file:{} --require-key no",
        file.display()
    );
    let sent = body(&words, &variables, &mut script).unwrap();
    assert_eq!(
        sent,
        json!({ "command": "set_realm_key", "realm": "r", "key": "from a file", "require_key": false })
    );
    let sent = body("realms set r --jwt-key env:KEY", &variables, &mut script).unwrap();
    assert_eq!(sent["jwt_key"], "from the environment");
    let sent = body("realms set r --manager-key none", &variables, &mut script).unwrap();
    assert_eq!(
        sent,
        json!({ "command": "set_realm_manager_key", "realm": "r" })
    );
    for words in ["--key env:NOT_SET", "--key file:/not/there", "--key env:"] {
        assert!(body(&format!("realms set r {words}"), &variables, &mut script).is_err());
    }
}

#[test]
fn what_is_minted_differs_each_time_and_is_shown_once() {
    let none = variables(&[]);
    let mut script = Script::default();
    let token = |script: &mut Script| {
        let sent = body("management-tokens add org:acme:", &none, script).unwrap();
        sent["token"].as_str().unwrap().to_owned()
    };
    let (one, other) = (token(&mut script), token(&mut script));
    assert!(one.len() == 64 && one != other);
    let mut step = Step::command(
        "get",
        serde_json::Map::new(),
        orders::View::Said("done".to_owned()),
    )
    .unwrap();
    step.minted.push(("key", "k1".to_owned()));
    let answer = json!({ "ok": true });
    let said = |as_json| show::answer(&step, &answer, as_json).join("\n");
    assert_eq!(said(false).matches("k1").count(), 1);
    assert_eq!(
        serde_json::from_str::<Value>(&said(true)).unwrap()["key"],
        "k1"
    );
}

#[test]
fn several_settings_of_a_realm_are_several_commands() {
    let words = "realms set r --required no --acceptance yes --anonymous on --e2ee required --ttl 2h --create";
    let sent = bodies(words, &variables(&[]), &mut Script::default()).unwrap();
    let names: Vec<_> = sent
        .iter()
        .map(|body| body["command"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "set_realm_auth",
            "set_realm_acceptance",
            "set_realm_anonymous",
            "set_realm_e2ee",
            "set_realm_lifetime"
        ]
    );
    assert!(
        sent.iter()
            .all(|body| body["realm"] == "r" && body["create"] == true)
    );
    assert_eq!(sent[0]["required"], false);
}

#[test]
fn every_command_of_the_catalogue_can_be_said() {
    let hash = "ab".repeat(32);
    let all = [
        ("settings show", "get"),
        ("stats", "stats"),
        ("settings reload", "reload_settings"),
        ("auth on", "set_global_auth"),
        ("persistence set sqlite --filename f", "set_persistence"),
        ("realms add r", "add_realm"),
        ("realms rename a b", "rename_realm"),
        ("realms remove r", "remove_realm"),
        ("realms set r --required yes", "set_realm_auth"),
        ("realms set r --key generate", "set_realm_key"),
        (
            "realms set r --manager-key generate",
            "set_realm_manager_key",
        ),
        ("realms set r --jwt-key none", "set_realm_jwt_key"),
        ("realms set r --acceptance no", "set_realm_acceptance"),
        ("realms set r --anonymous no", "set_realm_anonymous"),
        ("realms set r --e2ee off", "set_realm_e2ee"),
        ("realms set r --permanent", "set_realm_lifetime"),
        (
            "external set --url https://a.example --realm r",
            "set_external_auth",
        ),
        ("external clear --prefix p:", "set_external_auth"),
        (
            "management-tokens add p: --max-ttl 1h",
            "add_management_token",
        ),
        (
            &format!("management-tokens revoke {hash}"),
            "revoke_management_token",
        ),
        (
            "tokens add --realm r --role producer --names a --names b",
            "add_token",
        ),
        (&format!("tokens revoke --hash {hash}"), "revoke_token"),
        ("requests list --status pending", "authorization_list"),
        ("sessions list", "list_sessions"),
        ("sessions disconnect --socket s", "disconnect"),
        ("dlq list --realm r --limit 5", "dlq_list"),
        ("dlq requeue 7 --realm r", "dlq_replay"),
        ("dlq discard 7", "dlq_discard"),
        ("dlq purge r", "dlq_purge"),
        ("queues stats", "queue_stats"),
        ("queues release r 7", "queue_release"),
    ];
    for (words, command) in all {
        let sent = body(words, &variables(&[]), &mut Script::default());
        assert_eq!(
            sent.unwrap_or_else(|error| panic!("{words}: {error}"))["command"],
            command,
            "{words}"
        );
    }
}

#[test]
fn names_of_strangers_cannot_steer_a_terminal() {
    let rows = [
        json!({ "client_name": "a\u{1b}[2Jb\n\u{202e}c", "names": ["x", "y"], "n": 7, "no": null }),
    ];
    let shown = table::lines(&["client_name", "names", "n", "no"], &rows).join("\n");
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    assert_eq!(shown.lines().count(), 2);
    let times = table::outline(&json!({ "expires_at": 1_760_000_000_000_u64, "since": "soon" }));
    assert_eq!(
        times,
        ["expires_at: 2025-10-09T08:53:20.000Z", "since: soon"]
    );
    let outlined =
        table::outline(&json!({ "a\u{7}": { "b": [{ "c": 1, "d": {} }, { "c": 2 }] }, "e": [] }));
    assert_eq!(
        outlined,
        [
            "a\\u{7}:",
            "  b:",
            "    - c: 1",
            "      d: -",
            "    - c: 2",
            "e: -"
        ]
    );
}

#[test]
fn the_environment_file_stands_below_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("env");
    std::fs::write(&file, "A=file\nB=file\n").unwrap();
    let set: Variables = [("A", "set"), ("C", "")].into_iter().collect();
    let all = set.with_file(Some(&file)).unwrap();
    assert_eq!(
        (all.get("A"), all.get("B"), all.get("C")),
        (Some("set"), Some("file"), None)
    );
    let none: Variables = [("A", "x")].into_iter().collect();
    assert!(none.with_file(Some(&folder.path().join("none"))).is_err());
    assert!(!format!("{all:?}").contains("file"));
}
