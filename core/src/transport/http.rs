//! The HTTP side of Engine.IO: handshake, long polling, upgrade, CORS and the origin rule.
//!
//! Whatever is not under the Engine.IO path goes to the fallback unread. Knows no packets: sessions
//! live in `polling` and `websocket`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::body::{self, Unread};
use super::caller::Caller;
use super::config::Doors;
use super::engine::Session;
use super::polling::{self, Answer, Entry, Post};
use super::probe::Offer;
use super::reader::Reader;
use super::socket::Socket;
use super::stream::Stream;
use super::thread::{Seat, Thread, new_id};
use super::websocket::WebSocket;
use crate::wire::handshake::Query;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers HTTP requests that are not Engine.IO's. A [`Peer`] is among the request's extensions.
pub type Fallback =
    Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The client's address, perhaps behind a trusted proxy.
    pub remote: SocketAddr,
    /// Nobody on the way can read along: TLS here, or at a trusted proxy that says so.
    pub is_secure: bool,
}

/// A fallback that refuses everything: 403 with an empty body.
pub fn refuse_all() -> Fallback {
    Arc::new(|_| Box::pin(async { respond(StatusCode::FORBIDDEN, "") }))
}

/// A response with a whole body.
pub fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let full = Full::new(body.into()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(full.boxed_unsync());
    *response.status_mut() = status;
    response
}

/// A refused request: the `code` and `message` of Engine.IO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Transport,
    Sid,
    Method,
    Request,
    Forbidden,
    Version,
    TooLarge,
    Full,
}

