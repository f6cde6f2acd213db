"""LitServe with its dynamic batching, a batch padded together."""

import os
import sys

import litserve
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class TextApi(litserve.LitAPI):
    def setup(self, _):
        self.tokenizer = AutoTokenizer.from_pretrained(os.environ["PEER_MODEL"])
        self.model = AutoModelForSequenceClassification.from_pretrained(os.environ["PEER_MODEL"]).eval()

    def decode_request(self, request):
        return request["text"]

    def predict(self, texts):
        inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            best = self.model(**inputs).logits.softmax(dim=-1).max(dim=-1)
        names = self.model.config.id2label
        return [
            {"label": names[index], "score": score}
            for index, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    api = TextApi(max_batch_size=16, batch_timeout=0.01)
    server = litserve.LitServer(api, accelerator="cpu", healthcheck_path="/ping")
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
