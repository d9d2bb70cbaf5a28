"""Checks against a live server with stock python-socketio.

Arguments: port, transport (websocket or polling), check, a stem for names. Prints "ok", or fails
with a traceback.
"""

import json
import queue
import sys
import threading
import uuid

import socketio

PORT, TRANSPORT, CHECK, STEM = sys.argv[1:5]
PATIENCE = 30
UNITS = 262144


class Client:
    """One connection; deliveries are queued by event name, chunks joined."""

    def __init__(self):
        # Its websocket library checks UTF-8 byte by byte in Python: seconds for 5 MiB, and no ping answered.
        options = {"skip_utf8_validation": CHECK == "large"}
        self.socket = socketio.Client(reconnection=False, websocket_extra_options=options)
        self.arrived = {}
        self.transfers = {}
        self.socket.on("*", self.receive)
        self.socket.connect(f"http://127.0.0.1:{PORT}", transports=[TRANSPORT], wait_timeout=PATIENCE)

    def receive(self, name, payload=None):
        if name == "CONSUME_CHUNK":
            assert len(payload["data"].encode("utf-16-le")) // 2 <= UNITS
            parts = self.transfers.setdefault(payload["transferId"], {})
            parts[payload["index"]] = payload["data"]
            if len(parts) < payload["total"]:
                return
            name = payload["event"]
            payload = json.loads("".join(parts[index] for index in range(payload["total"])))
        self.arrived.setdefault(name, queue.Queue()).put(payload)

    def next(self, name):
        return self.arrived.setdefault(name, queue.Queue()).get(timeout=PATIENCE)

    def call(self, name, payload):
        return self.socket.call(name, payload, timeout=PATIENCE)

    def close(self):
        if TRANSPORT == "polling":
            # The library may drop what it has not posted yet when it disconnects: let the server end it.
            gone = threading.Event()
            self.socket.on("disconnect", gone.set)
            self.socket.emit("QUIT", self.socket.get_sid())
            assert gone.wait(PATIENCE)
        self.socket.disconnect()


class Consumer(Client):
    def __init__(self, name):
        super().__init__()
        self.name = name
        self.socket.emit("CONSUMER", {"name": name, "id": name, "consumer_id": name})

    def subscribe(self, **fields):
        wish = {"consumer": self.name, "consumer_id": self.name, "scope": "default", "retry": None, "mode": None, "group": None}
        answer = self.call("SUBSCRIBE", {**wish, **fields})
        assert answer["ok"], answer
        return answer


class Producer(Client):
    def __init__(self, name):
        super().__init__()
        self.name = name
        self.id = str(uuid.uuid4())
        self.socket.emit("PRODUCER", {"name": name, "id": self.id})

    def produce(self, event, message, **more):
        answer = self.call("PRODUCE", {"event": event, "message": message, "from": self.name, "method": "unicast", **more})
        assert answer["ok"], answer
        return answer

    def produce_chunked(self, event, message):
        text = json.dumps({"event": event, "message": message, "from": self.name, "method": "unicast"})
        pieces = [text[at : at + UNITS] for at in range(0, len(text), UNITS)]
        transfer = uuid.uuid4().hex
        for index, data in enumerate(pieces):
            self.socket.emit("PRODUCE_CHUNK", {"transferId": transfer, "index": index, "total": len(pieces), "data": data})


def pair():
    return Producer(f"{STEM}p"), Consumer(f"{STEM}c")


def subscriptions():
    p, c = pair()
    event = f"dev/{STEM}"
    names = [
        c.subscribe(event=event, producer=p.name)["consume_event"],
        c.subscribe(event=event, producer="TYO-MQ-ALL")["consume_event"],
        c.subscribe(event="dev/+", producer=p.name, mode="topic")["consume_event"],
        c.subscribe(event="TM-ALL", producer=p.name, scope="all")["consume_event"],
        c.subscribe(event=event, producer=p.name, group=f"{STEM}g")["consume_event"],
    ]
    assert names[3] == f"CONSUME-{p.name}-TM-ALL", names
    p.produce(event, {"n": 1})
    for name in dict.fromkeys(names):
        assert c.next(name) == {"event": event, "message": {"n": 1}, "from": p.name}, name


def acknowledge():
    p, c = pair()
    name = c.subscribe(event="e", producer=p.name, durable=True, ack=True)["consume_event"]
    p.produce("e", [1, "zwei"])
    delivery = c.next(name)
    assert delivery["message"] == [1, "zwei"] and delivery["delivery_attempt"] == 1, delivery
    c.socket.emit("ACK", {"msgId": delivery["msgId"]})
    assert c.next("ACK_OK") == {"ok": True, "msgId": delivery["msgId"]}


def large():
    p, c = pair()
    name = c.subscribe(event="e", producer=p.name)["consume_event"]
    text = "ü5€😀" * (5 * 1024 * 1024 // 10)
    p.produce_chunked("e", text)
    assert c.next(name)["message"] == text
    assert p.produce("e", text)["delivered"] == 1
    assert c.next(name)["message"] == text


def binary():
    p, c = pair()
    name = c.subscribe(event="e", producer=p.name)["consume_event"]
    data = bytes(range(256)) * 100
    p.produce("e", {"file": data, "list": [b"\x00\xff"]})
    assert c.next(name)["message"] == {"file": data, "list": [b"\x00\xff"]}


def backlog():
    p, c = pair()
    wish = {"event": "e", "producer": p.name, "durable": True, "ack": True}
    name = c.subscribe(**wish)["consume_event"]
    c.close()
    for n in range(3):
        assert p.produce("e", n)["queued"] == 1
    back = Consumer(c.name)
    assert back.subscribe(**wish)["queued"] == 3
    for n in range(3):
        delivery = back.next(name)
        assert delivery["message"] == n, delivery
        assert back.call("ACK", {"msgId": delivery["msgId"]})["ok"]
    back.close()


def awareness():
    p, c = pair()
    c.subscribe(event="e", producer=p.name)
    # Whoever listens to any producer is reported too.
    told = p.next(f"SUBSCRIBE-TO-{p.id}")
    while told["name"] != c.name:
        told = p.next(f"SUBSCRIBE-TO-{p.id}")
    assert told["id"] == c.name and told["events"] == [f"{p.name}-e"] and told["online"] is True, told
    c.close()
    assert p.next(f"DISCONNECT-{p.id}")["consumer"] == c.name


checks = [subscriptions, acknowledge, large, binary, backlog, awareness]
{check.__name__: check for check in checks}[CHECK]()
print("ok")
sys.stdout.flush()
# The library's threads would keep the process for a while.
import os  # noqa: E402

os._exit(0)
