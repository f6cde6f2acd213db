"""The transformers pipeline behind FastAPI, as the tutorials write it."""

import os

from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

classify = pipeline("text-classification", model=os.environ["PEER_MODEL"], device="cpu")
app = FastAPI()


class Asked(BaseModel):
    text: str


@app.get("/ping")
def ping() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/predict")
def predict(asked: Asked) -> dict[str, object]:
    return classify(asked.text)[0]
