//! Authorization requests from asking to being let in, with a store that lasts.

mod asking;
mod bounds;
mod deciding;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::store::MemoryStore;

use super::super::{Attempts, Authority, Denied, Role};
use super::*;

const NOW: Timestamp = Timestamp(1_760_000_000_000);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

struct Tokens(Mutex<HashMap<TokenHash, Token>>, Attempts);

impl Default for Tokens {
    fn default() -> Self {
        Self(Mutex::default(), Attempts::new())
    }
}

impl Failures for Tokens {
    fn may_try(&self, address: IpAddr) -> Result<(), Denied> {
        self.1.check(address, 0, Duration::ZERO)
    }

    fn failed(&self, address: IpAddr) {
        self.1.failed(address, Duration::ZERO);
    }
}

impl Grants for Tokens {
    fn is_known(&self, hash: &TokenHash) -> bool {
        self.0.lock().contains_key(hash)
    }

    fn change(&self, hash: &TokenHash, token: &Token) -> Result<DocumentChange> {
        Ok(DocumentChange {
            collection: Collection::Tokens,
            key: hash.to_string().into(),
            text: Some(serde_json::to_string(token).unwrap().into()),
            expires: None,
            only_if: Condition::Absent,
        })
    }

    fn granted(&self, hash: TokenHash, token: Token) {
        self.0.lock().insert(hash, token);
    }
}

struct Rig {
    store: Arc<MemoryStore>,
    tokens: Arc<Tokens>,
    requests: Requests,
}

impl Rig {
    async fn new() -> Self {
        Self::over(Arc::new(MemoryStore::default()), NOW).await
    }

    async fn over(store: Arc<MemoryStore>, now: Timestamp) -> Self {
        let tokens = Arc::new(Tokens::default());
        let opened = Requests::open(store.clone(), tokens.clone(), MOST_PENDING, now).await;
        Self {
            requests: opened.unwrap(),
            store,
            tokens,
        }
    }

    /// What a broker that starts anew sees.
    async fn again(&self, now: Timestamp) -> Self {
        Self::over(self.store.clone(), now).await
    }

    async fn ask(&self, what: Ask<'_>) -> Result<Arc<str>> {
        let submitted = self.requests.submit(what.submission()?, NOW).await;
        submitted.map_err(|denied| denied.error)
    }

    async fn decide(&self, id: &str, approved: bool, role: Option<Role>) -> Result<Decided> {
        self.decide_as(id, approved, role, &Authority::Global).await
    }

    async fn decide_as(
        &self,
        id: &str,
        approved: bool,
        role: Option<Role>,
        authority: &Authority,
    ) -> Result<Decided> {
        let decision = Decision {
            request: id.into(),
            approved,
            role,
            reason: Some("because".into()),
        };
        self.requests.decide(&decision, authority, later(60)).await
    }

    fn pending(&self) -> Vec<Arc<str>> {
        let status = Some(Status::Pending);
        let wanted = Wanted {
            status,
            limit: Some(2000),
            ..Wanted::default()
        };
        let (page, _) = self.requests.list(&wanted, NOW);
        page.into_iter().map(|request| request.request_id).collect()
    }
}

#[derive(Clone, Copy)]
struct Ask<'a> {
    realm: &'a str,
    role: Option<&'a str>,
    id: &'a str,
    name: &'a str,
    token: Option<&'a str>,
    challenge: Option<&'a str>,
    session: &'a str,
    address: u8,
}

const ASK: Ask<'static> = Ask {
    realm: "org:acme",
    role: Some("producer"),
    id: "c1",
    name: "Client 1",
    token: Some(TOKEN),
    challenge: None,
    session: "s1",
    address: 1,
};

impl Ask<'_> {
    fn submission(&self) -> Result<Submission> {
        let names = (self.id, self.name);
        Ok(Submission {
            candidate: Candidate::new(self.realm, self.role, names, self.token, self.challenge)?,
            address: address(self.address),
            session: self.session.into(),
        })
    }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}
