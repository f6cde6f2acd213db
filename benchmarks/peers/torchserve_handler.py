"""TorchServe's handler as the tutorials write it: a batch of requests padded together, a label and its score back."""

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from ts.torch_handler.base_handler import BaseHandler


class TextHandler(BaseHandler):
    """preprocess, inference, postprocess."""

    def initialize(self, context):
        directory = context.system_properties["model_dir"] + "/model"
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
        self.initialized = True

    def preprocess(self, requests):
        bodies = [request.get("data") or request.get("body") for request in requests]
        texts = [body["text"] for body in bodies]
        return self.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")

    def inference(self, inputs):
        with torch.inference_mode():
            return self.model(**inputs).logits.softmax(dim=-1)

    def postprocess(self, scores):
        best = scores.max(dim=-1)
        names = self.model.config.id2label
        return [
            {"label": names[index], "score": score}
            for index, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
