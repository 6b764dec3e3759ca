from __future__ import annotations

from openai_api.fronts import Front


def test_probe(front: Front) -> None:
    r = front.chat()
    print(r)
    r = front.chat(stream=True, stream_options={"include_usage": True})
    for c in r:
        print(c)
    print(front.complete(logprobs=2))
    print(front.chat(logprobs=True, top_logprobs=2, max_tokens=2))
    tools = [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
    print(front.chat(tools=tools, max_tokens=50))
    for c in front.chat(tools=tools, max_tokens=50, stream=True):
        print(c)
    print(
        front.client.models.list(),
        front.http.get("/nope").text,
        front.http.get("/v1/completions").text,
        front.http.get("/v1/completions").headers,
    )
    print(front.http.get("/health").text)