impl Refused {
    fn response(self) -> Response<Body> {
        let (status, code, message) = match self {
            Self::Transport => (400, 0, "Transport unknown"),
            Self::Sid => (400, 1, "Session ID unknown"),
            Self::Method => (400, 2, "Bad handshake method"),
            Self::Request => (400, 3, "Bad request"),
            Self::Forbidden => (403, 4, "Forbidden"),
            Self::Version => (400, 5, "Unsupported protocol version"),
            Self::TooLarge => (413, 3, "Payload too large"),
            Self::Full => (503, 4, "Too many connections"),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = respond(
            status,
            format!(r#"{{"code":{code},"message":"{message}"}}"#),
        );
        set(&mut response, header::CONTENT_TYPE, "application/json");
        response
    }
}

/// Answers one request.
pub(super) async fn answer(
    thread: Arc<Thread>,
    peer: Caller,
    seat: Arc<Seat>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let config = &thread.shared.config;
    let doors = thread.shared.doors.load_full();
    let caller = caller(&doors, peer, request.headers());
    let path = config.path.trim_end_matches('/');
    if request.uri().path().trim_end_matches('/') != path {
        let Caller {
            remote, is_secure, ..
        } = caller;
        request.extensions_mut().insert(Peer { remote, is_secure });
        return (thread.shared.fallback)(request).await;
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = if !is_allowed(&doors, request.headers()) {
        Refused::Forbidden.response()
    } else if doors.cors.is_some() && request.method() == Method::OPTIONS {
        preflight(&doors, request.headers())
    } else {
        let outcome = dispatch(&thread, caller, seat, request).await;
        outcome.unwrap_or_else(Refused::response)
    };
    allow_origin(&doors, origin.as_ref(), &mut response);
    response
}

/// Who is behind a peer: a trusted proxy says it.
fn caller(doors: &Doors, peer: Caller, headers: &HeaderMap) -> Caller {
    let address = peer.remote.ip();
    if !doors.trust_proxy.trusts(address) {
        return peer;
    }
    let text = |value: &'_ HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let hops: Vec<String> = headers
        .get_all("x-forwarded-for")
        .iter()
        .map(text)
        .collect();
    let client = doors
        .trust_proxy
        .client(address, hops.iter().map(String::as_str));
    let scheme = headers
        .get("x-forwarded-proto")
        .map(text)
        .unwrap_or_default();
    // The proxy nearest to us is the one that is known to say the truth.
    let nearest = scheme.rsplit(',').next().unwrap_or_default().trim();
    let port = if client == address {
        peer.remote.port()
    } else {
        0
    };
    Caller {
        remote: SocketAddr::new(client, port),
        is_secure: peer.is_secure || nearest.eq_ignore_ascii_case("https"),
        is_local: peer.is_local,
    }
}

async fn dispatch(
    thread: &Arc<Thread>,
    caller: Caller,
    seat: Arc<Seat>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refused> {
    let config = &thread.shared.config;
    let uri = request.uri().clone();
    let query = Query::parse(uri.query().unwrap_or_default());
    let on_websocket = match query.transport {
        "polling" if config.polling => false,
        "websocket" if config.websocket => true,
        _ => return Err(Refused::Transport),
    };
    if let Some(sid) = query.sid {
        let entry = thread
            .shared
            .polled
            .lock()
            .get(sid)
            .cloned()
            .ok_or(Refused::Sid)?;
        return match on_websocket {
            true => upgrade(thread.clone(), caller, seat, request, Some(entry)),
            false => exchange(thread, request, &entry).await,
        };
    }
    if request.method() != Method::GET {
        return Err(Refused::Method);
    }
    if query.version != "4" {
        return Err(Refused::Version);
    }
    if on_websocket {
        return upgrade(thread.clone(), caller, seat, request, None);
    }
    let open = polling::open(thread, caller).ok_or(Refused::Full)?;
    Ok(text(open))
}

/// A poll or a POST of a session.
async fn exchange(
    thread: &Arc<Thread>,
    request: Request<Incoming>,
    entry: &Arc<Entry>,
) -> Result<Response<Body>, Refused> {
    if entry.upgraded.load(Ordering::Acquire) {
        return Err(Refused::Request);
    }
    let (sender, answer) = oneshot::channel();
    let mut too_large = false;
    let asked = if request.method() == Method::GET {
        polling::Request::Poll(sender)
    } else if request.method() == Method::POST {
        let Some(claim) = entry.claim() else {
            entry.conn.close();
            return Err(Refused::Request);
        };
        let read = body::read(&thread.shared, &entry.conn, request.into_body()).await;
        match read {
            Ok(_) => claim.keep(),
            Err(Unread::TooSlow) => {
                claim.keep();
                entry.conn.close();
            }
            // The claim that is left behind ends the session.
            Err(Unread::Gone) => {}
        }
        let (body, permit) = read.map_err(|_| Refused::Request)?;
        too_large = matches!(body, polling::Body::Refused);
        polling::Request::Post(Post {
            body,
            permit,
            answer: sender,
        })
    } else {
        return Err(Refused::Request);
    };
    entry.inbox.send(asked).await.map_err(|_| Refused::Sid)?;
    match answer.await {
        Ok(Answer::Packets(packets)) => Ok(text(packets)),
        Ok(Answer::Taken) => Ok(html("ok")),
        Ok(Answer::BadRequest) if too_large => Err(Refused::TooLarge),
        Ok(Answer::BadRequest) => Err(Refused::Request),
        Err(_) => Err(Refused::Sid),
    }
}

/// Answers 101 and takes the socket out of HTTP's hands: for a new session, or for one on polling.
fn upgrade(
    thread: Arc<Thread>,
    caller: Caller,
    seat: Arc<Seat>,
    mut request: Request<Incoming>,
    entry: Option<Arc<Entry>>,
) -> Result<Response<Body>, Refused> {
    let accept = accept_key(&request).ok_or(Refused::Request)?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else {
            return;
        };
        let Some((stream, early)) = Stream::of(upgraded) else {
            return;
        };
        match entry {
            None => open_websocket(&thread, caller, stream.into_socket(), early, seat),
            Some(entry) => offer_websocket(&entry, stream, early, seat).await,
        }
    });
    let mut response = respond(StatusCode::SWITCHING_PROTOCOLS, "");
    set(&mut response, header::UPGRADE, "websocket");
    set(&mut response, header::CONNECTION, "Upgrade");
    set(&mut response, header::SEC_WEBSOCKET_ACCEPT, &accept);
    Ok(response)
}

/// The connection becomes a task of its own, so that nothing of HTTP stays in memory.
fn open_websocket(
    thread: &Arc<Thread>,
    caller: Caller,
    socket: Arc<dyn Socket>,
    early: Vec<u8>,
    seat: Arc<Seat>,
) {
    if let Some(session) = Session::open(thread, caller, &new_id(), Some(socket.clone())) {
        let reader = Reader::new(thread.shared.config.max_frame_bytes());
        tokio::spawn(WebSocket::new(session, socket, reader, seat).run(early));
    }
}

/// Hands the socket to the thread that owns the session. A session that needs none drops it.
async fn offer_websocket(entry: &Entry, stream: Stream, early: Vec<u8>, seat: Arc<Seat>) {
    let Ok(attach) = stream.detach() else {
        return;
    };
    let offer = Offer {
        attach,
        early,
        seat,
    };
    // The receiver is gone if the session has ended or is on a websocket already.
    let _ = entry.inbox.send(polling::Request::Upgrade(offer)).await;
}

fn accept_key(request: &Request<Incoming>) -> Option<String> {
    let headers = request.headers();
    let says = |name: HeaderName, word: &str| {
        headers.get_all(name).iter().any(|value| {
            let words = value.to_str().unwrap_or_default().split(',');
            words
                .map(str::trim)
                .any(|found| found.eq_ignore_ascii_case(word))
        })
    };
    let is_websocket = request.method() == Method::GET
        && says(header::UPGRADE, "websocket")
        && says(header::CONNECTION, "upgrade")
        && says(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    is_websocket.then(|| derive_accept_key(key.as_bytes()))
}

/// The origin rule: a browser's page may come in from the same host or from a listed origin.
fn is_allowed(doors: &Doors, headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return true;
    };
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    let listed = doors.cors.as_ref().is_some_and(|cors| cors.allows(origin));
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let same_host = match (origin.split_once("://"), host) {
        (Some((_, of_page)), Some(host)) => of_page.eq_ignore_ascii_case(host),
        _ => false,
    };
    !doors.check_origin || listed || same_host
}

fn preflight(doors: &Doors, headers: &HeaderMap) -> Response<Body> {
    let mut response = respond(StatusCode::NO_CONTENT, "");
    let methods = match &doors.cors {
        Some(cors) if !cors.methods.is_empty() => cors.methods.join(","),
        _ => "GET,HEAD,PUT,PATCH,POST,DELETE".to_owned(),
    };
    set(
        &mut response,
        header::ACCESS_CONTROL_ALLOW_METHODS,
        &methods,
    );
    if let Some(asked) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        response
            .headers_mut()
            .insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}

fn allow_origin(doors: &Doors, origin: Option<&HeaderValue>, response: &mut Response<Body>) {
    let Some(cors) = &doors.cors else {
        return;
    };
    if cors.origins.iter().any(|allowed| allowed == "*") {
        set(response, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    } else if let Some(origin) = origin
        && origin.to_str().is_ok_and(|origin| cors.allows(origin))
    {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    }
    if cors.credentials {
        set(response, header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn text(body: impl Into<Bytes>) -> Response<Body> {
    let mut response = respond(StatusCode::OK, body);
    set(
        &mut response,
        header::CONTENT_TYPE,
        "text/plain; charset=UTF-8",
    );
    set(&mut response, header::CACHE_CONTROL, "no-store");
    response
}

fn html(body: &'static str) -> Response<Body> {
    let mut response = respond(StatusCode::OK, body);
    set(&mut response, header::CONTENT_TYPE, "text/html");
    response
}
