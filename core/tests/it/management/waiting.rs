//! `restante admin requests submit --wait`: what is left when nobody decides in time.

use std::io;

use restante::auth::AuthSettings;
use restante::operator::{Console, Ended, Variables, run};
use restante::server::{Server, ServerConfig};
use serde_json::Value;

use crate::sqlite::process::SECOND;

/// Keeps what is said; nobody is there to be asked.
#[derive(Default)]
struct Kept {
    out: Vec<String>,
    notes: Vec<String>,
}

impl Console for Kept {
    fn is_attended(&self) -> bool {
        false
    }

    fn ask(&mut self, _: &str) -> io::Result<String> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn ask_secret(&mut self, question: &str) -> io::Result<String> {
        self.ask(question)
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.out.push(line.to_owned());
        Ok(())
    }

    fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }
}

async fn submit(server: &Server, more: &str, variables: &[(&str, &str)]) -> Kept {
    let port = server.local_addr().port();
    let words = format!(
        "requests submit --realm acme --client-id till --wait 300ms -h 127.0.0.1 -p {port}{more}"
    );
    // No file of the folder that the test happens to run in.
    let none = tempfile::NamedTempFile::new().unwrap();
    let file = none.path().to_string_lossy().into_owned();
    let all = [("RESTANTE_ENV_FILE", &*file)];
    let variables: Variables = all.into_iter().chain(variables.iter().copied()).collect();
    let mut kept = Kept::default();
    let ended = run(words.split(' ').map(str::to_owned), variables, &mut kept).await;
    assert_eq!(ended, Ended::Unreachable, "{:?}", kept.notes);
    let notes = kept.notes.join("\n");
    assert!(notes.contains("still waits"), "{notes}");
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_nobody_decides_in_time_leaves_the_token_that_it_waits_with() {
    let mut config = ServerConfig::default();
    config.host = Some("127.0.0.1".to_owned());
    config.port = 0;
    config.auth = AuthSettings::parse(&super::settings()).unwrap();
    let server = Server::start(config).await.unwrap();

    let kept = submit(&server, "", &[]).await;
    let token = kept.out.iter().find_map(|line| {
        let (name, token) = line.split_once(" (shown this once): ")?;
        (name == "client_token").then_some(token)
    });
    assert_eq!(token.map(str::len), Some(64), "{:?}", kept.out);
    let told = kept.notes.join("\n");
    assert!(told.contains("authreq-") && !told.contains(token.unwrap()));

    let kept = submit(&server, " --json", &[]).await;
    assert_eq!(kept.out.len(), 1, "{:?}", kept.out);
    let told: Value = serde_json::from_str(&kept.out[0]).unwrap();
    for (member, value) in [
        ("status", "pending"),
        ("error", "timeout"),
        ("client_id", "till"),
    ] {
        assert_eq!(told[member], value, "{told}");
    }
    assert_eq!(told["client_token"].as_str().map(str::len), Some(64));
    assert!(
        told["request_id"]
            .as_str()
            .is_some_and(|id| id.starts_with("authreq-"))
    );

    // One that the caller has already is said nowhere.
    let mine = "a-token-that-is-mine-and-nobody-elses";
    for more in ["", " --json"] {
        let more = format!("{more} --client-token env:MINE");
        let kept = submit(&server, &more, &[("MINE", mine)]).await;
        assert!(!format!("{:?}{:?}", kept.out, kept.notes).contains(mine));
    }
    server.close(10 * SECOND).await.unwrap();
}
