"""Every management command, signed with the standard library alone and sent by python-socketio.

Usage: management.py PORT ADMIN_TOKEN. Prints "ok" when the broker answered each as it should.
"""
import base64
import hashlib
import hmac
import json
import os
import secrets
import sys
import time

import socketio

PORT, ADMIN = int(sys.argv[1]), sys.argv[2]
STEM = secrets.token_hex(4)
REALM = f"py:{STEM}"


def sign(secret, action, body):
    """What goes beside a body whose numbers are integers and whose keys are plain."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    timestamp, nonce = int(time.time() * 1000), secrets.token_urlsafe(24)
    base = f"{action}\n{timestamp}\n{nonce}\n{canonical}"
    signature = hmac.new(secret.encode(), base.encode(), hashlib.sha256).hexdigest()
    return {"timestamp": timestamp, "nonce": nonce, "signature": signature}


class Manager:
    def __init__(self):
        self.socket = socketio.Client(reconnection=False)
        self.socket.connect(f"http://127.0.0.1:{PORT}", transports=["websocket"])

    def send(self, action, body, secret=ADMIN, proof=None):
        payload = {"body": body, "proof": proof or sign(secret, action, body)}
        return self.socket.call(action, payload, timeout=20)

    def order(self, command, secret=ADMIN, **body):
        return self.send("AUTH_MANAGEMENT_COMMAND", {"command": command, **body}, secret)

    def done(self, command, **body):
        answer = self.order(command, **body)
        assert answer["ok"] is True, (command, answer)
        return answer

    def refused(self, code, command, **body):
        answer = self.order(command, **body)
        assert answer["ok"] is False and answer["error"] == code, (command, answer)


def realms(m):
    m.done("add_realm", realm=REALM, key="the café key <&>", manager_key=f"manager-{STEM}", ttl="2h")
    m.refused("realm_exists", "add_realm", realm=REALM)
    shown = m.done("get")["settings"]
    assert shown["realms"][REALM]["key_configured"] is True, shown
    assert "café" not in json.dumps(shown, ensure_ascii=False) and ADMIN not in json.dumps(shown)
    m.done("set_realm_auth", realm=REALM, required=True)
    m.done("set_realm_acceptance", realm=REALM, required=True)
    m.done("set_realm_anonymous", realm=REALM, allow_anonymous=False)
    m.done("set_realm_e2ee", realm=REALM, e2ee="opportunistic")
    m.done("set_realm_key", realm=REALM, key="another key", require_key=True)
    m.done("set_realm_manager_key", realm=REALM, manager_key=f"manager-{STEM}")
    m.done("set_realm_jwt_key", realm=REALM, jwt_key=f"jwt-{STEM}")
    m.done("set_realm_lifetime", realm=REALM, ephemeral=False)
    m.refused("realm_unknown", "set_realm_auth", realm=f"{REALM}:none", required=True)
    m.done("set_external_auth", auth_url="https://127.0.0.1:9/x", realm_prefix=f"{REALM}:")
    m.done("set_external_auth", auth_url="", realm_prefix=f"{REALM}:")


def manager_key(m):
    key = f"manager-{STEM}"
    answer = m.order("set_realm_lifetime", key, realm=REALM, ephemeral=False)
    assert answer["ok"] and list(answer["settings"]["realms"]) == [REALM], answer
    for command, body in [("get", {}), ("remove_realm", {"realm": REALM}), ("set_realm_key", {"realm": "default", "key": "k"})]:
        answer = m.order(command, key, **body)
        assert answer["ok"] is False and answer["code"] == 401, (command, answer)
    assert m.send("AUTHORIZATION_NEXT", {}, key)["code"] == 401
    assert m.send("AUTHORIZATION_NEXT", {"realm": REALM}, key)["request"] is None


def tokens(m):
    added = m.done("add_token", realm=REALM, role="producer", client_id=f"c-{STEM}")
    token = added["token"]
    assert hashlib.sha256(token.encode()).hexdigest() == added["token_hash"], added
    assert token not in json.dumps(m.done("get"))
    assert login({"realm": REALM, "role": "consumer", "key": "another key"}) == ("AUTH_OK", {"realm": REALM, "role": "consumer"})
    assert login({"realm": REALM, "role": "consumer", "key": "the café key <&>"})[1]["code"] == 401
    claims = {"realm": REALM, "role": "both", "exp": int(time.time()) + 600}
    assert login({"token": jwt(f"jwt-{STEM}", claims)}) == ("AUTH_OK", {"realm": REALM, "role": "both"})
    assert login({"token": jwt("another", claims)})[1]["code"] == 401
    assert login({"token": token}) == ("AUTH_OK", {"realm": REALM, "role": "producer"})
    revoked = m.done("revoke_token", realm=REALM, client_id=f"c-{STEM}")["revoked"]
    assert [one["token_hash"] for one in revoked] == [added["token_hash"]], revoked
    assert login({"token": token})[0] == "AUTH_FAIL"
    m.refused("token_unknown", "revoke_token", token_hash="0" * 64)
    management = secrets.token_hex(32)
    m.done("add_management_token", token=management, realm_prefix=f"{REALM}:", ephemeral_only=True, max_ttl="1h")
    m.done("revoke_management_token", token_hash=hashlib.sha256(management.encode()).hexdigest())


def jwt(key, claims):
    encode = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    text = ".".join(encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return f"{text}.{encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest())}"


def login(credential):
    client = socketio.Client(reconnection=False)
    told = []
    for name in ("AUTH_OK", "AUTH_FAIL"):
        client.on(name, lambda payload, name=name: told.append((name, payload)))
    client.connect(f"http://127.0.0.1:{PORT}", transports=["websocket"])
    client.emit("AUTHENTICATION", credential)
    end = time.time() + 20
    while not told and time.time() < end:
        time.sleep(0.01)
    client.disconnect()
    return told[0]


def requests(m):
    token = secrets.token_hex(32)
    asking = socketio.Client(reconnection=False)
    told = []
    asking.on("AUTHORIZATION_APPROVED", told.append)
    asking.connect(f"http://127.0.0.1:{PORT}", transports=["websocket"])
    wish = {"realm": REALM, "role": "consumer", "client_id": f"r-{STEM}", "client_name": "Rita", "client_token": token}
    pending = asking.call("AUTHORIZATION_REQUEST", wish, timeout=20)
    assert pending["ok"] and pending["status"] == "pending", pending
    shown = m.send("AUTHORIZATION_NEXT", {"realm": REALM})["request"]
    assert shown["request_id"] == pending["request_id"] and token not in json.dumps(shown), shown
    assert shown["client_token_hash"] == hashlib.sha256(token.encode()).hexdigest(), shown
    listed = m.done("authorization_list", realm=REALM, status="pending")["requests"]
    assert [one["request_id"] for one in listed] == [pending["request_id"]], listed
    decided = m.send("AUTHORIZATION_DECIDE", {"request_id": pending["request_id"], "approved": True})
    assert decided["ok"] and decided["request"]["status"] == "approved", decided
    end = time.time() + 20
    while not told and time.time() < end:
        time.sleep(0.01)
    assert told[0] == {"request_id": pending["request_id"], "realm": REALM, "role": "consumer"}, told
    again = m.send("AUTHORIZATION_DECIDE", {"request_id": pending["request_id"], "approved": False})
    assert again["code"] == 404, again
    assert login({"token": token}) == ("AUTH_OK", {"realm": REALM, "role": "consumer"})
    asking.disconnect()


def rest(m):
    assert "realms" in m.done("stats")["stats"]
    assert m.done("dlq_list", realm=REALM)["entries"] == []
    assert m.done("dlq_list")["entries"] == []
    m.refused("dead_letter_unknown", "dlq_replay", msg_id="nonsense")
    m.refused("dead_letter_unknown", "dlq_discard", msg_id="nonsense", realm=REALM)
    m.done("dlq_purge", realm=REALM)
    assert isinstance(m.done("queue_stats")["queues"], list)
    assert isinstance(m.done("list_sessions")["sessions"], list)
    m.refused("session_unknown", "disconnect", socket_id="none")
    answer = m.order("queue_release", realm=REALM, queue="999999")
    assert answer["ok"] is False, answer
    answer = m.order("reload_settings")
    assert answer["ok"] is False, answer
    for command in ("drop_everything", "", 7, None):
        answer = m.send("AUTH_MANAGEMENT_COMMAND", {"command": command})
        assert answer["ok"] is False, (command, answer)
    answer = m.order("set_persistence", storage="redis", url="redis://127.0.0.1:1", storage_options={"probe_timeout": 500})
    assert answer["ok"] is False, answer
    m.done("set_global_auth", enabled=True)


def proofs(m):
    body = {"command": "get"}
    good = sign(ADMIN, "AUTH_MANAGEMENT_COMMAND", body)
    assert m.send("AUTH_MANAGEMENT_COMMAND", body, proof=good)["ok"]
    assert m.send("AUTH_MANAGEMENT_COMMAND", body, proof=good)["code"] == 401
    fresh = lambda: sign(ADMIN, "AUTH_MANAGEMENT_COMMAND", body)
    for change in ({"nonce": [good["nonce"]]}, {"nonce": 7}, {"nonce": ""}, {"signature": "0" * 64}, {"timestamp": 1}, {"timestamp": None}):
        assert m.send("AUTH_MANAGEMENT_COMMAND", body, proof={**fresh(), **change})["code"] == 401, change
    assert m.send("AUTH_MANAGEMENT_COMMAND", {"command": "stats"}, proof=fresh())["code"] == 401
    assert m.order("get", "not the token")["code"] == 401


def endings(m):
    m.done("rename_realm", **{"from": REALM, "to": f"{REALM}:new"})
    m.refused("realm_unknown", "rename_realm", **{"from": REALM, "to": f"{REALM}:newer"})
    removed = m.done("remove_realm", realm=f"{REALM}:new")
    assert "removed_tokens" in removed, removed
    assert f"{REALM}:new" not in removed["settings"]["realms"], removed
    for realm in ("default", "*"):
        assert m.order("remove_realm", realm=realm)["ok"] is False


manager = Manager()
for check in (realms, manager_key, tokens, requests, rest, proofs, endings):
    check(manager)
print("ok")
sys.stdout.flush()
# The library's threads would keep the process for a while.
os._exit(0)
