//! The words of the command line, and nothing of what they do. Secrets are not among them.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Parser, Subcommand};

/// Orders a running broker about: signed commands over its own port.
///
/// Secrets come from the environment, a file or a prompt, never from the command line. What signs is the
/// administrator's token (RESTANTE_ADMIN_TOKEN) or a realm's manager key (RESTANTE_REALM_MANAGER_KEY).
/// SOURCE is env:NAME, file:PATH, prompt, generate or none.
/// Exit codes: 0 done, 1 wrong usage, 2 refused by the broker, 3 no broker reached.
#[derive(Debug, Parser)]
#[command(
    name = "restante admin",
    bin_name = "restante admin",
    disable_help_flag = true,
    disable_version_flag = true,
    arg_required_else_help = true,
    verbatim_doc_comment
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(subcommand)]
    pub(super) area: Area,
}

/// Which broker, as whom, and how to answer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which broker, and as whom")]
pub(super) struct Place {
    /// Where the broker is (RESTANTE_HOST, or localhost).
    #[arg(short = 'h', long, global = true)]
    pub(super) host: Option<String>,
    /// Its port (RESTANTE_PORT, or 17352).
    #[arg(short = 'p', long, global = true)]
    pub(super) port: Option<u16>,
    /// http or https (RESTANTE_PROTOCOL, or http).
    #[arg(short = 's', long, global = true)]
    pub(super) protocol: Option<String>,
    /// Whose signature its certificate must have under https, as PEM (RESTANTE_CA).
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// The HTTP path of the broker (/socket.io/).
    #[arg(long, global = true)]
    pub(super) path: Option<String>,
    /// The variable with the administrator's token, in the place of RESTANTE_ADMIN_TOKEN.
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) token_env: Option<String>,
    /// The file with the administrator's token.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "token_env")]
    pub(super) token_file: Option<PathBuf>,
    /// Sign with a realm's manager key, from this variable.
    #[arg(long, global = true, value_name = "NAME", conflicts_with_all = ["token_env", "token_file"])]
    pub(super) manager_key_env: Option<String>,
    /// Sign with a realm's manager key, from this file.
    #[arg(long, global = true, value_name = "FILE", conflicts_with_all = ["token_env", "token_file", "manager_key_env"])]
    pub(super) manager_key_file: Option<PathBuf>,
    /// A file of NAME=VALUE lines beneath the environment (RESTANTE_ENV_FILE, or .env).
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) env_file: Option<PathBuf>,
    /// How long connecting and each answer may take (5s).
    #[arg(long, global = true, value_name = "DURATION")]
    pub(super) timeout: Option<String>,
    /// Answers as JSON, one a line.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Does what cannot be undone without asking.
    #[arg(long, global = true)]
    pub(super) yes: bool,
    /// Prints help.
    #[arg(long, global = true, action = ArgAction::Help)]
    pub(super) help: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Area {
    /// Tokens of clients.
    #[command(subcommand)]
    Tokens(Tokens),
    /// Realms and their settings.
    #[command(subcommand)]
    Realms(Realms),
    /// Requests of clients who want to be let in.
    #[command(subcommand)]
    Requests(Requests),
    /// Dead letters.
    #[command(subcommand)]
    Dlq(Dlq),
    /// Where messages wait.
    #[command(subcommand)]
    Persistence(Persistence),
    /// Who is connected.
    #[command(subcommand)]
    Sessions(Sessions),
    /// Queues of consumers and groups.
    #[command(subcommand)]
    Queues(Queues),
    /// The broker's settings.
    #[command(subcommand)]
    Settings(Settings),
    /// Authentication as a whole.
    #[command(subcommand)]
    Auth(Switch),
    /// Validators that are asked over HTTP.
    #[command(subcommand)]
    External(External),
    /// Tokens that may make realms over HTTP.
    #[command(subcommand)]
    ManagementTokens(ManagementTokens),
    /// Live numbers.
    Stats,
    /// Whether the secret is the right one.
    Verify {
        /// The realm of a manager key.
        #[arg(long)]
        realm: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Tokens {
    /// Adds one; the broker mints it, and it is shown this once.
    Add {
        #[arg(long)]
        realm: Option<String>,
        /// producer, consumer, both, manager or admin.
        #[arg(long, default_value = "both")]
        role: String,
        /// Whose it is: the owner of the queues that it attaches.
        #[arg(long)]
        client_id: Option<String>,
        /// For people.
        #[arg(long)]
        client_name: Option<String>,
        /// One that exists, instead of a minted one.
        #[arg(long, value_name = "SOURCE")]
        token: Option<String>,
        /// What it may, as `allow` in the settings file.
        #[arg(long, value_name = "JSON")]
        allow: Option<String>,
        /// Patterns of the names it may use; may be repeated.
        #[arg(long, value_name = "PATTERN")]
        names: Vec<String>,
    },
    /// Ends tokens, and the sessions that they let in.
    Revoke {
        /// The one with this hash.
        #[arg(long)]
        hash: Option<String>,
        /// All of a client of `--realm`.
        #[arg(long, conflicts_with = "hash", requires = "realm")]
        client_id: Option<String>,
        #[arg(long)]
        realm: Option<String>,
        /// The one that is there.
        #[arg(long, value_name = "SOURCE", conflicts_with_all = ["hash", "client_id"])]
        token: Option<String>,
        /// Administrators' too.
        #[arg(long)]
        allow_admin: bool,
    },
    /// Lists them, without their texts.
    List {
        #[arg(long)]
        realm: Option<String>,
    },
}

/// What can be said of a realm.
#[derive(Debug, Args)]
pub(super) struct Of {
    /// Whether a credential is needed.
    #[arg(long, value_name = "yes|no", hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(super) required: Option<bool>,
    /// Whether producers must be accepted, listed as require_acceptance.
    #[arg(long, value_name = "yes|no", hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(super) acceptance: Option<bool>,
    /// Whether clients may go without a name, listed as allow_anonymous.
    #[arg(long, value_name = "yes|no", hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(super) anonymous: Option<bool>,
    /// Encrypted bodies, listed as e2ee.
    #[arg(long, value_name = "off|opportunistic|required")]
    pub(super) e2ee: Option<String>,
    /// The key that consumers without a token show.
    #[arg(long, value_name = "SOURCE")]
    pub(super) key: Option<String>,
    /// Whether that key must be shown.
    #[arg(long, value_name = "yes|no", hide_possible_values = true, requires = "key", value_parser = BoolishValueParser::new())]
    pub(super) require_key: Option<bool>,
    /// The key that signs what concerns the realm.
    #[arg(long, value_name = "SOURCE")]
    pub(super) manager_key: Option<String>,
    /// The key that signs its JWTs, if another one.
    #[arg(long, value_name = "SOURCE")]
    pub(super) jwt_key: Option<String>,
    /// It ends after this.
    #[arg(long, value_name = "DURATION")]
    pub(super) ttl: Option<String>,
    /// It ends after the time that the settings say.
    #[arg(long)]
    pub(super) ephemeral: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Realms {
    /// Configures a realm; a credential is needed unless `--required no`.
    Add {
        realm: Option<String>,
        #[command(flatten)]
        of: Box<Of>,
    },
    /// Changes settings of a realm, one after the other.
    Set {
        realm: Option<String>,
        #[command(flatten)]
        of: Box<Of>,
        /// It does not end by itself any more.
        #[arg(long, conflicts_with_all = ["ttl", "ephemeral"])]
        permanent: bool,
        /// Configure it if it is not.
        #[arg(long)]
        create: bool,
    },
    /// Gives a realm another name; its sessions have to log in again.
    Rename { from: String, to: String },
    /// Ends a realm and all that is in it.
    Remove { realm: Option<String> },
    /// Lists them.
    List,
}

#[derive(Debug, Subcommand)]
pub(super) enum Requests {
    /// Asks to be let in, as a client does; needs no secret.
    Submit {
        #[arg(long, default_value = "default")]
        realm: String,
        #[arg(long, default_value = "both")]
        role: String,
        /// Minted if it is not given.
        #[arg(long)]
        client_id: Option<String>,
        #[arg(long)]
        client_name: Option<String>,
        /// What to log in with later; minted if it is not given.
        #[arg(long, value_name = "SOURCE")]
        client_token: Option<String>,
        /// Shown to whoever decides.
        #[arg(long, value_name = "JSON")]
        challenge_response: Option<String>,
        /// Wait so long for the decision.
        #[arg(long, value_name = "DURATION")]
        wait: Option<String>,
    },
    /// Shows the oldest that waits.
    Next {
        #[arg(long)]
        realm: Option<String>,
    },
    /// Lists them, the oldest first.
    List {
        #[arg(long)]
        realm: Option<String>,
        /// pending, approved, rejected or superseded.
        #[arg(long)]
        status: Option<String>,
        #[arg(long)]
        limit: Option<u32>,
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Lets a client in.
    Approve {
        id: Option<String>,
        /// In another role than it asked for.
        #[arg(long)]
        role: Option<String>,
    },
    /// Says no.
    Reject {
        id: Option<String>,
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Dlq {
    /// Lists them, the oldest first.
    List {
        #[arg(long)]
        realm: Option<String>,
        #[arg(long)]
        limit: Option<u32>,
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Puts one back into its queue.
    Requeue {
        id: String,
        #[arg(long)]
        realm: Option<String>,
    },
    /// Drops one.
    Discard {
        id: String,
        #[arg(long)]
        realm: Option<String>,
    },
    /// Drops all of a realm.
    Purge { realm: String },
}

#[derive(Debug, Subcommand)]
pub(super) enum Persistence {
    /// Lets another store take over, with everything that waits.
    Set {
        /// memory, sqlite, redis or custom.
        storage: String,
        /// The file of sqlite.
        #[arg(long)]
        filename: Option<String>,
        /// The address of redis; one with a password as env:NAME, file:PATH or prompt.
        #[arg(long)]
        url: Option<String>,
        /// What our keys in redis begin with.
        #[arg(long)]
        prefix: Option<String>,
        /// The module of custom.
        #[arg(long)]
        module: Option<String>,
        /// How long a message may wait that says nothing.
        #[arg(long, value_name = "SECONDS")]
        default_ttl: Option<f64>,
        /// More options of the store.
        #[arg(long, value_name = "JSON")]
        options: Option<String>,
        /// Does it although messages may be lost by it: memory in the place of a durable store, or a
        /// Redis whose messages have moved away.
        #[arg(long)]
        force: bool,
    },
    /// Shows which store is in force.
    Show,
}

#[derive(Debug, Subcommand)]
pub(super) enum Sessions {
    /// Lists them.
    List {
        #[arg(long)]
        realm: Option<String>,
    },
    /// Closes sessions; clients of ours come back unless their credential is gone.
    Disconnect {
        /// The one with this socket id.
        #[arg(long, conflicts_with_all = ["client_id", "realm"])]
        socket: Option<String>,
        /// All of a client.
        #[arg(long, conflicts_with = "realm")]
        client_id: Option<String>,
        /// All of a realm.
        #[arg(long)]
        realm: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Queues {
    /// What waits in each, and how long.
    Stats {
        #[arg(long)]
        realm: Option<String>,
    },
    /// Takes a queue from its owner: whoever attaches next owns it.
    Release { realm: String, queue: String },
}

#[derive(Debug, Subcommand)]
pub(super) enum Settings {
    /// Shows them, without secrets.
    Show,
    /// Reads the settings file now.
    Reload,
}

#[derive(Debug, Subcommand)]
pub(super) enum Switch {
    /// Everybody has to log in.
    On,
    /// Nobody has to.
    Off,
}

#[derive(Debug, Subcommand)]
pub(super) enum External {
    /// Asks there after tokens that nobody here knows.
    Set {
        #[arg(long)]
        url: String,
        /// What is shown there; the one that is set stays if it is not given.
        #[arg(long, value_name = "SOURCE")]
        secret: Option<String>,
        /// For one realm.
        #[arg(long, conflicts_with = "prefix")]
        realm: Option<String>,
        /// For realms whose names begin so.
        #[arg(long)]
        prefix: Option<String>,
    },
    /// Asks nobody any more.
    Clear {
        #[arg(long, conflicts_with = "prefix")]
        realm: Option<String>,
        #[arg(long)]
        prefix: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ManagementTokens {
    /// Adds one; minted unless it is given, and then shown this once.
    Add {
        /// What the names of its realms begin with.
        prefix: String,
        #[arg(long, value_name = "SOURCE", default_value = "generate")]
        token: String,
        /// It makes realms that end by themselves.
        #[arg(long)]
        ephemeral_only: bool,
        /// And that live at most so long.
        #[arg(long, value_name = "DURATION")]
        max_ttl: Option<String>,
    },
    /// Ends one.
    Revoke { hash: String },
    /// Lists them, without their texts.
    List,
}
