//! The command line: a mode, then pairs of `--name value`. Knows no meaning of a mode.

use std::collections::HashMap;

use crate::wire::Dialect;

/// Everything a mode may ask for; each getter names its own default.
pub struct Args {
    /// `thr`, `lat`, `idle`, `conf`, `dur` or `disk`.
    pub mode: String,
    pairs: HashMap<String, String>,
}

impl Args {
    pub fn from_command_line() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let Some((mode, rest)) = words.split_first() else {
            usage("no mode given")
        };
        let mut pairs = HashMap::new();
        for pair in rest.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => {
                    pairs.insert(name[2..].to_owned(), value.clone())
                }
                other => usage(&format!("expected --name value, found {other:?}")),
            };
        }
        Self {
            mode: mode.clone(),
            pairs,
        }
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        self.pairs
            .get(name)
            .cloned()
            .unwrap_or_else(|| default.to_owned())
    }

    pub fn number(&self, name: &str, default: u64) -> u64 {
        match self.pairs.get(name) {
            None => default,
            Some(text) => text
                .parse()
                .unwrap_or_else(|_| usage(&format!("--{name} {text}: not a number"))),
        }
    }

    pub fn dialect(&self) -> Dialect {
        match self.text("dialect", "sio").as_str() {
            "sio" => Dialect::SocketIo,
            "nats" => Dialect::Nats,
            other => usage(&format!("unknown dialect {other}")),
        }
    }

    pub fn address(&self) -> (String, u16) {
        (
            self.text("host", "127.0.0.1"),
            self.number("port", 17352) as u16,
        )
    }

    /// Process id of the server: 0 means that its CPU and memory are not read.
    pub fn pid(&self) -> u64 {
        self.number("pid", 0)
    }

    /// Bytes of the JSON message.
    pub fn payload(&self) -> usize {
        self.number("payload", 128) as usize
    }

    pub fn name(&self) -> String {
        self.text("name", &self.text("dialect", "sio"))
    }
}

/// Says what is wrong and how it is called, and ends with status 2.
pub fn usage(what: &str) -> ! {
    eprintln!("{what}");
    eprintln!(
        "usage: load thr|lat|idle|conf|dur|disk --dialect sio|nats --port N [--host H] [--pid SERVER_PID]"
    );
    eprintln!("  all   --name LABEL --payload BYTES --token TOKEN");
    eprintln!(
        "  thr   --producers P --consumers C --window W --batch B --cpu SECONDS --secs MOST --subscriptions N"
    );
    eprintln!("  lat   --consumers C --rate MESSAGES_A_SECOND --secs S");
    eprintln!("  idle  --conns K --secs S");
    eprintln!(
        "  conf  --count N --window W --consumers C --ack 0|1 --queued N --drain 0|1 --max SECONDS"
    );
    eprintln!("  dur   --count N --max SECONDS");
    eprintln!("  disk  --dir FOLDER --secs S");
    std::process::exit(2)
}
