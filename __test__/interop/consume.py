"""Subscribes with stock python-socketio and reports the first message: its hash and its length.

Arguments: port, consumer, producer, event. Joins CONSUME_CHUNK as the Python client does.
"""

import hashlib
import json
import sys

import socketio

port, consumer, producer, event = sys.argv[1:5]
client = socketio.Client(reconnection=False)
transfers = {}


def report(delivery):
    text = delivery["message"]
    print(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "characters": len(text)}), flush=True)


@client.on("CONSUME_CHUNK")
def on_chunk(chunk):
    parts = transfers.setdefault(chunk["transferId"], {})
    parts[chunk["index"]] = chunk["data"]
    if len(parts) == chunk["total"]:
        report(json.loads("".join(parts[index] for index in range(chunk["total"]))))


client.on(f"CONSUME-{producer}-{event}".lower(), report)
client.connect(f"http://127.0.0.1:{port}", transports=["websocket"])
client.emit("CONSUMER", {"name": consumer, "id": consumer, "consumer_id": consumer})
client.call("SUBSCRIBE", {"event": event, "producer": producer, "consumer": consumer, "scope": "default"})
print("subscribed", flush=True)
client.wait()
