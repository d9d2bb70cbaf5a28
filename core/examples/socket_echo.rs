//! A Socket.IO 5 server without a broker, with the namespaces `/` and `/custom`.
//!
//! The handshake's `auth` comes back as event `auth`; `message` comes back as `message-back`;
//! `message-with-ack` is acknowledged with its arguments.
//!
//! `cargo run --example socket_echo -- --port 3000 --ping-interval 300 --ping-timeout 200`

mod common;

use std::sync::Arc;

use clap::Parser;
use restante::clock::SystemClock;
use restante::transport::{
    Ending, Event, Handler, Hello, Link, Refusal, Service, Transport, refuse_all,
};
use restante::wire::frame;
use restante::wire::socket::{Head, Kind, put_frame};
use serde_json::value::RawValue;

const DEFAULT_PATH: &str = "/socket.io/";

struct Echo {
    namespace: &'static str,
}

impl Service for Echo {
    fn connect(&self, link: Link, hello: &Hello<'_>) -> Result<Box<dyn Handler>, Refusal> {
        let client = EchoTo {
            link,
            namespace: self.namespace,
        };
        let auth = hello.auth.unwrap_or("{}");
        client.send(
            Kind::Event,
            None,
            &[b"[\"auth\",", auth.as_bytes(), b"]"],
            &[],
        );
        Ok(Box::new(client))
    }
}

struct EchoTo {
    link: Link,
    namespace: &'static str,
}

impl EchoTo {
    fn send(&self, kind: Kind, id: Option<u64>, json: &[&[u8]], attachments: &[bytes::Bytes]) {
        let head = Head {
            kind,
            namespace: self.namespace,
            id,
        };
        let mut out = Vec::new();
        put_frame(&head, json, &mut out);
        for attachment in attachments {
            frame::binary(attachment, &mut out);
        }
        self.link.reply(out.into());
    }
}

impl Handler for EchoTo {
    fn event(&mut self, event: Event<'_>) {
        let Ok(args) = serde_json::from_str::<Vec<&RawValue>>(event.args) else {
            return self.link.close();
        };
        let Some((name, args)) = args.split_first() else {
            return self.link.close();
        };
        let rest: Vec<&str> = args.iter().map(|arg| arg.get()).collect();
        let rest = rest.join(",");
        let count = event.attachments.len() as u32;
        match (name.get(), event.reply) {
            ("\"message\"", _) => {
                let comma = if rest.is_empty() { "" } else { "," };
                let json = format!("[\"message-back\"{comma}{rest}]");
                let kind = if count > 0 {
                    Kind::BinaryEvent(count)
                } else {
                    Kind::Event
                };
                self.send(kind, None, &[json.as_bytes()], event.attachments);
            }
            ("\"message-with-ack\"", Some(id)) => {
                let kind = if count > 0 {
                    Kind::BinaryAck(count)
                } else {
                    Kind::Ack
                };
                let json = [b"[".as_slice(), rest.as_bytes(), b"]"];
                self.send(kind, Some(id), &json, event.attachments);
            }
            _ => {}
        }
    }
    fn read_done(&mut self) {}
    fn confirmed(&mut self, _position: u64) {}
    fn writable(&mut self) {}
    fn oversize(&mut self, _size: u64, _limit: u64) {}
    fn tick(&mut self) {}
    fn closed(&mut self, _ending: Ending) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = common::Flags::parse();
    let services = ["/", "/custom"].map(|namespace| {
        let service: Arc<dyn Service> = Arc::new(Echo { namespace });
        (namespace.to_owned(), service)
    });
    let clock = Arc::new(SystemClock::new());
    let transport = Transport::start(
        flags.bind()?,
        flags.config(),
        services.into(),
        refuse_all(),
        clock,
    )?;
    Ok(common::run(&transport)?)
}
