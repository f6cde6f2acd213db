"""The trivial way to serve ONNX: an ASGI application, two threads, one text each, no batching."""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from tokenizers import Tokenizer

options = SessionOptions()
options.intra_op_num_threads = 1
session = InferenceSession(f"{os.environ['PEER_MODEL']}/model.int8.onnx", options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(f"{os.environ['PEER_MODEL']}/tokenizer.json")
tokenizer.no_padding()
tokenizer.enable_truncation(256)
threads = ThreadPoolExecutor(2)


def classify(body):
    read = tokenizer.encode(json.loads(body)["text"])
    inputs = {"input_ids": read.ids, "attention_mask": read.attention_mask, "token_type_ids": read.type_ids}
    logits = session.run(None, {name: np.array([ids], np.int64) for name, ids in inputs.items()})[0][0]
    scores = np.exp(logits - logits.max())
    scores /= scores.sum()
    return json.dumps({"label": int(scores.argmax()), "score": float(scores.max())}).encode()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = (
        b"{}" if scope["path"] == "/ping" else await asyncio.get_running_loop().run_in_executor(threads, classify, body)
    )
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": answer})
